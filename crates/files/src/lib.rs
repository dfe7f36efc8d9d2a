//! Reading and writing files of events in batches: Avro containers, JSON lines, CSV, Parquet.
//!
//! ```
//! use std::sync::Arc;
//! use tidemill_files::{Format, ReadOptions};
//! use tidemill_types::{Field, FieldType, StreamSchema};
//!
//! let field = |name: &str, ty| Field::new(name, ty);
//! let fields = vec![field("symbol", FieldType::String), field("price", FieldType::Double)];
//! let trades =
//!     Arc::new(StreamSchema { name: "Trades".into(), fields, key: None, id: vec![], time: None });
//!
//! let lines = "{\"symbol\": \"A\", \"price\": 1.5}\n{\"symbol\": \"B\", \"price\": \"high\"}\n";
//! let mut file = tidemill_files::read(lines.as_bytes(), &Format::Json, &trades, ReadOptions::default())?;
//! let rows: usize = file.by_ref().map(|batch| batch.map(|b| b.num_rows())).sum::<Result<_, _>>()?;
//! assert_eq!(rows, 1);
//! assert_eq!(
//!     file.take_rejected()[0].to_string(),
//!     "line 2, byte 30: field `price`: expected double (a number up to 1.8e308), found \"high\""
//! );
//! # Ok::<(), tidemill_types::Error>(())
//! ```

mod bodies;
mod columns;
mod compression;
mod conversion;
mod error;
mod event_reader;
mod event_writer;
mod fields;
mod fit;
mod format;
mod formats;
mod guess;
mod infer;
mod open;
mod options;
mod reader;
mod sink;
mod sink_encoder;
mod source;
mod writer;

pub use bodies::events_from_arrow_stream;
#[cfg(feature = "parquet")]
pub use bodies::events_from_parquet;
pub use columns::events_from_columns;
pub use compression::decompressed;
pub use format::{Codec, Format};
pub use formats::csv_records::{CsvLayout, CsvRecords};
pub use formats::lines::{Line, LineReader};
#[cfg(feature = "parquet")]
pub use infer::infer_parquet;
pub use infer::{InferredStream, infer_avro, infer_csv, infer_json_lines, infer_line_protocol};
pub use open::FileInput;
pub use options::{ColumnOptions, Dialect, ReadOptions};
pub use reader::{Reader, open, read};
pub use sink::FileSink;
pub use source::FileSource;
pub use writer::{EventFileWriter, WriteOptions};
