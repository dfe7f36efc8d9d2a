//! Connections, links, and why they fail.

use std::time::Duration;

use fe2o3_amqp::connection::{Connection, ConnectionHandle, ConnectionStopReason, OpenError};
use fe2o3_amqp::link::{
    DetachError, LinkStateError, ReceiverAttachError, RecvError, SendError, SenderAttachError,
    SessionStopReason,
};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::{Session, SessionHandle};
use fe2o3_amqp::types::definitions::{self, ErrorCondition};
use fe2o3_amqp::types::primitives::{Array, Symbol};
use tidemill_types::{Error, Result};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::BrokerAddress;
use super::settings::{AmqpSettings, DestinationKind};

/// Timeout for connecting to one broker.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Silence after which a connection counts as lost. Brokers send empty frames more often.
const IDLE_TIMEOUT_MS: u32 = 60_000;
/// Transfers of a session that may be on their way in one direction.
const SESSION_WINDOW: u32 = 4096;

/// Connection with a session; ends when it is dropped.
pub(super) struct AmqpConnection {
    pub session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
    place: String,
}

impl AmqpConnection {
    /// Connects to the first broker that answers.
    ///
    /// Errors: why the last one does not.
    pub(super) async fn open(settings: &AmqpSettings) -> Result<Self> {
        let mut last = Error::internal("there is no broker");
        for broker in &settings.brokers {
            let place = format!("{} at {broker}", settings.product);
            let opened = tokio::time::timeout(CONNECT_TIMEOUT, open_one(settings, broker)).await;
            last = match opened {
                Ok(Ok((connection, session))) => return Ok(Self { session, connection, place }),
                Ok(Err(why)) => Error::unavailable(format!("{place}: no connection: {why}")),
                Err(_) => {
                    let seconds = CONNECT_TIMEOUT.as_secs();
                    Error::unavailable(format!(
                        "{place}: no answer within {seconds} s; {}",
                        settings.port_help
                    ))
                }
            };
        }
        Err(last)
    }

    /// Returns whether the connection or its session has ended.
    pub(super) fn is_lost(&self) -> bool {
        self.connection.is_closed() || self.session.is_ended()
    }

    /// Returns an error that says where.
    pub(super) fn failed(&self, what: &str, why: &str) -> Error {
        Error::unavailable(format!("{}: {what}: {why}", self.place))
    }
}

async fn open_one(
    settings: &AmqpSettings,
    broker: &BrokerAddress,
) -> Result<(ConnectionHandle<()>, SessionHandle<()>), String> {
    let stream = TcpStream::connect((broker.host.as_str(), broker.port)).await.map_err(|e| e.to_string())?;
    // messages wait for their settlement, so small frames must not wait for others
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let profile = match &settings.login {
        Some((username, password)) => {
            SaslProfile::Plain { username: username.clone(), password: password.clone() }
        }
        None => SaslProfile::Anonymous,
    };
    let builder = Connection::builder()
        .container_id(settings.client_id.as_str())
        .hostname(broker.host.as_str())
        .scheme("amqp")
        .idle_time_out(IDLE_TIMEOUT_MS)
        .sasl_profile(profile);
    let opened = match settings.tls.as_ref().filter(|_| broker.is_tls) {
        Some(tls) => {
            let name = ServerName::try_from(broker.host.clone()).map_err(|_| "the host has no valid name")?;
            let stream = TlsConnector::from(tls.clone()).connect(name, stream).await;
            builder.open_with_stream(stream.map_err(|e| format!("TLS: {e}"))?).await
        }
        None => builder.open_with_stream(stream).await,
    };
    let mut connection = opened.map_err(|e| open_reason(&e, settings))?;
    let session = Session::builder()
        .incoming_window(SESSION_WINDOW)
        .outgoing_window(SESSION_WINDOW)
        .begin(&mut connection)
        .await
        .map_err(|e| format!("no session: {e}"))?;
    Ok((connection, session))
}

fn open_reason(error: &OpenError, settings: &AmqpSettings) -> String {
    match error {
        OpenError::SaslError { .. } => "the broker refuses the login".into(),
        OpenError::RemoteClosedWithError(e) => text_of(e),
        OpenError::ProtocolHeaderMismatch(_) | OpenError::DecodeError(_) => {
            format!("what answers does not speak AMQP 1.0; {}", settings.port_help)
        }
        OpenError::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            format!(
                "the connection was closed at once; if the port is not for AMQP 1.0, {}",
                settings.port_help
            )
        }
        OpenError::Io(e) => e.to_string(),
        OpenError::NotImplemented(_) => {
            "the broker takes no login by user and password, or wants one (SASL PLAIN or ANONYMOUS)".into()
        }
        e => format!("{e}; if the port is not for AMQP 1.0, {}", settings.port_help),
    }
}

