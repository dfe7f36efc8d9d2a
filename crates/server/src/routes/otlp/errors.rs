//! Errors of the routes of OTLP in the form that their clients read, also those that come before a route is called.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tidemill_mappers::otlp::Encoding;

use super::reply::{OtlpStatus, ReplyMessage, encode};
use super::{JSON, grpc};
use crate::error::ErrorDetail;
use crate::paths::telemetry_path;
use crate::routes::remote_write;

/// Form of the errors of a route.
#[derive(Clone, Copy)]
enum ErrorForm {
    /// `google.rpc.Status` in the encoding of the request.
    Status(Encoding),
    /// Headers of gRPC.
    Grpc,
    /// A line of text, which Prometheus writes into its log.
    Text,
}

impl ErrorForm {
    fn of(request: &Request) -> Option<Self> {
        let path = request.uri().path();
        if path == telemetry_path::REMOTE_WRITE {
            return Some(Self::Text);
        }
        if telemetry_path::grpc_signal(path).is_some() {
            // others, such as a browser, get errors as elsewhere
            return grpc::is_grpc(request.headers()).then_some(Self::Grpc);
        }
        telemetry_path::http_signal(path).map(|_| match is_json(request.headers()) {
            true => Self::Status(Encoding::Json),
            false => Self::Status(Encoding::Protobuf),
        })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    media.get(..JSON.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(JSON.as_bytes()))
}

/// Gives errors of the routes of telemetry the form that their clients read.
pub(crate) async fn own_form(request: Request, next: Next) -> Response {
    let form = ErrorForm::of(&request);
    let mut response = next.run(request).await;
    let Some((form, error)) = form.zip(response.extensions().get::<ErrorDetail>().cloned()) else {
        return response;
    };
    let status = response.status();
    let mut own = match form {
        ErrorForm::Status(encoding) => {
            encode(status, encoding, &OtlpStatus::of(status, &error)).into_response()
        }
        ErrorForm::Grpc => {
            let status = OtlpStatus::of(status, &error);
            return grpc::refusal(&status, &status.to_protobuf());
        }
        ErrorForm::Text => {
            // senders repeat errors of servers only
            let is_full = status == StatusCode::TOO_MANY_REQUESTS;
            let status = if is_full { StatusCode::SERVICE_UNAVAILABLE } else { status };
            (status, remote_write::one_line(&error.message)).into_response()
        }
    };
    for (name, value) in response.headers_mut().drain() {
        if let Some(name) =
            name.filter(|name| *name != header::CONTENT_TYPE && *name != header::CONTENT_LENGTH)
        {
            own.headers_mut().insert(name, value);
        }
    }
    own
}
