//! The sink `websocket-server`: sends each message to all clients that are connected.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{FutureExt, SinkExt, StreamExt};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    SinkBatch, SinkConnector, SinkType,
};
use tidemill_types::Result;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::connection::{
    CONNECTION_OPTIONS, MessageType, PING_INTERVAL, SEND_TIMEOUT, SILENCE_MAX, SINK_OPTIONS, closed_reason,
    end_reason, idle_end,
};
use super::server::{SERVER_OPTIONS, ServedClient, ServerSettings, ServerSocket};
use crate::fanout::{Fanout, FanoutLimits, FanoutReader};
use crate::http::auth::AUTH_OPTIONS;
use crate::http::options::joined;
use crate::http::server::Claim;

/// Bytes of messages that are kept for slow clients.
const KEPT_BYTES_MAX: usize = 16 << 20;

const FANOUT_OPTIONS: &[OptionSpec] = &[
    OptionSpec::integer("buffer.size", 1, 1_000_000, "Messages, at most 16 MiB, that a client may be behind.")
        .default("1000"),
    OptionSpec::duration(
        "slow.client.timeout",
        "How long the sink waits for a client that is behind by the whole buffer, before it ends its connection.",
    )
    .default("5 sec"),
];

const OPTIONS: [OptionSpec;
    SERVER_OPTIONS.len()
        + CONNECTION_OPTIONS.len()
        + SINK_OPTIONS.len()
        + FANOUT_OPTIONS.len()
        + AUTH_OPTIONS.len()] =
    joined(&[SERVER_OPTIONS, CONNECTION_OPTIONS, SINK_OPTIONS, FANOUT_OPTIONS, AUTH_OPTIONS]);

/// Type of the sink.
pub(super) struct WebSocketServerSinkType;

impl SinkType for WebSocketServerSinkType {
    fn name(&self) -> &'static str {
        "websocket-server"
    }

    fn summary(&self) -> &'static str {
        "Listens for WebSocket clients and sends each message to all of them."
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
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let limits = FanoutLimits {
            messages_max: options
                .integer("buffer.size")
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(1000),
            bytes_max: KEPT_BYTES_MAX,
            patience: options.duration("slow.client.timeout").unwrap_or(Duration::from_secs(5)),
        };
        Ok(Box::new(WebSocketServerSink {
            settings: ServerSettings::of(options, &context.dir)?,
            message_type: MessageType::of(options),
            fanout: Fanout::new(limits),
            claim: None,
        }))
    }
}

struct WebSocketServerSink {
    settings: ServerSettings,
    message_type: MessageType,
    fanout: Arc<Fanout<Message>>,
    claim: Option<Claim>,
}

#[async_trait]
impl SinkConnector for WebSocketServerSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        if self.claim.is_none() {
            let (fanout, idle) = (self.fanout.clone(), self.settings.idle);
            let take_client = move |_: Vec<(String, String)>| -> ServedClient {
                let reader = fanout.reader();
                let serve = move |socket| async move {
                    let reason = serve(socket, reader, idle).await;
                    tracing::debug!(reason, "the connection of a WebSocket client ended");
                };
                Box::new(|socket| serve(socket).boxed())
            };
            self.claim = Some(self.settings.serve(take_client).await?);
        }
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        for payload in batch.messages_from(progress) {
            match self.message_type.message(&payload.bytes) {
                Ok(message) => {
                    self.fanout.push(message, payload.bytes.len()).await;
                    progress.took(payload);
                }
                Err(reason) => progress.refused(payload, &reason),
            }
        }
        Ok(())
    }

    async fn close(&mut self) {
        self.fanout.close().await;
        self.claim = None;
    }
}

/// Serves a client until its connection ends. Returns why it ended.
async fn serve(socket: ServerSocket, reader: FanoutReader<Message>, idle: Option<Duration>) -> String {
    let (sender, receiver) = socket.split();
    let (tell, heard) = watch::channel(Heard { any: Instant::now(), message: Instant::now() });
    // both at the same time: a client may send and read at its own pace
    tokio::select! {
        reason = listen(receiver, tell) => reason,
        reason = send(sender, reader, heard, idle) => reason,
    }
}

/// When something came from the client.
#[derive(Clone, Copy)]
struct Heard {
    any: Instant,
    message: Instant,
}

/// Reads until the connection ends, so that pings of the client are answered. Its messages are not looked at.
async fn listen(mut receiver: SplitStream<ServerSocket>, tell: watch::Sender<Heard>) -> String {
    loop {
        match receiver.next().await {
            None => return "the client has gone".into(),
            Some(Ok(Message::Close(frame))) => {
                // the answer to the close frame is sent by the next call
                let _ = timeout(SEND_TIMEOUT, receiver.next()).await;
                return closed_reason(frame.as_ref());
            }
            Some(Ok(message)) => tell.send_modify(|heard| {
                heard.any = Instant::now();
                if matches!(message, Message::Text(_) | Message::Binary(_)) {
                    heard.message = heard.any;
                }
            }),
            Some(Err(e)) => return end_reason(&e),
        }
    }
}

/// Sends the messages, and pings while it has none to send.
async fn send(
    mut sender: SplitSink<ServerSocket, Message>,
    mut reader: FanoutReader<Message>,
    heard: watch::Receiver<Heard>,
    idle: Option<Duration>,
) -> String {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent = Instant::now();
    let goodbye =
        |code, reason: &'static str| Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    loop {
        let idle_since = sent.max(heard.borrow().message);
        let (message, end) = tokio::select! {
            message = reader.next() => match message {
                Some(message) => {
                    sent = Instant::now();
                    (message, None)
                }
                None if reader.has_place() => (goodbye(CloseCode::Away, "the sink stops"), Some("the sink stops")),
                None => (goodbye(CloseCode::Policy, "the client is too slow"), Some("the client is too slow")),
            },
            _ = pings.tick() => {
                if heard.borrow().any.elapsed() > SILENCE_MAX {
                    return format!("the client has been silent for {} seconds", SILENCE_MAX.as_secs());
                }
                (Message::Ping(Bytes::new()), None)
            }
            () = sleep_until(idle_end(idle_since, idle)) => {
                if heard.borrow().message > idle_since {
                    continue;
                }
                (goodbye(CloseCode::Normal, "idle.timeout"), Some("no message came or went within idle.timeout"))
            }
        };
        match timeout(SEND_TIMEOUT, sender.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return end_reason(&e),
            Err(_) => return "the client takes nothing".into(),
        }
        if let Some(end) = end {
            // the client answers, which ends the other half
            drop(reader);
            tokio::time::sleep(Duration::from_secs(2)).await;
            return end.into();
        }
    }
}
