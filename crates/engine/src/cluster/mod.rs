//! A node of a cluster: it applies all partitions, and owns those that the control partition gives it.
//!
//! ```text
//! control partition   join A, join B, heartbeat A, … remove A …        membership.rs reads and appends
//!                          │ tidemill_cluster::Node decides
//!                          ▼
//! roles of this node  partition 0: owner in epoch 12, 1: standby …      roles.rs makes them so
//!                          │ lifecycle::ownership
//!                          ▼
//! partitions          0 sends what it emits, 1 keeps it
//! ```
//!
//! Every node appends to the log of every partition, and every node applies all of them, so a command is answered by the node that got it once
//! its own replica has applied the record: no node asks another one. A reader sees all that any node has acknowledged, because it waits until
//! its replicas have applied the present end of the log ([`crate::node::Node::catch_up_replicas`]).
//!
//! Two threads work for it. *Membership* reads the control partition, sends heartbeats, and waits for nothing else, as a late heartbeat costs
//! the lease. *Roles* promotes and demotes replicas, which may wait for the object store. `docs/rfcs/0029-first-cluster.md` has the reasons.

mod founding;
mod membership;
mod options;
mod roles;
mod status;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_cluster::{
    BootTime, ClusterFacts, Incarnation, Node as Protocol, NodeProfile, Now, Standing, State,
};
use tidemill_log::Log;
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::directory::origin::ClusterOrigin;
use crate::directory::partitioning::Partitioning;
use crate::node::{ClusterPart, Node};
use crate::process::clock::Clock;
use crate::process::spawn::spawn;

pub use crate::peers::PeerOptions;
pub(crate) use founding::facts;
pub use membership::REFUSED_AREA;
pub(crate) use options::check_app;
pub use options::{ClusterOptions, Replicas};
pub use status::{ClusterStatus, MemberStatus, ReplicaStatus};
pub use tidemill_cluster::{NodeName, Timing};
pub use tidemill_rpc::{CertificateFiles, Secret, Security};

/// This process as a node of a cluster.
pub struct ClusterNode {
    protocol: Mutex<Protocol>,
    /// Log of the control partition.
    control: Arc<dyn Log>,
    name: String,
    /// True if each node applies all partitions.
    applies_all: bool,
    /// Epoch of the last start of the data directory that the cluster was made from, 0 without one.
    former_epoch: u64,
}

/// A node that owns a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerAddress {
    /// Name.
    pub node: String,
    /// Address at which other nodes call it.
    pub calls: String,
    /// Epoch of the partition.
    pub epoch: u64,
}

/// The control partition in its log.
const CONTROL: PartitionId = PartitionId(0);

impl ClusterNode {
    /// Creates a node that is going to ask to become a member.
    ///
    /// Errors: `Invalid` for a name or an address that no cluster would admit; `NotFound` if the control partition was cut.
    ///
    /// `calls` is the address at which other nodes call it, if they do; `applies_all` says that each node applies all partitions.
    pub fn new(
        options: ClusterOptions,
        (calls, applies_all): (Option<String>, bool),
        app: String,
        (partitioning, origin): (Partitioning, Option<&ClusterOrigin>),
        clock: &dyn Clock,
    ) -> Result<Self> {
        if options.control.start(CONTROL) > Offset(0) {
            return Err(Error::not_found(
                "the beginning of the control partition is missing: records before it were deleted",
            ));
        }
        let cluster = ClusterFacts {
            id: options.cluster,
            partitions: partitioning.partitions,
            home_rule: partitioning.home_rule.number(),
            origin: origin.map_or_else(|| Ok(String::new()), ClusterOrigin::fingerprint)?,
            app,
            timing: options.timing,
        };
        let profile = NodeProfile {
            name: options.name,
            address: options.address,
            calls: calls.unwrap_or_default(),
            zone: options.zone,
            weight: options.weight,
            cluster,
        };
        let protocol = Protocol::new(profile, new_incarnation(), State::default(), now(clock).boot)?;
        let name = protocol.profile().name.as_str().to_owned();
        Ok(Self {
            protocol: Mutex::new(protocol),
            control: options.control,
            name,
            applies_all,
            former_epoch: origin.map_or(0, |origin| origin.epoch),
        })
    }

