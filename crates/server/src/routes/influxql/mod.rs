//! InfluxQL by the route of InfluxDB 1, for Grafana and old clients.
//!
//! Errors in the text of a query are replies with status 400; those of a statement stand in its result. Measurements are the streams that
//! the caller may read, and no others exist for it. Names of databases and retention policies are accepted and mean nothing.

mod parameters;

use std::io;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use futures::stream;
use tidemill_access::{Action, Resource};
use tidemill_influxql::{InfluxStatement, Measurement, ReplyWriter, Session, StatementResult};
use tidemill_types::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout, timeout_at};

use self::parameters::{InfluxqlForm, InfluxqlParams};
use super::line_protocol::errors::WriteErrorV1;
use super::line_protocol::health;
use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::ApiError;

/// Pieces of a reply buffered for the client.
const PIECES_BUFFERED_MAX: usize = 4;

const VERSION_HEADER: HeaderName = HeaderName::from_static("x-influxdb-version");

/// Ask in InfluxQL, as Grafana and clients of InfluxDB 1 do.
///
/// `q` has statements separated by `;`. The reply is JSON, or CSV with `Accept: text/csv`.
#[utoipa::path(
    get, path = "/query", tag = "influxql", operation_id = "influxql", params(InfluxqlParams),
    responses(
        (status = 200, description = "Series; errors of statements stand in their results", content(
            (Object = "application/json"), (String = "text/csv"),
        )),
        (status = 400, description = "The text is wrong, with its place", body = WriteErrorV1),
    ),
)]
pub(crate) async fn get(call: RequestContext, uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    let params = InfluxqlParams::read(uri.query().unwrap_or_default(), "")?;
    answer(call, params, &headers).await
}

/// Ask in InfluxQL with the parameters in a form, or accept `CREATE DATABASE`, which Telegraf sends before it writes and which has no
/// effect.
#[utoipa::path(
    post, path = "/query", tag = "influxql", operation_id = "influxqlForm", params(InfluxqlParams),
    request_body(description = "The parameters as a form", content((InfluxqlForm = "application/x-www-form-urlencoded"))),
    responses(
        (status = 200, description = "Series; errors of statements stand in their results", content(
            (Object = "application/json"), (String = "text/csv"),
        )),
        (status = 400, description = "The text is wrong, with its place", body = WriteErrorV1),
    ),
)]
pub(crate) async fn post(
    call: RequestContext,
    uri: Uri,
    headers: HeaderMap,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let text = std::str::from_utf8(&content.bytes).map_err(|_| ApiError::invalid("the form is not UTF-8"))?;
    let query = uri.query().unwrap_or_default();
    let params = match content.media.as_deref() {
        Some("application/vnd.influxql") => InfluxqlParams::read(query, "")?.with_text(text),
        _ => InfluxqlParams::read(query, text)?,
    };
    answer(call, params, &headers).await
}

async fn answer(
    call: RequestContext,
    params: InfluxqlParams,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let request = params.request(headers)?;
    let content_type = if request.format.is_csv { "text/csv" } else { "application/json" };
    let (is_chunked, session) = (request.chunk_rows.is_some(), session(&call));
    let deadline = Instant::now() + call.app.options.query_timeout;
    let writer = ReplyWriter::new(request.format, request.chunk_rows, &call.app.influxql_memory);
    let run = StatementRun { call, session, statements: request.statements, writer, deadline };
    let (sender, receiver) = mpsc::channel(PIECES_BUFFERED_MAX);
    let runtime = Handle::current();
    // rows become series and texts on a thread that other requests do not need
    tokio::task::spawn_blocking(move || runtime.block_on(run.send_to(sender)));
    let body =
        if is_chunked { Body::from_stream(streamed(receiver)) } else { Body::from(whole(receiver).await?) };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (VERSION_HEADER, HeaderValue::from_static(health::VERSION)),
    ];
    Ok((headers, body).into_response())
}

/// Returns the session of a caller, which has the streams that it may read.
fn session(call: &RequestContext) -> Session {
    let engine = &call.app.engine;
    let names = engine.stream_names();
    let readable = names.iter().filter(|name| call.principal.can(Action::Read, &Resource::stream(name)));
    let tables = readable.filter_map(|name| engine.table(name));
    let catalog = tables.map(|table| Measurement::of(table.stream())).collect();
    Session::new(
        call.app.database.clone(),
        call.principal.clone(),
        super::ORIGIN,
        catalog,
        call.app.influxql_memory.clone(),
        engine.now().0.saturating_mul(1000),
        health::VERSION,
    )
}

/// Part of a reply. A channel that closes without the end says that its sender has failed.
enum ReplyPiece {
    Text(Bytes),
    End,
}

/// Returns the text of a reply when it is there as a whole.
async fn whole(mut receiver: Receiver<ReplyPiece>) -> Result<Bytes, ApiError> {
    let mut pieces: Vec<Bytes> = Vec::new();
    loop {
        match receiver.recv().await {
            Some(ReplyPiece::Text(text)) => pieces.push(text),
            Some(ReplyPiece::End) if pieces.len() == 1 => return Ok(pieces.remove(0)),
            Some(ReplyPiece::End) => return Ok(pieces.concat().into()),
            None => return Err(Error::internal("the query ended without telling its result").into()),
        }
    }
}

/// Returns the pieces of a reply. A failure leaves it without an end.
fn streamed(receiver: Receiver<ReplyPiece>) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(ReplyPiece::Text(text)) => Some((Ok(text), Some(receiver))),
            Some(ReplyPiece::End) => None,
            None => Some((Err(io::Error::other("the query failed, the reply is not whole")), None)),
        }
    })
}

/// Statements of a request that run one after the other.
struct StatementRun {
    /// Holds the request's permit until the end.
    call: RequestContext,
    session: Session,
    statements: Vec<InfluxStatement>,
    writer: ReplyWriter,
    deadline: Instant,
}

impl StatementRun {
    /// Runs all statements, and sends each piece of the reply as soon as it is there. Ends early when no one receives them.
    async fn send_to(mut self, sender: Sender<ReplyPiece>) {
        let stall = self.call.app.options.stall_timeout;
        let mut has_failed = false;
        for id in 0..self.statements.len() {
            let result = tokio::select! {
                result = self.result(id, has_failed) => result,
                () = sender.closed() => {
                    tracing::debug!("a client went away before its query was done");
                    return;
                }
            };
            has_failed |= result.error.is_some();
            for text in self.writer.pieces(&result) {
                if !matches!(timeout(stall, sender.send(ReplyPiece::Text(text.into()))).await, Ok(Ok(()))) {
                    tracing::debug!("a client takes no more of its reply: its query was ended");
                    return;
                }
            }
        }
        let last = self.writer.finish();
        if !last.is_empty() {
            let _ = timeout(stall, sender.send(ReplyPiece::Text(last.into()))).await;
        }
        let _ = timeout(stall, sender.send(ReplyPiece::End)).await;
    }

    async fn result(&self, id: usize, has_failed: bool) -> StatementResult {
        if has_failed {
            return Session::not_executed(id);
        }
        match timeout_at(self.deadline, self.session.run(id, &self.statements[id])).await {
            Ok(result) => result,
            Err(_) => {
                let limit = self.call.app.options.query_timeout;
                StatementResult::failed(id, format!("the query took longer than {limit:?} (query_timeout)"))
            }
        }
    }
}
