//! Single values from text and JSON, and what a value that does not fit its field should have been.

use std::borrow::Cow;

use crate::{EpochUnit, Field, FieldType};

/// Returns the reason why `value` does not fit a field; the message shows it as `found`.
pub fn mismatch(field: &Field, value: &str, found: &str) -> String {
    let (expected, hint) = (expected(field), unit_hint(field, value));
    format!("field `{}`: expected {expected}, found {found}{hint}", field.name)
}

/// Returns the advice that follows a JSON text that would fit its field without the quotes.
pub(super) fn quotes_hint(field: &Field, raw: &str) -> &'static str {
    let Some(inner) = json_text(raw).filter(|_| raw.starts_with('"')) else { return "" };
    let is_json = serde_json::from_str::<serde_json::Number>(&inner).is_ok();
    match field.ty {
        FieldType::Int if is_json && json_integer(&inner).is_some_and(|n| i32::try_from(n).is_ok()) => {
            NUMBER_HINT
        }
        FieldType::Long if is_json && json_integer(&inner).is_some() => NUMBER_HINT,
        FieldType::Float | FieldType::Double if is_json && parse_float(field.ty, &inner).is_some() => {
            NUMBER_HINT
        }
        FieldType::Bool if matches!(inner.as_ref(), "true" | "false") => {
            ", a truth value in quotes: write it without them"
        }
        _ => "",
    }
}

const NUMBER_HINT: &str = ", a number in quotes: write it without them";

fn expected(field: &Field) -> Cow<'static, str> {
    Cow::Borrowed(match field.ty {
        FieldType::Bool => "bool (true or false)",
        FieldType::Int => "int (a whole number of 32 bits)",
        FieldType::Long => "long (a whole number of 64 bits)",
        FieldType::Float => "float (a number up to 3.4e38)",
        FieldType::Double => "double (a number up to 1.8e308)",
        FieldType::String => "string (text in quotes)",
        FieldType::Time => {
            let (ty, unit) = (field.declared_type(), field.unit.unwrap_or_default().name());
            let expected = format!("{ty} (RFC 3339 such as \"2013-01-01T10:17:00Z\", or {unit} since 1970)");
            return Cow::Owned(expected);
        }
        FieldType::Object => "object (any JSON)",
    })
}

/// Suggests a declaration when a number is too large for a time of the field's unit, but not for a shorter
/// one.
fn unit_hint(field: &Field, value: &str) -> String {
    let unit = field.unit.unwrap_or_default();
    if field.ty != FieldType::Time || unit.parse(value).is_some() {
        return String::new();
    }
    let shorter = EpochUnit::ALL.into_iter().skip_while(|u| *u != unit).skip(1);
    match shorter.into_iter().find(|unit| unit.parse(value).is_some()) {
        Some(unit) => {
            format!("; if it counts {}, declare `{}: time({})`", unit.name(), field.name, unit.symbol())
        }
        None => String::new(),
    }
}

/// Parses a truth value as programs write it: `true`, `t`, `yes`, `y`, `on`, `1` and their opposites, in any case.
pub fn bool_from_text(text: &str) -> Option<bool> {
    let is = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match is(["true", "t", "yes", "y", "on", "1"]) {
        true => Some(true),
        false => is(["false", "f", "no", "n", "off", "0"]).then_some(false),
    }
}

/// Parses a number within the range of the type: too large ones do not become infinity. `inf` and `nan` in
/// CSV are accepted.
pub(super) fn parse_float(ty: FieldType, text: &str) -> Option<f64> {
    let x: f64 = text.parse().ok()?;
    let fits = x.is_finite() && (ty == FieldType::Double || (x as f32).is_finite());
    (fits || !text.bytes().any(|b| b.is_ascii_digit())).then_some(x)
}

/// Parses a JSON number without a fraction; `5.0` and `5e2` count. Those forms are limited to 2^53 in
/// magnitude.
pub(super) fn json_integer(raw: &str) -> Option<i64> {
    raw.parse::<i64>().ok().or_else(|| {
        let x = raw.parse::<f64>().ok()?;
        (x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0).then_some(x as i64)
    })
}

pub(super) fn json_text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.get(1..raw.len().checked_sub(1)?)?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}
