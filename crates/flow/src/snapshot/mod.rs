//! Format of saved states, a stream of blocks with checksums: `docs/formats/flow-state.md`.
//!
//! [`AppRuntime::save`](crate::runtime::AppRuntime::save) and
//! [`AppRuntime::restore`](crate::runtime::AppRuntime::restore) pass a [`SnapshotWriter`] or a [`Reader`] from
//! element to element. Each element writes into the section of its container, so a query writes equal bytes
//! in the app and as the instance of a key in a partition. Memory use is that of the state itself and one
//! block.
//!
//! [`AppRuntime::freeze`](crate::runtime::AppRuntime::freeze) takes a state in little time, to be written while the app
//! continues: large elements share their parts with it (`shareable.rs`).

mod read;
mod values;
mod write;

use std::io;

pub use read::Reader;
pub(crate) use values::RowLocation;
pub use write::{FrozenState, SnapshotWriter};

use crate::eval_error::EvalError;

/// First bytes of a state; the last of them is the format version.
const MAGIC: [u8; 8] = *b"TMFLOW\0\x01";

/// Maximum number of bytes of a block's contents.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Maximum number of rows that are written column by column.
pub const CHUNK_ROWS: usize = 4096;

/// Number of rows from which an element is shared with a [`FrozenState`]; to write fewer takes less than a millisecond.
pub const SHARED_ROWS_MIN: usize = 1024;

/// Maximum nesting of an object that can be read.
const OBJECT_DEPTH_MAX: usize = 512;

/// Number of bytes before the contents of a block: kind, length, checksum.
const HEAD_BYTES: usize = 9;

/// First block of a section; its contents begin with the section's name.
const SECTION: u8 = 1;
/// Further block of a section.
const MORE: u8 = 2;
/// Last block of a state.
const END: u8 = 3;

/// Computes the checksum of a block, over its number, kind, length and contents. The number reveals a lost
/// block.
fn checksum(number: u64, kind: u8, contents: &[u8]) -> u32 {
    let mut head = [0; 13];
    head[..8].copy_from_slice(&number.to_le_bytes());
    head[8] = kind;
    // at most BLOCK_BYTES_MAX
    head[9..].copy_from_slice(&(contents.len() as u32).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), contents)
}

/// Mode in which an app resumes from a saved state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreMode {
    /// As if it had not been interrupted: clock and triggers are those of the state.
    Exactly,
    /// As Siddhi 5.1 does after a restart: clock and triggers are those of the restoring app, so that periods
    /// count from its start.
    Restarted,
}

/// Failure to save or restore a state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Writing or reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The state is damaged.
    #[error("the saved state is damaged at byte {at}{}: {what}", of_section(.section))]
    Damaged {
        /// Offset from the first byte of the state.
        at: u64,
        /// Section name; empty before the first section.
        section: String,
        /// Description of the damage.
        what: String,
    },
    /// The format version is unknown.
    #[error("the saved state has format version {found}, this version of Tidemill reads version {}", MAGIC[7])]
    Version {
        /// Version of the state.
        found: u8,
    },
    /// An object is nested more than 512 deep.
    #[error("objects are nested deeper than {OBJECT_DEPTH_MAX} levels")]
    TooDeep,
    /// The state belongs to another app.
    #[error("the saved state belongs to another app: {0}")]
    OtherApp(String),
}

fn of_section(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!(" in `{section}`") }
}

impl From<Error> for EvalError {
    fn from(error: Error) -> Self {
        Self::state(error.to_string())
    }
}
