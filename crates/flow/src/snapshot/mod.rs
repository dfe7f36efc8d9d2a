//! States of apps as streams of checked blocks: `docs/formats/flow-state.md`.
//!
//! [`App::save`](crate::runtime::AppRuntime::save) and [`App::restore`](crate::runtime::AppRuntime::restore) hand a [`Writer`] or a [`Reader`]
//! from element to element; each writes into the section of whatever contains it, so a query writes the same whether it
//! stands in the app or is one key's copy in a partition. Nothing is held in memory but the state itself and a block.

mod read;
mod values;
mod write;

use std::io;

pub use read::Reader;
pub(crate) use values::RowLocation;
pub use write::Writer;

use crate::expr::EvalError;

/// What a state begins with; the last byte is the format version.
const MAGIC: [u8; 8] = *b"TMFLOW\0\x01";

/// Most bytes of a block's contents.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Most rows that are written together.
pub const CHUNK_ROWS: usize = 4096;

/// Deepest nesting of an object that is read.
const OBJECT_DEPTH_MAX: usize = 512;

/// Bytes before the contents of a block: kind, length, checksum.
const HEAD_BYTES: usize = 9;

/// The first block of a section, whose contents begin with its name.
const SECTION: u8 = 1;
/// A further block of a section.
const MORE: u8 = 2;
/// Nothing comes behind it.
const END: u8 = 3;

/// The checksum of a block: of its number, kind, length and contents. The number tells a lost block.
fn checksum(number: u64, kind: u8, contents: &[u8]) -> u32 {
    let mut head = [0; 13];
    head[..8].copy_from_slice(&number.to_le_bytes());
    head[8] = kind;
    // at most BLOCK_BYTES_MAX
    head[9..].copy_from_slice(&(contents.len() as u32).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), contents)
}

/// How an app goes on with a saved state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreMode {
    /// As if it had not been interrupted: the clock and what triggers wait for are those of the state.
    Exactly,
    /// As the reference does after a restart: the clock and the triggers of the app that takes the state stay, so
    /// periods count from its start.
    Restarted,
}

/// Why a state could not be saved or taken back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Writing or reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The state is not as it was written.
    #[error("the saved state is damaged at byte {at}{}: {what}", of_section(.section))]
    Damaged {
        /// Where, counted from the first byte of the state.
        at: u64,
        /// The section, where one was reached.
        section: String,
        /// What was found.
        what: String,
    },
    /// The state is in a format that is not known.
    #[error("the saved state has format version {found}, this program reads version {}", MAGIC[7])]
    Version {
        /// Its version.
        found: u8,
    },
    /// An object lies in others more than 512 deep.
    #[error("an object lies in others more than {OBJECT_DEPTH_MAX} deep")]
    TooDeep,
    /// The state is one of another app.
    #[error("the saved state is one of another app: {0}")]
    OtherApp(String),
}

fn of_section(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!(" in `{section}`") }
}

impl From<Error> for EvalError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
