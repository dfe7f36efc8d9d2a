//! Rows of named values, as formats with their own types have them.

use serde_json::Value as Json;

use super::scalars::mismatch;
use super::{BatchBuilder, PendingValue, repeated_field};
use crate::{Error, FieldType, Result, Timestamp, repeated_key};

/// Largest magnitude up to which every whole number is a `double`.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Value of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CellValue<'v> {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer without a sign.
    Unsigned(u64),
    /// A float.
    Float(f64),
    /// A string, which fits fields of strings, times and objects.
    Text(&'v str),
    /// A text in a format that has no other values for it: it is parsed by the type of its field.
    Untyped(&'v str),
    /// The text of a JSON value, which fits fields of objects, and those of strings as this text.
    Json(&'v str),
    /// An instant.
    Time(Timestamp),
}

impl CellValue<'_> {
    /// Returns the value as JSON: times as RFC 3339, numbers that JSON does not have as texts.
    pub fn to_json(self) -> Json {
        match self {
            Self::Bool(b) => b.into(),
            Self::Int(n) => n.into(),
            Self::Unsigned(n) => n.into(),
            Self::Float(x) => {
                serde_json::Number::from_f64(x).map_or_else(|| x.to_string().into(), Json::Number)
            }
            Self::Text(text) | Self::Untyped(text) => text.into(),
            Self::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            Self::Time(time) => time.to_string().into(),
        }
    }

    /// Returns the value as the text of JSON, which is [`Self::Json`] as it came.
    fn json_text(self) -> String {
        match self {
            Self::Json(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
                text.to_owned()
            }
            other => other.to_json().to_string(),
        }
    }
}

impl BatchBuilder {
    /// Sets whether events with a value of another type are stored whatever their declaration says, as with
    /// [`crate::Mismatch::Keep`]. Fields of the key, the id and the time are not meant: without them an event would be another one.
    pub fn set_keep_mismatches(&mut self, keep: bool) {
        self.keep_all = keep;
    }

    /// Adds one row of named values; names that are not declared are stored as undeclared fields. `time` is the event time unless the
    /// stream's time field is among the cells.
    ///
    /// Errors: `Invalid` when a name occurs twice, or a value does not fit its field; the row is not stored.
    pub fn push_cells<'c>(
        &mut self,
        cells: impl IntoIterator<Item = (&'c str, CellValue<'c>)>,
        time: Timestamp,
    ) -> Result<()> {
        self.begin();
        // Senders usually keep the order of the declaration: check the next field first.
        let mut hint = 0;
        for (name, cell) in cells {
            let at_hint = self.schema.fields.get(hint).is_some_and(|f| f.name == name);
            match if at_hint { Some(hint) } else { self.schema.field_index(name) } {
                Some(index) => {
                    if !matches!(self.pending[index], PendingValue::Missing) {
                        return Err(Error::invalid(repeated_field(name)));
                    }
                    hint = index + 1;
                    self.pending[index] = self.fit_cell(index, cell)?;
                }
                None if !self.undeclared.insert(name.to_owned()) => {
                    return Err(Error::invalid(repeated_field(name)));
                }
                None => self.push_extra(name, &cell.json_text()),
            }
        }
        self.commit(time);
        Ok(())
    }

    fn fit_cell(&mut self, index: usize, cell: CellValue<'_>) -> Result<PendingValue> {
        let field = &self.schema.fields[index];
        let (ty, unit) = (field.ty, field.unit.unwrap_or_default());
        if let (FieldType::Object, CellValue::Json(text)) = (ty, cell)
            && let Some(path) = repeated_key(text)
        {
            let dot = if path.starts_with('[') { "" } else { "." };
            return Err(Error::invalid(repeated_field(&format!("{}{dot}{path}", field.name))));
        }
        let fit = match (ty, cell) {
            (_, CellValue::Untyped(text)) => self.parse_text(index, text),
            (FieldType::Object, CellValue::Json(text)) => match text.trim() {
                "null" => Some(PendingValue::Null),
                text if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
                    Some(self.store_string(text))
                }
                _ => None,
            },
            (FieldType::Object, cell) => Some(self.store_string(&cell.json_text())),
            (FieldType::String, CellValue::Json(text)) => Some(self.store_string(text)),
            (FieldType::Bool, CellValue::Bool(b)) => Some(PendingValue::Bool(b)),
            (FieldType::Int, cell) => {
                whole(cell).filter(|n| i32::try_from(*n).is_ok()).map(PendingValue::Int)
            }
            (FieldType::Long, cell) => whole(cell).map(PendingValue::Int),
            (FieldType::Float | FieldType::Double, cell) => number(cell)
                .filter(|x| ty == FieldType::Double || !x.is_finite() || (*x as f32).is_finite())
                .map(PendingValue::Float),
            (FieldType::String, CellValue::Text(text)) => Some(self.store_string(text)),
            (FieldType::Time, CellValue::Time(time)) => Some(PendingValue::Int(time.0)),
            (FieldType::Time, CellValue::Text(text)) => {
                field.time_from_text(text).map(|time| PendingValue::Int(time.0))
            }
            (FieldType::Time, CellValue::Int(n)) => unit.timestamp(n).map(|time| PendingValue::Int(time.0)),
            (FieldType::Time, CellValue::Unsigned(n)) => {
                i64::try_from(n).ok().and_then(|n| unit.timestamp(n)).map(|time| PendingValue::Int(time.0))
            }
            (FieldType::Time, CellValue::Float(x)) => {
                unit.parse(&x.to_string()).map(|time| PendingValue::Int(time.0))
            }
            (FieldType::Bool | FieldType::String | FieldType::Time, _) => None,
        };
        match fit {
            Some(value) => Ok(value),
            None if self.keeps_mismatch(index) => Ok(self.push_mismatch(index, &cell.json_text())),
            None => {
                let json = cell.json_text();
                let reason =
                    mismatch(&self.schema.fields[index], json.trim_matches('"'), &super::shorten(&json));
                Err(Error::invalid(reason))
            }
        }
    }
}

/// Returns a number without a fraction. Floats are limited to 2^53 in magnitude, as in JSON.
fn whole(cell: CellValue<'_>) -> Option<i64> {
    match cell {
        CellValue::Int(n) => Some(n),
        CellValue::Unsigned(n) => i64::try_from(n).ok(),
        CellValue::Float(x) => (x.fract() == 0.0 && x.abs() <= EXACT_MAX).then_some(x as i64),
        _ => None,
    }
}

fn number(cell: CellValue<'_>) -> Option<f64> {
    match cell {
        CellValue::Int(n) => Some(n as f64),
        CellValue::Unsigned(n) => Some(n as f64),
        CellValue::Float(x) => Some(x),
        _ => None,
    }
}
