//! Request bodies: read within a time limit, decompressed within a size limit, and bounded in total memory.

use std::io::Read;
use std::pin::pin;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{FromRequest, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tidemill_gateway::ConnectionHandle;
use tidemill_mappers::remote_write as snappy;
use tidemill_types::{Error, ErrorKind, without_bom};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::AppState;
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::guard::concurrency::RequestPermit;
use crate::paths::telemetry_path;

/// Maximum zstd window, which RFC 9659 sets to 2^23 bytes for HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// JSON up to this size is parsed on the async thread; more would delay other requests of that thread.
const PARSE_INLINE_BYTES_MAX: usize = 64 << 10;
/// Maximum allocation based on a length that only the client declares.
const GUESS_BYTES_MAX: usize = 1 << 20;
/// Memory that what is decoded may take, in sizes of the largest body.
const DECODED_FACTOR_MAX: usize = 4;
/// First allocation for a decompressed body; it grows with the actual data.
const DECODED_BYTES_START: usize = 64 << 10;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// A whole request body, decompressed.
pub(crate) struct RequestBody {
    /// Decompressed bytes, at most `body_bytes_max`.
    pub bytes: Bytes,
    /// Content type in lower case without parameters; `None` if the header is missing.
    pub media: Option<String>,
    budget: BodyBudget,
}

impl FromRequest<Arc<AppState>> for RequestBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<AppState>) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let media = media_type(&parts.headers)?;
        let encoding = BodyEncoding::of(&parts.headers, parts.uri.path())?;
        let limit = app.options.body_bytes_max;
        let declared = body.size_hint().exact();
        if declared.is_some_and(|n| n > limit as u64) {
            return Err(too_large(limit, ""));
        }
        let mut room = BodyBudget::new(app.clone());
        let bytes = {
            let mut read = pin!(read(body, limit, &mut room));
            // most bodies arrive together with their head
            match read.as_mut().now_or_never() {
                Some(bytes) => bytes?,
                None => receive(read, &parts, app).await?,
            }
        };
        // clients that compress all bodies say so of those that they do not have, too
        if encoding == BodyEncoding::Identity || bytes.is_empty() {
            return Ok(Self { bytes, media, budget: room });
        }
        let permit: Option<RequestPermit> = parts.extensions.remove();
        let decoded = app.blocking(permit, app.options.request_timeout, move |_| {
            decode(&bytes, encoding, limit, &mut room).map(|bytes| (bytes, room))
        });
        let (bytes, room) = decoded.await?;
        Ok(Self { bytes, media, budget: room })
    }
}

impl RequestBody {
    /// Rejects a content type that is not in `accepted`. A missing one counts as JSON, and so does the
    /// default of `curl -d` if the body looks like JSON.
    pub fn expect_media(&self, accepted: &[&str]) -> Result<&str, ApiError> {
        let media = match self.media.as_deref() {
            Some(FORM) if looks_like_json(&self.bytes) => JSON,
            media => media.unwrap_or(JSON),
        };
        if accepted.contains(&media) {
            return Ok(media);
        }
        Err(ApiError::with_status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::Invalid,
            format!(
                "content type `{media}`: expected {}; for example send the header `Content-Type: {}`",
                accepted.join(", "),
                accepted[0]
            ),
        ))
    }

    /// Parses a JSON body; a large one on a blocking thread.
    pub async fn json<T: DeserializeOwned + Send + 'static>(
        self,
        call: &RequestContext,
    ) -> Result<T, ApiError> {
        self.expect_media(&[JSON])?;
        if self.bytes.trim_ascii().is_empty() {
            return Err(ApiError::invalid("the request has no body: expected JSON"));
        }
        if self.bytes.len() <= PARSE_INLINE_BYTES_MAX {
            return parse(&self.bytes);
        }
        call.app
            .blocking(call.permit.clone(), call.app.options.request_timeout, move |_| parse(&self.bytes))
            .await
    }

    /// Returns the bytes together with their share of the body budget.
    pub fn into_bytes(self) -> BudgetedBytes {
        BudgetedBytes { in_use: self.bytes.len(), bytes: self.bytes, budget: self.budget }
    }
}

/// Returns whether the body looks like JSON. A form never begins like this, because its names and values are
/// percent-encoded.
fn looks_like_json(bytes: &[u8]) -> bool {
    matches!(without_bom(bytes).trim_ascii_start().first(), Some(b'{' | b'['))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(without_bom(bytes))
        .map_err(|e| ApiError::invalid(format!("the body is not as expected: {e}")))
}

