//! What all connections have in common: limits, times, and reading the messages of a source.

use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt};
use tidemill_connect::{OptionError, OptionSpec, Options, SourceOutput};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use crate::receipts::Receipts;

/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// When to look by a ping whether the other side is there.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum silence of the other side before the connection counts as lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(75);
/// Timeout for the other side to take what is sent.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Deliveries that may wait until they are durable.
const RECEIPTS_MAX: usize = 100;
/// Messages and bytes that are handed over together.
const BATCH: (usize, usize) = (512, 1 << 20);

/// Options that both clients and servers have.
pub(super) const CONNECTION_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("sub.protocol", "Subprotocols with commas, the preferred one first."),
    OptionSpec::integer(
        "idle.timeout",
        -1,
        i64::MAX,
        "Milliseconds without a message after which a connection is closed; -1: never.",
    )
    .default("-1"),
];

/// Options of sinks.
pub(super) const SINK_OPTIONS: &[OptionSpec] = &[OptionSpec::one_of(
    "message.type",
    &["auto", "text", "binary"],
    "Type of the messages; `auto`: text if the message is UTF-8, otherwise binary.",
)
.default("auto")];

/// Returns the limits of connections.
pub(super) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .read_buffer_size(16 << 10)
        .write_buffer_size(64 << 10)
}

/// Reads the option `idle.timeout`.
///
/// Errors: it is 0.
pub(super) fn idle_timeout(options: &Options) -> Result<Option<Duration>, OptionError> {
    match options.integer("idle.timeout") {
        Some(0) => Err(OptionError::option("idle.timeout", "it must be longer than 0, or -1")),
        Some(milliseconds) => Ok(u64::try_from(milliseconds).ok().map(Duration::from_millis)),
        None => Ok(None),
    }
}

/// Type of the messages of a sink.
#[derive(Debug, Clone, Copy)]
pub(super) enum MessageType {
    Auto,
    Text,
    Binary,
}

impl MessageType {
    pub(super) fn of(options: &Options) -> Self {
        match options.text("message.type").trim().to_ascii_lowercase().as_str() {
            "text" => Self::Text,
            "binary" => Self::Binary,
            _ => Self::Auto,
        }
    }

    /// Returns the message with this content.
    ///
    /// Errors: the message should be text, and the bytes are not.
    pub(super) fn message(self, bytes: &Bytes) -> Result<Message, String> {
        match self {
            Self::Binary => Ok(Message::Binary(bytes.clone())),
            _ => match (bytes.clone().try_into(), self) {
                (Ok(text), _) => Ok(Message::Text(text)),
                (Err(_), Self::Auto) => Ok(Message::Binary(bytes.clone())),
                (Err(_), _) => Err("message.type='text' and the message is no UTF-8".into()),
            },
        }
    }
}

/// Returns the time of `idle` after `since`; far in the future without.
pub(super) fn idle_end(since: Instant, idle: Option<Duration>) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365);
    since + idle.unwrap_or(FAR).min(FAR)
}

/// Hands over the messages of a connection until it ends. Returns why it ended.
pub(super) async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    idle: Option<Duration>,
    properties: &[(String, String)],
    output: &SourceOutput,
) -> String {
    let mut receipts: Receipts<()> = Receipts::new();
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut heard, mut last_message) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            durable = receipts.next() => if let Err(e) = durable {
                close(socket, CloseCode::Again, "the events are not stored; send them again").await;
                return format!("the events are not stored: {}", e.message());
            },
            _ = pings.tick() => {
                if heard.elapsed() > SILENCE_MAX {
                    return format!("the other side has been silent for {} seconds", SILENCE_MAX.as_secs());
                }
                match timeout(SEND_TIMEOUT, socket.send(Message::Ping(Bytes::new()))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(e)) => return end_reason(&e),
                    Err(_) => return "the other side takes nothing".into(),
                }
            }
            () = sleep_until(idle_end(last_message, idle)) => {
                close(socket, CloseCode::Normal, "idle.timeout").await;
                return "no message came within idle.timeout".into();
            }
            arrived = socket.next(), if receipts.len() < RECEIPTS_MAX => {
                heard = Instant::now();
                let Read { messages, end } = read(arrived, socket, properties);
                if !messages.is_empty() {
                    last_message = heard;
                    match output.send(messages).await {
                        Ok(receipt) => receipts.push(receipt, ()),
                        Err(e) => {
                            close(socket, CloseCode::Away, "the source stops").await;
                            return e.message().to_owned();
                        }
                    }
                }
                if let Some((reason, code)) = end {
                    if let Some(code) = code {
                        close(socket, code, &reason).await;
                    }
                    while receipts.len() > 0 && receipts.next().await.is_ok() {}
                    return reason;
                }
            }
        }
    }
}

