//! What a stream's events look like, as Arrow.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::{EpochUnit, Error, Result, Timestamp, did_you_mean};

/// Names of the columns that Tidemill adds to every stored event.
pub mod column {
    /// Event time: the stream's time field, or the time of arrival. Timestamp(µs, UTC), never null.
    pub const TIME: &str = "_time";
    /// Undeclared fields of the event as a JSON object, null when there were none. Utf8.
    pub const EXTRA: &str = "_extra";
    /// When the record was appended to the log. Timestamp(µs, UTC), never null.
    pub const RECEIVED: &str = "_received";
    /// The log partition. Int32, never null.
    pub const PARTITION: &str = "_partition";
    /// The offset of the log record. Int64, never null.
    pub const OFFSET: &str = "_offset";
    /// The row in the record. Int32, never null.
    pub const ROW: &str = "_row";
}

/// The type of an event field. The names are SiddhiQL's, and `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// True or false.
    Bool,
    /// 32-bit signed integer.
    Int,
    /// 64-bit signed integer.
    Long,
    /// 32-bit float.
    Float,
    /// 64-bit float.
    Double,
    /// UTF-8 text.
    String,
    /// An instant, microseconds, UTC.
    Time,
    /// Any JSON value, kept as its text.
    Object,
}

impl FieldType {
    /// All type names, in the order they are listed to people.
    pub const NAMES: [&'static str; 8] =
        ["bool", "int", "long", "float", "double", "string", "time", "object"];

    /// The type called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int" => Self::Int,
            "long" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "string" => Self::String,
            "time" => Self::Time,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// The name people write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::String => "string",
            Self::Time => "time",
            Self::Object => "object",
        }
    }

    /// The Arrow type of its column.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::String | Self::Object => DataType::Utf8,
            Self::Time => timestamp_type(),
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// A declared field of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name; never starts with `_`.
    pub name: String,
    /// Its type. Every field may be missing from an event.
    #[serde(rename = "type")]
    pub ty: FieldType,
    /// What a number in it counts since 1970, if its type is `time` and the declaration says so. It says how events
    /// are read, not how they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<EpochUnit>,
}

impl Field {
    /// A field without a unit.
    pub fn new(name: impl Into<String>, ty: FieldType) -> Self {
        Self { name: name.into(), ty, unit: None }
    }

    /// Its type as it is declared: `string`, `time`, `time(us)`.
    pub fn declared_type(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}({})", self.ty, unit.symbol()),
            None => self.ty.name().to_owned(),
        }
    }

    /// Reads the text of a time: RFC 3339, or a number of the field's unit (milliseconds if it has none).
    ///
    /// Where no unit is declared, eight digits that are a date (`20130101`) are that date.
    pub(crate) fn time_from_text(&self, text: &str) -> Option<Timestamp> {
        let date = || Timestamp::parse(text).ok();
        match self.unit {
            Some(unit) => unit.parse(text).or_else(date),
            None => date().or_else(|| EpochUnit::default().parse(text)),
        }
    }
}

/// The declaration of a stream: its fields and which of them mean something to the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSchema {
    /// The stream's name, also the name of its table.
    pub name: String,
    /// Declared fields in order.
    pub fields: Vec<Field>,
    /// The field whose value picks the partition (`key`). Without one, rows of a request stay together.
    pub key: Option<usize>,
    /// The fields that make an event unique (`id`): a second event with the same values is a duplicate.
    pub id: Vec<usize>,
    /// The field that holds the event time (`time`). Without one, or where it is missing, the time of arrival.
    pub time: Option<usize>,
}

impl StreamSchema {
    /// Position of the field `name`.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }

    /// Position of the field `name`, or an error that offers the names there are.
    pub fn require_field(&self, name: &str) -> Result<usize> {
        self.field_index(name).ok_or_else(|| {
            let known: Vec<&str> = self.fields.iter().map(|f| f.name.as_str()).collect();
            Error::invalid(format!(
                "stream `{}` has no field `{name}`{}",
                self.name,
                did_you_mean(name, known)
            ))
        })
    }

    /// Arrow schema of an event batch in the log: the declared fields (all nullable), then `_time`, `_extra`.
    pub fn batch_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.batch_fields()))
    }

    fn batch_fields(&self) -> Vec<ArrowField> {
        let mut fields: Vec<ArrowField> =
            self.fields.iter().map(|f| ArrowField::new(&f.name, f.ty.arrow(), true)).collect();
        fields.push(ArrowField::new(column::TIME, timestamp_type(), false));
        fields.push(ArrowField::new(column::EXTRA, DataType::Utf8, true));
        fields
    }

    /// Arrow schema of the stream's table: the batch schema, then [`table_columns`].
    pub fn table_schema(&self) -> SchemaRef {
        let mut fields = self.batch_fields();
        fields.extend(table_columns());
        Arc::new(Schema::new(fields))
    }
}

/// The columns a batch gains when it is applied: `_received`, `_partition`, `_offset`, `_row`.
pub fn table_columns() -> [ArrowField; 4] {
    [
        ArrowField::new(column::RECEIVED, timestamp_type(), false),
        ArrowField::new(column::PARTITION, DataType::Int32, false),
        ArrowField::new(column::OFFSET, DataType::Int64, false),
        ArrowField::new(column::ROW, DataType::Int32, false),
    ]
}