/// Body bytes that count towards the body budget until they are dropped.
pub(crate) struct BudgetedBytes {
    bytes: Bytes,
    /// Bytes of the body, and of what was decompressed of it.
    in_use: usize,
    budget: BodyBudget,
}

impl BudgetedBytes {
    /// Returns the same bytes for a decoder that shares them; they must not outlive their budget for long.
    pub fn shared(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Makes the share of the budget large enough for `bytes` that are made of the body, beside the body itself.
    ///
    /// Errors: `Invalid` for more than [`DECODED_FACTOR_MAX`] times the largest body, or than all bodies may have; `LimitReached` when other
    /// bodies hold the rest.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Error> {
        let options = &self.budget.app.options;
        let of_all = options.bodies_bytes_max.saturating_sub(self.in_use);
        let bytes_max = options.body_bytes_max.saturating_mul(DECODED_FACTOR_MAX).min(of_all);
        if bytes > bytes_max {
            return Err(Error::invalid(format!(
                "the body takes more than {bytes_max} bytes of memory once it is decoded: send it in parts"
            )));
        }
        self.budget.grow(self.in_use + bytes)
    }

    /// Decompresses a part of the body. The share grows by its size.
    ///
    /// Errors: `gzip` is all that is known; the part is damaged, or too large.
    pub fn decompress(&mut self, part: &[u8], encoding: &str) -> Result<Bytes, ApiError> {
        let limit = self.budget.app.options.body_bytes_max;
        match encoding {
            "gzip" => {
                let bytes = decode(part, BodyEncoding::Gzip, limit, &mut self.budget)?;
                self.in_use += bytes.len();
                Ok(bytes)
            }
            other => Err(ApiError::with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorKind::Invalid,
                format!("message encoding `{other}`: expected gzip or identity"),
            )),
        }
    }
}

impl std::ops::Deref for BudgetedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Share of `bodies_bytes_max` that one body holds, in whole KiB.
struct BodyBudget {
    app: Arc<AppState>,
    permit: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    fn new(app: Arc<AppState>) -> Self {
        Self { app, permit: None }
    }

    fn kib(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Grows the share to `bytes` in total. Errors: 429 when other bodies hold the rest.
    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let more = bytes.div_ceil(1024).saturating_sub(self.kib());
        if more == 0 {
            return Ok(());
        }
        let full = || {
            Error::limit(format!(
                "request bodies take {} bytes of memory, which is the limit (bodies_bytes_max): try again",
                self.app.options.bodies_bytes_max
            ))
        };
        let count = u32::try_from(more).map_err(|_| full())?;
        let permit = self.app.body_budget.clone().try_acquire_many_owned(count).map_err(|_| full())?;
        self.app.metrics.body_bytes.inc_by(more as u64 * 1024);
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
        Ok(())
    }
}

impl Drop for BodyBudget {
    fn drop(&mut self) {
        self.app.metrics.body_bytes.dec_by(self.kib() as u64 * 1024);
    }
}

/// Reads a body that has not arrived yet. Meanwhile the request does not count as concurrent.
async fn receive(
    read: impl Future<Output = Result<Bytes, ApiError>>,
    parts: &Parts,
    app: &AppState,
) -> Result<Bytes, ApiError> {
    let closing = || HeaderValue::from_static("close");
    let slot = parts.extensions.get::<RequestPermit>();
    let connection = parts.extensions.get::<ConnectionHandle>();
    slot.inspect(|slot| slot.pause());
    connection.inspect(|connection| connection.arriving());
    let Ok(bytes) = tokio::time::timeout(app.options.request_timeout, read).await else {
        return Err(ApiError::with_status(
            StatusCode::REQUEST_TIMEOUT,
            ErrorKind::Unavailable,
            format!("the body did not arrive within {:?} (request_timeout)", app.options.request_timeout),
        )
        .with_header(header::CONNECTION, closing()));
    };
    let bytes = bytes?;
    if connection.is_some_and(|connection| !connection.arrived()) {
        let error =
            Error::unavailable("the connection was closed to make room for others while the body arrived");
        return Err(ApiError::from(error).with_header(header::CONNECTION, closing()));
    }
    slot.map_or(Ok(()), RequestPermit::resume)?;
    Ok(bytes)
}