    /// Returns the name of this node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the owner of a partition, which may not answer yet or any more.
    pub fn owner_of(&self, partition: PartitionId) -> Option<OwnerAddress> {
        let protocol = self.protocol.lock();
        protocol.state().owner(partition).map(|owner| OwnerAddress {
            node: owner.node.as_str().to_owned(),
            calls: owner.calls.to_owned(),
            epoch: self.owner_epoch(owner.epoch),
        })
    }

    /// Returns names and addresses of the other members that can be called, by name, without those that are leaving.
    pub fn callable_members(&self) -> Vec<(String, String)> {
        let protocol = self.protocol.lock();
        let members = protocol.state().members().iter();
        let others = members.filter(|(name, member)| {
            name.as_str() != self.name && !member.calls.is_empty() && !member.draining
        });
        others.map(|(name, member)| (name.as_str().to_owned(), member.calls.clone())).collect()
    }

    /// Returns the epoch that tables, checkpoints and sinks know: 0 is that of a partition that does not move, and those up to that of the data
    /// directory that the cluster was made from are over.
    fn owner_epoch(&self, epoch: Offset) -> u64 {
        self.former_epoch + epoch.0 + 1
    }

    /// Returns whether each node applies all partitions.
    pub fn applies_all(&self) -> bool {
        self.applies_all
    }

    /// Returns whether this node applies a partition, or has to load it.
    pub fn applies(&self, partition: PartitionId) -> bool {
        let protocol = self.protocol.lock();
        self.applies_all || protocol.state().role(partition, &protocol.profile().name).is_some()
    }

    /// Checks that the node is a member.
    ///
    /// Errors: `Conflict` with the reason if it was refused, `Unavailable` before it has joined.
    pub fn check_member(&self) -> Result<()> {
        match self.protocol.lock().standing() {
            Standing::Member => Ok(()),
            Standing::Refused(refusal) => {
                Err(Error::conflict(format!("the cluster refuses this node: {refusal}")))
            }
            _ => Err(Error::unavailable("this node is not a member of the cluster yet.")),
        }
    }
}

/// Time that the partitions of a node that leaves have to move to others.
const LEAVE_WAIT: Duration = Duration::from_secs(5);
/// Interval at which a node that leaves looks whether it has left.
const LEAVE_POLL: Duration = Duration::from_millis(10);

impl ClusterPart for ClusterNode {
    fn owned_epoch(&self, partition: PartitionId, clock: &dyn Clock) -> Option<u64> {
        let protocol = self.protocol.lock();
        let may_answer = protocol.may_answer(partition, now(clock).boot);
        protocol.state().owner(partition).filter(|_| may_answer).map(|owner| self.owner_epoch(owner.epoch))
    }

    fn cluster_id(&self) -> String {
        self.protocol.lock().profile().cluster.id.clone()
    }

    fn check_member(&self) -> Result<()> {
        Self::check_member(self)
    }

    fn leave(&self, node: &Node) {
        let clock = &*node.host.clock;
        self.protocol.lock().leave();
        let deadline = clock.monotonic() + LEAVE_WAIT;
        let is_member = || matches!(self.protocol.lock().standing(), Standing::Member);
        while (is_member() || !node.owned.all().is_empty()) && clock.monotonic() < deadline {
            clock.sleep(LEAVE_POLL);
        }
    }
}

/// Starts the threads of a node. They end when the engine stops.
///
/// Errors: `Unavailable` when a thread cannot be started.
pub fn start(node: &Arc<Node>, cluster: &Arc<ClusterNode>) -> Result<Vec<JoinHandle<()>>> {
    let (shared, protocol) = (node.clone(), cluster.clone());
    let membership = spawn("membership".into(), move || membership::run(&shared, &protocol))?;
    let (shared, protocol) = (node.clone(), cluster.clone());
    let roles = spawn("roles".into(), move || roles::run(&shared, &protocol))?;
    Ok(vec![membership, roles])
}

fn now(clock: &dyn Clock) -> Now {
    let clock_ms = u64::try_from(clock.now().0 / 1_000).unwrap_or_default();
    Now { boot: BootTime(clock.boot().as_micros() as u64), clock_ms }
}

/// Draws a number that no other life of a node has.
fn new_incarnation() -> Incarnation {
    Incarnation(uuid::Uuid::new_v4().as_u64_pair().0)
}
