//! CSV of results: name and tags of the series in front of each row.

use std::fmt::Write as _;

use super::Epoch;
use crate::series::{ResultSeries, StatementResult};
use crate::value::InfluxValue;

/// Writer of CSV, which has an empty line between statements.
#[derive(Debug, Default)]
pub(super) struct CsvWriter {
    has_result: bool,
}

impl CsvWriter {
    /// Returns the text of a result.
    pub fn result(&mut self, result: &StatementResult, epoch: Epoch) -> String {
        let mut text = String::new();
        if let Some(error) = &result.error {
            if self.has_result {
                text.push('\n');
            }
            self.has_result = true;
            text.push_str("error\n");
            cell(&mut text, error);
            text.push('\n');
            return text;
        }
        let Some(first) = result.series.first() else { return text };
        if self.has_result {
            text.push('\n');
        }
        self.has_result = true;
        text.push_str("name,tags");
        for column in &first.columns {
            text.push(',');
            cell(&mut text, column);
        }
        text.push('\n');
        for series in &result.series {
            rows(&mut text, series, epoch);
        }
        text
    }
}

fn rows(text: &mut String, series: &ResultSeries, epoch: Epoch) {
    let mut start = String::new();
    cell(&mut start, &series.name);
    let tags = series.tags.iter().filter(|(_, value)| !value.is_empty());
    let tags: Vec<String> = tags.map(|(tag, value)| format!("{}={}", escaped(tag), escaped(value))).collect();
    start.push(',');
    cell(&mut start, &tags.join(","));
    for row in &series.rows {
        text.push_str(&start);
        if let Some(time) = row.time {
            let unit = if let Epoch::Number(unit) = epoch { unit } else { 1 };
            let _ = write!(text, ",{}", time / unit);
        }
        for value in &row.values {
            text.push(',');
            match value {
                None => {}
                Some(InfluxValue::Float(value)) if value.is_finite() => {
                    let _ = write!(text, "{value}");
                }
                Some(InfluxValue::Float(_)) => {}
                Some(InfluxValue::Integer(value)) => {
                    let _ = write!(text, "{value}");
                }
                Some(InfluxValue::Text(value)) => cell(text, value),
                Some(InfluxValue::Boolean(value)) => {
                    let _ = write!(text, "{value}");
                }
            }
        }
        text.push('\n');
    }
}

/// Returns a part of a series' key with a backslash before commas, blanks and equal signs.
fn escaped(part: &str) -> String {
    part.chars().flat_map(|c| matches!(c, ',' | ' ' | '=').then_some('\\').into_iter().chain([c])).collect()
}

fn cell(text: &mut String, value: &str) {
    if value.contains(['"', ',', '\n', '\r']) || value.starts_with(' ') {
        text.push('"');
        text.push_str(&value.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(value);
    }
}
