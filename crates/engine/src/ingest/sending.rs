//! Events that callers send.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use tidemill_types::{
    BadRow, DecodedRows, Error, EventId, InterleavedBatches, Offset, PartitionId, Result, RowOrigin,
    StreamSchema, event_json,
};

use crate::api::{BodyFormat, EmittedEvent, RowError, SendOptions, SendReply};
use crate::entry::{Entry, Events, RejectedRow};
use crate::ingest;
use crate::ingest::PartitionedRows;
use crate::node::Node;
use crate::partition::PendingReply;
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::queries::Partitioner;

/// Maximum number of rows of one log record; larger requests are cut into several.
const ROWS_PER_RECORD_MAX: usize = 16_384;

/// Sends a request body with events of `stream`: valid rows are applied, the others are returned with their reasons and
/// stored in `system.rejected`.
///
/// Errors: `NotFound` for an unknown stream, `Invalid` for a body that is not of `format`; `LimitReached` and `Unavailable`
/// when the rows are not accepted now.
pub fn send_json(
    node: &Node,
    stream: &str,
    body: &[u8],
    format: BodyFormat,
    options: &SendOptions,
) -> Result<SendReply> {
    let schema = node.app.deployment.stream(stream)?;
    let decoded = match ingest::decode_body(schema, body, format, node.host.clock.now()) {
        Ok(decoded) => decoded,
        Err(e) => {
            let bad = BadRow::new(RowOrigin::of_row(0), Some(stream), &e, body);
            send_rows(node, DecodedRows { rejected: vec![bad], ..DecodedRows::default() }, options)?;
            return Err(e);
        }
    };
    send_rows(node, decoded, options)
}

/// Sends a batch of `stream` whose columns are fields of the stream; those of [`StreamSchema::batch_schema`] fit as they are.
/// Rows with values that do not fit are rejected, as those of a body are.
///
/// Errors: as [`send_json`]; `Invalid` for columns that do not fit, as in [`tidemill_files::events_from_columns`].
pub fn send_batch(node: &Node, stream: &str, batch: RecordBatch, options: &SendOptions) -> Result<SendReply> {
    let schema = node.app.deployment.stream(stream)?;
    let decoded = tidemill_files::events_from_columns(&batch, schema, node.host.clock.now())?;
    send_rows(node, decoded, options)
}

/// Sends rows of one or several streams of the app: valid ones are applied, the others are returned with their reasons. Those that name
/// a stream of the app are stored in `system.rejected`.
///
/// Errors: `LimitReached` and `Unavailable` when the rows are not accepted now. The message says so if some may be in the log: that is
/// when rows of several records have begun to be appended.
pub fn send_rows(node: &Node, decoded: DecodedRows, options: &SendOptions) -> Result<SendReply> {
    let durability = options.durability.unwrap_or(node.app.deployment.settings.durability);
    let accepted = decoded.rows.len() as u64;
    let rejected: Vec<RowError> = decoded
        .rejected
        .iter()
        .map(|b| RowError { row: b.origin.number, reason: b.message.clone() })
        .collect();
    let chunks = decoded.rows.chunks(ROWS_PER_RECORD_MAX);
    let first_batch = node.app.number_batches(chunks.len());
    let places = if options.wait {
        record_positions(&chunks, first_batch, &node.app.deployment.partitioner)
    } else {
        Vec::new()
    };
    let records = split_records(node, &chunks, first_batch, decoded.rejected, &options.origin)?;
    node.host.check_disk_space()?;
    let timeout = node.app.deployment.settings.send_timeout.to_std();
    for (p, _) in &records {
        node.host
            .wait_for_room(PartitionId(*p as u32), timeout, || node.app.applying_waits_for(&node.host))?;
    }
    let mut tickets = Vec::new();
    let is_one = records.len() == 1;
    let in_part = |e: Error| if is_one { e } else { e.context("some of the events may be stored") };
    for (p, events) in records {
        let partition = PartitionId(p as u32);
        let appended = if options.wait {
            let entry = Entry::Events(Events { answered: !node.has_replica(partition), ..events });
            node.append_for_reply(partition, entry, durability).map(|(ticket, reply)| (ticket, Some(reply)))
        } else {
            node.host.append(partition, Entry::Events(events), durability, None).map(|ticket| (ticket, None))
        };
        let (ticket, reply) = appended.map_err(|e| if tickets.is_empty() { e } else { in_part(e) })?;
        tickets.push((p, ticket, reply));
    }
    let (mut written, mut replies) = (Vec::new(), Vec::new());
    for (p, ticket, reply) in tickets {
        let early = is_planted(PlantedBug::AcknowledgeBeforeSync);
        let receipt = if early { ticket.wait_assigned() } else { ticket.wait() };
        let receipt = receipt.map_err(in_part)?;
        written.push((p, receipt.offset));
        replies.extend(reply);
    }
    node.app.counts.accepted.fetch_add(accepted, Ordering::Relaxed);
    let mut reply = SendReply {
        accepted,
        rejected,
        durability: durability.name().to_owned(),
        duplicates: None,
        events: None,
        emitted: None,
        rule_errors: Vec::new(),
    };
    if options.wait {
        collect_replies(replies, &written, &places, &mut reply)?;
    }
    Ok(reply)
}

