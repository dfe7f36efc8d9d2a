//! Delivery of events to other systems: the loop of the thread that each sink of a connector has.

pub mod undelivered;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_connect::{Backoff, ConnectorSink, DeliveryProgress, OnError, RefusedRow};
use tidemill_log::Durability;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, event_json};

use crate::entry::{Entry, Events, RejectedRow, UNDELIVERED};
use crate::node::Node;
use crate::sinks::{DeliverySink, DueEvents};
use crate::sources::append_with_retry;

/// Events of one delivery.
const ROWS_MAX: usize = 8192;
/// Interval at which the progress of deliveries is stored.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which [`wait_drained`] checks for waiting events.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// Characters of events and of the words of other systems in logs and problems.
const SHOWN_CHARS_MAX: usize = 500;
/// Area of the problems of sinks.
const AREA: &str = "sinks";

/// Loop of the thread that delivers the events of a sink, until it is stopped.
pub fn run(node: &Arc<Node>, sink: &DeliverySink) {
    let Some(mut delivery) = Delivery::begin(sink) else { return };
    let mut backoff = Backoff::default();
    let mut stored_at = node.host.clock.monotonic();
    while !sink.is_stopped() {
        let seen = sink.signals();
        match delivery.deliver_next(node, sink) {
            Ok(is_any) => {
                backoff.reset();
                note_success(node, sink);
                if !is_any {
                    sink.wait_for_events(seen);
                }
            }
            Err(_) if sink.is_stopped() => break,
            Err(e) => {
                let reason = cut(&e.to_string());
                let problem =
                    format!("{}: {reason}; the events wait and the sink is tried again", sink.name());
                node.host.health.report_problem_of(AREA, sink.name(), problem);
                sink.set_problem(Some(reason));
                pause(sink, backoff.next_delay());
            }
        }
        let now = node.host.clock.monotonic();
        if now.saturating_sub(stored_at) >= PROGRESS_INTERVAL {
            stored_at = now;
            node.host.health.record_outcome("sink progress", sink.store_progress());
            announce(node, sink);
        }
    }
    delivery.connector.close();
}

/// Tells standbys which events the other side has, by a record in the log of each partition for which that has changed. Those that are not
/// told keep the events, and deliver them again if they take the partition over.
pub fn announce(node: &Node, sink: &DeliverySink) {
    if !node.owned.follows() {
        return;
    }
    for queue in sink.own_queues() {
        let Some(last) = queue.lock().unannounced() else { continue };
        let entry = Entry::Delivered { sink: sink.name().to_owned(), last: (last.offset, last.row) };
        let durability = node.app.deployment.settings.durability;
        match node.host.append(queue.partition(), entry, durability, None) {
            Ok(_) => queue.lock().set_announced(last),
            // a full log, for example, has a problem of its own; it is tried again
            Err(error) => {
                let (sink, partition) = (sink.name(), queue.partition().0);
                tracing::debug!(sink, partition, %error, "standbys are not told what is delivered");
            }
        }
    }
}

/// Takes back the problem of a sink that works, but for partitions that another process owns by what the other side knows.
fn note_success(node: &Node, sink: &DeliverySink) {
    let lost = sink.lost_partitions();
    let Some(first) = lost.first() else {
        if sink.set_problem(None).is_some() {
            node.host.health.clear_problem_of(AREA, sink.name());
        }
        return;
    };
    let reason = format!(
        "partition {first}{}: the other side has events from a later owner of the partition, and takes none from this \
         process",
        if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() }
    );
    if sink.set_problem(Some(reason.clone())).as_ref() != Some(&reason) {
        node.host.health.report_problem_of(AREA, sink.name(), format!("{}: {reason}", sink.name()));
    }
}

/// Waits until no events wait, as long as the other side takes them.
///
/// Errors: the other side does not take them, or the engine stops.
pub fn wait_drained(node: &Node, sink: &DeliverySink) -> Result<()> {
    loop {
        let waiting = sink.waiting();
        if waiting == 0 {
            return Ok(());
        }
        if sink.problem().is_some() || node.host.is_stopping() {
            return Err(Error::unavailable(format!("sink {}: {waiting} events wait", sink.name())));
        }
        node.host.clock.sleep(DRAIN_POLL);
    }
}

fn pause(sink: &DeliverySink, delay: Duration) {
    tidemill_connect::runtime().block_on(async {
        // either way the pause is over
        let _ = tokio::time::timeout(delay, sink.stopped()).await;
    });
}

/// Deliveries of a sink, by one thread.
pub struct Delivery {
    connector: ConnectorSink,
    /// Events of the next one.
    rows_max: usize,
}

impl Delivery {
    /// Takes the connection of a sink; `None` if it was taken before.
    pub fn begin(sink: &DeliverySink) -> Option<Self> {
        Some(Self { connector: sink.take_connector()?, rows_max: ROWS_MAX })
    }

