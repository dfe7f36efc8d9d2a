//! Decoding of JSON and CSV rows to Arrow batches; each rejected row is reported with its reason.

mod cells;
mod scalars;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{Duration, Error, FieldType, Mismatch, Result, StreamSchema, Timestamp, repeated_key};

pub use cells::CellValue;
pub use scalars::{bool_from_text, mismatch};
use scalars::{json_integer, json_text, parse_float, quotes_hint};

/// Builds event batches of one stream, row by row.
///
/// A row is checked completely before any of it is stored: a rejected row leaves no trace in the batch.
pub struct BatchBuilder {
    schema: Arc<StreamSchema>,
    arrow: SchemaRef,
    columns: Vec<ColumnBuilder>,
    time: TimestampMicrosecondBuilder,
    extra: StringBuilder,
    rows: usize,
    pending: Vec<PendingValue>,
    text: String,
    extra_text: String,
    /// Undeclared fields of the current row, to detect repeated ones.
    undeclared: HashSet<String>,
    envelope: Option<String>,
    /// Names of fields by the names that objects have in their place.
    renames: HashMap<String, String>,
    complete: bool,
    /// True if fields keep values of other types whatever their declaration says.
    keep_all: bool,
}

/// A checked value of the current row; `Text` is a byte range of the builder's `text` buffer.
#[derive(Clone, Copy)]
enum PendingValue {
    Missing,
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(usize, usize),
}

/// Destination of the cells of a text column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellTarget {
    /// The value of the declared field with this index.
    Field(usize),
    /// An undeclared field with this name.
    Extra(String),
    /// Nothing.
    Ignored,
}

enum ColumnBuilder {
    Bool(BooleanBuilder),
    Int(Int32Builder),
    Long(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Text(StringBuilder),
    Time(TimestampMicrosecondBuilder),
}

impl BatchBuilder {
    /// Creates an empty builder for `schema`.
    pub fn new(schema: Arc<StreamSchema>) -> Self {
        let columns = schema.fields.iter().map(|f| ColumnBuilder::new(f.ty)).collect();
        let slots = vec![PendingValue::Missing; schema.fields.len()];
        Self {
            arrow: schema.batch_schema(),
            columns,
            time: TimestampMicrosecondBuilder::new().with_timezone("UTC"),
            extra: StringBuilder::new(),
            rows: 0,
            pending: slots,
            text: String::new(),
            extra_text: String::new(),
            undeclared: HashSet::new(),
            envelope: None,
            renames: HashMap::new(),
            complete: false,
            keep_all: false,
            schema,
        }
    }

    /// Ignores the undeclared field `name`: it belongs to the envelope (such as the stream's name on each
    /// line of a mixed file), not to the event.
    pub fn without_envelope(mut self, name: &str) -> Self {
        self.envelope = Some(name.to_owned());
        self
    }

    /// Reads fields of JSON objects under other names: each pair is the name in the objects and the name that it stands for.
    pub fn with_renames(mut self, renames: &[(String, String)]) -> Self {
        self.renames = renames.iter().cloned().collect();
        self
    }

    /// Rejects JSON objects that lack a declared field. A field that is null counts as present.
    pub fn require_all_fields(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Sets whether JSON objects that lack a declared field are rejected.
    pub fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
    }

    /// Returns the number of rows pushed since the last [`Self::finish`].
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds one JSON object. `now` becomes the event time when the row carries none.
    ///
    /// Errors: `Invalid` with the field, the expected type and the value; the row is not stored.
    pub fn push_json(&mut self, row: &[u8], now: Timestamp) -> Result<()> {
        self.begin();
        let mut de = serde_json::Deserializer::from_slice(without_bom(row));
        let seed = RowSeed { builder: self };
        seed.deserialize(&mut de).and_then(|()| de.end()).map_err(|e| {
            let reason = strip_position(e.to_string());
            Error::invalid(if e.is_data() { reason } else { format!("not valid JSON: {reason}") })
        })?;
        if let Some(missing) =
            self.pending.iter().position(|s| self.complete && matches!(s, PendingValue::Missing))
        {
            return Err(Error::invalid(format!("field `{}` is missing", self.schema.fields[missing].name)));
        }
        self.commit(now);
        Ok(())
    }

