//! SQL over HTTP: rows are sent while the query runs.
//!
//! The first chunk of the reply decides the status. If the query fails later, the body ends with an error
//! line and the connection is closed before the end of the body, so that neither a person nor a program
//! mistakes a partial result for a complete one.

mod pages;

use std::io;
use std::num::NonZeroUsize;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use serde::{Deserialize, Deserializer, de};
use serde_json::json;
use tidemill_types::{Error, Result, Value};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout, timeout_at};
use utoipa::{IntoParams, ToSchema};

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody, ErrorDetail};
use crate::extract::QueryParams;
use crate::negotiate;
use tidemill_database::{EncodedReply, Format, QueryRequest, ResultColumn};

/// Header with the names and types of the columns of a reply.
const COLUMNS: HeaderName = HeaderName::from_static("tidemill-columns");
/// Maximum bytes of [`COLUMNS`]; HTTP clients refuse replies with long heads.
const COLUMNS_BYTES_MAX: usize = 8 << 10;
/// Chunks buffered for the client.
const CHUNKS_BUFFERED_MAX: usize = 4;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SqlParams {
    /// `json`, `ndjson`, `csv`, `table`, `arrow` or `parquet`. Goes before the `Accept` header.
    #[serde(default)]
    format: Option<String>,
    /// Sends at most this number of rows, and in the header `Tidemill-Next-Page` the token of the next ones, if there are any.
    #[serde(default, deserialize_with = "page_rows")]
    #[param(value_type = Option<u64>, minimum = 1)]
    page_rows: Option<NonZeroUsize>,
    /// Token of a page. The request has neither a body nor other parameters then.
    #[serde(default)]
    page: Option<String>,
}

/// Reads a number of rows.
fn page_rows<'de, D: Deserializer<'de>>(d: D) -> Result<Option<NonZeroUsize>, D::Error> {
    let text = String::deserialize(d)?;
    let rows = text.parse();
    rows.map(Some).map_err(|_| de::Error::custom(format!("`{text}`: expected a number of rows from 1 on")))
}

/// A query.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SqlRequest {
    /// The text of one SQL query.
    #[schema(example = "SELECT origin, count(*) FROM events.TakeOffEvent GROUP BY origin")]
    query: String,
    /// The values of `$1`, `$2`, … in the query: texts, numbers, true, false, null. Times are texts.
    #[serde(default)]
    #[schema(example = json!(["EWR", 500]))]
    parameters: Vec<serde_json::Value>,
}