/// Messages that were read at once.
struct Read {
    messages: Vec<tidemill_connect::Message>,
    /// Why the connection ended, and the code that tells the other side if it does not know.
    end: Option<(String, Option<CloseCode>)>,
}

/// Takes what arrived and what is there already.
fn read<S: AsyncRead + AsyncWrite + Unpin>(
    first: Option<Result<Message, WebSocketError>>,
    socket: &mut WebSocketStream<S>,
    properties: &[(String, String)],
) -> Read {
    let (mut messages, mut bytes) = (vec![], 0);
    let mut next = Some(first);
    while let Some(arrived) = next.take() {
        let payload = match arrived {
            None => return Read { messages, end: Some(("the other side has gone".into(), None)) },
            Some(Ok(Message::Text(text))) => Some(Bytes::from(text)),
            Some(Ok(Message::Binary(payload))) => Some(payload),
            // the answer to a ping is sent by the library with the next call
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => None,
            Some(Ok(Message::Close(frame))) => {
                return Read { messages, end: Some((closed_reason(frame.as_ref()), None)) };
            }
            Some(Err(e)) => {
                let code = match &e {
                    WebSocketError::Capacity(_) => Some(CloseCode::Size),
                    WebSocketError::Protocol(_) => Some(CloseCode::Protocol),
                    WebSocketError::Utf8(_) => Some(CloseCode::Invalid),
                    _ => None,
                };
                return Read { messages, end: Some((end_reason(&e), code)) };
            }
        };
        if let Some(payload) = payload {
            bytes += payload.len();
            let mut message = tidemill_connect::Message::new(payload);
            message.properties = properties.to_vec();
            messages.push(message);
        }
        if messages.len() < BATCH.0 && bytes < BATCH.1 {
            next = socket.next().now_or_never();
        }
    }
    Read { messages, end: None }
}

/// Says goodbye, as far as the other side listens.
pub(super) async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    code: CloseCode,
    reason: &str,
) {
    // the reason of a close frame has at most 123 bytes
    let reason = reason.chars().take(30).collect::<String>();
    let goodbye = async {
        socket.close(Some(CloseFrame { code, reason: reason.into() })).await?;
        while let Some(Ok(_)) = socket.next().await {}
        Ok::<_, WebSocketError>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
}

/// Returns why the other side closed the connection.
pub(super) fn closed_reason(frame: Option<&CloseFrame>) -> String {
    let Some(frame) = frame else { return "the other side closed the connection".into() };
    let reason: String = frame.reason.chars().filter(|c| !c.is_control()).take(123).collect();
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    format!("the other side closed the connection with the code {}{reason}", u16::from(frame.code))
}

/// Returns why a connection ended with this error.
pub(super) fn end_reason(e: &WebSocketError) -> String {
    match e {
        WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed => "the connection is closed".into(),
        WebSocketError::Io(e) => format!("the connection broke off: {e}"),
        WebSocketError::Capacity(e) => format!("a message is too long: {e}"),
        WebSocketError::Protocol(e) => format!("the connection broke off: {e}"),
        _ => "the connection broke off".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_type() {
        let (text, binary) = (Bytes::from_static("ü".as_bytes()), Bytes::from_static(b"\xff"));
        assert_eq!(MessageType::Auto.message(&text), Ok(Message::text("ü")));
        assert_eq!(MessageType::Auto.message(&binary), Ok(Message::Binary(binary.clone())));
        assert_eq!(MessageType::Binary.message(&text), Ok(Message::Binary(text.clone())));
        assert!(MessageType::Text.message(&binary).is_err());
    }
}
