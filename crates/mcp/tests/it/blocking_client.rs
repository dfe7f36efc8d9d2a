//! HTTP for the client of rmcp, by the library that the other tests send requests with.

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse};

/// HTTP whose requests have a caller.
#[derive(Clone)]
pub struct Blocking {
    pub user: &'static str,
}

type Failure = StreamableHttpError<ureq::Error>;

impl StreamableHttpClient for Blocking {
    type Error = ureq::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        _: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let user = self.user;
        let post = move || {
            let mut request = ureq::post(&*uri)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("user", user);
            for (name, value) in &headers {
                request = request.header(name.as_str(), value.to_str().unwrap());
            }
            let body = serde_json::to_vec(&message).unwrap();
            let mut reply = request.send(body).map_err(StreamableHttpError::Client)?;
            if reply.status() == 202 {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            let body = reply.body_mut().read_to_vec().map_err(StreamableHttpError::Client)?;
            Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, None))
        };
        tokio::task::spawn_blocking(post).await?
    }

    fn delete_session(
        &self,
        _: Arc<str>,
        _: Arc<str>,
        _: Option<String>,
        _: HashMap<HeaderName, HeaderValue>,
    ) -> impl Future<Output = Result<(), Failure>> + Send + '_ {
        ready(Err(StreamableHttpError::ServerDoesNotSupportDeleteSession))
    }

    fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: HashMap<HeaderName, HeaderValue>,
    ) -> impl Future<Output = Result<BoxStream<'static, Result<Sse, SseError>>, Failure>> + Send + '_ {
        ready(Err(StreamableHttpError::ServerDoesNotSupportSse))
    }
}
