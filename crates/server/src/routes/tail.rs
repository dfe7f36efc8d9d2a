//! Route that shows the events of a stream as they come, by server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use tidemill_access::{Action, Principal, Resource};
use tidemill_engine::Tap;
use tidemill_types::{Error, ErrorKind, Result, StreamPositions};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::IntoParams;

use crate::app::AppState;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{PathParams, QueryParams};
use crate::stored_event::StoredEvents;
use tidemill_database::{Format, QueryRequest};

/// Events that wait for a connection.
const WAITING_MAX: usize = 256;
/// Interval at which a tail checks whether the server stops.
const STOP_POLL: Duration = Duration::from_millis(250);
/// Header with which clients of server-sent events continue.
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TailParams {
    /// The id of the last event that the caller has; the stored events behind it come first. The header `Last-Event-ID`, which
    /// clients of server-sent events send by themselves, counts before it.
    #[serde(default)]
    after: Option<String>,
}

/// Follow a stream.
///
/// Each event is a message with the event's JSON as `data`. Its `id` says where to continue: a client that sends it as
/// `Last-Event-ID` gets the stored events behind it first, then the live ones. A client that is too slow for the live
/// events gets a message of the type `skipped` with the number of events that it missed; they are in the stream's table.
#[utoipa::path(
    get, path = "/api/v1/streams/{stream}/tail", tag = "events", operation_id = "tailStream",
    params(("stream" = String, Path, description = "Name of the stream"), TailParams),
    responses(
        (status = 200, description = "Events until the caller ends the connection, or may not read the stream any more", body = String, content_type = "text/event-stream"),
        (status = 400, description = "Not an id of an event", body = ErrorBody),
        (status = 404, description = "No such stream", body = ErrorBody),
        (status = 429, description = "Too many callers follow streams", body = ErrorBody),
    ),
)]
pub(crate) async fn tail(
    call: RequestContext,
    PathParams(stream): PathParams<String>,
    QueryParams(params): QueryParams<TailParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()).map(str::to_owned).or(params.after);
    let positions = last.as_deref().map(str::parse::<StreamPositions>).transpose()?;
    let app = call.app.clone();
    let permit = app.tails.clone().try_acquire_owned().map_err(|_| {
        ApiError::with_status(
            StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::LimitReached,
            format!("{} callers follow streams, which is the limit", crate::app::TAILS_MAX),
        )
    })?;
    let (tap, events) = call
        .engine(move |engine| Ok((engine.tap(&stream)?, StoredEvents::of(engine.stream(&stream)?.schema))))
        .await?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let tail = Tail {
        app,
        events,
        positions: positions.clone().unwrap_or_default(),
        sender,
        principal: call.principal,
        _permit: permit,
    };
    tokio::spawn(tail.run(tap, positions.is_some()));
    Ok(Sse::new(messages(receiver)).keep_alive(KeepAlive::default()).into_response())
}

fn messages(receiver: mpsc::Receiver<Event>) -> impl Stream<Item = Result<Event, Infallible>> {
    futures::stream::unfold(receiver, async |mut receiver| Some((Ok(receiver.recv().await?), receiver)))
}

/// One caller that follows a stream.
struct Tail {
    app: Arc<AppState>,
    events: StoredEvents,
    /// Positions of the events that the caller has got.
    positions: StreamPositions,
    sender: mpsc::Sender<Event>,
    /// The caller.
    principal: Principal,
    _permit: OwnedSemaphorePermit,
}

/// The caller has gone, or the server stops.
struct Ended;

impl Tail {
    /// Sends stored events if the caller continues, then the live ones.
    async fn run(mut self, tap: Tap, continues: bool) {
        if continues && let Err(e) = self.send_stored().await {
            // the caller continues behind what it has got
            let _ = self.sender.send(Event::default().event("error").data(e.to_string())).await;
            return;
        }
        let _: Result<(), Ended> = self.send_live(tap).await;
    }

