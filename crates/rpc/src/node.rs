//! Identity of a node, and what two nodes must have in common.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use rustls::pki_types::ServerName;
use tidemill_types::{Error, Result};

use crate::limits::CallLimits;
use crate::message::Hello;
use crate::security::Security;

/// Maximum bytes of a name, as of a DNS name.
const NAME_BYTES_MAX: usize = 253;

/// A node, as others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Id of the cluster; nodes of other clusters are refused.
    pub cluster_id: String,
    /// Name, unique in the cluster. With [`Security::Certificates`] the certificate of the node is for this name.
    pub node: String,
    /// Number of the present run, larger than those before.
    pub incarnation: u64,
}

/// Settings of a node that calls others and is called by them.
#[derive(Debug)]
pub struct NodeSettings {
    /// This node.
    pub identity: NodeIdentity,
    /// Protocols of calls that this node has. Two nodes use the latest one that both have.
    pub protocols: RangeInclusive<u32>,
    /// Proof by which nodes know each other.
    pub security: Security,
    /// Limits of each connection.
    pub limits: CallLimits,
}

impl NodeSettings {
    /// Checks the settings.
    ///
    /// Errors: `Invalid` for those that cannot work; the files of a certificate are not read.
    pub(crate) fn check(&self) -> Result<()> {
        let NodeIdentity { cluster_id, node, .. } = &self.identity;
        if cluster_id.is_empty() || cluster_id.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "cluster id `{cluster_id}`: expected 1 to {NAME_BYTES_MAX} bytes"
            )));
        }
        self.check_name(node)?;
        if self.protocols.is_empty() {
            return Err(Error::invalid(format!(
                "protocols {} to {}: expected at least one",
                self.protocols.start(),
                self.protocols.end()
            )));
        }
        self.limits.check()
    }

    /// Checks the name of a node.
    ///
    /// Errors: `Invalid` for one that no node can have.
    pub(crate) fn check_name(&self, node: &str) -> Result<()> {
        if node.is_empty() || node.len() > NAME_BYTES_MAX || node.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "node name `{}`: expected 1 to {NAME_BYTES_MAX} bytes without control characters",
                node.escape_default()
            )));
        }
        let is_dns_name = matches!(ServerName::try_from(node), Ok(ServerName::DnsName(_)));
        match self.security {
            Security::Certificates(_) if !is_dns_name => Err(Error::invalid(format!(
                "node name `{node}`: its certificate proves the name, so it has to be a DNS name: letters, digits, `-` and `.`, such as \
                 `node-1`"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the protocol of a connection with the node that says `hello`.
    ///
    /// Errors: what differs and what to do, as a sentence for both sides.
    pub(crate) fn agree(&self, hello: &Hello) -> Result<u32, String> {
        let own = &self.identity;
        // the texts are those of another node, which has not proven anything yet
        let caller = hello.node.escape_default().to_string();
        let their_cluster = hello.cluster_id.escape_default();
        if hello.cluster_id != own.cluster_id {
            return Err(format!(
                "node `{}` is of cluster `{cluster}`, node `{caller}` of cluster `{their_cluster}`: correct the addresses of the nodes, or \
                 start node `{caller}` with the cluster id `{cluster}`",
                own.node,
                cluster = own.cluster_id
            ));
        }
        let (from, to) = (self.protocols.start(), self.protocols.end());
        let protocol = hello.protocol_max.min(*to);
        if protocol < *from || protocol < hello.protocol_min {
            return Err(format!(
                "node `{}` has protocols {from} to {to}, node `{caller}` {} to {}: they have none in common; upgrade the older node to a \
                 version between them first",
                own.node, hello.protocol_min, hello.protocol_max
            ));
        }
        if hello.callee != own.node {
            return Err(format!(
                "node `{caller}` looks for node `{}`, and found node `{}`: correct the address of `{0}`",
                hello.callee.escape_default(),
                own.node
            ));
        }
        if hello.node == own.node {
            return Err(format!(
                "two nodes have the name `{caller}`, or node `{caller}` calls itself: give each node a name of its own"
            ));
        }
        Ok(protocol)
    }
}

/// Returns whether an address is one of this machine only.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
