//! The sink `websocket`: sends each message to a server.
//!
//! WebSocket acknowledges nothing, but an endpoint has to answer pings, in the order in which frames arrive. So a ping
//! behind some messages, when it is answered, shows that the other side has read them.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, runtime,
};
use tidemill_types::Result;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::client::{CLIENT_OPTIONS, ClientSettings, ClientSocket};
use super::connection::{
    CONNECTION_OPTIONS, MessageType, SEND_TIMEOUT, SINK_OPTIONS, closed_reason, end_reason, idle_end,
};
use crate::http::options::joined;

/// Messages behind which a ping asks whether they arrived.
const PING_MESSAGES: usize = 500;

const CONFIRM_OPTIONS: &[OptionSpec] = &[OptionSpec::flag(
    "confirm.by.ping",
    "true",
    "Whether events count as delivered when the server has answered a ping behind them, and not when they are sent.",
)];

const OPTIONS: [OptionSpec;
    CLIENT_OPTIONS.len() + CONNECTION_OPTIONS.len() + SINK_OPTIONS.len() + CONFIRM_OPTIONS.len()] =
    joined(&[CLIENT_OPTIONS, CONNECTION_OPTIONS, SINK_OPTIONS, CONFIRM_OPTIONS]);

/// Type of the sink.
pub(super) struct WebSocketSinkType;

impl SinkType for WebSocketSinkType {
    fn name(&self) -> &'static str {
        "websocket"
    }

    fn summary(&self) -> &'static str {
        "Connects to a WebSocket server and sends each message to it."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        Ok(Box::new(WebSocketSink {
            settings: ClientSettings::of(options, &context.dir)?,
            message_type: MessageType::of(options),
            confirms: options.flag("confirm.by.ping"),
            connection: None,
        }))
    }
}

struct WebSocketSink {
    settings: ClientSettings,
    message_type: MessageType,
    confirms: bool,
    connection: Option<Connection>,
}

#[async_trait]
impl SinkConnector for WebSocketSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        self.connection = Some(Connection::start(self.settings.connect().await?, self.settings.idle));
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let connection = match self.connection.take().filter(|connection| connection.end().is_none()) {
            Some(connection) => connection,
            // it ended while there was nothing to send
            None => Connection::start(self.settings.connect().await?, self.settings.idle),
        };
        let connection = self.connection.insert(connection);
        for some in batch.messages_from(progress).chunks(PING_MESSAGES) {
            let mut refused = vec![];
            let sent = connection.send(some, self.message_type, self.confirms, &mut refused).await;
            sent.map_err(|reason| self.settings.failed(reason))?;
            let mut refused = refused.into_iter().peekable();
            for message in some {
                match refused.next_if(|(row, _)| *row == message.row) {
                    Some((_, reason)) => progress.refused(message, &reason),
                    None => progress.took(message),
                }
            }
        }
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.close().await;
        }
    }
}

/// State observed by the reading task.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// The number of the last ping that was answered.
    pong: u64,
    /// Why the connection ended.
    end: Option<String>,
}

