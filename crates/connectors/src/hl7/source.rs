//! The source: a listener that acknowledges each message when its events are durable.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::acknowledgement::{self, MessageHead};
use super::{CHARSET, ENCODINGS, Encoding, TLS, check_common, frame};
use crate::ports::{PortService, Ports};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

static PORTS: Ports<Hl7Service> = Ports::new();

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::integer("port", 1, 65535, "Port to listen on.").required(),
    OptionSpec::text("host", "Address to listen on.").default("0.0.0.0"),
    OptionSpec::one_of("hl7.encoding", ENCODINGS, "Form of the messages, for which `@map` has to fit.")
        .required(),
    OptionSpec::one_of("hl7.ack.encoding", ENCODINGS, "Form of the acknowledgements.").default("er7"),
    OptionSpec::integer("max.message.bytes", 1, 1 << 30, "Bytes of the longest message.").default("16777216"),
    CHARSET,
    TLS,
    OptionSpec::flag(
        "hl7.conformance.profile.used",
        "false",
        "Profiles are not checked, so `true` is refused.",
    ),
];

/// Type of the source.
pub(super) struct Hl7SourceType;

impl SourceType for Hl7SourceType {
    fn name(&self) -> &'static str {
        "hl7"
    }

    fn summary(&self) -> &'static str {
        "Listens for HL7 messages in frames of MLLP and acknowledges them."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        _context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        check_common(options)?;
        if options.flag("hl7.conformance.profile.used") {
            let message = "profiles are not checked; write conditions on the events into the app";
            return Err(OptionError::option("hl7.conformance.profile.used", message));
        }
        Ok(Box::new(Hl7Source {
            host: options.text("host").to_owned(),
            port: options.integer("port").and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
            bytes_max: options.integer("max.message.bytes").unwrap_or_default() as usize,
            answers: Encoding::of(options, "hl7.ack.encoding"),
        }))
    }
}

struct Hl7Source {
    host: String,
    port: u16,
    bytes_max: usize,
    answers: Encoding,
}

#[async_trait]
impl SourceConnector for Hl7Source {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let port = PORTS.open(&self.host, self.port, || Hl7Service { route: RwLock::new(None) }).await?;
        let route =
            Arc::new(PortRoute { output: output.clone(), bytes_max: self.bytes_max, answers: self.answers });
        if port.service.route.read().is_some() {
            let message = "another source `hl7` has the port; choose another one";
            return Err(Error::conflict(message).context(format!("{}:{}", self.host, self.port)));
        }
        *port.service.route.write() = Some(route);
        let _claim = PortClaim(port.service.clone());
        output.report_connected();
        std::future::pending().await
    }
}

/// The right of a source to the messages of a port.
struct PortClaim(Arc<Hl7Service>);

impl Drop for PortClaim {
    fn drop(&mut self) {
        *self.0.route.write() = None;
    }
}

struct Hl7Service {
    route: RwLock<Option<Arc<PortRoute>>>,
}

struct PortRoute {
    output: SourceOutput,
    bytes_max: usize,
    answers: Encoding,
}

impl PortService for Hl7Service {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let route = self.route.read().clone();
        let Some(route) = route else { return };
        if let Err(reason) = exchange(&route, stream).await {
            tracing::warn!(%peer, error = reason, "a connection of HL7 is closed");
            route.output.report_problem(format!("the connection of {peer} was closed: {reason}"));
        }
    }
}

/// Takes messages one after the other and answers each, until the other side ends.
///
/// Errors: why the connection is closed. A message without an answer comes again.
async fn exchange(route: &PortRoute, mut stream: TcpStream) -> Result<(), String> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        while let Some(message) = frame::decode(&mut buffer, route.bytes_max)? {
            let answer = answer(route, message).await?;
            let framed = frame::encode(answer.as_bytes())?;
            stream.write_all(&framed).await.map_err(|e| e.to_string())?;
            route.output.report_connected();
        }
        buffer.reserve(READ_BYTES);
        match stream.read_buf(&mut buffer).await {
            Ok(0) if buffer.is_empty() => return Ok(()),
            Ok(0) => return Err("the other side ended within a message".into()),
            Ok(_) => {}
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// Hands over a message and returns its acknowledgement when its events are durable.
///
/// Errors: they are not known to be.
async fn answer(route: &PortRoute, message: Bytes) -> Result<String, String> {
    let head = match std::str::from_utf8(&message).map_err(|e| e.to_string()).and_then(acknowledgement::head)
    {
        Ok(head) => head,
        Err(reason) => return Ok(write(route, &MessageHead::default(), "AR", &reason)),
    };
    let properties = vec![
        ("message.type".to_owned(), head.message_type.clone()),
        ("message.control.id".to_owned(), head.control_id.clone()),
        ("message.version".to_owned(), head.version.clone()),
    ];
    let message = Message { properties, ..Message::new(message) };
    let pending = route.output.send(vec![message]).await.map_err(|e| e.message().to_owned())?;
    let receipt = pending.wait().await.map_err(|e| e.message().to_owned())?;
    Ok(match receipt.rejected.first() {
        None => write(route, &head, "AA", ""),
        Some(reason) => write(route, &head, "AE", reason),
    })
}

fn write(route: &PortRoute, head: &MessageHead, code: &str, text: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp(i64::try_from(now.as_micros()).unwrap_or_default());
    acknowledgement::write(head, code, text, now, route.answers)
}