    /// Delivers the oldest events. Returns whether there were some.
    ///
    /// Errors: the other side does not take them, or they cannot be read; the call is repeated later.
    pub fn deliver_next(&mut self, node: &Arc<Node>, sink: &DeliverySink) -> Result<bool> {
        let partitions = sink.partitions();
        if let Some(known) = self.connector.connect(&partitions, sink.stopped())? {
            sink.set_known(&partitions, &known);
        }
        let Some(mut due) = sink.due(&partitions, ROWS_MAX)? else { return Ok(false) };
        due.truncate(self.rows_max);
        ensure_durable(node, &due)?;
        if !due.begin() {
            return Ok(true);
        }
        let mut progress = DeliveryProgress::default();
        let mut result = self.connector.deliver(&due.rows, &due.ids, &mut progress, sink.stopped());
        progress.refused.sort_by_key(|refused| refused.row);
        if sink.on_error() == OnError::Wait
            && let Some(first) = progress.refused.first()
        {
            progress.delivered = progress.delivered.min(first.row);
            // those behind it are not sent with each attempt
            self.rows_max = 1;
            let (id, reason) = (&due.ids[first.row], &first.reason);
            result = Err(Error::invalid(format!("event {id} was refused: {reason}")));
        }
        let refused = progress.refused.partition_point(|refused| refused.row < progress.delivered);
        let refused = &progress.refused[..refused];
        keep_refused(node, sink, &due, refused)?;
        due.mark_delivered(progress.delivered, refused);
        if !refused.is_empty() {
            // after a crash they must not come again beside what was kept of them
            due.store_progress()?;
        }
        result?;
        self.rows_max = ROWS_MAX;
        Ok(true)
    }
}

/// Handles refused events as the sink's `on.error` says. With `on.error='WAIT'` it gets none.
///
/// Errors: the events cannot be stored; they are delivered again.
fn keep_refused(
    node: &Arc<Node>,
    sink: &DeliverySink,
    due: &DueEvents,
    refused: &[RefusedRow],
) -> Result<()> {
    if refused.is_empty() {
        return Ok(());
    }
    log_refused(node, sink, due, refused);
    match sink.on_error() {
        OnError::Log | OnError::Wait => reject(node, sink, due, refused),
        OnError::Stream => send_to_fault_stream(node, sink, due, refused),
        OnError::Store => undelivered::store(node, sink, due, refused),
    }
}

/// Logs refused events: the first at once, later ones by their number and not more often than once a minute. They are
/// kept elsewhere in full. Logs are not encrypted, so with encryption they have nothing of an event.
fn log_refused(node: &Arc<Node>, sink: &DeliverySink, due: &DueEvents, refused: &[RefusedRow]) {
    let Some(RefusedRow { row, reason }) = refused.first() else { return };
    let Some(events) = sink.count_refusals(refused.len() as u64, node.host.clock.monotonic()) else { return };
    let (sink_name, id) = (sink.name(), &due.ids[*row]);
    if node.app.deployment.settings.encryption.keys.is_some() {
        tracing::error!(sink = sink_name, events, %id, "events were refused; the stored ones have the reasons");
        return;
    }
    let event = serde_json::Value::Object(event_json(sink.schema(), &due.rows, *row)).to_string();
    let (event, reason) = (cut(&event), cut(reason));
    tracing::error!(sink = sink_name, events, %id, event, "events were refused, this one because: {reason}");
}

/// Returns a text for logs and problems, of a long one its beginning.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Stores refused events, with the reasons, in `system.rejected`.
fn reject(node: &Arc<Node>, sink: &DeliverySink, due: &DueEvents, refused: &[RefusedRow]) -> Result<()> {
    let rows = refused.iter().map(|refused| RejectedRow {
        stream: sink.schema().name.clone(),
        kind: UNDELIVERED.into(),
        reason: refused.reason.clone(),
        raw: serde_json::Value::Object(event_json(sink.schema(), &due.rows, refused.row)).to_string(),
        origin: format!("{}: {}", sink.name(), due.ids[refused.row]),
    });
    let events = Events { rejected: rows.collect(), ..Events::default() };
    append(node, &sink.schema().name, &events)
}

/// Sends refused events to the fault stream of their stream, with the reason as `_error`.
fn send_to_fault_stream(
    node: &Arc<Node>,
    sink: &DeliverySink,
    due: &DueEvents,
    refused: &[RefusedRow],
) -> Result<()> {
    let name = format!("!{}", sink.schema().name);
    let schema = node.app.deployment.stream(&name)?;
    let mut batch = BatchBuilder::new(schema.clone());
    for RefusedRow { row, reason } in refused {
        let mut event = event_json(sink.schema(), &due.rows, *row);
        event.insert("_error".to_owned(), reason.as_str().into());
        let event = serde_json::Value::Object(event).to_string();
        batch.push_json(event.as_bytes(), node.host.clock.now())?;
    }
    let events = Events { parts: vec![(schema.clone(), batch.finish())], ..Events::default() };
    append(node, &name, &events)
}

fn append(node: &Arc<Node>, stream: &str, events: &Events) -> Result<()> {
    let home = node.app.deployment.partitioner.for_stream(stream).0 as usize;
    append_with_retry(node, home, || node.app.sources_stopping(), || Entry::Events(events.clone())).map(drop)
}

/// An event that left must not be lost by the log: its offset, and so its id, would be given to another one.
fn ensure_durable(node: &Node, due: &DueEvents) -> Result<()> {
    let mut last: BTreeMap<PartitionId, Offset> = BTreeMap::new();
    for EventId { partition, offset, .. } in &due.ids {
        last.insert(*partition, *offset);
    }
    for (partition, offset) in last {
        if node.host.log.durable(partition) <= offset {
            node.host.log.sync(partition, offset, Durability::Fsync)?;
        }
    }
    Ok(())
}
