//! Rows as the text that both COPY and LOAD DATA read: columns end with tabs, rows with newlines, `\N` is NULL,
//! backslashes escape.

use std::fmt::Write as _;

use tidemill_types::{FieldType, Timestamp, Value};

use crate::dialect::Dialect;

/// Writes a value of a column of type `ty`, escaped.
///
/// Errors: the database has no such value.
pub fn write_cell(
    dialect: Dialect,
    ty: FieldType,
    value: &Value<'_>,
    out: &mut String,
) -> Result<(), String> {
    check(dialect, value)?;
    match value {
        Value::Missing | Value::Null => out.push_str("\\N"),
        Value::Bool(b) => out.push(if *b { '1' } else { '0' }),
        Value::Int(n) => out.push_str(itoa::Buffer::new().format(*n)),
        Value::Float(x) if x.is_nan() => out.push_str("NaN"),
        Value::Float(x) if x.is_infinite() => out.push_str(if *x < 0.0 { "-Infinity" } else { "Infinity" }),
        Value::Float(x) if ty == FieldType::Float => {
            out.push_str(ryu::Buffer::new().format_finite(*x as f32))
        }
        Value::Float(x) => out.push_str(ryu::Buffer::new().format_finite(*x)),
        Value::Str(text) => escape(text, out),
        Value::Time(time) => {
            let civil = civil(*time).ok_or_else(time_range)?;
            let [month, day, hour, minute, second] = civil.parts;
            let (year, micros) = (civil.year, civil.micros);
            let zone = if dialect == Dialect::PostgreSql { "+00" } else { "" };
            // writing to a string cannot fail
            let _ = write!(
                out,
                "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}{zone}"
            );
        }
        Value::Bson(_) => return Err("documents cannot be written to a database".into()),
    };
    Ok(())
}

/// Checks that the database has such a value.
///
/// Errors: it has not.
pub fn check(dialect: Dialect, value: &Value<'_>) -> Result<(), String> {
    match (dialect, value) {
        (Dialect::MySql | Dialect::Sqlite | Dialect::SqlServer, Value::Float(x)) if !x.is_finite() => {
            Err(format!("{dialect} has no `{x}`; columns of floats take finite numbers and NULL"))
        }
        (Dialect::PostgreSql, Value::Str(text)) if text.contains('\0') => {
            Err(format!("{dialect} takes no text with the character U+0000"))
        }
        (_, Value::Time(time)) if civil(*time).is_none() => Err(time_range()),
        (_, Value::Bson(_)) => Err("documents cannot be written to a database".into()),
        _ => Ok(()),
    }
}

fn escape(text: &str, out: &mut String) {
    let is_special = |byte: &u8| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r' | 0);
    let mut rest = text;
    // all of them are below 0x80, so no character is cut
    while let Some(at) = rest.as_bytes().iter().position(is_special) {
        out.push_str(&rest[..at]);
        out.push('\\');
        out.push(match rest.as_bytes()[at] {
            b'\t' => 't',
            b'\n' => 'n',
            b'\r' => 'r',
            0 => '0',
            other => other.into(),
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// Message about times that databases cannot store.
pub fn time_range() -> String {
    "the time is not between the years 1 and 9999".into()
}

/// Date and time of day, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    pub year: u16,
    /// Month, day, hour, minute, second.
    pub parts: [u8; 5],
    pub micros: u32,
}

/// Returns date and time of day, or `None` outside of the years 1 to 9999.
pub fn civil(time: Timestamp) -> Option<Civil> {
    let (days, rest) = (time.micros().div_euclid(86_400_000_000), time.micros().rem_euclid(86_400_000_000));
    // Howard Hinnant, chrono-compatible low-level date algorithms: civil_from_days
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let year = u16::try_from(year).ok().filter(|year| (1..=9999).contains(year))?;
    let seconds = rest / 1_000_000;
    Some(Civil {
        year,
        // all below 60
        parts: [
            month as u8,
            day as u8,
            (seconds / 3600) as u8,
            (seconds / 60 % 60) as u8,
            (seconds % 60) as u8,
        ],
        micros: (rest % 1_000_000) as u32,
    })
}

/// Returns microseconds since 1970.
pub fn micros_of_civil(year: u16, parts: [u8; 5], micros: u32) -> i64 {
    let [month, day, hour, minute, second] = parts.map(i64::from);
    let y = i64::from(year) - i64::from(month <= 2);
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doy = (153 * mp + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    let days = era * 146_097 + doe - 719_468;
    ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + i64::from(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_dates() {
        let year_1: i64 = -62_135_596_800_000_000;
        for micros in [0, -1, 1_700_000_000_123_456, year_1, 253_402_300_799_999_999, 951_782_400_000_000] {
            let civil = civil(Timestamp(micros)).unwrap();
            assert_eq!(micros_of_civil(civil.year, civil.parts, civil.micros), micros);
        }
        assert_eq!(civil(Timestamp(year_1 - 1)), None);
        assert_eq!(civil(Timestamp(253_402_300_800_000_000)), None);
        assert_eq!(civil(Timestamp(951_782_400_000_000)).unwrap().parts, [2, 29, 0, 0, 0]);
    }
}