/// A connection, with a task that reads what the server sends.
struct Connection {
    sender: SplitSink<ClientSocket, Message>,
    seen: watch::Receiver<Seen>,
    /// When something was sent.
    sent: watch::Sender<Instant>,
    pings: u64,
    reader: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Connection {
    fn start(socket: ClientSocket, idle: Option<Duration>) -> Self {
        let (sender, receiver) = socket.split();
        let (tell, seen) = watch::channel(Seen::default());
        let (sent, sent_at) = watch::channel(Instant::now());
        let reader = runtime().spawn(read(receiver, tell, sent_at, idle)).abort_handle();
        Self { sender, seen, sent, pings: 0, reader }
    }

    /// Returns why the connection has ended, if it has.
    fn end(&self) -> Option<String> {
        self.seen.borrow().end.clone()
    }

    /// Sends messages. Rows that cannot be sent are added to `refused`.
    ///
    /// Errors: why the connection ended before they arrived.
    async fn send(
        &mut self,
        messages: &[Payload],
        message_type: MessageType,
        confirms: bool,
        refused: &mut Vec<(usize, String)>,
    ) -> Result<(), String> {
        for payload in messages {
            match message_type.message(&payload.bytes) {
                Ok(message) => self.feed(message).await?,
                Err(reason) => refused.push((payload.row, reason)),
            }
        }
        if !confirms {
            return self.flush().await;
        }
        self.pings += 1;
        let ping = self.pings;
        self.feed(Message::Ping(Bytes::copy_from_slice(&ping.to_be_bytes()))).await?;
        self.flush().await?;
        let answered = self.seen.wait_for(|seen| seen.pong >= ping || seen.end.is_some());
        let seen = match timeout(SEND_TIMEOUT, answered).await {
            Ok(Ok(seen)) => seen.clone(),
            Ok(Err(_)) => return Err("the connection is closed".into()),
            Err(_) => {
                return Err("the server does not answer a ping, as RFC 6455 demands, so it is unknown whether it has the \
                            events; confirm.by.ping='false' goes without"
                    .into());
            }
        };
        match seen.end {
            Some(end) if seen.pong < ping => Err(end),
            _ => Ok(()),
        }
    }

    async fn feed(&mut self, message: Message) -> Result<(), String> {
        self.sent.send_replace(Instant::now());
        let fed = timeout(SEND_TIMEOUT, self.sender.feed(message)).await;
        self.judge(fed)
    }

    async fn flush(&mut self) -> Result<(), String> {
        let flushed = timeout(SEND_TIMEOUT, self.sender.flush()).await;
        self.judge(flushed)
    }

    fn judge<E>(
        &self,
        done: Result<Result<(), tokio_tungstenite::tungstenite::Error>, E>,
    ) -> Result<(), String> {
        match done {
            Ok(Ok(())) => Ok(()),
            // why the server closed the connection says more than that it is closed
            Ok(Err(e)) => Err(self.end().unwrap_or_else(|| end_reason(&e))),
            Err(_) => Err("the server takes nothing".into()),
        }
    }

    async fn close(&mut self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let goodbye = async {
            self.sender.send(Message::Close(Some(frame))).await.ok()?;
            self.seen.wait_for(|seen| seen.end.is_some()).await.ok().map(drop)
        };
        let _ = timeout(Duration::from_secs(2), goodbye).await;
    }
}

/// Reads until the connection ends, so that pings of the server are answered and its end is known.
async fn read(
    mut receiver: SplitStream<ClientSocket>,
    tell: watch::Sender<Seen>,
    sent_at: watch::Receiver<Instant>,
    idle: Option<Duration>,
) {
    let mut last_message = Instant::now();
    let end = loop {
        let idle_since = last_message.max(*sent_at.borrow());
        let arrived = tokio::select! {
            arrived = receiver.next() => arrived,
            () = sleep_until(idle_end(idle_since, idle)) => {
                match idle.is_some_and(|idle| sent_at.borrow().elapsed() >= idle) {
                    true => break "no message came or went within idle.timeout".to_owned(),
                    false => continue,
                }
            }
        };
        match arrived {
            None => break "the server has gone".to_owned(),
            Some(Ok(Message::Pong(number))) => {
                if let Ok(number) = number.as_ref().try_into() {
                    tell.send_modify(|seen| seen.pong = u64::from_be_bytes(number));
                }
            }
            Some(Ok(Message::Close(frame))) => {
                let reason = closed_reason(frame.as_ref());
                tell.send_modify(|seen| seen.end = Some(reason.clone()));
                // the answer to the close frame is sent by the next call
                let _ = timeout(Duration::from_secs(2), receiver.next()).await;
                break reason;
            }
            Some(Ok(_)) => last_message = Instant::now(),
            Some(Err(e)) => break end_reason(&e),
        }
    };
    tell.send_modify(|seen| seen.end = Some(end));
}
