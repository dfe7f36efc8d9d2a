//! Routes of events and streams.

use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, de};
use tidemill_access::{Action, Resource};
use tidemill_engine::{self as engine, BodyFormat, Durability, Engine, SendOptions};
use tidemill_files::{events_from_arrow_stream, events_from_parquet};
use tidemill_types::{BadRow, DecodedRows, ErrorKind, Result, RowOrigin, StreamSchema, Timestamp};
use utoipa::{IntoParams, ToSchema};

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody, ErrorDetail};
use crate::extract::{PathParams, QueryParams};
use crate::model::{OneOrMany, SendRefusal, SendReply, Stream};

/// Content types of events and their formats.
const MEDIA: [(&str, EventsFormat); 8] = [
    ("application/json", EventsFormat::Text(BodyFormat::Json)),
    ("application/x-ndjson", EventsFormat::Text(BodyFormat::Ndjson)),
    ("application/ndjson", EventsFormat::Text(BodyFormat::Ndjson)),
    ("application/jsonl", EventsFormat::Text(BodyFormat::Ndjson)),
    ("application/x-jsonlines", EventsFormat::Text(BodyFormat::Ndjson)),
    ("text/csv", EventsFormat::Text(BodyFormat::Csv)),
    ("application/vnd.apache.arrow.stream", EventsFormat::Arrow),
    ("application/vnd.apache.parquet", EventsFormat::Parquet),
];

/// Format of a body with events.
#[derive(Debug, Clone, Copy)]
enum EventsFormat {
    Text(BodyFormat),
    /// Arrow IPC stream.
    Arrow,
    Parquet,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SendParams {
    /// Reply only when the events are applied, with what rules did because of them.
    #[serde(default)]
    #[param(default = false)]
    wait: bool,
    /// Durability that the events need before the reply: `memory`, `os` or `fsync`. Default: the engine's setting.
    #[serde(default, deserialize_with = "durability")]
    #[param(value_type = Option<DurabilityName>)]
    durability: Option<Durability>,
}

/// Durability of a write: in the process, with the operating system, on the disk.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "names the values for the API description")]
pub(crate) enum DurabilityName {
    Memory,
    Os,
    Fsync,
}

/// Deserializes a durability from a query string.
pub(crate) fn durability<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Durability>, D::Error> {
    let text = String::deserialize(d)?;
    Durability::from_str(&text).map(Some).map_err(|e| de::Error::custom(e.message()))
}

/// Send events.
///
/// The body is one JSON object, an array of them, one object a line (NDJSON), CSV with a header line, an Arrow IPC stream or a Parquet
/// file whose columns are fields of the stream. Good rows are accepted even when others are not: 200 when all were, 207 when some were rejected, 400 when all were.
#[utoipa::path(
    post, path = "/api/v1/streams/{stream}", tag = "events", operation_id = "sendEvents",
    params(("stream" = String, Path, description = "Name of the stream"), SendParams),
    request_body(description = "Events; gzip and zstd content encodings are accepted", content(
        (OneOrMany = "application/json"), (String = "application/x-ndjson"), (String = "text/csv"),
        (Vec<u8> = "application/vnd.apache.arrow.stream"), (Vec<u8> = "application/vnd.apache.parquet"),
    )),
    responses(
        (status = 200, description = "All rows were accepted", body = SendReply),
        (status = 207, description = "Some rows were rejected", body = SendReply),
        (status = 400, description = "All rows were rejected, or the body could not be read as rows", body = SendRefusal),
        (status = 404, description = "No such stream", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "Not a content type for events", body = ErrorBody),
        (status = 429, description = "Slow down", body = ErrorBody),
    ),
)]
pub(crate) async fn send(
    call: RequestContext,
    PathParams(stream): PathParams<String>,
    QueryParams(params): QueryParams<SendParams>,
    content: RequestBody,
) -> Result<(StatusCode, Json<SendReply>), ApiError> {
    let accepted = MEDIA.map(|(media, _)| media);
    let media = content.expect_media(&accepted)?;
    let format = MEDIA
        .iter()
        .find(|(m, _)| *m == media)
        .map_or(EventsFormat::Text(BodyFormat::Json), |(_, format)| *format);
    let options =
        SendOptions { durability: params.durability, wait: params.wait, origin: super::ORIGIN.to_owned() };
    let bytes_max = call.app.options.body_bytes_max;
    let (body, principal) = (content.into_bytes(), call.principal.clone());
    let reply = call.engine(move |engine| match format {
        EventsFormat::Text(format) => engine.send_json(&stream, &body, format, &options).map(Ok),
        EventsFormat::Arrow => send_columns(engine, &stream, &options, |schema, now| {
            events_from_arrow_stream(body.shared(), schema, now, bytes_max)
        }),
        EventsFormat::Parquet => send_columns(engine, &stream, &options, |schema, now| {
            events_from_parquet(body.shared(), schema, now, bytes_max)
        }),
    });
    match reply.await? {
        Ok(reply) => Ok(with_status(SendReply::new(reply, &principal))),
        // a retry would not make the columns smaller
        Err(e) if e.kind() == ErrorKind::LimitReached => {
            Err(ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::LimitReached, e.to_string()))
        }
        Err(e) => Err(e.into()),
    }
}

