//! The formats of files: their readers and writers.

pub(crate) mod avro;
pub(crate) mod avro_layout;
pub(crate) mod blocks;
pub(crate) mod csv;
pub(crate) mod csv_records;
pub(crate) mod json_array;
pub(crate) mod json_lines;
pub(crate) mod line_protocol;
pub(crate) mod lines;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
#[cfg(feature = "parquet")]
pub(crate) mod parquet_sink;
pub(crate) mod text;
