//! Accumulators as columns of a stored row.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use tidemill_types::FieldType;

use super::accumulators::AccumulatorColumn;
use crate::columns::value::{Key, Value};

/// State of an accumulator as a stored row has it.
pub(super) struct StoredState {
    /// Sum, number, extreme, set or latest value.
    pub(super) value: Value,
    /// Number of values in a sum; null for other accumulators.
    pub(super) count: Value,
    /// Time of the latest event; null for accumulators that do not need it.
    pub(super) last_event_time: Value,
}

impl AccumulatorColumn {
    /// Returns what the column of the value has for a row. A sum without values is null.
    pub(super) fn stored_value(&self, row: usize) -> Value {
        match self {
            Self::Count(counts) => Value::Long(counts.get(row).cast_signed()),
            Self::IntegerSum(sums) => match *sums.get(row) {
                (_, 0) => Value::Null,
                (sum, _) => Value::Long(sum),
            },
            Self::FloatSum(sums) => match *sums.get(row) {
                (_, 0) => Value::Null,
                (sum, _) => Value::Double(sum),
            },
            Self::Min(best) | Self::Max(best) => best.get(row).clone(),
            Self::DistinctCount(sets) => Value::text(&set_text(sets.get(row))),
            Self::Last(latest) => latest.get(row).1.clone(),
        }
    }

    /// Returns the number of values in the sum of a row; null for other accumulators.
    pub(super) fn stored_count(&self, row: usize) -> Value {
        match self {
            Self::IntegerSum(sums) => Value::Long(sums.get(row).1.cast_signed()),
            Self::FloatSum(sums) => Value::Long(sums.get(row).1.cast_signed()),
            _ => Value::Null,
        }
    }

    /// Returns the time of the latest event of a row; null for other accumulators.
    pub(super) fn stored_time(&self, row: usize) -> Value {
        match self {
            Self::Last(latest) => Value::Long(latest.get(row).0),
            _ => Value::Null,
        }
    }

    /// Appends the accumulator of a stored row. `arg` is the type of the argument.
    ///
    /// Errors: another program has written an invalid set.
    pub(super) fn push_stored(&mut self, state: StoredState, arg: FieldType) -> Result<(), String> {
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        let StoredState { value, count, last_event_time } = state;
        let count = number(&count).cast_unsigned();
        match self {
            Self::Count(counts) => counts.push(number(&value).cast_unsigned()),
            Self::IntegerSum(sums) => sums.push((number(&value), count)),
            Self::FloatSum(sums) => sums.push((value.as_f64().unwrap_or_default(), count)),
            Self::Min(best) | Self::Max(best) => best.push(value),
            Self::DistinctCount(sets) => sets.push(match &value {
                Value::Str(text) => parse_set(text, arg)?,
                _ => BTreeSet::new(),
            }),
            Self::Last(latest) => latest.push((last_event_time.as_i64().unwrap_or(i64::MIN), value)),
        }
        Ok(())
    }
}

/// Returns a set as a JSON array in its order: `[null,1.5,"NaN"]`. Numbers that JSON does not have are strings.
fn set_text(set: &BTreeSet<Key>) -> String {
    let element = |key: &Key| match &key.0 {
        Value::Float(n) if n.is_finite() => format!("{n:?}"),
        Value::Double(n) if n.is_finite() => format!("{n:?}"),
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Int(_) | Value::Long(_) => key.0.to_string(),
        other => serde_json::Value::from(other.to_string()).to_string(),
    };
    format!("[{}]", set.iter().map(element).collect::<Vec<_>>().join(","))
}

/// Reads what [`set_text`] has written of values of type `ty`.
fn parse_set(text: &str, ty: FieldType) -> Result<BTreeSet<Key>, String> {
    let wrong = |what: &str| format!("`{what}` is not a set of values of type {}", ty.name());
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| wrong(text))?;
    let element = |raw: &&RawValue| {
        let raw = raw.get();
        let unquoted: Option<String> = serde_json::from_str(raw).ok();
        let text = unquoted.as_deref().unwrap_or(raw);
        let value = match ty {
            _ if raw == "null" => Some(Value::Null),
            FieldType::String => unquoted.as_deref().map(Value::text),
            FieldType::Bool => text.parse().ok().map(Value::Bool),
            FieldType::Int => text.parse().ok().map(Value::Int),
            FieldType::Float => text.parse().ok().map(Value::Float),
            FieldType::Double => text.parse().ok().map(Value::Double),
            _ => text.parse().ok().map(Value::Long),
        };
        value.map(Key).ok_or_else(|| wrong(raw))
    };
    elements.iter().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_back_from_their_texts() {
        let doubles = [0.1, -0.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 16_777_217.0];
        let sets = [
            (
                FieldType::String,
                vec![Value::Null, Value::text("null"), Value::text("a\"\\\n"), Value::text("")],
            ),
            (FieldType::Int, vec![Value::Int(i32::MIN), Value::Int(0)]),
            (FieldType::Long, vec![Value::Long(i64::MAX), Value::Null]),
            (FieldType::Float, [0.1_f32, f32::MAX, f32::NAN].map(Value::Float).to_vec()),
            (FieldType::Double, doubles.map(Value::Double).to_vec()),
            (FieldType::Double, vec![]),
        ];
        for (ty, values) in sets {
            let set: BTreeSet<Key> = values.into_iter().map(Key).collect();
            let text = set_text(&set);
            assert_eq!(parse_set(&text, ty).expect(&text), set, "{text}");
        }
        assert_eq!(set_text(&[Key(Value::Int(2)), Key(Value::Int(1))].into()), "[1,2]");
        assert!(parse_set("[1.5]", FieldType::Int).is_err());
        assert!(parse_set("1,2", FieldType::Int).is_err());
    }
}