    /// Adds one row of text cells, as from CSV, each with what becomes of it. Empty cells are missing.
    ///
    /// Errors: those of [`Self::push_json`].
    pub fn push_text<'t, 'c>(
        &mut self,
        cells: impl IntoIterator<Item = (&'t CellTarget, &'c str)>,
        now: Timestamp,
    ) -> Result<()> {
        self.begin();
        for (target, cell) in cells {
            if cell.is_empty() {
                continue;
            }
            match target {
                CellTarget::Field(index) => {
                    self.pending[*index] = match self.parse_text(*index, cell) {
                        Some(value) => value,
                        None if self.keeps_mismatch(*index) => {
                            self.push_mismatch(*index, &serde_json::Value::from(cell).to_string())
                        }
                        None => return Err(self.mismatch(*index, cell, &format!("text {cell:?}"))),
                    };
                }
                CellTarget::Extra(name) => {
                    if name.is_empty() && !self.undeclared.insert(String::new()) {
                        return Err(Error::invalid("there are values in two columns without a name"));
                    }
                    self.push_extra(name, &serde_json::Value::from(cell).to_string());
                }
                CellTarget::Ignored => {}
            }
        }
        self.commit(now);
        Ok(())
    }

    /// Returns the rows pushed so far as a batch of [`StreamSchema::batch_schema`] and empties the builder.
    pub fn finish(&mut self) -> RecordBatch {
        let mut arrays: Vec<ArrayRef> = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        arrays.push(Arc::new(self.time.finish()));
        arrays.push(Arc::new(self.extra.finish()));
        self.rows = 0;
        RecordBatch::try_new(self.arrow.clone(), arrays)
            .expect("columns are built from the same schema and rows")
    }

    fn begin(&mut self) {
        self.pending.fill(PendingValue::Missing);
        self.text.clear();
        self.extra_text.clear();
        self.undeclared.clear();
    }

    fn commit(&mut self, now: Timestamp) {
        for (column, slot) in self.columns.iter_mut().zip(&self.pending) {
            column.push(*slot, &self.text);
        }
        let time = match self.schema.time.map(|i| self.pending[i]) {
            Some(PendingValue::Int(micros)) => micros,
            _ => now.0,
        };
        self.time.append_value(time);
        if self.extra_text.is_empty() {
            self.extra.append_null();
        } else {
            self.extra_text.push('}');
            self.extra.append_value(&self.extra_text);
        }
        self.rows += 1;
    }

    fn push_extra(&mut self, name: &str, json: &str) {
        self.extra_text.push(if self.extra_text.is_empty() { '{' } else { ',' });
        self.extra_text.push_str(&serde_json::Value::from(name).to_string());
        self.extra_text.push(':');
        self.extra_text.push_str(json);
    }

    fn keeps_mismatch(&self, index: usize) -> bool {
        let schema = &self.schema;
        let is_free = schema.key != Some(index) && schema.time != Some(index) && !schema.id.contains(&index);
        schema.fields[index].mismatch == Mismatch::Keep || (self.keep_all && is_free)
    }

    /// Keeps the value of field `index`, which has another type, among the undeclared fields.
    fn push_mismatch(&mut self, index: usize, json: &str) -> PendingValue {
        let schema = self.schema.clone();
        self.push_extra(&schema.fields[index].name, json);
        PendingValue::Null
    }

    fn store_string(&mut self, text: &str) -> PendingValue {
        let start = self.text.len();
        self.text.push_str(text);
        PendingValue::Text(start, self.text.len())
    }

    /// Parses a text cell as field `index`; `None` if it does not have the field's type.
    fn parse_text(&mut self, index: usize, cell: &str) -> Option<PendingValue> {
        let field = &self.schema.fields[index];
        match field.ty {
            FieldType::Bool => bool_from_text(cell).map(PendingValue::Bool),
            FieldType::Int => cell.parse::<i32>().ok().map(|n| PendingValue::Int(n.into())),
            FieldType::Long => cell.parse().ok().map(PendingValue::Int),
            FieldType::Float | FieldType::Double => parse_float(field.ty, cell).map(PendingValue::Float),
            FieldType::Time => field.time_from_text(cell).map(|t| PendingValue::Int(t.0)),
            FieldType::String => Some(self.store_string(cell)),
            FieldType::Object => Some(self.store_string(&serde_json::Value::from(cell).to_string())),
        }
    }

    /// Creates the error that field `index` cannot be parsed from `value`, which the message shows as
    /// `found`.
    fn mismatch(&self, index: usize, value: &str, found: &str) -> Error {
        Error::invalid(mismatch(&self.schema.fields[index], value, found))
    }

