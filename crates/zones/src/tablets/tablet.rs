//! Tablets: sorted, immutable Parquet files of a table, with their metadata from the Delta log.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use object_store::path::Path;
use serde_json::{Map, Number, Value as Json};
use tidemill_types::{Error, Result, Timestamp, Value};

use crate::delta::action::Add;
use crate::tablets::checksum::Checksums;
use crate::tablets::encryption::TabletKeys;

/// Tag of an `add` action that holds the checksums of the file.
pub(crate) const CHECKSUMS_TAG: &str = "tidemill.crc32c";
/// Tag of an `add` action of an encrypted tablet that holds its statistics, encrypted.
pub(crate) const ENCRYPTED_STATS_TAG: &str = "tidemill.stats";

/// Level of flushed tablets. Tablets merged from several have a higher one.
pub(crate) const LEVEL_FLUSHED: u32 = 0;

/// One Parquet file of a table.
#[derive(Debug, Clone)]
pub struct Tablet {
    /// Path in the object store, from the root of the store.
    pub path: Path,
    /// Path below the table, as in the Delta log, but percent-decoded.
    pub name: String,
    /// Length in bytes.
    pub size: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of merges that the rows went through: 0 for flushed tablets.
    pub level: u32,
    /// Statistics of each column, in the order of the table's schema.
    pub columns: Box<[ColumnStats]>,
    /// Checksums verified by reads; `None` for files of other programs and of earlier releases.
    pub(crate) checksums: Option<Arc<Checksums>>,
}

/// Content of a tablet and the statistics for its Delta entry.
pub(crate) struct EncodedFile {
    pub bytes: Bytes,
    pub rows: u64,
    pub schema: SchemaRef,
    /// Statistics of each column of `schema`.
    pub columns: Box<[ColumnStats]>,
}

/// Statistics of a column of a tablet. `None` means unknown.
#[derive(Debug, Clone, Default)]
pub struct ColumnStats {
    /// Lower bound of the values. Strings may be truncated; times are rounded down to milliseconds.
    pub min: Option<Value<'static>>,
    /// Upper bound of the values. Strings may be truncated and incremented; times are rounded up to
    /// milliseconds.
    pub max: Option<Value<'static>>,
    /// Number of rows without a value.
    pub null_count: Option<u64>,
}

impl Tablet {
    /// Returns the checksums that reads verify; `None` for files of other programs and of earlier releases.
    pub fn checksums(&self) -> Option<&Arc<Checksums>> {
        self.checksums.as_ref()
    }

    /// Creates the tablet that `add` in the Delta log describes. `name` is its decoded path, `path` its path
    /// in the store.
    ///
    /// Errors: `Invalid` for unsupported content that another program may have written: no row count,
    /// deletion vectors; `Corrupt` for statistics that are not JSON.
    pub(crate) fn from_add(
        add: &Add,
        name: String,
        path: Path,
        schema: &Schema,
        table: &str,
        keys: Option<&TabletKeys>,
    ) -> Result<Self> {
        if add.deletion_vector.is_some() {
            return Err(Error::invalid(format!(
                "table `{table}`: file {name} has a deletion vector, which Tidemill does not read: rewrite the table \
                 without them (in Spark: REORG TABLE … APPLY (PURGE))"
            )));
        }
        let tag = |tag: &str| add.tags.as_ref().and_then(|tags| tags.get(tag)?.as_deref());
        let opened = match (tag(ENCRYPTED_STATS_TAG), keys) {
            (Some(sealed), Some(keys)) => {
                let named = |e: Error| e.context(format!("table `{table}`: file {name}"));
                Some(keys.open_stats(&name, sealed).map_err(named)?)
            }
            // without bounds its rows can be counted and not more
            _ => None,
        };
        let stats = opened.as_deref().or(add.stats.as_deref()).unwrap_or("{}");
        let stats: Json = serde_json::from_str(stats).map_err(|e| {
            Error::corrupt(format!("table `{table}`: the statistics of file {name} cannot be read"))
                .with_source(e)
        })?;
        let rows = stats["numRecords"].as_u64().ok_or_else(|| {
            Error::invalid(format!(
                "table `{table}`: the Delta log does not say how many rows file {name} has; write it again with statistics"
            ))
        })?;
        let size = u64::try_from(add.size).map_err(|e| {
            Error::corrupt(format!("table `{table}`: the size of file {name} is {}", add.size)).with_source(e)
        })?;
        let columns = schema.fields().iter().map(|field| ColumnStats {
            min: from_json(field.data_type(), &stats["minValues"][field.name()]),
            max: from_json(field.data_type(), &stats["maxValues"][field.name()]),
            null_count: stats["nullCount"][field.name()].as_u64(),
        });
        let checksums = tag(CHECKSUMS_TAG).map(|text| {
            Checksums::parse(text, size).map(Arc::new).ok_or_else(|| {
                Error::corrupt(format!(
                    "table `{table}`: the checksums of file {name} in its Delta log cannot be read"
                ))
            })
        });
        Ok(Self {
            path,
            size,
            rows,
            level: level_of(&name),
            columns: columns.collect(),
            checksums: checksums.transpose()?,
            name,
        })
    }

