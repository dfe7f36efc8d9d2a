//! Spans as rows.

use tidemill_types::Result;

use super::messages::trace::{Span, SpanEvent, SpanLink, SpanStatus, TracesRequest};
use super::streams::TRACES;
use super::value::{Instant, attributes, hex, is_no_id, name_of, write_instant, write_object};
use super::{push_flags, shared};
use crate::telemetry::{JsonText, Row, RowCell, RowTarget, SharedCells};

const KINDS: [&str; 6] = ["Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"];
const STATUS_CODES: [&str; 3] = ["Unset", "Ok", "Error"];

pub(super) fn add(request: &TracesRequest, rows: &mut dyn RowTarget) -> Result<()> {
    for resource in &request.resource_spans {
        for scope in &resource.scope_spans {
            let shared = shared(
                resource.resource.as_ref(),
                &resource.schema_url,
                scope.scope.as_ref(),
                &scope.schema_url,
            );
            for span in &scope.spans {
                add_span(span, &shared, rows)?;
            }
        }
    }
    Ok(())
}

fn add_span<'a>(span: &'a Span, shared: &SharedCells<'a>, rows: &mut dyn RowTarget) -> Result<()> {
    if !rows.takes(&TRACES) {
        rows.skip(&TRACES);
        return Ok(());
    }
    let mut row = Row::sharing(shared);
    row.text("span_name", span.name.as_str());
    if let Err(reason) = add_identity(span, &mut row) {
        return rows.reject(&TRACES, reason, row.to_json());
    }
    row.text("trace_state", span.trace_state.as_str());
    push_flags(&mut row, span.flags);
    row.text("span_kind", name_of(&KINDS, span.kind));
    let SpanStatus { code, message } = span.status.as_ref().unwrap_or(&NO_STATUS);
    row.text("status_code", name_of(&STATUS_CODES, *code));
    row.text("status_message", message.as_str());
    row.json("span_attributes", attributes(&span.attributes));
    row.nonzero("dropped_attributes_count", span.dropped_attributes_count);
    row.json("events", list(&span.events, write_event));
    row.nonzero("dropped_events_count", span.dropped_events_count);
    row.json("links", list(&span.links, write_link));
    row.nonzero("dropped_links_count", span.dropped_links_count);
    rows.push(&TRACES, row).map(drop)
}

static NO_STATUS: SpanStatus = SpanStatus { message: String::new(), code: 0 };

/// Adds the ids and the times of a span.
///
/// Errors: one of them is wrong. A span that lacks its ids could not be told from others.
fn add_identity<'a>(span: &'a Span, row: &mut Row<'a, '_>) -> Result<(), String> {
    for (column, name, id, len) in
        [("trace_id", "traceId", &span.trace_id, 16), ("span_id", "spanId", &span.span_id, 8)]
    {
        match id.len() {
            found if found != len => return Err(format!("{name}: expected {len} bytes, found {found}")),
            _ if is_no_id(id) => return Err(format!("{name}: expected an id, found only zeros")),
            _ => row.text(column, hex(id)),
        }
    }
    let parent = &span.parent_span_id;
    if !is_no_id(parent) {
        if parent.len() != 8 {
            return Err(format!("parentSpanId: expected 8 bytes or none, found {}", parent.len()));
        }
        row.text("parent_span_id", hex(parent));
    }
    let start = Instant::of("startTimeUnixNano", span.start_time_unix_nano)?;
    let end = Instant::of("endTimeUnixNano", span.end_time_unix_nano)?;
    if let Some(Instant { time, nanos }) = start {
        row.push("time", RowCell::Time(time));
        row.push("nanos", RowCell::Int(nanos));
    }
    row.time("end_time", end.map(|end| end.time));
    if start.is_some() && end.is_some() {
        // both are below 2^63
        let duration = span.end_time_unix_nano as i64 - span.start_time_unix_nano as i64;
        row.push("duration_nano", RowCell::Int(duration));
    }
    Ok(())
}

/// Returns an array of JSON; `None` without items.
fn list<T>(items: &[T], write: fn(&mut JsonText, &T)) -> Option<String> {
    (!items.is_empty()).then(|| {
        let mut text = JsonText::new();
        text.array(items, write);
        text.finish()
    })
}

fn write_event(text: &mut JsonText, event: &SpanEvent) {
    text.raw("{\"time\":");
    write_instant(event.time_unix_nano, text);
    text.raw(",\"name\":");
    text.text(&event.name);
    write_attributes(&event.attributes, event.dropped_attributes_count, text);
    text.raw("}");
}

fn write_link(text: &mut JsonText, link: &SpanLink) {
    text.raw("{\"trace_id\":");
    text.text(&hex(&link.trace_id));
    text.raw(",\"span_id\":");
    text.text(&hex(&link.span_id));
    if !link.trace_state.is_empty() {
        text.raw(",\"trace_state\":");
        text.text(&link.trace_state);
    }
    if link.flags != 0 {
        text.raw(",\"flags\":");
        text.integer(link.flags);
    }
    write_attributes(&link.attributes, link.dropped_attributes_count, text);
    text.raw("}");
}

fn write_attributes(attributes: &[super::messages::common::KeyValue], dropped: u32, text: &mut JsonText) {
    text.raw(",\"attributes\":");
    write_object(attributes, text);
    if dropped > 0 {
        text.raw(",\"dropped_attributes_count\":");
        text.integer(dropped);
    }
}
