//! What the mappers of telemetry share: rows of streams whose columns are known, with ids that a repeated request gives again.
//!
//! ```text
//! message ─ measure ─ decode ─ rows of streams ─┬─ StreamRows    bodies of requests: rows of several streams
//!                                               └─ MessageRows   messages of sources: events of one stream
//! ```

mod measure;
mod row;
mod stream;
mod target;

pub use self::stream::DeclaredStream;
pub use self::target::{RefusedRecords, StreamRows, TelemetryRows};
pub(crate) use self::{
    measure::{MessageShape, Part, decoded_bytes},
    row::{JsonText, Row, RowCell, SharedCells, instant_text},
    target::{MessageRows, RowTarget},
};

use tidemill_types::Result;

/// Function that gets the bytes of memory that a decoder is about to have in use.
///
/// Errors: `LimitReached` where it may not have them.
pub type Reserve<'r> = dyn FnMut(usize) -> Result<()> + 'r;
