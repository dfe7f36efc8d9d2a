//! The sink: one connection, over which events are sent again when it was lost.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType,
};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;
use uuid::Uuid;

use super::frame::Framing;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;
/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("url", "Where to send: `tcp://<host>:<port>/<context>`."),
    OptionSpec::text("host", "In place of `url`: the other side.").default("localhost"),
    OptionSpec::integer("port", 1, 65535, "In place of `url`: its port.").default("9892"),
    OptionSpec::text("context", "In place of `url`: the channel of the messages."),
    OptionSpec::one_of(
        "framing",
        Framing::NAMES,
        "How messages are separated: Siddhi's protocol, one message a line, or each behind its length of 4 bytes.",
    )
    .default("siddhi"),
    OptionSpec::flag(
        "acknowledge",
        "false",
        "Whether events count as delivered when the other side, a source `tcp` with the same option, reports them as \
         durable; otherwise when the operating system took them.",
    ),
    OptionSpec::flag("sync", "false", "Accepted; each message is written before the next.").dynamic(),
    OptionSpec::flag("tcp.no.delay", "true", "Whether small packets are sent at once."),
    OptionSpec::flag("keep.alive", "true", "Whether silent connections are tested and closed when dead."),
    OptionSpec::integer("worker.threads", 0, 10_000, "Accepted without effect; threads are shared."),
];

/// Type of the sink.
pub(crate) struct TcpSinkType;

impl SinkType for TcpSinkType {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn summary(&self) -> &'static str {
        "Sends messages over TCP: Siddhi's binary protocol, lines, or messages behind their length."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        _context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let framing = Framing::parse(options.text("framing"));
        let wrong = |message: String| {
            OptionError::option("url", message).expected(["url='tcp://localhost:9892/context'"])
        };
        let parts = ["host", "port", "context"].iter().any(|part| options.is_written(part));
        let url = match (options.get("url"), options.get("context")) {
            (Some(_), _) if parts => {
                return Err(wrong("write either `url`, or `host`, `port` and `context`".into()));
            }
            (Some(url), _) => url.to_owned(),
            (None, Some(context)) => {
                format!("tcp://{}:{}/{context}", options.text("host"), options.text("port"))
            }
            (None, None) => {
                return Err(OptionError::connector("the sink `tcp` needs the option `url`")
                    .expected(["url='tcp://localhost:9892/context'"]));
            }
        };
        let url = Url::parse(&url).map_err(|e| wrong(format!("not a URL: {e}")))?;
        if url.scheme() != "tcp" {
            return Err(wrong(format!("unknown scheme `{}`", url.scheme())));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("the URL has no host".into()))?;
        let channel = url.path().trim_start_matches('/');
        if channel.is_empty() && framing == Framing::Siddhi {
            return Err(wrong("the URL has no context, which is the channel of the messages".into()));
        }
        Ok(Box::new(TcpSink {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(9892),
            channel: channel.to_owned(),
            framing,
            acknowledged: options.flag("acknowledge"),
            no_delay: options.flag("tcp.no.delay"),
            keep_alive: options.flag("keep.alive"),
            connection: None,
        }))
    }
}

struct TcpSink {
    host: String,
    port: u16,
    channel: String,
    framing: Framing,
    acknowledged: bool,
    no_delay: bool,
    keep_alive: bool,
    connection: Option<Connection>,
}

struct Connection {
    stream: TcpStream,
    session: String,
    /// Bytes of a count that arrived so far.
    partial: Vec<u8>,
    /// Messages sent, and messages acknowledged, since the connection was made.
    sent: u64,
    durable: u64,
}

impl TcpSink {
    fn failed(&self, what: &str, e: impl std::fmt::Display) -> Error {
        Error::unavailable(format!("{what} tcp://{}:{}: {e}", self.host, self.port))
    }
}