async fn read(mut body: axum::body::Body, limit: usize, room: &mut BodyBudget) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| {
            ApiError::invalid(format!("the body ended early: {e}"))
                .with_header(header::CONNECTION, HeaderValue::from_static("close"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let len = first.len() + whole.len() + data.len();
        if len > limit {
            return Err(too_large(limit, ""));
        }
        room.grow(len)?;
        if len == data.len() {
            // most bodies are one frame and need no copy
            first = data;
            continue;
        }
        if whole.is_empty() {
            let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
            whole.reserve(len + declared.min(GUESS_BYTES_MAX));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

fn too_large(limit: usize, what: &str) -> ApiError {
    // the rest of the body is not read, so the connection cannot be reused
    ApiError::with_status(
        StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::LimitReached,
        format!("the {what}body is larger than {limit} bytes (`server.body_bytes_max`): send it in parts"),
    )
    .with_header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEncoding {
    Identity,
    Gzip,
    Zstd,
    /// Blocks, as remote write has them.
    Snappy,
}

impl BodyEncoding {
    fn of(headers: &HeaderMap, path: &str) -> Result<Self, ApiError> {
        let is_remote_write = path == telemetry_path::REMOTE_WRITE;
        let Some(value) = headers.get(header::CONTENT_ENCODING) else {
            // old senders of remote write do not name the only encoding that they have
            return Ok(if is_remote_write { Self::Snappy } else { Self::Identity });
        };
        match value.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Ok(Self::Identity),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip),
            b"zstd" => Ok(Self::Zstd),
            b"snappy" if is_remote_write => Ok(Self::Snappy),
            other => Err(ApiError::with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorKind::Invalid,
                format!(
                    "content encoding `{}`: expected {}gzip, zstd or identity",
                    String::from_utf8_lossy(other),
                    if is_remote_write { "snappy, " } else { "" }
                ),
            )
            .with_header(
                header::ACCEPT_ENCODING,
                HeaderValue::from_static(if is_remote_write { "snappy, gzip, zstd" } else { "gzip, zstd" }),
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
        }
    }
}

/// Decompresses `bytes` to at most `limit` bytes.
fn decode(
    bytes: &[u8],
    encoding: BodyEncoding,
    limit: usize,
    room: &mut BodyBudget,
) -> Result<Bytes, ApiError> {
    let damaged =
        |e: std::io::Error| ApiError::invalid(format!("the body is not whole {} data: {e}", encoding.name()));
    match encoding {
        BodyEncoding::Identity => Ok(Bytes::copy_from_slice(bytes)),
        BodyEncoding::Gzip => read_limited(flate2::read::MultiGzDecoder::new(bytes), limit, room, damaged),
        BodyEncoding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(bytes).map_err(damaged)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(damaged)?;
            read_limited(decoder, limit, room, damaged)
        }
        BodyEncoding::Snappy => {
            let size = snappy::decompressed_bytes(bytes)?;
            if size > limit {
                return Err(too_large(limit, "decompressed "));
            }
            room.grow(room.kib() * 1024 + size)?;
            Ok(snappy::decompress(bytes)?.into())
        }
    }
}

fn read_limited(
    mut from: impl Read,
    limit: usize,
    room: &mut BodyBudget,
    damaged: impl Fn(std::io::Error) -> ApiError,
) -> Result<Bytes, ApiError> {
    let mut out = Vec::new();
    let mut step = DECODED_BYTES_START;
    let held = room.kib() * 1024;
    loop {
        // one byte above the limit suffices to detect a larger body
        let more = step.min(limit + 1 - out.len());
        let read = from.by_ref().take(more as u64).read_to_end(&mut out).map_err(&damaged)?;
        if out.len() > limit {
            return Err(too_large(limit, "decompressed "));
        }
        room.grow(held + out.len())?;
        if read < more {
            return Ok(out.into());
        }
        step = step.saturating_mul(2);
    }
}

/// Returns the content type without parameters. Errors: 415 for charsets other than UTF-8.
fn media_type(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(None);
    };
    let unsupported =
        |why: String| ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorKind::Invalid, why);
    let text = value.to_str().map_err(|_| unsupported("the content type is not text".to_owned()))?;
    let mut parts = text.split(';');
    let media = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=') else {
            continue;
        };
        let value = value.trim().trim_matches('"');
        if name.trim().eq_ignore_ascii_case("charset")
            && !["utf-8", "utf8", "us-ascii"].iter().any(|known| value.eq_ignore_ascii_case(known))
        {
            return Err(unsupported(format!("charset `{value}`: expected utf-8")));
        }
    }
    Ok(Some(media))
}
