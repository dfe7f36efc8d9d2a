//! InfluxDB's line protocol: `cpu,host=a usage=0.5,idle=97i 1451606400000000000`.
//!
//! ```text
//! cpu         measurement: the stream
//! host=a      tags: fields of the stream, parsed by their types, as a tag is always text
//! usage=0.5   fields, with types of their own
//! 1451606…    time, in nanoseconds or another unit: the time field of the stream, or the event time if it has none
//! ```
//!
//! [`LineDecoder`] decodes the lines of a body or of a file to rows of any streams. The mapper reads messages for one stream.

mod decoder;
mod line;
mod lines;
mod precision;
mod source;

pub use decoder::{LineDecoder, LineOptions};
pub use precision::Precision;

pub(crate) use source::LineProtocolSourceType;