    /// Parses a JSON value as the declared type of field `index`.
    fn parse_json(&mut self, index: usize, raw: &str) -> Result<PendingValue> {
        let field = &self.schema.fields[index];
        let first = raw.as_bytes().first().copied().unwrap_or(b'n');
        if first == b'n' {
            return Ok(PendingValue::Null);
        }
        let slot = match (field.ty, first) {
            (FieldType::Object, _) => Some(self.store_string(raw)),
            (FieldType::String, b'"') => json_text(raw).map(|t| self.store_string(&t)),
            (FieldType::Bool, b't') => Some(PendingValue::Bool(true)),
            (FieldType::Bool, b'f') => Some(PendingValue::Bool(false)),
            (FieldType::Int, b'-' | b'0'..=b'9') => {
                json_integer(raw).filter(|n| i32::try_from(*n).is_ok()).map(PendingValue::Int)
            }
            (FieldType::Long, b'-' | b'0'..=b'9') => json_integer(raw).map(PendingValue::Int),
            (FieldType::Float | FieldType::Double, b'-' | b'0'..=b'9') => {
                parse_float(field.ty, raw).map(PendingValue::Float)
            }
            (FieldType::Time, b'"') => {
                json_text(raw).and_then(|t| field.time_from_text(&t)).map(|t| PendingValue::Int(t.0))
            }
            (FieldType::Time, b'-' | b'0'..=b'9') => {
                field.unit.unwrap_or_default().parse(raw).map(|t| PendingValue::Int(t.0))
            }
            _ => None,
        };
        match slot {
            Some(value) => Ok(value),
            None if self.keeps_mismatch(index) => Ok(self.push_mismatch(index, raw)),
            None => Err(self.mismatch(
                index,
                raw.trim_matches('"'),
                &format!("{}{}", shorten(raw), quotes_hint(&self.schema.fields[index], raw)),
            )),
        }
    }
}

/// Removes the byte order mark that some programs write at the start.
pub fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}

fn shorten(raw: &str) -> String {
    if raw.chars().count() <= 60 {
        return raw.to_owned();
    }
    format!("{}…", raw.chars().take(60).collect::<String>())
}

/// Removes ` at line 1 column 9`, which serde_json appends also to errors that name the field; for other
/// errors converts it to a byte position.
fn strip_position(message: String) -> String {
    match message.rfind(" at line 1 column ") {
        Some(at) if message.starts_with("field `") => message[..at].to_owned(),
        Some(at) => format!("{} at byte {}", &message[..at], &message[at + " at line 1 column ".len()..]),
        None => message,
    }
}

struct RowSeed<'b> {
    builder: &'b mut BatchBuilder,
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a JSON object with the fields of {}", self.builder.schema.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let builder = self.builder;
        // Senders usually keep the order of the declaration: check the next field first.
        let mut hint = 0;
        while let Some(key) = map.next_key::<ObjectKey<'de>>()? {
            let raw = map.next_value::<&'de RawValue>()?.get();
            let renamed =
                if builder.renames.is_empty() { None } else { builder.renames.get(key.0.as_ref()).cloned() };
            let name = renamed.as_deref().unwrap_or(key.0.as_ref());
            let at_hint = builder.schema.fields.get(hint).is_some_and(|f| f.name == name);
            let index = if at_hint { Some(hint) } else { builder.schema.field_index(name) };
            match index {
                Some(index) => {
                    if !matches!(builder.pending[index], PendingValue::Missing) {
                        return Err(repeated(name));
                    }
                    hint = index + 1;
                    builder.pending[index] =
                        builder.parse_json(index, raw).map_err(serde::de::Error::custom)?;
                    if is_kept_as_json(builder.schema.fields[index].ty, builder.pending[index], raw) {
                        check_keys(name, raw)?;
                    }
                }
                None if !builder.undeclared.insert(name.to_owned()) => return Err(repeated(name)),
                None if builder.envelope.as_deref() == Some(name) => {}
                None => {
                    check_keys(name, raw)?;
                    builder.push_extra(name, raw);
                }
            }
        }
        Ok(())
    }
}

/// Returns whether the text of a field's value is stored as it is: in an object, or because it does not fit the field.
fn is_kept_as_json(ty: FieldType, value: PendingValue, raw: &str) -> bool {
    ty == FieldType::Object || (matches!(value, PendingValue::Null) && raw != "null")
}

/// Errors: an object in the value has a key twice.
fn check_keys<E: serde::de::Error>(name: &str, raw: &str) -> Result<(), E> {
    match repeated_key(raw) {
        None => Ok(()),
        Some(path) if path.starts_with('[') => Err(repeated(&format!("{name}{path}"))),
        Some(path) => Err(repeated(&format!("{name}.{path}"))),
    }
}

/// Repeated fields are rejected, because JSON readers disagree on which value counts.
fn repeated<E: serde::de::Error>(name: &str) -> E {
    E::custom(repeated_field(name))
}

fn repeated_field(name: &str) -> String {
    format!("field `{name}` occurs twice")
}