/// Ask in SQL.
///
/// The rows come in the form of `?format=` or `Accept`: a JSON array, NDJSON, CSV with a header line, a table for
/// people, an Arrow IPC stream, or a Parquet file. The header `Tidemill-Columns` has the names and types of the columns as JSON. When the
/// query fails after the first rows, the body ends with a line `{"error": …}` (JSON, NDJSON) or `error: …` (CSV, table), and in every format
/// the connection is closed before the end of the body.
///
/// The rows of `tail('STREAM')` are sent as they come, in `ndjson`, `csv`, `json` or `arrow`, until the caller ends the connection.
///
/// With `page_rows` the reply has so many rows at most, and the header `Tidemill-Next-Page` has the token with which `page` asks for the next
/// ones: of the same moment, in the same form, once, within ten minutes. The last page has no token.
#[utoipa::path(
    post, path = "/api/v1/sql", tag = "sql", operation_id = "sql",
    params(SqlParams),
    request_body(description = "The query; none with `page`", content((SqlRequest = "application/json"), (String = "text/plain"))),
    responses(
        (status = 200, description = "The rows", content(
            (Vec<Object> = "application/json"), (String = "application/x-ndjson"), (String = "text/csv"),
            (String = "text/plain"), (Vec<u8> = "application/vnd.apache.arrow.stream"),
            (Vec<u8> = "application/vnd.apache.parquet"),
        ), headers(
            ("Tidemill-Columns" = String, description = "`[{\"name\": …, \"type\": …}, …]`, left out above 8 KiB"),
            ("Tidemill-Next-Page" = String, description = "Token of the next page, if rows follow"),
            ("Tidemill-Statement" = u64, description = "With pages: number of the statement, by which it can be cancelled"),
        )),
        (status = 400, description = "The query is wrong", body = ErrorBody),
        (status = 404, description = "It names a table or function that does not exist, or no page has this token", body = ErrorBody),
        (status = 406, description = "None of the accepted content types", body = ErrorBody),
        (status = 409, description = "The statement was cancelled", body = ErrorBody),
        (status = 410, description = "The page of this token was taken, or its time is over", body = ErrorBody),
        (status = 429, description = "The query needs more memory than it may have, or too many statements have pages", body = ErrorBody),
    ),
)]
pub(crate) async fn query(
    call: RequestContext,
    QueryParams(params): QueryParams<SqlParams>,
    headers: HeaderMap,
    content: RequestBody,
) -> Result<Response, ApiError> {
    if let Some(token) = &params.page {
        if params.format.is_some() || params.page_rows.is_some() || !content.bytes.is_empty() {
            return Err(ApiError::invalid(
                "a page has the query, the format and the number of rows of the first one: send `?page=TOKEN` alone, without a body",
            ));
        }
        return pages::next(&call, token).await;
    }
    let format = negotiate::format(params.format.as_deref(), &headers)?;
    let (sql, parameters) = read_request(&call, content).await?;
    let request = QueryRequest::new(sql, super::ORIGIN, call.principal.clone()).with_parameters(parameters);
    if let Some(page_rows) = params.page_rows {
        return pages::first(&call, request, format, page_rows).await;
    }
    let deadline = Instant::now() + call.app.options.query_timeout;
    let timed_out = |_| Error::unavailable(too_long(&call));
    let started = timeout_at(deadline, call.app.database.query_encoded(request, format));
    let EncodedReply { columns, pieces: mut body, is_endless } = started.await.map_err(timed_out)??;
    // the head of a reply without an end is sent before its first row comes
    let first = match is_endless {
        true => Bytes::new(),
        false => match timeout_at(deadline, body.next()).await.map_err(timed_out)? {
            Some(first) => first?,
            None => Bytes::new(),
        },
    };
    let (sender, receiver) = mpsc::channel(CHUNKS_BUFFERED_MAX);
    tokio::spawn(forward_chunks(call, first, body, sender, (!is_endless).then_some(deadline)));
    let mut response = Response::new(Body::from_stream(reply_chunks(receiver, format)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    if let Some(columns) = columns_header(&columns) {
        response.headers_mut().insert(COLUMNS, columns);
    }
    Ok(response)
}

/// Returns the names and types of columns as JSON in ASCII; `None` where it would be too long for a header.
fn columns_header(columns: &[ResultColumn]) -> Option<HeaderValue> {
    let column = |column: &ResultColumn| json!({"name": column.name, "type": column.type_name});
    let json = serde_json::Value::from_iter(columns.iter().map(column)).to_string();
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // outside of texts JSON is ASCII, and in texts every character may be escaped
            ' '..='~' => ascii.push(c),
            c => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")));
            }
        }
    }
    HeaderValue::from_str(&ascii).ok().filter(|value| value.len() <= COLUMNS_BYTES_MAX)
}

fn too_long(call: &RequestContext) -> String {
    format!("the query took longer than {:?} (query_timeout)", call.app.options.query_timeout)
}

/// Reads a query and the values of its parameters.
async fn read_request(
    call: &RequestContext,
    content: RequestBody,
) -> Result<(String, Vec<Value<'static>>), ApiError> {
    let (sql, parameters) =
        match content.expect_media(&["application/json", "text/plain", "application/sql"])? {
            "application/json" => {
                let SqlRequest { query, parameters } = content.json(call).await?;
                let values = parameters.into_iter().enumerate();
                (query, values.map(|(index, value)| parameter(index, value)).collect::<Result<_, _>>()?)
            }
            _ => {
                let text = std::str::from_utf8(&content.bytes);
                (
                    text.map_err(|e| ApiError::invalid(format!("the query is not UTF-8: {e}")))?.to_owned(),
                    vec![],
                )
            }
        };
    if sql.trim().is_empty() {
        return Err(ApiError::invalid("the query is empty: expected SQL, for example `SELECT 1`"));
    }
    Ok((sql, parameters))
}

