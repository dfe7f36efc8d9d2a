//! The control protocol of a cluster of identical nodes: members, owners, standbys, epochs, leases, hybrid time.
//!
//! Membership is a log. All nodes append to one *control partition* and read it, and each computes the same [`State`] from it. A [`Node`] decides what this
//! node does next. Both are pure: they have no clock, no network, no threads and no log. A driver gives them records, times and offsets,
//! and carries out [`Action`]s:
//!
//! ```
//! # use tidemill_cluster::*;
//! # use tidemill_types::{Offset, PartitionId, Result};
//! # fn main() -> Result<()> {
//! let cluster = ClusterFacts { id: "c1".into(), partitions: 4, home_rule: 1, origin: String::new(), app: "5a17".into(), timing: Timing::SMALL };
//! let (name, address, zone) = (NodeName::new("node-1")?, "10.0.0.1:7171".into(), "a".into());
//! let profile = NodeProfile { name, address, calls: String::new(), zone, weight: 100, cluster };
//! let mut node = Node::new(profile, Incarnation(0x9d3e), State::default(), BootTime(0))?;
//! let mut log: Vec<Vec<u8>> = Vec::new(); // the control partition
//! let partition = PartitionId(3);
//! for step in 0..10_u64 {
//!     let now = Now { boot: BootTime(step * 100_000), clock_ms: 1_700_000_000_000 + step * 100 };
//!     for action in node.decide(now, &[(partition, Offset(0))]) {
//!         match action {
//!             Action::Append(record) => log.push(record.encode()?),
//!             // here the partition's log is empty, so the barrier is applied at once
//!             Action::AppendBarrier { partition, epoch } => _ = node.barrier_applied(partition, epoch),
//!         }
//!     }
//!     while let Some(bytes) = log.get(node.state().next().0 as usize) {
//!         node.read(node.state().next(), &Record::decode(bytes)?, now.boot)?;
//!     }
//! }
//! assert_eq!(node.role(partition), Some(Role::Owner));
//! assert_eq!(node.state().owner(partition).map(|owner| owner.address), Some("10.0.0.1:7171"));
//! assert!(node.may_answer(partition, BootTime(1_000_000)));
//! assert!(!node.may_answer(partition, BootTime(9_000_000)), "no heartbeat came back");
//! assert!(node.state().followed_needs().all(|(id, need)| need.is_some() == (id == partition)));
//! # Ok(())
//! # }
//! ```
//!
//! # Safety
//!
//! Two nodes never answer for one partition at once, whatever is paused, delayed, lost or cut off, as long as clocks have the same speed within
//! [`CLOCK_SPEED_PERCENT`]. [`Timing`] has the picture; the argument in three sentences:
//!
//! 1. A node answers until its lease ends, which counts from *sending* the newest heartbeat that it has *read back*.
//! 2. A removal counts only if the log has no later heartbeat of the node before it, and later ones do not count, so the last heartbeat with a lease is
//!    one that every next owner has read before it knows that it is one.
//! 3. The next owner waits for longer than a lease after it has read this heartbeat, and answers once a barrier record, appended after the wait, has come back:
//!    it has applied everything that the former owner answered.
//!
//! `tests/it/model.rs` explores the protocol with a model checker. The feature `sim` has a [simulation](crate::simulation) of whole
//! clusters. `docs/rfcs/0025-membership-is-a-log.md` has the reasons, `docs/formats/control.md` the bytes.

mod encoding;
mod event;
mod hybrid_time;
mod lease;
mod member;
mod node;
mod placement;
mod planted_bugs;
mod record;
#[cfg(feature = "sim")]
pub mod simulation;
mod state;
mod suspicion;
mod take_over;
mod timing;

pub use encoding::{PROTOCOL_MAX, PROTOCOL_MIN, RECORD_BYTES_MAX};
pub use event::{ClusterEvent, MoveReason, OwnerChange, OwnerReason};
pub use hybrid_time::{HybridClock, HybridTime};
pub use member::{FormerMember, Member, Refusal, RefusedJoin};
pub use node::{Action, Node, NodeProfile, Standing};
pub use record::{
    ClusterFacts, Heartbeat, Incarnation, Join, NodeName, PARTITIONS_MAX, Record, Remove, Resigned,
    TEXT_BYTES_MAX, WEIGHT_MAX,
};
pub use state::{Deploy, LAG_RECORDS_MAX, Owner, Role, State};
pub use timing::{BootTime, CLOCK_OFFSET_MS_MAX, CLOCK_SPEED_PERCENT, Now, Timing};