/// An object key, borrowed unless it has escapes.
struct ObjectKey<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for ObjectKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = ObjectKey<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<ObjectKey<'de>, E> {
                Ok(ObjectKey(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<ObjectKey<'de>, E> {
                Ok(ObjectKey(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl ColumnBuilder {
    fn new(ty: FieldType) -> Self {
        match ty {
            FieldType::Bool => Self::Bool(BooleanBuilder::new()),
            FieldType::Int => Self::Int(Int32Builder::new()),
            FieldType::Long => Self::Long(Int64Builder::new()),
            FieldType::Float => Self::Float(Float32Builder::new()),
            FieldType::Double => Self::Double(Float64Builder::new()),
            FieldType::String | FieldType::Object => Self::Text(StringBuilder::new()),
            FieldType::Time => Self::Time(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
        }
    }

    /// Appends a value. It has the column's type or is missing or null, because it was checked against the
    /// declared type.
    fn push(&mut self, slot: PendingValue, text: &str) {
        match (self, slot) {
            (Self::Bool(b), PendingValue::Bool(v)) => b.append_value(v),
            (Self::Bool(b), _) => b.append_null(),
            (Self::Int(b), PendingValue::Int(v)) => b.append_option(i32::try_from(v).ok()),
            (Self::Int(b), _) => b.append_null(),
            (Self::Long(b), PendingValue::Int(v)) => b.append_value(v),
            (Self::Long(b), _) => b.append_null(),
            (Self::Float(b), PendingValue::Float(v)) => b.append_value(v as f32),
            (Self::Float(b), _) => b.append_null(),
            (Self::Double(b), PendingValue::Float(v)) => b.append_value(v),
            (Self::Double(b), _) => b.append_null(),
            (Self::Text(b), PendingValue::Text(start, end)) => b.append_value(&text[start..end]),
            (Self::Text(b), _) => b.append_null(),
            (Self::Time(b), PendingValue::Int(v)) => b.append_value(v),
            (Self::Time(b), _) => b.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(b) => Arc::new(b.finish()),
            Self::Int(b) => Arc::new(b.finish()),
            Self::Long(b) => Arc::new(b.finish()),
            Self::Float(b) => Arc::new(b.finish()),
            Self::Double(b) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(b.finish()),
            Self::Time(b) => Arc::new(b.finish()),
        }
    }
}

/// A typed value, computed by a rule or passed in process, before it becomes part of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// No value.
    Missing,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string, or the JSON text of an object.
    Text(String),
    /// An instant.
    Time(Timestamp),
    /// A duration; stored in milliseconds in integer fields.
    Span(Duration),
}

impl FieldValue {
    /// Returns the value as JSON: times as RFC 3339, durations in milliseconds, numbers that JSON does not have as null.
    fn to_json(&self) -> String {
        let value = match self {
            Self::Missing => serde_json::Value::Null,
            Self::Bool(b) => (*b).into(),
            Self::Int(n) => (*n).into(),
            Self::Float(x) => (*x).into(),
            Self::Text(s) => s.as_str().into(),
            Self::Time(t) => t.to_string().into(),
            Self::Span(d) => (d.0 / 1000).into(),
        };
        value.to_string()
    }
}

impl BatchBuilder {
    /// Adds one row of typed cells, one for each declared field in order. `time` is the event time unless the
    /// stream's time field is among the cells.
    ///
    /// Errors: `Invalid` when a cell does not fit its field.
    pub fn push_values(&mut self, cells: &[FieldValue], time: Timestamp) -> Result<()> {
        self.begin();
        for (index, cell) in cells.iter().enumerate() {
            let ty = self.schema.fields[index].ty;
            let slot = match (ty, cell) {
                (_, FieldValue::Missing) => PendingValue::Missing,
                (FieldType::Bool, FieldValue::Bool(b)) => PendingValue::Bool(*b),
                (FieldType::Int, FieldValue::Int(n)) if i32::try_from(*n).is_ok() => PendingValue::Int(*n),
                (FieldType::Long, FieldValue::Int(n)) => PendingValue::Int(*n),
                (FieldType::Long | FieldType::Int, FieldValue::Span(d)) => PendingValue::Int(d.0 / 1000),
                (FieldType::Long, FieldValue::Time(t)) => PendingValue::Int(t.0 / 1000),
                (FieldType::Int | FieldType::Long, FieldValue::Float(x))
                    if x.fract() == 0.0 && x.abs() < 2e9 =>
                {
                    PendingValue::Int(*x as i64)
                }
                (FieldType::Float | FieldType::Double, FieldValue::Float(x)) => PendingValue::Float(*x),
                (FieldType::Float | FieldType::Double, FieldValue::Int(n)) => PendingValue::Float(*n as f64),
                (FieldType::Time, FieldValue::Time(t)) => PendingValue::Int(t.0),
                (FieldType::String | FieldType::Object, FieldValue::Text(s)) => self.store_string(s),
                (_, cell) if self.keeps_mismatch(index) => self.push_mismatch(index, &cell.to_json()),
                (_, cell) => return Err(self.mismatch(index, "", &format!("{cell:?}"))),
            };
            self.pending[index] = slot;
        }
        self.commit(time);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
