//! Texts with placeholders for attributes: `alarms/{{site}}`.

use std::fmt::Write as _;

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use tidemill_types::{StreamSchema, Value, did_you_mean, row_value};

/// Text with placeholders that each event replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Column(usize),
}

impl Template {
    /// Parses a text for events of `schema`.
    ///
    /// Errors: a placeholder names no attribute.
    pub fn parse(text: &str, schema: &StreamSchema) -> Result<Self, String> {
        let mut parts = vec![];
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{")
            && let Some((name, behind)) = behind.split_once("}}")
        {
            let column = schema.field_index(name.trim()).ok_or_else(|| {
                let hint = did_you_mean(name, schema.fields.iter().map(|f| f.name.as_str()));
                format!("the stream has no attribute `{name}`{hint}")
            })?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Column(column));
            rest = behind;
        }
        if !rest.is_empty() || parts.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Returns the text if it has no placeholder.
    pub fn constant(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Replaces the placeholders by the values of the event in `row`.
    pub fn render(&self, rows: &RecordBatch, row: usize) -> String {
        self.render_with(rows, row, &|_, value, out| write_value(value, out))
    }

    /// Replaces the placeholders by what `write` makes of their columns and values, for formats in which values are
    /// escaped.
    pub fn render_with(
        &self,
        rows: &RecordBatch,
        row: usize,
        write: &dyn Fn(usize, &Value<'_>, &mut String),
    ) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Column(column) => write(*column, &shown_value(rows, *column, row), &mut out),
            }
        }
        out
    }
}

/// Returns the value in `row` of a column as it is written in texts: a 32-bit float becomes the double with the same
/// decimal digits, so that 55.6 is not written as 55.599998474121094.
pub fn shown_value(rows: &RecordBatch, column: usize, row: usize) -> Value<'_> {
    match row_value(rows, column, row) {
        Value::Float(x) if *rows.column(column).data_type() == DataType::Float32 => {
            Value::Float(format!("{:?}", x as f32).parse().unwrap_or(x))
        }
        value => value,
    }
}

/// Writes a value as SiddhiQL shows it: floats with a fraction, missing values as `null`.
pub fn write_value(value: &Value<'_>, out: &mut String) {
    // writing to a string cannot fail
    let _ = match value {
        Value::Missing | Value::Null => write!(out, "null"),
        Value::Str(text) => write!(out, "{text}"),
        Value::Float(x) => write!(out, "{x:?}"),
        other => write!(out, "{other}"),
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float32Array, Float64Array};

    use super::*;

    #[test]
    fn floats_keep_their_digits() {
        let columns: [(&str, ArrayRef); 2] = [
            ("f", Arc::new(Float32Array::from(vec![55.6, f32::MIN_POSITIVE, f32::INFINITY]))),
            ("d", Arc::new(Float64Array::from(vec![55.6, 1.0, f64::NAN]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let parts = vec![Part::Column(0), Part::Text(" ".into()), Part::Column(1)];
        let shown: Vec<_> = (0..3).map(|row| Template(parts.clone()).render(&rows, row)).collect();
        assert_eq!(shown, ["55.6 55.6", "1.1754944e-38 1.0", "inf NaN"]);
    }
}