/// Splits rows, given as parts of the maximum size, by partition. Rejected rows go with the first record of their stream's partition.
fn split_records(
    node: &Node,
    chunks: &[InterleavedBatches],
    first_batch: u64,
    rejected: Vec<BadRow>,
    origin: &str,
) -> Result<Vec<(usize, Events)>> {
    let homes = &node.app.deployment.partitioner;
    let mut records = Vec::new();
    for (rows, batch) in chunks.iter().zip(first_batch..) {
        for (p, rows) in rows.split(homes.of_batch(batch))?.into_iter().enumerate() {
            if let Some(rows) = rows {
                records.push((p, Events { parts: rows.parts, order: rows.order, ..Events::default() }));
            }
        }
    }
    for bad in rejected {
        // the ledger of an unknown stream would never be read
        let Some(stream) = bad.stream.clone().filter(|name| node.app.deployment.stream(name).is_ok()) else {
            continue;
        };
        let home = homes.for_stream(&stream).0 as usize;
        let row = rejected_row(bad, stream, origin);
        match records.iter_mut().find(|(p, _)| *p == home) {
            Some((_, events)) => events.rejected.push(row),
            None => records.push((home, Events { rejected: vec![row], ..Events::default() })),
        }
    }
    Ok(records)
}

/// Returns, for each row in order of arrival, the position of its record among those of [`split_records`], and its row
/// there.
fn record_positions(
    chunks: &[InterleavedBatches],
    first_batch: u64,
    homes: &Partitioner,
) -> Vec<(usize, u32)> {
    let mut places = Vec::new();
    let mut records = 0;
    for (chunk, batch) in chunks.iter().zip(first_batch..) {
        let chunk = chunk.row_partitions(homes.of_batch(batch));
        let mut present = chunk.clone();
        present.sort_unstable();
        present.dedup();
        let mut next = vec![0; present.len()];
        for home in &chunk {
            let Ok(at) = present.binary_search(home) else { continue };
            places.push((records + at, next[at]));
            next[at] += 1;
        }
        records += present.len();
    }
    places
}

/// Collects the replies of the records in `written`, given as partition and offset. `places`: see [`record_positions`].
fn collect_replies(
    replies: Vec<PendingReply>,
    written: &[(usize, Offset)],
    places: &[(usize, u32)],
    reply: &mut SendReply,
) -> Result<()> {
    let (mut stored, mut emitted, mut duplicates) = (HashSet::new(), Vec::new(), 0);
    for (pending, (_, offset)) in replies.into_iter().zip(written) {
        let turn = pending.wait(*offset)?;
        stored.extend(turn.stored);
        emitted.extend(turn.emitted);
        duplicates += turn.duplicates;
        reply.rule_errors.extend(turn.rule_errors);
    }
    let id = |(record, row): &(usize, u32)| {
        let (p, offset) = written.get(*record)?;
        let id = EventId { partition: PartitionId(*p as u32), offset: *offset, row: *row };
        stored.contains(&id).then(|| id.to_string())
    };
    reply.events = Some(places.iter().map(id).collect());
    reply.emitted = Some(emitted.iter().flat_map(|(stream, batch)| emitted_events(stream, batch)).collect());
    reply.duplicates = Some(duplicates);
    Ok(())
}

fn emitted_events(stream: &StreamSchema, batch: &RecordBatch) -> Vec<EmittedEvent> {
    let event =
        |row| EmittedEvent { stream: stream.name.clone(), event: event_json(stream, batch, row).into() };
    (0..batch.num_rows()).map(event).collect()
}

/// Converts a bad row for `system.rejected`.
fn rejected_row(bad: BadRow, stream: String, origin: &str) -> RejectedRow {
    RejectedRow {
        stream,
        kind: "malformed".into(),
        reason: bad.message,
        raw: bad.text,
        origin: format!("{origin}:{}", bad.origin.number),
    }
}