fn parameter(index: usize, value: serde_json::Value) -> Result<Value<'static>, ApiError> {
    use serde_json::Value as Json;
    let unfit = |found: &str| {
        ApiError::invalid(format!(
            "parameters[{index}]: expected a text, a number, true, false or null, found {found}"
        ))
    };
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(value), _) => Value::Int(value),
            (None, Some(value)) => Value::Float(value),
            (None, None) => return Err(unfit("a number that is too large")),
        },
        Json::String(text) => Value::Str(text.into()),
        Json::Array(_) => return Err(unfit("an array")),
        Json::Object(_) => return Err(unfit("an object")),
    })
}

/// Message from the query to the reply. A channel that closes without [`ReplyChunk::End`] indicates a defect.
enum ReplyChunk {
    Rows(Bytes),
    Failed(ErrorDetail),
    End,
}

/// Forwards chunks from the query to the reply as fast as the client reads them; holds the request's permit
/// until the end.
async fn forward_chunks(
    mut call: RequestContext,
    first: Bytes,
    mut body: BoxStream<'static, Result<Bytes>>,
    sender: Sender<ReplyChunk>,
    deadline: Option<Instant>,
) {
    if deadline.is_none() {
        // others do not wait for its permit: statements over new rows have a limit of their own
        call.permit = None;
    }
    let stall = call.app.options.stall_timeout;
    let mut next = ReplyChunk::Rows(first);
    loop {
        let last = !matches!(next, ReplyChunk::Rows(_));
        match timeout(stall, sender.send(next)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                tracing::debug!("a client went away before its query was done");
                return;
            }
            Err(_) => {
                tracing::warn!(
                    stall_ms = stall.as_millis() as u64,
                    "a client takes no rows: its query was ended"
                );
                return;
            }
        }
        if last {
            return;
        }
        // the query may make no rows for long, and a client that leaves meanwhile takes none
        let chunk = tokio::select! {
            chunk = within(deadline, body.next()) => chunk,
            () = sender.closed() => {
                tracing::debug!("a client went away before its query was done");
                return;
            }
        };
        next = match chunk {
            Ok(Some(Ok(rows))) => ReplyChunk::Rows(rows),
            Ok(Some(Err(e))) => ReplyChunk::Failed(ApiError::from(e).detail().clone()),
            Ok(None) => ReplyChunk::End,
            Err(Elapsed) => {
                ReplyChunk::Failed(ApiError::from(Error::unavailable(too_long(&call))).detail().clone())
            }
        };
    }
}

/// The time of a statement is over.
struct Elapsed;

async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.map_err(|_| Elapsed),
        None => Ok(work.await),
    }
}

/// Progress of a reply.
enum ReplyStage {
    Rows(Receiver<ReplyChunk>),
    /// The error line was sent.
    Failed,
    Done,
}

fn reply_chunks(
    receiver: Receiver<ReplyChunk>,
    format: Format,
) -> impl futures::Stream<Item = io::Result<Bytes>> {
    stream::unfold(ReplyStage::Rows(receiver), move |stage| async move {
        match stage {
            ReplyStage::Rows(mut receiver) => match receiver.recv().await {
                Some(ReplyChunk::Rows(rows)) => Some((Ok(rows), ReplyStage::Rows(receiver))),
                Some(ReplyChunk::End) => None,
                Some(ReplyChunk::Failed(error)) => Some((Ok(last_line(error, format)), ReplyStage::Failed)),
                None => {
                    let error = Error::internal("the query ended without telling its result");
                    Some((Ok(last_line(ApiError::from(error).detail().clone(), format)), ReplyStage::Failed))
                }
            },
            ReplyStage::Failed => {
                // lets the connection send the line before it is closed
                tokio::task::yield_now().await;
                Some((Err(io::Error::other("the query failed, the reply is not whole")), ReplyStage::Done))
            }
            ReplyStage::Done => None,
        }
    })
}

fn last_line(error: ErrorDetail, format: Format) -> Bytes {
    let text = match format {
        Format::Json | Format::Ndjson => {
            serde_json::to_string(&ErrorBody { error }).unwrap_or_else(|_| "{\"error\":{}}".to_owned())
        }
        Format::Csv | Format::Table => format!("error: {}", error.message.replace('\n', " ")),
        // a reader would take text for damaged rows; the body that does not end says it
        Format::Arrow | Format::Parquet => return Bytes::new(),
    };
    Bytes::from(format!("\n{text}\n"))
}
