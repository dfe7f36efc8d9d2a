//! `@purge`: retention of rows.

use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry, ExprKind, PeriodUnit};
use tidemill_lang::{Diagnostic, FileId, SourceFile};
use tidemill_types::did_you_mean;

use super::within;
use crate::catalog::RetentionPolicy;

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Parses the `@purge` annotation of an aggregation with granularities `units`; `None` if purging is
/// disabled.
///
/// Errors: an element is unknown or not readable, or a retention is below its minimum.
pub(super) fn parse_purge(
    annotations: &[Annotation],
    units: &[PeriodUnit],
) -> Result<Option<RetentionPolicy>, Diagnostic> {
    let retention_ms = units.iter().map(|unit| default_and_min_retention(*unit).0).collect();
    let mut purge = RetentionPolicy { interval_ms: 15 * MINUTE_MS, retention_ms };
    let mut enabled = true;
    for annotation in annotations.iter().filter(|a| a.is("purge")) {
        for element in annotation.elements() {
            if element.has_key("enable") {
                enabled = match element.value.value.to_ascii_lowercase().as_str() {
                    "true" => true,
                    "false" => false,
                    other => {
                        let message = format!("`enable` must be 'true' or 'false', found '{other}'");
                        return Err(wrong(element, message));
                    }
                };
            } else if element.has_key("interval") {
                purge.interval_ms = parse_time(element)?;
            } else {
                let key = element.key.as_ref().map_or("", |k| k.value.as_str());
                let hint = did_you_mean(key, ["enable", "interval"]);
                return Err(wrong(element, format!("`@purge` has no element `{key}`{hint}")));
            }
        }
        for nested in annotation.nested() {
            if !nested.is("retentionPeriod") {
                let message = format!("`@purge` has no `@{}`", nested.name.name);
                return Err(Diagnostic::error("F0718", nested.span, message)
                    .help("write @retentionPeriod(sec='120 sec', min='24 hours', …)"));
            }
            for element in nested.elements() {
                let (place, kept) = parse_retention(element, units)?;
                purge.retention_ms[place] = kept;
            }
        }
    }
    Ok(enabled.then_some(purge))
}

/// Returns the default retention of a unit, `None` for forever, and its minimum; in milliseconds.
fn default_and_min_retention(unit: PeriodUnit) -> (Option<i64>, i64) {
    match unit {
        PeriodUnit::Second => (Some(120 * SECOND_MS), 120 * SECOND_MS),
        PeriodUnit::Minute => (Some(24 * HOUR_MS), 120 * MINUTE_MS),
        PeriodUnit::Hour => (Some(30 * DAY_MS), 25 * HOUR_MS),
        PeriodUnit::Day | PeriodUnit::Week => (Some(365 * DAY_MS), 32 * DAY_MS),
        PeriodUnit::Month => (None, 13 * 30 * DAY_MS),
        PeriodUnit::Year => (None, 0),
    }
}

/// Parses `hours='30 days'`; returns the index of the unit and the retention of its rows.
fn parse_retention(
    element: &AnnotationEntry,
    units: &[PeriodUnit],
) -> Result<(usize, Option<i64>), Diagnostic> {
    let key = element.key.as_ref().map_or("", |k| k.value.as_str());
    let unit = within::unit(key).map_err(|message| wrong(element, message))?;
    let Some(place) = units.iter().position(|kept| *kept == unit) else {
        let message = format!("the aggregation has no buckets of `{key}`");
        let units: Vec<&str> = units.iter().map(|unit| unit.text()).collect();
        return Err(wrong(element, message).note(format!("its buckets are {}", units.join(", "))));
    };
    if element.value.value.trim().eq_ignore_ascii_case("all") {
        return Ok((place, None));
    }
    let (ms, (_, least)) = (parse_time(element)?, default_and_min_retention(unit));
    if ms < least {
        let least = match unit {
            PeriodUnit::Second => "120 sec",
            PeriodUnit::Minute => "120 min",
            PeriodUnit::Hour => "25 hours",
            PeriodUnit::Day | PeriodUnit::Week => "32 days",
            PeriodUnit::Month | PeriodUnit::Year => "13 months",
        };
        return Err(wrong(element, format!("the retention of buckets of `{key}` must be at least {least}")));
    }
    Ok((place, Some(ms)))
}

/// Parses a positive duration; returns milliseconds.
fn parse_time(element: &AnnotationEntry) -> Result<i64, Diagnostic> {
    let text = &element.value.value;
    let parsed = tidemill_lang::siddhi::parse_expression(&SourceFile::new(FileId(0), "time", text.as_str()));
    match parsed.map(|expr| expr.kind) {
        Ok(ExprKind::Time(time)) if time.ms > 0 => Ok(time.ms),
        _ => Err(wrong(element, format!("`{text}` is not a duration above 0"))
            .help("write a duration such as '30 days' or '1 hour 30 min'")),
    }
}

fn wrong(element: &AnnotationEntry, message: String) -> Diagnostic {
    Diagnostic::error("F0718", element.span, message)
}