    /// Returns whether the caller may still read the stream: a token is revoked and expires, and grants are revoked.
    fn may_read(&self) -> bool {
        let access = self.app.options.access.as_ref();
        let now = access.map_or_else(|| Some(self.principal.clone()), |access| access.renew(&self.principal));
        now.is_some_and(|principal| principal.can(Action::Read, &Resource::stream(self.events.stream())))
    }

    async fn send_live(&mut self, mut tap: Tap) -> Result<(), Ended> {
        loop {
            let batch = tokio::select! {
                batch = tap.next() => batch.ok_or(Ended)?,
                () = self.sender.closed() => return Err(Ended),
                () = tokio::time::sleep(STOP_POLL) => {
                    if self.app.is_stopping() || !self.may_read() {
                        return Err(Ended);
                    }
                    continue;
                }
            };
            if !self.may_read() {
                return Err(Ended);
            }
            for row in 0..batch.num_rows() {
                let Some((id, event)) = self.events.of_batch(&batch, row) else { continue };
                self.send(id, event).await?;
            }
            // what was skipped comes behind the batches that wait
            let skipped = tap.take_skipped();
            if skipped > 0 {
                let event = Event::default().event("skipped").data(format!("{{\"events\":{skipped}}}"));
                self.sender.send(event).await.map_err(|_| Ended)?;
            }
        }
    }

    /// Sends the stored events behind the caller's positions.
    async fn send_stored(&mut self) -> Result<()> {
        let statement = stored_behind(&self.positions, self.events.stream());
        let request = QueryRequest::new(statement, super::ORIGIN, self.principal.clone());
        let mut reply = self.app.database.query_encoded(request, Format::Ndjson).await?.pieces;
        let mut rest: Vec<u8> = vec![];
        while let Some(chunk) = reply.next().await {
            rest.extend_from_slice(&chunk?);
            let complete = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = rest.drain(..complete).collect();
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let row: Map<String, Json> = serde_json::from_slice(line)
                    .map_err(|e| Error::internal("a row of SQL is not JSON").with_source(e))?;
                let Some((id, event)) = self.events.of_json(row) else { continue };
                if self.send(id, event).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn send(&mut self, at: (u32, i64, i32), event: Json) -> Result<(), Ended> {
        if !self.positions.advance(at) {
            return Ok(());
        }
        let event = Event::default().id(self.positions.to_string()).data(event.to_string());
        self.sender.send(event).await.map_err(|_| Ended)
    }
}

/// Returns the statement that finds the stored events behind these positions.
fn stored_behind(positions: &StreamPositions, stream: &str) -> String {
    let known: Vec<String> = positions.iter().map(|(partition, ..)| partition.to_string()).collect();
    let behind = positions.iter().map(|(partition, offset, row)| {
        format!(
            "(_partition = {partition} AND (_offset > {offset} OR (_offset = {offset} AND _row > {row})))"
        )
    });
    let mut conditions: Vec<String> = behind.collect();
    conditions.push(match known.is_empty() {
        true => "true".to_owned(),
        false => format!("_partition NOT IN ({})", known.join(", ")),
    });
    let table = stream.replace('"', "\"\"");
    let conditions = conditions.join(" OR ");
    format!("SELECT * FROM events.\"{table}\" WHERE {conditions} ORDER BY _partition, _offset, _row")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_events_are_behind_the_positions() {
        let positions = "1-20-3,0-7-0".parse().unwrap();
        assert_eq!(
            stored_behind(&positions, "a\"b"),
            "SELECT * FROM events.\"a\"\"b\" WHERE (_partition = 0 AND (_offset > 7 OR (_offset = 7 AND _row > 0))) \
             OR (_partition = 1 AND (_offset > 20 OR (_offset = 20 AND _row > 3))) OR _partition NOT IN (0, 1) \
             ORDER BY _partition, _offset, _row"
        );
    }
}