/// Sends the rows of a body of columns. A body that cannot be decoded is in `system.rejected`, as one of text is, and the inner result has
/// the reason.
fn send_columns(
    engine: &Engine,
    stream: &str,
    options: &SendOptions,
    decode: impl FnOnce(&Arc<StreamSchema>, Timestamp) -> Result<DecodedRows>,
) -> Result<Result<engine::SendReply>> {
    match decode(engine.stream_schema(stream)?, engine.now()) {
        Ok(rows) => engine.send_rows(rows, options).map(Ok),
        Err(e) => {
            let bad = BadRow::new(RowOrigin::of_row(0), Some(stream), &e, b"");
            engine.send_rows(DecodedRows { rejected: vec![bad], ..DecodedRows::default() }, options)?;
            Ok(Err(e))
        }
    }
}

/// Adds the status that reflects how many rows were accepted.
fn with_status(mut reply: SendReply) -> (StatusCode, Json<SendReply>) {
    let status = match (reply.accepted, reply.rejected.first()) {
        (_, None) => StatusCode::OK,
        (0, Some(first)) => {
            reply.error = Some(ErrorDetail {
                kind: "invalid".to_owned(),
                message: match reply.rejected.len() {
                    1 => format!("row {} was rejected: {}", first.row, first.reason),
                    n => {
                        format!("all {n} rows were rejected, the first, row {}: {}", first.row, first.reason)
                    }
                },
                retryable: false,
            });
            StatusCode::BAD_REQUEST
        }
        (_, Some(_)) => StatusCode::MULTI_STATUS,
    };
    (status, Json(reply))
}

/// List the streams.
#[utoipa::path(
    get, path = "/api/v1/streams", tag = "events", operation_id = "listStreams",
    responses((status = 200, description = "The streams that the caller may read", body = Vec<Stream>)),
)]
pub(crate) async fn list(call: RequestContext) -> Result<Json<Vec<Stream>>, ApiError> {
    let streams = call.engine(tidemill_engine::Engine::streams).await?;
    let streams = streams.into_iter().map(Stream::from);
    Ok(Json(
        streams.filter(|stream| call.principal.can(Action::Read, &Resource::stream(&stream.name))).collect(),
    ))
}

/// One stream.
#[utoipa::path(
    get, path = "/api/v1/streams/{stream}", tag = "events", operation_id = "getStream",
    params(("stream" = String, Path, description = "Name of the stream")),
    responses(
        (status = 200, description = "Its fields, ledger and storage", body = Stream),
        (status = 404, description = "No such stream", body = ErrorBody),
    ),
)]
pub(crate) async fn get(
    call: RequestContext,
    PathParams(name): PathParams<String>,
) -> Result<Json<Stream>, ApiError> {
    let info = call.engine(move |engine| engine.stream(&name)).await?;
    Ok(Json(info.into()))
}