/// Returns the capability of a terminus.
pub(super) fn capability(kind: DestinationKind) -> Array<Symbol> {
    Array::from(vec![Symbol::from(kind.capability())])
}

/// Returns what a broker says.
pub(super) fn text_of(error: &definitions::Error) -> String {
    match &error.description {
        Some(text) if !text.is_empty() => text.clone(),
        _ => condition_of(error),
    }
}

/// Returns the condition of an error, such as `amqp:not-found`.
pub(super) fn condition_of(error: &definitions::Error) -> String {
    match &error.condition {
        ErrorCondition::AmqpError(e) => Symbol::from(e).into_inner(),
        ErrorCondition::ConnectionError(e) => Symbol::from(e).into_inner(),
        ErrorCondition::SessionError(e) => Symbol::from(e).into_inner(),
        ErrorCondition::LinkError(e) => Symbol::from(e).into_inner(),
        ErrorCondition::Custom(name) => name.as_str().to_owned(),
        #[allow(unreachable_patterns, reason = "the client may have more conditions with other features")]
        _ => "an unknown error".into(),
    }
}

/// Returns whether a broker refuses a link of a sender for good: waiting does not help.
pub(super) fn is_lasting_refusal(error: &SenderAttachError) -> bool {
    const LASTING: [&str; 4] =
        ["amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "amqp:invalid-field"];
    match error {
        SenderAttachError::RemoteClosedWithError(e) => LASTING.contains(&condition_of(e).as_str()),
        _ => false,
    }
}

/// Returns why no messages can be sent to a destination.
pub(super) fn attach_reason(error: &SenderAttachError) -> String {
    match error {
        SenderAttachError::SessionStopped(reason) => stop_reason(reason),
        SenderAttachError::RemoteClosedWithError(e) => text_of(e),
        SenderAttachError::IncomingTargetIsNone => "the broker has no such destination".into(),
        e => e.to_string(),
    }
}

/// Returns why a destination cannot be read.
pub(super) fn receiver_attach_reason(error: &ReceiverAttachError) -> String {
    match error {
        ReceiverAttachError::RemoteClosedWithError(e) => text_of(e),
        ReceiverAttachError::IncomingSourceIsNone => "the broker has no such destination".into(),
        ReceiverAttachError::SessionStopped(reason) => stop_reason(reason),
        e => e.to_string(),
    }
}

/// Returns why a link ended while it read.
pub(super) fn recv_reason(error: &RecvError) -> String {
    match error {
        RecvError::LinkStateError(e) => link_reason(e),
        e => e.to_string(),
    }
}

/// Returns why a message was not sent, and whether the message itself is at fault.
pub(super) fn send_reason(error: &SendError) -> (String, bool) {
    match error {
        SendError::LinkStateError(e) => (link_reason(e), false),
        SendError::Detached(
            DetachError::RemoteDetachedWithError(e) | DetachError::RemoteClosedWithError(e),
        ) => (text_of(e), false),
        SendError::MessageSizeExceeded(e) => {
            (format!("the message has {} bytes; the broker takes {}", e.size, e.max_size), true)
        }
        SendError::MessageEncodeError => ("the message cannot be encoded".into(), true),
        e => (e.to_string(), false),
    }
}

/// Returns why a link ended.
fn link_reason(error: &LinkStateError) -> String {
    match error {
        LinkStateError::RemoteDetachedWithError(e) | LinkStateError::RemoteClosedWithError(e) => text_of(e),
        LinkStateError::SessionStopped(reason) => stop_reason(reason),
        e => e.to_string(),
    }
}

fn stop_reason(reason: &SessionStopReason) -> String {
    match reason {
        SessionStopReason::RemoteEndedWithError(e) | SessionStopReason::EndedWithError(e) => text_of(e),
        SessionStopReason::ConnectionStopped(reason) => match reason {
            ConnectionStopReason::RemoteClosedWithError(e) => text_of(e),
            ConnectionStopReason::ClosedWithError(e) => text_of(e),
            _ => "the connection was lost".into(),
        },
        _ => "the broker ended the session".into(),
    }
}
