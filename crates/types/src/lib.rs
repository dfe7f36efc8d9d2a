//! The vocabulary of all crates: events, streams, values, keys, offsets, time and errors.
//!
//! Nothing in this crate does I/O. Only [`budget`] reads a clock: the machine's monotonic one, for deadlines.

mod address;
pub mod budget;
pub mod cron;
pub mod decode;
mod error;
mod header;
mod ids;
mod interleaved;
pub mod ipc;
mod json;
pub mod open_files;
mod repeated_key;
mod row_decoder;
mod schema;
mod stream_positions;
mod suggest;
mod time;
mod value;

pub use address::{ADDRESS_EXPECTED, host_and_port};
pub use decode::{bool_from_text, without_bom};
pub use error::{Error, ErrorKind, Result};
pub use header::{check_repeated, columns_of_fields, header_targets};
pub use ids::{EventId, Offset, PartitionId, murmur2, partition_of_key};
pub use interleaved::InterleavedBatches;
pub use json::{event_json, value_json};
pub use repeated_key::repeated_key;
pub use row_decoder::{BadRow, DecodedRows, RowDecoder, RowOrigin};
pub use schema::{Field, FieldType, Mismatch, StreamSchema, column, table_columns};
pub use stream_positions::StreamPositions;
pub use suggest::{did_you_mean, nearest};
pub use time::{Duration, EpochUnit, Timestamp};
pub use value::{Value, row_value};
