//! Log records as rows.

use tidemill_types::{FieldType, Result};

use super::messages::logs::{LogRecord, LogsRequest};
use super::streams::LOGS;
use super::value::{Instant, LogBody, attributes, body, hex, is_no_id};
use super::{push_flags, shared};
use crate::telemetry::{JsonText, Row, RowCell, RowTarget, SharedCells};

pub(super) fn add(request: &LogsRequest, rows: &mut dyn RowTarget) -> Result<()> {
    for resource in &request.resource_logs {
        for scope in &resource.scope_logs {
            let shared = shared(
                resource.resource.as_ref(),
                &resource.schema_url,
                scope.scope.as_ref(),
                &scope.schema_url,
            );
            for record in &scope.log_records {
                add_record(record, &shared, rows)?;
            }
        }
    }
    Ok(())
}

fn add_record<'a>(record: &'a LogRecord, shared: &SharedCells<'a>, rows: &mut dyn RowTarget) -> Result<()> {
    if !rows.takes(&LOGS) {
        rows.skip(&LOGS);
        return Ok(());
    }
    let mut row = Row::sharing(shared);
    match times(record) {
        Ok((time, observed)) => {
            if let Some(Instant { time, nanos }) = time {
                row.push("time", RowCell::Time(time));
                row.push("nanos", RowCell::Int(nanos));
            }
            row.time("observed_time", observed.map(|observed| observed.time));
        }
        Err(reason) => return rows.reject(&LOGS, reason, row.to_json()),
    }
    if record.severity_number != 0 {
        row.push("severity_number", RowCell::Int(record.severity_number.into()));
    }
    row.text("severity_text", record.severity_text.as_str());
    let schema = rows.schema(&LOGS);
    let is_object = |name| {
        let field = schema.as_ref().and_then(|schema| schema.field_index(name).map(|n| &schema.fields[n]));
        field.is_some_and(|field| field.ty == FieldType::Object)
    };
    match body(record.body.as_ref()) {
        Some(LogBody::Text(text)) if is_object("body") => {
            let mut json = JsonText::new();
            json.text(text);
            row.json("body", Some(json.finish()));
        }
        Some(LogBody::Text(text)) => row.push("body", RowCell::Text(text.into())),
        Some(LogBody::Json(json)) => row.json("body", Some(json)),
        None => {}
    }
    row.text("event_name", record.event_name.as_str());
    let ids = [
        ("trace_id", "invalid_trace_id", &record.trace_id, 16),
        ("span_id", "invalid_span_id", &record.span_id, 8),
    ];
    for (name, invalid, id, len) in ids {
        if is_no_id(id) {
            continue;
        }
        if id.len() == len {
            row.text(name, hex(id));
        } else {
            row.text(invalid, hex(id));
            rows.warn(format!(
                "a log record is stored without its {name}: expected {len} bytes, found {}; it is in _extra as {invalid}",
                id.len()
            ));
        }
    }
    push_flags(&mut row, record.flags);
    row.json("log_attributes", attributes(&record.attributes));
    row.nonzero("dropped_attributes_count", record.dropped_attributes_count);
    rows.push(&LOGS, row).map(drop)
}

/// Returns the time of a record and the one at which it was observed. A record without a time of its own has the latter.
///
/// Errors: one of them is out of range.
fn times(record: &LogRecord) -> Result<(Option<Instant>, Option<Instant>), String> {
    let observed = Instant::of("observedTimeUnixNano", record.observed_time_unix_nano)?;
    let time = Instant::of("timeUnixNano", record.time_unix_nano)?;
    Ok((time.or(observed), observed))
}
