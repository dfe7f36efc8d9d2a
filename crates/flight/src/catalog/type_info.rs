//! `GetXdbcTypeInfo`: types of SQL, as ODBC and JDBC know them.

use std::sync::LazyLock;

use arrow_array::RecordBatch;
use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{CommandGetXdbcTypeInfo, Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};
use arrow_schema::SchemaRef;
use tidemill_types::{Error, Result};

use super::failed;

static TYPES: LazyLock<Option<XdbcTypeInfoData>> = LazyLock::new(|| all().build().ok());

/// A type of SQL.
struct SqlType {
    name: &'static str,
    kind: XdbcDataType,
    /// Digits of a number, characters of a time; `None` where there is no limit.
    size: Option<i32>,
    /// Text in front of a literal, and behind it.
    quotes: Option<(&'static str, &'static str)>,
    scale_max: Option<i32>,
    datetime: Option<XdbcDatetimeSubcode>,
}

impl SqlType {
    const fn new(name: &'static str, kind: XdbcDataType, size: Option<i32>) -> Self {
        Self { name, kind, size, quotes: None, scale_max: None, datetime: None }
    }

    const fn quoted(mut self, before: &'static str, after: &'static str) -> Self {
        self.quotes = Some((before, after));
        self
    }

    const fn datetime(mut self, code: XdbcDatetimeSubcode) -> Self {
        self.datetime = Some(code);
        self.scale_max = Some(6);
        self
    }

    fn is_number(&self) -> bool {
        self.quotes.is_none() && self.kind != XdbcDataType::XdbcBit
    }
}

const SQL_TYPES: [SqlType; 13] = [
    SqlType::new("boolean", XdbcDataType::XdbcBit, Some(1)),
    SqlType::new("smallint", XdbcDataType::XdbcSmallint, Some(5)),
    SqlType::new("int", XdbcDataType::XdbcInteger, Some(10)),
    SqlType::new("bigint", XdbcDataType::XdbcBigint, Some(19)),
    SqlType::new("float", XdbcDataType::XdbcReal, Some(24)),
    SqlType::new("double", XdbcDataType::XdbcDouble, Some(53)),
    SqlType { scale_max: Some(38), ..SqlType::new("decimal", XdbcDataType::XdbcDecimal, Some(38)) },
    SqlType::new("text", XdbcDataType::XdbcVarchar, None).quoted("'", "'"),
    SqlType::new("binary", XdbcDataType::XdbcVarbinary, None).quoted("X'", "'"),
    SqlType::new("date", XdbcDataType::XdbcDate, Some(10)).quoted("DATE '", "'"),
    SqlType::new("time", XdbcDataType::XdbcTime, Some(15))
        .quoted("TIME '", "'")
        .datetime(XdbcDatetimeSubcode::XdbcSubcodeTime),
    SqlType::new("timestamp", XdbcDataType::XdbcTimestamp, Some(32))
        .quoted("TIMESTAMP '", "'")
        .datetime(XdbcDatetimeSubcode::XdbcSubcodeTimestampWithTimezone),
    SqlType::new("interval", XdbcDataType::XdbcInterval, None).quoted("INTERVAL '", "'"),
];

pub(super) fn columns() -> SchemaRef {
    XdbcTypeInfoDataBuilder::new().schema()
}

pub(super) fn rows(command: CommandGetXdbcTypeInfo) -> Result<RecordBatch> {
    let types = TYPES.as_ref().ok_or_else(|| Error::internal("the types of SQL cannot be written"))?;
    command.into_builder(types).build().map_err(failed)
}

fn all() -> XdbcTypeInfoDataBuilder {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for sql in &SQL_TYPES {
        let is_text = sql.kind == XdbcDataType::XdbcVarchar;
        types.append(XdbcTypeInfo {
            type_name: sql.name.to_owned(),
            data_type: sql.kind,
            column_size: sql.size,
            literal_prefix: sql.quotes.map(|(before, _)| before.to_owned()),
            literal_suffix: sql.quotes.map(|(_, after)| after.to_owned()),
            create_params: sql
                .scale_max
                .filter(|_| sql.is_number())
                .map(|_| vec!["precision".to_owned(), "scale".to_owned()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: is_text,
            searchable: if is_text { Searchable::Full } else { Searchable::Basic },
            unsigned_attribute: sql.is_number().then_some(false),
            fixed_prec_scale: false,
            auto_increment: sql.is_number().then_some(false),
            local_type_name: None,
            minimum_scale: sql.scale_max.map(|_| 0),
            maximum_scale: sql.scale_max,
            sql_data_type: if sql.datetime.is_some() { XdbcDataType::XdbcDatetime } else { sql.kind },
            datetime_subcode: sql.datetime,
            num_prec_radix: sql.is_number().then_some(match sql.kind {
                XdbcDataType::XdbcReal | XdbcDataType::XdbcDouble => 2,
                _ => 10,
            }),
            interval_precision: None,
        });
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_their_number() {
        let of = |data_type| rows(CommandGetXdbcTypeInfo { data_type }).unwrap();
        assert_eq!(of(None).num_rows(), SQL_TYPES.len());
        assert_eq!(of(None).schema(), columns());
        assert_eq!(of(Some(XdbcDataType::XdbcBigint as i32)).num_rows(), 1);
        assert_eq!(of(Some(XdbcDataType::XdbcWchar as i32)).num_rows(), 0);
    }
}
