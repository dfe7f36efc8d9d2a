//! Bytes of control records and of snapshots of the state: `docs/formats/control.md`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_types::{Error, Result};

use crate::record::{Heartbeat, Join, NodeName, Record, Remove, Resigned};
use crate::state::State;

/// Smallest protocol that this build speaks.
pub const PROTOCOL_MIN: u16 = 1;
/// Largest protocol that this build speaks.
pub const PROTOCOL_MAX: u16 = 1;

/// Largest size of a control record.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

const RECORD_MAGIC: &[u8; 4] = b"TMCR";
const SNAPSHOT_MAGIC: &[u8; 4] = b"TMCS";

/// Protocol in which records and snapshots got their present form.
const FORMAT_PROTOCOL: u16 = 1;

const JOIN: u8 = 1;
const HEARTBEAT: u8 = 2;
const REMOVE: u8 = 3;
const DRAIN: u8 = 4;
const RESIGNED: u8 = 5;
const MOVE: u8 = 6;
const DEPLOY: u8 = 7;
const FINALIZE: u8 = 8;

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    node: NodeName,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    partition: tidemill_types::PartitionId,
    to: NodeName,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Deploy {
    app: String,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Finalize {
    protocol: u16,
}

impl Record {
    /// Encodes the record.
    ///
    /// Errors: `Invalid` for values that [`Record::check`] refuses and for more than [`RECORD_BYTES_MAX`] bytes, so that no node appends
    /// what others cannot read.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check().map_err(|e| e.context(format!("control record `{}`", self.kind())))?;
        let bytes = match self {
            Self::Join(join) => encoded(JOIN, join),
            Self::Heartbeat(heartbeat) => encoded(HEARTBEAT, heartbeat),
            Self::Remove(remove) => encoded(REMOVE, remove),
            Self::Drain { node } => encoded(DRAIN, &Drain { node: node.clone() }),
            Self::Resigned(resigned) => encoded(RESIGNED, resigned),
            Self::Move { partition, to } => encoded(MOVE, &Move { partition: *partition, to: to.clone() }),
            Self::Deploy { app } => encoded(DEPLOY, &Deploy { app: app.clone() }),
            Self::Finalize { protocol } => encoded(FINALIZE, &Finalize { protocol: *protocol }),
        }?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "control record `{}` of {} bytes: at most {RECORD_BYTES_MAX} are allowed",
                self.kind(),
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Decodes a record.
    ///
    /// Errors: `Invalid` for a record of a later protocol, with the protocol that a build must speak to read it; `Corrupt` for all other bytes that
    /// [`Record::encode`] does not write. The caller adds the offset.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "control record of {} bytes, at most {RECORD_BYTES_MAX} are allowed",
                bytes.len()
            )));
        }
        let rest = rest_after_header(bytes, *RECORD_MAGIC, "control record")?;
        let Some((kind, body)) = rest.split_first() else {
            return Err(Error::corrupt("control record ends before its kind, after 6 bytes"));
        };
        let record = match *kind {
            JOIN => Self::Join(decoded::<Join>("join", body)?),
            HEARTBEAT => Self::Heartbeat(decoded::<Heartbeat>("heartbeat", body)?),
            REMOVE => Self::Remove(decoded::<Remove>("remove", body)?),
            DRAIN => Self::Drain { node: decoded::<Drain>("drain", body)?.node },
            RESIGNED => Self::Resigned(decoded::<Resigned>("resigned", body)?),
            MOVE => {
                let Move { partition, to } = decoded("move", body)?;
                Self::Move { partition, to }
            }
            DEPLOY => Self::Deploy { app: decoded::<Deploy>("deploy", body)?.app },
            FINALIZE => Self::Finalize { protocol: decoded::<Finalize>("finalize", body)?.protocol },
            other => {
                return Err(Error::corrupt(format!(
                    "control record of kind {other}, protocol {FORMAT_PROTOCOL} has the kinds {JOIN} to {FINALIZE}"
                )));
            }
        };
        record
            .check()
            .map_err(|e| Error::corrupt(format!("control record `{}`: {}", record.kind(), e.message())))?;
        Ok(record)
    }
}

impl State {
    /// Encodes a snapshot of the state, with which a node begins when the records before it have been cut.
    ///
    /// Errors: `Internal` when the encoder fails.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = header(*SNAPSHOT_MAGIC);
        ciborium::into_writer(self, &mut bytes)
            .map_err(|e| Error::internal(format!("snapshot of the control partition: {e}")))?;
        Ok(bytes)
    }

    /// Decodes a snapshot.
    ///
    /// Errors: as those of [`Record::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = rest_after_header(bytes, *SNAPSHOT_MAGIC, "snapshot of the control partition")?;
        let state: Self =
            from_cbor(body).map_err(|e| Error::corrupt(format!("snapshot of the control partition: {e}")))?;
        state
            .check()
            .map_err(|e| Error::corrupt(format!("snapshot of the control partition: {}", e.message())))?;
        Ok(state)
    }
}

fn header(magic: [u8; 4]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(FORMAT_PROTOCOL.to_le_bytes());
    bytes
}

fn rest_after_header<'a>(bytes: &'a [u8], magic: [u8; 4], of: &str) -> Result<&'a [u8]> {
    let Some((found, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(Error::corrupt(format!("{of} of {} bytes: too short for its header", bytes.len())));
    };
    if *found != magic {
        return Err(Error::corrupt(format!(
            "{of} begins with `{}` instead of `{}`: another program writes to this partition",
            found.escape_ascii(),
            magic.escape_ascii()
        )));
    }
    let Some((protocol, rest)) = rest.split_first_chunk::<2>() else {
        return Err(Error::corrupt(format!("{of} of {} bytes: too short for its header", bytes.len())));
    };
    match u16::from_le_bytes(*protocol) {
        FORMAT_PROTOCOL => Ok(rest),
        protocol if protocol > PROTOCOL_MAX => Err(Error::invalid(format!(
            "{of} of protocol {protocol}; this build speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}: \
             start this node with a build that speaks protocol {protocol}"
        ))),
        protocol => Err(Error::corrupt(format!("{of} of protocol {protocol}: expected {FORMAT_PROTOCOL}"))),
    }
}

fn encoded(kind: u8, body: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = header(*RECORD_MAGIC);
    bytes.push(kind);
    ciborium::into_writer(body, &mut bytes).map_err(|e| Error::internal(format!("control record: {e}")))?;
    Ok(bytes)
}

fn decoded<T: DeserializeOwned>(kind: &str, body: &[u8]) -> Result<T> {
    from_cbor(body).map_err(|e| Error::corrupt(format!("control record `{kind}`: {e}")))
}

/// Decodes one CBOR value that must be all of `bytes`.
fn from_cbor<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, String> {
    let mut rest = bytes;
    let value = ciborium::from_reader(&mut rest).map_err(|e| e.to_string())?;
    if rest.is_empty() {
        return Ok(value);
    }
    Err(format!("{} bytes after its end", rest.len()))
}
