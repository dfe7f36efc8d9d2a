//! The sink: sends a message and waits for its acknowledgement before the next.

use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType,
};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::acknowledgement::{self, Acknowledgement};
use super::{CHARSET, ENCODINGS, Encoding, TLS, check_common, frame};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of the longest acknowledgement.
const ANSWER_BYTES_MAX: usize = 1 << 20;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("uri", "Where to send: `host:port`.").required(),
    OptionSpec::one_of("hl7.encoding", ENCODINGS, "Form of the messages that `@map` makes.").required(),
    OptionSpec::one_of("hl7.ack.encoding", ENCODINGS, "Accepted without effect: both forms are read.")
        .default("er7"),
    OptionSpec::integer("hl7.timeout", 1, 3_600_000, "Milliseconds that an acknowledgement may take.")
        .default("10000"),
    CHARSET,
    TLS,
];

/// Type of the sink.
pub(super) struct Hl7SinkType;

impl SinkType for Hl7SinkType {
    fn name(&self) -> &'static str {
        "hl7"
    }

    fn summary(&self) -> &'static str {
        "Sends HL7 messages in frames of MLLP and waits for their acknowledgements."
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
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        check_common(options)?;
        let uri = options.text("uri");
        // nothing else is shown in messages, such as a login that somebody wrote there
        let is_host = |host: &str| {
            !host.is_empty()
                && host
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':'))
        };
        let address =
            uri.rsplit_once(':').filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok());
        if address.is_none() {
            return Err(OptionError::option("uri", "expected `host:port`").expected(["uri='localhost:4000'"]));
        }
        Ok(Box::new(Hl7Sink {
            uri: uri.to_owned(),
            encoding: Encoding::of(options, "hl7.encoding"),
            timeout: Duration::from_millis(options.integer("hl7.timeout").unwrap_or_default() as u64),
            connection: None,
        }))
    }
}

struct Hl7Sink {
    uri: String,
    encoding: Encoding,
    timeout: Duration,
    connection: Option<Connection>,
}

struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

#[async_trait]
impl SinkConnector for Hl7Sink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.uri)).await {
            Ok(connected) => connected.map_err(|e| self.failed(&format!("cannot connect: {e}")))?,
            Err(_) => return Err(self.failed("cannot connect: no answer")),
        };
        self.connection = Some(Connection { stream, buffer: BytesMut::new() });
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        // a connection that failed, or was stopped within an exchange, is not used again
        let Some(mut connection) = self.connection.take() else {
            return Err(self.failed("not connected"));
        };
        for message in batch.messages_from(progress) {
            match self.send(&mut connection, message).await? {
                Ok(()) => progress.took(message),
                Err(reason) => progress.refused(message, &reason),
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            // everything is acknowledged; what a failed shutdown would tell is of no use
            let _ = connection.stream.shutdown().await;
        }
    }
}

impl Hl7Sink {
    fn failed(&self, what: &str) -> Error {
        Error::unavailable(format!("HL7 at {}: {what}", self.uri))
    }

    /// Sends a message. Returns whether the other side takes it, or why not.
    ///
    /// Errors: the message gets no answer.
    async fn send(&self, connection: &mut Connection, message: &Payload) -> Result<Result<(), String>> {
        let (id, framed) = match prepare(&message.bytes, self.encoding) {
            Ok(prepared) => prepared,
            Err(reason) => return Ok(Err(reason)),
        };
        let lost = |e: std::io::Error| self.failed(&format!("the connection is lost: {e}"));
        connection.stream.write_all(&framed).await.map_err(lost)?;
        let answer = match timeout(self.timeout, connection.answer()).await {
            Ok(answer) => answer.map_err(|reason| self.failed(&reason))?,
            Err(_) => {
                let ms = self.timeout.as_millis();
                return Err(self.failed(&format!("no acknowledgement came within {ms} ms (`hl7.timeout`)")));
            }
        };
        if !answer.control_id.is_empty() && answer.control_id != id {
            let what = format!("the acknowledgement is for `{}`, the message was `{id}`", answer.control_id);
            return Err(self.failed(&what));
        }
        Ok(match answer.is_positive() {
            true => Ok(()),
            false => {
                let text = if answer.text.is_empty() { String::new() } else { format!(": {}", answer.text) };
                Err(format!("HL7 at {}: the receiver answered {}{text}", self.uri, answer.code))
            }
        })
    }
}

/// Returns the control id of a message, and the message in a frame.
///
/// Errors: it is not an HL7 message.
fn prepare(message: &[u8], encoding: Encoding) -> Result<(String, Vec<u8>), String> {
    let text = std::str::from_utf8(message).map_err(|_| "the message is not UTF-8".to_owned())?;
    let text = match encoding {
        Encoding::Xml => text.to_owned(),
        // segments end with carriage returns, whatever the template has
        Encoding::Er7 => text.trim_start().replace("\r\n", "\r").replace('\n', "\r"),
    };
    let head = acknowledgement::head(&text)?;
    Ok((head.control_id, frame::encode(text.as_bytes())?))
}

impl Connection {
    /// Reads the next acknowledgement. Errors: none arrives, or it cannot be read.
    async fn answer(&mut self) -> Result<Acknowledgement, String> {
        loop {
            if let Some(frame) = frame::decode(&mut self.buffer, ANSWER_BYTES_MAX)? {
                let text =
                    std::str::from_utf8(&frame).map_err(|_| "the acknowledgement is not UTF-8".to_owned())?;
                return acknowledgement::read(text);
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err("the connection was closed before the acknowledgement".into()),
                Ok(_) => {}
                Err(e) => return Err(format!("the connection is lost: {e}")),
            }
        }
    }
}
