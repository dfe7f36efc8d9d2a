//! The sources `websocket`, which connects to a server, and `websocket-server`, to which clients connect.

use async_trait::async_trait;
use futures::FutureExt;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SourceConnector, SourceOutput,
    SourceType,
};
use tidemill_types::Result;

use super::client::{CLIENT_OPTIONS, ClientSettings};
use super::connection::{CONNECTION_OPTIONS, receive};
use super::server::{SERVER_OPTIONS, ServedClient, ServerSettings};
use crate::http::auth::AUTH_OPTIONS;
use crate::http::options::joined;

const OPTIONS: [OptionSpec; CLIENT_OPTIONS.len() + CONNECTION_OPTIONS.len()] =
    joined(&[CLIENT_OPTIONS, CONNECTION_OPTIONS]);

/// Type of the source that is a client.
pub(super) struct WebSocketSourceType;

impl SourceType for WebSocketSourceType {
    fn name(&self) -> &'static str {
        "websocket"
    }

    fn summary(&self) -> &'static str {
        "Connects to a WebSocket server and takes the messages that it sends."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        Ok(Box::new(WebSocketSource { settings: ClientSettings::of(options, &context.dir)? }))
    }
}

struct WebSocketSource {
    settings: ClientSettings,
}

#[async_trait]
impl SourceConnector for WebSocketSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut socket = self.settings.connect().await?;
        output.report_connected();
        let reason = receive(&mut socket, self.settings.idle, &[], output).await;
        Err(self.settings.failed(reason))
    }
}

const LISTENER_OPTIONS: [OptionSpec; SERVER_OPTIONS.len() + CONNECTION_OPTIONS.len() + AUTH_OPTIONS.len()] =
    joined(&[SERVER_OPTIONS, CONNECTION_OPTIONS, AUTH_OPTIONS]);

/// Type of the source that is a server.
pub(super) struct WebSocketServerSourceType;

impl SourceType for WebSocketServerSourceType {
    fn name(&self) -> &'static str {
        "websocket-server"
    }

    fn summary(&self) -> &'static str {
        "Listens for WebSocket clients and takes the messages that they send."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &LISTENER_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        Ok(Box::new(WebSocketServerSource { settings: ServerSettings::of(options, &context.dir)? }))
    }
}

struct WebSocketServerSource {
    settings: ServerSettings,
}

#[async_trait]
impl SourceConnector for WebSocketServerSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let (idle, of_clients) = (self.settings.idle, output.clone());
        let take_client = move |properties: Vec<(String, String)>| -> ServedClient {
            let output = of_clients.clone();
            let serve = move |mut socket| async move {
                let reason = receive(&mut socket, idle, &properties, &output).await;
                tracing::debug!(reason, "the connection of a WebSocket client ended");
            };
            Box::new(|socket| serve(socket).boxed())
        };
        let _claim = self.settings.serve(take_client).await?;
        output.report_connected();
        std::future::pending().await
    }
}
