//! The service that a server of HTTP mounts.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tidemill_database::Database;

use crate::engine::McpEngine;
use crate::errors::{advice, refusal, refusal_body};
use crate::handler::Handler;
use crate::options::McpOptions;

/// Path at which the service is mounted.
pub const PATH: &str = "/mcp";

/// MCP over HTTP. Clones share everything.
#[derive(Clone)]
pub struct McpService {
    transport: StreamableHttpService<Handler, NeverSessionManager>,
    message_bytes_max: usize,
}

impl McpService {
    /// Creates the service over an engine and its database.
    pub fn new(engine: Arc<dyn McpEngine>, database: Arc<dyn Database>, options: McpOptions) -> Self {
        let message_bytes_max = options.message_bytes_max;
        let handler = Handler::new(engine, database, options);
        // the server that mounts it checks the names of hosts and pages for all of its routes
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(message_bytes_max)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let factory = move || Ok(handler.clone());
        let transport = StreamableHttpService::new(factory, Arc::new(NeverSessionManager::default()), config);
        Self { transport, message_bytes_max }
    }

    /// Answers a request, whose caller is an extension of it, a [`tidemill_access::Principal`].
    pub fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> {
        let service = self.clone();
        async move {
            if request.method() == Method::POST && request.body().len() > service.message_bytes_max {
                let most = service.message_bytes_max;
                let message =
                    format!("the message has more than {most} bytes: send fewer files, or less text");
                return refusal(StatusCode::PAYLOAD_TOO_LARGE, &message);
            }
            let (mut head, body) = service.transport.handle(request.map(Full::new)).await.into_parts();
            let Ok(body) = body.collect().await;
            let body = body.to_bytes();
            let is_json =
                head.headers.get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
            if is_json || head.status.is_success() {
                return Response::from_parts(head, body);
            }
            let text = String::from_utf8_lossy(&body);
            let body = refusal_body(advice(head.status).unwrap_or(&text));
            head.headers.remove(header::CONTENT_LENGTH);
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Response::from_parts(head, body)
        }
        .boxed()
    }

    /// Returns the body of a reply in which the server refuses a request before it is one of MCP.
    pub fn refusal_body(message: &str) -> Bytes {
        refusal_body(message)
    }
}
