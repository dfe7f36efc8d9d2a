//! Remote write, by which Prometheus and its like send samples.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidemill_mappers::remote_write::{Version, WrittenCounts, decode};
use tidemill_types::ErrorKind;

use super::telemetry::store;
use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::ApiError;

const MEDIA: &str = "application/x-protobuf";
const MESSAGE_V1: &str = "prometheus.WriteRequest";
const MESSAGE_V2: &str = "io.prometheus.write.v2.Request";
const SAMPLES_HEADER: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS_HEADER: HeaderName = HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS_HEADER: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// Store samples of series.
///
/// Samples and native histograms are events of the stream `prometheus`; exemplars and descriptions of metrics those of `prometheus_exemplars` and
/// `prometheus_metadata`, if the app has these. The parameter `proto` of the content type says the version: `prometheus.WriteRequest` (1.0, the
/// default) or `io.prometheus.write.v2.Request` (2.0).
#[utoipa::path(
    post, path = "/api/v1/write", tag = "telemetry", operation_id = "remoteWrite",
    request_body(
        description = "A message in the block format of snappy (`Content-Encoding: snappy`)",
        content((Vec<u8> = "application/x-protobuf")),
    ),
    responses(
        (
            status = 204, description = "All samples were stored",
            headers(
                ("X-Prometheus-Remote-Write-Samples-Written" = u64, description = "Samples that were stored"),
                ("X-Prometheus-Remote-Write-Histograms-Written" = u64, description = "Native histograms that were stored"),
                ("X-Prometheus-Remote-Write-Exemplars-Written" = u64, description = "Exemplars that were stored"),
            ),
        ),
        (status = 400, description = "Some samples were rejected; the others were stored", body = String, content_type = "text/plain"),
    ),
)]
pub(crate) async fn write(
    call: RequestContext,
    headers: HeaderMap,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let version = version(&headers)?;
    let mut body = content.into_bytes();
    let principal = call.principal.clone();
    let written = call.engine(move |engine| {
        let bytes = body.shared();
        store(engine, &principal, &mut body, &bytes, |bytes, rows| decode(version, bytes, rows))
    });
    let (outcome, written) = written.await?;
    call.app.metrics.left_out.inc_by(written.left_out);
    let reply = match outcome.rejected {
        0 => StatusCode::NO_CONTENT.into_response(),
        _ => (StatusCode::BAD_REQUEST, one_line(&outcome.message)).into_response(),
    };
    Ok(with_counts(reply, written))
}

/// Returns the text of an error as one line: senders write the first one into their log.
pub(crate) fn one_line(message: &str) -> String {
    message.replace('\n', " | ") + "\n"
}

/// Adds the numbers of what was written, by which senders of version 2 know that it was understood.
fn with_counts(mut reply: Response, written: WrittenCounts) -> Response {
    let headers = reply.headers_mut();
    headers.insert(SAMPLES_HEADER, HeaderValue::from(written.samples));
    headers.insert(HISTOGRAMS_HEADER, HeaderValue::from(written.histograms));
    headers.insert(EXEMPLARS_HEADER, HeaderValue::from(written.exemplars));
    reply
}

/// Returns the version by the content type.
///
/// Errors: 415 for others.
fn version(headers: &HeaderMap) -> Result<Version, ApiError> {
    let unsupported = |found: &str| {
        ApiError::with_status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::Invalid,
            format!("{found}: expected {MEDIA};proto={MESSAGE_V1} or {MEDIA};proto={MESSAGE_V2}"),
        )
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Err(unsupported("no content type")) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let mut parts = text.split(';').map(str::trim);
    if !parts.next().is_some_and(|media| media.eq_ignore_ascii_case(MEDIA)) {
        return Err(unsupported(&format!("content type `{text}`")));
    }
    let message = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("proto").then(|| value.trim().trim_matches('"'))
    });
    match message {
        None | Some(MESSAGE_V1) => Ok(Version::V1),
        Some(MESSAGE_V2) => Ok(Version::V2),
        Some(_) => Err(unsupported(&format!("content type `{text}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_says_the_version() {
        let version = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(text))]);
            version(&headers).ok()
        };
        for text in [MEDIA, "Application/X-Protobuf", "application/x-protobuf; proto=prometheus.WriteRequest"]
        {
            assert_eq!(version(text), Some(Version::V1), "{text}");
        }
        let text = "application/x-protobuf;Proto=\"io.prometheus.write.v2.Request\"; a=b";
        assert_eq!(version(text), Some(Version::V2));
        for text in ["application/json", "application/x-protobuf;proto=io.prometheus.write.v3.Request", ""] {
            assert_eq!(version(text), None, "{text}");
        }
        assert!(super::version(&HeaderMap::new()).is_err());
    }
}
