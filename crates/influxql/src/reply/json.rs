//! JSON of results. Numbers are written as Go writes them.

use std::fmt::Write as _;

use super::Epoch;
use crate::series::{ResultSeries, SeriesRow, StatementResult};
use crate::value::InfluxValue;

/// Returns the JSON of a result.
pub(super) fn result(result: &StatementResult, epoch: Epoch) -> String {
    let series: Vec<String> =
        result.series.iter().map(|one| self::series(one, &one.rows, epoch, false)).collect();
    with_series(result, &series, false)
}

/// Returns a result in parts of at most so many rows; a series or a result that continues in the next part is `partial`.
pub(super) fn chunks(
    result: &StatementResult,
    epoch: Epoch,
    rows: usize,
) -> Box<dyn Iterator<Item = String> + Send + '_> {
    if result.series.is_empty() {
        return Box::new(std::iter::once(with_series(result, &[], false)));
    }
    let last = result.series.len() - 1;
    let parts = result.series.iter().enumerate().flat_map(move |(index, one)| {
        let count = one.rows.len().div_ceil(rows).max(1);
        (0..count).map(move |number| {
            let end = one.rows.len().min((number + 1).saturating_mul(rows));
            let is_partial = number + 1 < count;
            let text = series(one, &one.rows[number * rows..end], epoch, is_partial);
            with_series(result, &[text], is_partial || index < last)
        })
    });
    Box::new(parts)
}

fn with_series(result: &StatementResult, series: &[String], is_partial: bool) -> String {
    let mut text = format!("{{\"statement_id\":{}", result.id);
    if !series.is_empty() {
        let _ = write!(text, ",\"series\":[{}]", series.join(","));
    }
    if is_partial {
        text.push_str(",\"partial\":true");
    }
    if let Some(error) = &result.error {
        text.push_str(",\"error\":");
        quoted(&mut text, error);
    }
    text.push('}');
    text
}

fn series(series: &ResultSeries, rows: &[SeriesRow], epoch: Epoch, is_partial: bool) -> String {
    let mut text = String::from("{");
    if !series.name.is_empty() {
        text.push_str("\"name\":");
        quoted(&mut text, &series.name);
        text.push(',');
    }
    if !series.tags.is_empty() {
        text.push_str("\"tags\":{");
        for (index, (tag, value)) in series.tags.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            quoted(&mut text, tag);
            text.push(':');
            quoted(&mut text, value);
        }
        text.push_str("},");
    }
    text.push_str("\"columns\":[");
    for (index, column) in series.columns.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        quoted(&mut text, column);
    }
    text.push_str("],\"values\":[");
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        self::row(&mut text, series, row, epoch);
    }
    text.push(']');
    if is_partial {
        text.push_str(",\"partial\":true");
    }
    text.push('}');
    text
}

fn row(text: &mut String, series: &ResultSeries, row: &SeriesRow, epoch: Epoch) {
    text.push('[');
    if let Some(time) = row.time {
        match epoch {
            Epoch::Text => quoted(text, &crate::time::format(time, &series.zone)),
            Epoch::Number(unit) => {
                let _ = write!(text, "{}", time / unit);
            }
        }
    }
    for (index, value) in row.values.iter().enumerate() {
        if index > 0 || row.time.is_some() {
            text.push(',');
        }
        match value {
            Some(InfluxValue::Float(value)) if value.is_finite() => float(text, *value),
            Some(InfluxValue::Integer(value)) => {
                let _ = write!(text, "{value}");
            }
            Some(InfluxValue::Text(value)) => quoted(text, value),
            Some(InfluxValue::Boolean(value)) => text.push_str(if *value { "true" } else { "false" }),
            // JSON has neither NaN nor infinities
            Some(InfluxValue::Float(_)) | None => text.push_str("null"),
        }
    }
    text.push(']');
}

/// Writes a number without an exponent from 1e-6 up to 1e21.
fn float(text: &mut String, value: f64) {
    let size = value.abs();
    let _ = if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let shown = format!("{value:e}");
        match shown.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => write!(text, "{digits}e+{exponent}"),
            _ => write!(text, "{shown}"),
        }
    } else {
        write!(text, "{value}")
    };
}

fn quoted(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            // as Go escapes them, for browsers
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// Returns JSON with line breaks and four blanks for each level.
pub(super) fn pretty(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut characters = json.chars().peekable();
    let mut is_text = false;
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"    ".repeat(depth));
    };
    while let Some(c) = characters.next() {
        if is_text {
            text.push(c);
            match c {
                '\\' => text.extend(characters.next()),
                '"' => is_text = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => {
                is_text = true;
                text.push(c);
            }
            '{' | '[' => {
                text.push(c);
                if let Some(end @ ('}' | ']')) = characters.peek().copied() {
                    text.push(end);
                    characters.next();
                    continue;
                }
                depth += 1;
                line(&mut text, depth);
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c => text.push(c),
        }
    }
    text
}