    /// Encodes the statistics of an encrypted tablet that everybody may read: counts of rows, and no values.
    pub(crate) fn counts_json(&self, schema: &Schema) -> String {
        let columns = self.columns.iter();
        let counts =
            columns.map(|stats| ColumnStats { null_count: stats.null_count, ..ColumnStats::default() });
        Self { columns: counts.collect(), ..self.clone() }.stats_json(schema)
    }

    /// Encodes the statistics as Delta stores them: a JSON string.
    pub(crate) fn stats_json(&self, schema: &Schema) -> String {
        let collect = |pick: &dyn Fn(&ColumnStats) -> Option<Json>| -> Map<String, Json> {
            let named = schema.fields().iter().zip(&self.columns);
            named.filter_map(|(field, stats)| Some((field.name().clone(), pick(stats)?))).collect()
        };
        let mut object = Map::new();
        object.insert("numRecords".to_owned(), self.rows.into());
        object.insert("minValues".to_owned(), collect(&|s| to_json(s.min.as_ref()?)).into());
        object.insert("maxValues".to_owned(), collect(&|s| to_json(s.max.as_ref()?)).into());
        object.insert("nullCount".to_owned(), collect(&|s| s.null_count.map(Json::from)).into());
        Json::Object(object).to_string()
    }
}

/// Returns the path of a new tablet below its table.
pub(crate) fn tablet_name(level: u32, id: uuid::Uuid) -> String {
    format!("tablets/{level}/{id}.parquet")
}

/// Returns the level in a tablet's name. Files that other programs wrote (a rewrite of the table) count as
/// flushed.
fn level_of(name: &str) -> u32 {
    let level =
        name.strip_prefix("tablets/").and_then(|rest| rest.split_once('/')).and_then(|(n, _)| n.parse().ok());
    level.unwrap_or(LEVEL_FLUSHED)
}

/// Rounds a time down to milliseconds, the precision of Delta's statistics.
pub(crate) fn floor_ms(micros: i64) -> i64 {
    micros - micros.rem_euclid(1_000)
}

/// Rounds a time up to milliseconds; `None` on overflow.
pub(crate) fn ceil_ms(micros: i64) -> Option<i64> {
    match micros.rem_euclid(1_000) {
        0 => Some(micros),
        rest => micros.checked_add(1_000 - rest),
    }
}

/// Times that RFC 3339 can represent: the years 0001 to 9999, in microseconds.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// Converts a bound; `None` for values that JSON cannot represent (infinities) and types without bounds in
/// Delta.
fn to_json(value: &Value<'_>) -> Option<Json> {
    match value {
        Value::Int(n) => Some((*n).into()),
        Value::Float(x) => Number::from_f64(*x).map(Json::Number),
        Value::Str(s) => Some(s.as_ref().into()),
        Value::Time(t) if TIMES.contains(&t.micros()) => Some(t.to_string().into()),
        _ => None,
    }
}

fn from_json(ty: &DataType, json: &Json) -> Option<Value<'static>> {
    match ty {
        DataType::Int32 | DataType::Int64 => json.as_i64().map(Value::Int),
        DataType::Float32 | DataType::Float64 => json.as_f64().map(Value::Float),
        DataType::Utf8 => json.as_str().map(|s| Value::Str(s.to_owned().into())),
        DataType::Timestamp(_, _) => json.as_str().and_then(|s| Timestamp::parse(s).ok()).map(Value::Time),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tablets::tablet_name::tablet_id;

    #[test]
    fn times_are_rounded_outwards() {
        assert_eq!((floor_ms(1_999), ceil_ms(1_001)), (1_000, Some(2_000)));
        assert_eq!((floor_ms(-1), ceil_ms(-1)), (-1_000, Some(0)));
        assert_eq!((floor_ms(5_000), ceil_ms(5_000)), (5_000, Some(5_000)));
        assert_eq!(ceil_ms(i64::MAX), None);
    }

    #[test]
    fn names_carry_level_and_id() {
        let id = uuid::Uuid::now_v7();
        let name = tablet_name(3, id);
        assert_eq!((level_of(&name), tablet_id(&name)), (3, Some(id)));
        assert_eq!((level_of("part-0001.snappy.parquet"), tablet_id("part-0001.snappy.parquet")), (0, None));
    }
}
