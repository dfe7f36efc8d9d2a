//! The first requests of a connection, by which the node that calls proves who it is.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_gateway::ClientCertificate;

use crate::call::PeerIdentity;
use crate::message::{Hello, Proof, Welcome};
use crate::node::NodeSettings;
use crate::secret::{NONCE_BYTES, Side, nonce};
use crate::security::Security;

/// State of the handshake of a connection. Every step leads forward, so each message is taken once.
#[derive(Debug, Default)]
pub(super) enum Handshake {
    /// Nothing has come.
    #[default]
    Begun,
    /// The node has said who it is, and has yet to prove it.
    Claimed(Box<(Hello, Welcome)>),
    /// It has proven it.
    Known(Arc<PeerIdentity>),
    /// It is refused.
    Refused,
}

impl Handshake {
    /// Takes the first message.
    ///
    /// Errors: why the node is refused, as a sentence for both sides.
    pub fn hello(
        &mut self,
        hello: Hello,
        settings: &NodeSettings,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Welcome, String> {
        let Self::Begun = std::mem::replace(self, Self::Refused) else {
            return Err("a connection begins with one hello, and this is another one".to_owned());
        };
        let protocol = settings.agree(&hello)?;
        let own = &settings.identity;
        let mut welcome = Welcome {
            cluster_id: own.cluster_id.clone(),
            node: own.node.clone(),
            incarnation: own.incarnation,
            protocol,
            nonce: Bytes::new(),
            proof: Bytes::new(),
        };
        match &settings.security {
            Security::Certificates(_) => {
                let certificate = certificate.ok_or("the node has no certificate")?;
                if !certificate.is_for(&hello.node) {
                    return Err(format!(
                        "node `{}` calls itself so, and its certificate is for {}: give it a certificate with `DNS:{0}` among its alternative \
                         names",
                        hello.node.escape_default(),
                        quoted(&certificate.names())
                    ));
                }
                *self = Self::Known(identity(&hello, protocol));
            }
            Security::Secret(secret) => {
                if hello.nonce.len() != NONCE_BYTES {
                    return Err(format!(
                        "node `{}` proves itself by no secret, and node `{}` expects one: give both nodes the same secret, or both \
                         certificates",
                        hello.node.escape_default(),
                        own.node
                    ));
                }
                welcome.nonce = nonce().to_vec().into();
                welcome.proof = secret.proof(Side::Callee, &hello, &welcome).into();
                *self = Self::Claimed(Box::new((hello, welcome.clone())));
            }
        }
        Ok(welcome)
    }

    /// Takes the proof of the secret.
    ///
    /// Errors: why the node is refused, as a sentence for both sides.
    pub fn proof(&mut self, proof: &Proof, settings: &NodeSettings) -> Result<(), String> {
        let (Self::Claimed(claim), Security::Secret(secret)) =
            (std::mem::replace(self, Self::Refused), &settings.security)
        else {
            return Err("a proof follows a hello, and only where nodes share a secret".to_owned());
        };
        let (hello, welcome) = *claim;
        if !secret.is_proven(&proof.proof, Side::Caller, &hello, &welcome) {
            return Err(format!(
                "node `{}` and node `{}` do not have the same secret: give all nodes of the cluster the same one, and start those that \
                 have another one again",
                hello.node.escape_default(),
                settings.identity.node
            ));
        }
        *self = Self::Known(identity(&hello, welcome.protocol));
        Ok(())
    }

    /// Returns the node, if it has proven who it is.
    pub fn peer(&self) -> Option<Arc<PeerIdentity>> {
        match self {
            Self::Known(peer) => Some(peer.clone()),
            Self::Begun | Self::Claimed(_) | Self::Refused => None,
        }
    }
}

fn identity(hello: &Hello, protocol: u32) -> Arc<PeerIdentity> {
    Arc::new(PeerIdentity { node: hello.node.clone(), incarnation: hello.incarnation, protocol })
}

/// Returns names for a message.
fn quoted(names: &[String]) -> String {
    match names {
        [] => "no DNS name".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}
