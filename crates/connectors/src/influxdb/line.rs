//! Points as lines of InfluxDB's line protocol.

use tidemill_connect::{StoredRow, is_missing};
use tidemill_types::{FieldType, Value};

use super::layout::{Layout, Part, TIME_MS_MAX};
use super::text_of;

/// Bytes of a text at most.
const TEXT_BYTES_MAX: usize = 64 << 10;

impl Layout {
    /// Returns the line of a row.
    ///
    /// Errors: the reason why the row cannot be a point.
    pub(super) fn line(&self, row: &StoredRow) -> Result<String, String> {
        let mut line = escaped(&self.measurement, &[',', ' ']);
        for at in self.columns(Part::Tag) {
            let Some(value) = row.get(at).filter(|value| !is_missing(value)) else { continue };
            let (name, text) = (self.name(at), text_of(value));
            if text.is_empty() || text.contains('\n') || text.ends_with('\\') {
                return Err(format!(
                    "`{name}` is a tag, which cannot be empty, have line ends or end with a backslash"
                ));
            }
            line += &format!(",{}={}", escaped(name, &[',', '=', ' ']), escaped(&text, &[',', '=', ' ']));
        }
        let mut fields = vec![];
        for at in self.columns(Part::Field) {
            let Some(value) = row.get(at).filter(|value| !is_missing(value)) else { continue };
            let name = self.name(at);
            let text = match (value, self.ty(at)) {
                (Value::Int(n), FieldType::Int | FieldType::Long) => format!("{n}i"),
                (Value::Float(x), _) if x.is_finite() => x.to_string(),
                (Value::Int(n), _) => (*n as f64).to_string(),
                (Value::Bool(flag), _) => flag.to_string(),
                (Value::Str(text), _) if text.len() <= TEXT_BYTES_MAX => {
                    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
                }
                (Value::Str(_), _) => return Err(format!("`{name}` has more than {TEXT_BYTES_MAX} bytes")),
                (Value::Float(x), _) => return Err(format!("`{name}` is {x}, which InfluxDB has not")),
                _ => return Err(format!("InfluxDB has no values of the type of `{name}`")),
            };
            fields.push(format!("{}={text}", escaped(name, &[',', '=', ' '])));
        }
        if fields.is_empty() {
            return Err("all fields are null: a point has at least one".into());
        }
        let time = self.columns(Part::Time).find_map(|at| row.get(at));
        match time {
            Some(Value::Int(ms)) if ms.abs() <= TIME_MS_MAX => {
                Ok(format!("{line} {} {ms}", fields.join(",")))
            }
            Some(Value::Int(ms)) => Err(format!("`time` is {ms}, which is outside of what InfluxDB has")),
            _ => Err("`time` is null: a point has a time".into()),
        }
    }
}

fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