#[async_trait]
impl SinkConnector for TcpSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let connected = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
        };
        let stream = connected.map_err(|e| self.failed("cannot connect to", e))?;
        super::configure(&stream, self.no_delay, self.keep_alive);
        let session = format!("{}-{}:{}", Uuid::new_v4(), self.host, self.port);
        self.connection = Some(Connection { stream, session, partial: vec![], sent: 0, durable: 0 });
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return Err(self.failed("not connected to", "connect first"));
        };
        let messages = batch.messages_from(progress);
        let delivered = match self.acknowledged {
            true => self.deliver_acknowledged(&mut connection, messages, progress).await,
            false => self.deliver_written(&mut connection, messages, progress).await,
        };
        // a connection that failed is dropped, and so is one that was stopped within a message
        delivered.map_err(|e| self.failed("the connection is lost to", e))?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            // the events are delivered; what a failed shutdown would tell is of no use
            let _ = connection.stream.shutdown().await;
        }
    }
}

impl TcpSink {
    /// Writes messages and counts those that the operating system took.
    async fn deliver_written(
        &self,
        connection: &mut Connection,
        messages: &[Payload],
        progress: &mut DeliveryProgress,
    ) -> io::Result<()> {
        connection.read_available()?;
        let mut buffer = vec![];
        let mut refused = vec![];
        for (index, message) in messages.iter().enumerate() {
            if let Err(e) =
                self.framing.encode(&connection.session, &self.channel, &message.bytes, &mut buffer)
            {
                refused.push((message, e.0));
            }
            if buffer.len() >= WRITE_BYTES || index + 1 == messages.len() {
                connection.stream.write_all(&buffer).await?;
                connection.read_available()?;
                buffer.clear();
                refused.drain(..).for_each(|(message, reason)| progress.refused(message, reason));
                progress.took(message);
            }
        }
        Ok(())
    }

    /// Writes messages and waits until the other side has reported them as durable.
    async fn deliver_acknowledged(
        &self,
        connection: &mut Connection,
        messages: &[Payload],
        progress: &mut DeliveryProgress,
    ) -> io::Result<()> {
        let base = connection.sent;
        let mut unacknowledged: Vec<(u64, &Payload)> = vec![];
        let mut refused = vec![];
        let mut buffer = vec![];
        for (index, message) in messages.iter().enumerate() {
            match self.framing.encode(&connection.session, &self.channel, &message.bytes, &mut buffer) {
                Ok(()) => {
                    connection.sent += 1;
                    unacknowledged.push((connection.sent, message));
                }
                Err(e) => refused.push((message, e.0)),
            }
            if buffer.len() >= WRITE_BYTES || index + 1 == messages.len() {
                connection.stream.write_all(&buffer).await?;
                connection.read_available()?;
                buffer.clear();
            }
        }
        let mut next = 0;
        let mut refused = refused.into_iter().peekable();
        loop {
            while next < unacknowledged.len() && unacknowledged[next].0 <= connection.durable {
                let message = unacknowledged[next].1;
                while let Some((earlier, reason)) = refused.next_if(|(r, _)| r.row < message.row) {
                    progress.refused(earlier, reason);
                }
                progress.took(message);
                next += 1;
            }
            if connection.durable >= connection.sent || base == connection.sent {
                break;
            }
            connection.read_count().await?;
        }
        refused.for_each(|(message, reason)| progress.refused(message, reason));
        Ok(())
    }
}

impl Connection {
    /// Reads what has arrived, without waiting.
    ///
    /// Errors: the other side has closed the connection.
    fn read_available(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return Err(closed()),
                Ok(count) => self.add(&bytes[..count]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    async fn read_count(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes).await? {
            0 => Err(closed()),
            count => {
                self.add(&bytes[..count]);
                Ok(())
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let whole = self.partial.len() / 8 * 8;
        if let Some(last) = self.partial[..whole].last_chunk::<8>() {
            self.durable = u64::from_be_bytes(*last).min(self.sent);
            self.partial.drain(..whole);
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other side has closed it")
}
