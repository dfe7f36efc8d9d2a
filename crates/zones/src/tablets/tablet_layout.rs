//! How the columns of a tablet are stored: order, encodings, statistics.

use arrow_schema::{DataType, SchemaRef};
use parquet::basic::{Compression as ParquetCompression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use tidemill_types::{FieldType, Result, StreamSchema, column};

use crate::error::internal;
use crate::tablets::encryption::TabletKeys;
use crate::{Compression, ZonesOptions};

/// Columns, besides those of times, whose values increase in small steps or repeat: delta encoding takes a fraction of
/// the space and time of a dictionary.
const DELTA_ENCODED: [&str; 2] = [column::OFFSET, column::ROW];

/// Columns after the key by which the rows of a tablet are sorted.
pub(crate) const ORDER: [&str; 4] = [column::TIME, column::PARTITION, column::OFFSET, column::ROW];

/// Level of Zstandard for flushed tablets, which are soon merged.
const ZSTD_FLUSHED: i32 = 1;
/// Level of Zstandard for merged tablets, which are kept.
const ZSTD_MERGED: i32 = 3;

/// Encoding of a column's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnEncoding {
    /// A dictionary, and plain values once it is full.
    Dictionary,
    /// Values as they are.
    Plain,
    /// Differences of integers and times.
    Delta,
    /// The bytes of numbers by their position, which compress better than whole numbers.
    ByteStreamSplit,
    /// Texts without the prefix that they share with the one before.
    DeltaByteArray,
}

impl ColumnEncoding {
    /// Returns the encodings that fit columns of type `ty`.
    pub fn candidates(ty: &DataType) -> &'static [Self] {
        match ty {
            DataType::Float32 | DataType::Float64 => &[Self::Dictionary, Self::ByteStreamSplit, Self::Plain],
            DataType::Int32 | DataType::Int64 | DataType::Timestamp(_, _) => &[Self::Dictionary, Self::Delta],
            DataType::Utf8 => &[Self::Dictionary, Self::DeltaByteArray],
            _ => &[Self::Plain],
        }
    }

    /// Sets the encoding of the column `name`.
    pub fn apply(self, name: &str, properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        let column = || ColumnPath::from(vec![name.to_owned()]);
        let encoding = match self {
            Self::Dictionary => return properties.set_column_dictionary_enabled(column(), true),
            Self::Plain => Encoding::PLAIN,
            Self::Delta => Encoding::DELTA_BINARY_PACKED,
            Self::ByteStreamSplit => Encoding::BYTE_STREAM_SPLIT,
            Self::DeltaByteArray => Encoding::DELTA_BYTE_ARRAY,
        };
        properties.set_column_dictionary_enabled(column(), false).set_column_encoding(column(), encoding)
    }
}

/// Schema and properties of the tablets of one table at one stage.
#[derive(Debug, Clone)]
pub(crate) struct TabletLayout {
    pub schema: SchemaRef,
    /// Columns whose smallest and largest value are kept, by position.
    pub bounded: Vec<bool>,
    pub properties: WriterPropertiesBuilder,
    /// Keys, if the tablets are encrypted.
    pub keys: Option<TabletKeys>,
}

impl TabletLayout {
    /// Returns the layout of flushed tablets: cheap to write.
    pub fn flushed(stream: &StreamSchema, schema: SchemaRef, options: &ZonesOptions) -> Result<Self> {
        let mut layout = Self::new(stream, schema, options, ZSTD_FLUSHED, options.row_group_rows)?;
        for field in layout.schema.fields() {
            let is_time = matches!(field.data_type(), DataType::Timestamp(_, _));
            if is_time || DELTA_ENCODED.contains(&field.name().as_str()) {
                layout.properties = ColumnEncoding::Delta.apply(field.name(), layout.properties);
            }
        }
        Ok(layout)
    }

    /// Returns the layout of merged tablets before the encodings of its columns are chosen: small to keep.
    pub fn merged(stream: &StreamSchema, schema: SchemaRef, options: &ZonesOptions) -> Result<Self> {
        Self::new(stream, schema, options, ZSTD_MERGED, options.merged_row_group_rows)
    }

    fn new(
        stream: &StreamSchema,
        schema: SchemaRef,
        options: &ZonesOptions,
        zstd: i32,
        row_group_rows: usize,
    ) -> Result<Self> {
        // Tablets of before the key was declared lack it.
        let key = stream.key.map(|key| stream.fields[key].name.as_str());
        let key = key.filter(|name| schema.index_of(name).is_ok());
        let sorting = key.into_iter().chain(ORDER).map(|name| {
            let index = schema.index_of(name).map_err(|e| internal("a table column is missing", e))?;
            Ok(SortingColumn { column_idx: index as i32, descending: false, nulls_first: true })
        });
        let sorting = sorting.collect::<Result<Vec<_>>>()?;
        let level = ZstdLevel::try_new(zstd).map_err(|e| internal("zstd lacks a level", e))?;
        let compression = match options.compression {
            Compression::Snappy => ParquetCompression::SNAPPY,
            Compression::Zstd => ParquetCompression::ZSTD(level),
        };
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("tidemill version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(row_group_rows))
            .set_data_page_row_count_limit(options.page_rows)
            .set_write_batch_size(options.page_rows.min(1024))
            .set_sorting_columns(Some(sorting));
        // not in encrypted tablets, see `crate::tablets::encryption`
        for index in stream.key.iter().chain(&stream.id).filter(|_| options.keys.is_none()) {
            let name = stream.fields[*index].name.clone();
            properties = properties.set_column_bloom_filter_enabled(ColumnPath::from(vec![name]), true);
        }
        let bounded = schema.fields().iter().map(|f| has_bounds(stream, f.name(), f.data_type())).collect();
        Ok(Self { schema, bounded, properties, keys: options.keys.clone() })
    }
}

/// Returns whether bounds are stored: Delta has none for booleans, and those of JSON strings are useless.
fn has_bounds(stream: &StreamSchema, name: &str, ty: &DataType) -> bool {
    let json =
        name == column::EXTRA || stream.fields.iter().any(|f| f.name == name && f.ty == FieldType::Object);
    !json && *ty != DataType::Boolean
}
