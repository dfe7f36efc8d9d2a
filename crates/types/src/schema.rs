//! Stream schemas and the Arrow schemas derived from them.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::{EpochUnit, Error, Result, Timestamp, did_you_mean};

/// Names of the columns that Tidemill adds to every stored event.
pub mod column {
    /// Event time: the stream's time field, or the time of reception. Timestamp(µs, UTC), never null.
    pub const TIME: &str = "_time";
    /// Undeclared fields of the event as a JSON object, null when there were none. Utf8.
    pub const EXTRA: &str = "_extra";
    /// Time at which the record was appended to the log. Timestamp(µs, UTC), never null.
    pub const RECEIVED: &str = "_received";
    /// Log partition. Int32, never null.
    pub const PARTITION: &str = "_partition";
    /// Offset of the log record. Int64, never null.
    pub const OFFSET: &str = "_offset";
    /// Row in the record. Int32, never null.
    pub const ROW: &str = "_row";
}

/// Type of an event field. The names are those of SiddhiQL, plus `time`.
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
    /// UTF-8 string.
    String,
    /// An instant in microseconds, UTC.
    Time,
    /// Any JSON value, stored as JSON text.
    Object,
}

impl FieldType {
    /// All type names, in the order shown to users.
    pub const NAMES: [&'static str; 8] =
        ["bool", "int", "long", "float", "double", "string", "time", "object"];

    /// Returns the type called `name`.
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

    /// Returns the name used in declarations.
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

    /// Returns the Arrow type of its columns.
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
    /// Field name; never starts with `_`.
    pub name: String,
    /// Field type. Every field may be missing from an event.
    #[serde(rename = "type")]
    pub ty: FieldType,
    /// Unit of numbers since 1970 in a `time` field; `None` for other types and if the declaration names
    /// none. Affects how events are parsed, not how they are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<EpochUnit>,
    /// Handling of events with a value of another type. Affects how events are parsed, not how they are
    /// stored.
    #[serde(default, skip_serializing_if = "Mismatch::is_default")]
    pub mismatch: Mismatch,
}

/// Handling of an event with a value that does not have the type of its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mismatch {
    /// The event is refused.
    #[default]
    Refuse,
    /// The event is stored: the field is null, and `_extra` has the value under the name of the field.
    Keep,
}

impl Mismatch {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Field {
    /// Creates a field without a unit.
    pub fn new(name: impl Into<String>, ty: FieldType) -> Self {
        Self { name: name.into(), ty, unit: None, mismatch: Mismatch::Refuse }
    }

    /// Returns the type as declared: `string`, `time`, `time(us)`.
    pub fn declared_type(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}({})", self.ty, unit.symbol()),
            None => self.ty.name().to_owned(),
        }
    }

    /// Parses a time: RFC 3339, or a number of the field's unit (milliseconds if it has none).
    ///
    /// If no unit is declared, eight digits that form a date (`20130101`) are parsed as that date.
    pub fn time_from_text(&self, text: &str) -> Option<Timestamp> {
        let date = || Timestamp::parse(text).ok();
        match self.unit {
            Some(unit) => unit.parse(text).or_else(date),
            None => date().or_else(|| EpochUnit::default().parse(text)),
        }
    }
}

/// Declaration of a stream: its fields and their roles in the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSchema {
    /// Name of the stream and of its table.
    pub name: String,
    /// Declared fields in order.
    pub fields: Vec<Field>,
    /// The field whose value selects the partition (`key`). Without one, a single partition receives all
    /// events of the stream.
    pub key: Option<usize>,
    /// The fields that make an event unique (`id`): a second event with equal values is a duplicate.
    pub id: Vec<usize>,
    /// The field with the event time (`time`). Without one, or where it is missing, the time of reception is
    /// used.
    pub time: Option<usize>,
}

impl StreamSchema {
    /// Returns the index of the field `name`.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }

    /// Returns the index of the field `name`, or an error that suggests known names.
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

    /// Returns the Arrow schema of an event batch in the log: the declared fields (all nullable), then
    /// `_time`, `_extra`.
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

    /// Returns the Arrow schema of the stream's table: the batch schema, then [`table_columns`].
    pub fn table_schema(&self) -> SchemaRef {
        let mut fields = self.batch_fields();
        fields.extend(table_columns());
        Arc::new(Schema::new(fields))
    }
}

/// Returns the columns that are added when a batch is applied: `_received`, `_partition`, `_offset`, `_row`.
pub fn table_columns() -> [ArrowField; 4] {
    [
        ArrowField::new(column::RECEIVED, timestamp_type(), false),
        ArrowField::new(column::PARTITION, DataType::Int32, false),
        ArrowField::new(column::OFFSET, DataType::Int64, false),
        ArrowField::new(column::ROW, DataType::Int32, false),
    ]
}
