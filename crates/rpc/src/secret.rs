//! A secret that the nodes of one machine share, and the proof that a node knows it.
//!
//! The secret itself is never sent: a program that has taken the port of a node that is down would otherwise get it. Each side sends random
//! bytes, and proves by HMAC-SHA-256 over both that it knows the secret; the side is part of it, so that a proof cannot be sent back as
//! one's own. The node that is called proves it first.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tidemill_types::{Error, Result};
use zeroize::Zeroizing;

use crate::message::{Hello, Welcome};

/// Minimum bytes of a secret.
const SECRET_BYTES_MIN: usize = 16;
/// Random bytes of each side.
pub(crate) const NONCE_BYTES: usize = 32;

/// A secret that all nodes of a cluster know.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Node that calls.
    Caller,
    /// Node that is called.
    Callee,
}

impl Secret {
    /// Creates a secret.
    ///
    /// Errors: `Invalid` for one of fewer than 16 bytes, which could be guessed.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let bytes = Zeroizing::new(bytes.into());
        match bytes.len() < SECRET_BYTES_MIN {
            true => Err(Error::invalid(format!(
                "the secret of the cluster has {} bytes: expected at least {SECRET_BYTES_MIN}, such as those of `openssl rand -hex 32`",
                bytes.len()
            ))),
            false => Ok(Self(bytes)),
        }
    }

    /// Returns the proof of one side for the handshake with these messages.
    pub(crate) fn proof(&self, side: Side, hello: &Hello, welcome: &Welcome) -> Vec<u8> {
        self.mac(side, hello, welcome).finalize().into_bytes().to_vec()
    }

    /// Returns whether a proof is right. The time does not depend on the first byte that differs.
    pub(crate) fn is_proven(&self, proof: &[u8], side: Side, hello: &Hello, welcome: &Welcome) -> bool {
        self.mac(side, hello, welcome).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, hello: &Hello, welcome: &Welcome) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        let label: &[u8] = match side {
            Side::Caller => b"tidemill rpc caller",
            Side::Callee => b"tidemill rpc callee",
        };
        let numbers = [
            hello.incarnation.to_be_bytes(),
            welcome.incarnation.to_be_bytes(),
            u64::from(hello.protocol_min).to_be_bytes(),
            u64::from(hello.protocol_max).to_be_bytes(),
            u64::from(welcome.protocol).to_be_bytes(),
        ];
        let texts: [&[u8]; 7] = [
            label,
            hello.cluster_id.as_bytes(),
            hello.node.as_bytes(),
            hello.callee.as_bytes(),
            welcome.node.as_bytes(),
            &hello.nonce,
            &welcome.nonce,
        ];
        for text in texts {
            // the length makes each sequence of texts one of its own
            mac.update(&(text.len() as u64).to_be_bytes());
            mac.update(text);
        }
        for number in numbers {
            mac.update(&number);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns random bytes for a handshake.
pub(crate) fn nonce() -> [u8; NONCE_BYTES] {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake() -> (Hello, Welcome) {
        let hello = Hello {
            cluster_id: "c".into(),
            node: "a".into(),
            incarnation: 7,
            protocol_min: 1,
            protocol_max: 2,
            callee: "b".into(),
            nonce: vec![1; NONCE_BYTES].into(),
        };
        let welcome = Welcome {
            cluster_id: "c".into(),
            node: "b".into(),
            incarnation: 9,
            protocol: 2,
            nonce: vec![2; NONCE_BYTES].into(),
            proof: vec![].into(),
        };
        (hello, welcome)
    }

    #[test]
    fn a_proof_is_for_one_secret_one_side_and_one_handshake() {
        let (hello, welcome) = handshake();
        let secret = Secret::new(*b"0123456789abcdef").unwrap();
        let proof = secret.proof(Side::Callee, &hello, &welcome);
        assert!(secret.is_proven(&proof, Side::Callee, &hello, &welcome));
        assert!(!secret.is_proven(&proof, Side::Caller, &hello, &welcome), "it cannot be sent back");
        let other = Secret::new(*b"0123456789abcdeF").unwrap();
        assert!(!other.is_proven(&proof, Side::Callee, &hello, &welcome));
        for bad in [&proof[..31], &[], &[0; 32]] {
            assert!(!secret.is_proven(bad, Side::Callee, &hello, &welcome));
        }
        let changes: [fn(&mut Hello, &mut Welcome); 8] = [
            |hello, _| hello.node = "x".into(),
            |hello, _| hello.callee = "x".into(),
            |hello, _| hello.incarnation = 8,
            |hello, _| hello.protocol_max = 3,
            |hello, _| hello.nonce = vec![3; NONCE_BYTES].into(),
            |_, welcome| welcome.nonce = vec![3; NONCE_BYTES].into(),
            |_, welcome| welcome.incarnation = 8,
            |_, welcome| welcome.protocol = 1,
        ];
        for change in changes {
            let (mut hello, mut welcome) = handshake();
            change(&mut hello, &mut welcome);
            assert!(!secret.is_proven(&proof, Side::Callee, &hello, &welcome));
        }
    }

    #[test]
    fn a_secret_is_long_and_never_shown() {
        let short = Secret::new(*b"short").unwrap_err().to_string();
        assert!(short.contains("has 5 bytes") && short.contains("openssl rand -hex 32"), "{short}");
        let secret = Secret::new(*b"0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
