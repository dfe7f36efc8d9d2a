//! The source: one listener for each port, which routes messages to the sources by their channels.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::BytesMut;
use parking_lot::RwLock;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, PendingReceipt,
    SourceConnector, SourceOutput, SourceType,
};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::frame::{Frame, Framing};
use crate::ports::{PortService, Ports};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Messages that become events in one step.
const BATCH_MESSAGES: usize = 1024;
/// Handovers that wait for their events to be durable, on each connection.
const RECEIPTS_MAX: usize = 256;

static PORTS: Ports<TcpService> = Ports::new();

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("context", "Channel of the messages; by default `<app>/<stream>`."),
    OptionSpec::text("host", "Address to listen on.").default("0.0.0.0"),
    OptionSpec::integer("port", 1, 65535, "Port to listen on; several sources share it.")
        .default(super::DEFAULT_PORT),
    OptionSpec::one_of(
        "framing",
        Framing::NAMES,
        "How messages are separated: Siddhi's protocol, one message a line, or each behind its length of 4 bytes.",
    )
    .default("siddhi"),
    OptionSpec::integer("max.message.bytes", 1, 1 << 30, "Bytes of the longest message.").default("16777216"),
    OptionSpec::flag(
        "acknowledge",
        "false",
        "Whether the number of messages that are durable is sent back, as 8 bytes; a sink `tcp` with the same \
         option waits for it.",
    ),
    OptionSpec::flag("tcp.no.delay", "true", "Whether small packets are sent at once."),
    OptionSpec::flag("keep.alive", "true", "Whether silent connections are tested and closed when dead."),
    OptionSpec::integer("receiver.threads", 1, 10_000, "Accepted without effect; threads are shared."),
    OptionSpec::integer("worker.threads", 0, 10_000, "Accepted without effect; threads are shared."),
];

/// Type of the source.
pub(crate) struct TcpSourceType;

impl SourceType for TcpSourceType {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn summary(&self) -> &'static str {
        "Listens for messages over TCP: Siddhi's binary protocol, lines, or messages behind their length."
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
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let framing = Framing::parse(options.text("framing"));
        if framing != Framing::Siddhi && options.is_written("context") {
            let message = "messages of this framing have no channel; remove the option, or framing";
            return Err(OptionError::option("context", message));
        }
        let channel = match options.get("context") {
            Some(context) => context.trim_start_matches('/').to_owned(),
            None => format!("{}/{}", context.app, context.schema.name),
        };
        Ok(Box::new(TcpSource {
            host: options.text("host").to_owned(),
            port: options.integer("port").and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
            channel,
            bytes_max: options.integer("max.message.bytes").unwrap_or_default() as usize,
            settings: PortSettings {
                framing,
                acknowledges: options.flag("acknowledge"),
                no_delay: options.flag("tcp.no.delay"),
                keep_alive: options.flag("keep.alive"),
            },
        }))
    }
}

struct TcpSource {
    host: String,
    port: u16,
    channel: String,
    bytes_max: usize,
    settings: PortSettings,
}

/// Settings that all sources of a port have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortSettings {
    framing: Framing,
    acknowledges: bool,
    no_delay: bool,
    keep_alive: bool,
}

#[async_trait]
impl SourceConnector for TcpSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let settings = self.settings;
        let create = || TcpService { settings, routes: RwLock::default() };
        let port = PORTS.open(&self.host, self.port, create).await?;
        let place = format!("{}:{}", self.host, self.port);
        let _claim = claim(&port.service, self, output).map_err(|e| e.context(place))?;
        output.report_connected();
        std::future::pending().await
    }
}

/// Connections of one port.
struct TcpService {
    settings: PortSettings,
    /// Sources by channel; one that takes all messages if the framing has no channels.
    routes: RwLock<BTreeMap<String, Arc<ChannelRoute>>>,
}

struct ChannelRoute {
    output: SourceOutput,
    bytes_max: usize,
    /// Set when a problem was reported since the last message.
    has_problem: AtomicBool,
}

/// A source's right to the messages of a channel.
struct ChannelClaim {
    service: Arc<TcpService>,
    channel: String,
}

impl Drop for ChannelClaim {
    fn drop(&mut self) {
        self.service.routes.write().remove(&self.channel);
    }
}

fn claim(service: &Arc<TcpService>, source: &TcpSource, output: &SourceOutput) -> Result<ChannelClaim> {
    if service.settings != source.settings {
        let message = "the sources of a port need the same framing, acknowledge, tcp.no.delay and keep.alive";
        return Err(Error::conflict(message));
    }
    let mut routes = service.routes.write();
    if source.settings.framing != Framing::Siddhi && !routes.is_empty() {
        let message = "another source has the port, and messages of this framing have no channel; choose another \
                       port";
        return Err(Error::conflict(message));
    }
    if routes.contains_key(&source.channel) {
        let message = format!("another source has the channel `{}`; choose another context", source.channel);
        return Err(Error::conflict(message));
    }
    let has_problem = AtomicBool::new(false);
    let route = ChannelRoute { output: output.clone(), bytes_max: source.bytes_max, has_problem };
    routes.insert(source.channel.clone(), Arc::new(route));
    Ok(ChannelClaim { service: service.clone(), channel: source.channel.clone() })
}

impl PortService for TcpService {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        super::configure(&stream, self.settings.no_delay, self.settings.keep_alive);
        let (reader, writer) = stream.into_split();
        let (receipts, pending) = mpsc::channel(RECEIPTS_MAX);
        let receipts = self.settings.acknowledges.then_some(receipts);
        let mut connection =
            Connection { service: &self, reader, receipts, batch: ChannelMessages::default() };
        let reading = async {
            let result = connection.read().await;
            // the end of the channel lets the writer end after the last acknowledgement
            drop(connection);
            result
        };
        if let Err(e) = tokio::try_join!(reading, acknowledge(writer, pending)) {
            tracing::warn!(%peer, error = %e.reason, "a TCP connection is closed");
            self.report(&e, peer);
        }
    }
}

impl TcpService {
    /// Reports a problem to the source of the channel that has it, or to all.
    fn report(&self, closed: &Closed, peer: SocketAddr) {
        let routes = self.routes.read();
        let concerned = routes.iter().filter(|(name, _)| closed.channel.as_ref().is_none_or(|c| c == *name));
        for (_, route) in concerned {
            route.has_problem.store(true, Ordering::Relaxed);
            route.output.report_problem(format!("the connection of {peer} was closed: {}", closed.reason));
        }
    }

    fn bytes_max(&self) -> usize {
        self.routes.read().values().map(|route| route.bytes_max).max().unwrap_or_default()
    }

    /// Returns the source of a message.
    fn route(&self, channel: Option<&str>) -> Result<Arc<ChannelRoute>, Closed> {
        let routes = self.routes.read();
        let found = match channel {
            Some(channel) => routes.get(channel),
            None => routes.values().next(),
        };
        found.cloned().ok_or_else(|| {
            let known: Vec<&str> = routes.keys().map(String::as_str).collect();
            let channel = channel.unwrap_or_default();
            let reason = format!("no source has the channel `{channel}`; there are: {}", known.join(", "));
            Closed { channel: None, reason }
        })
    }
}

/// Why a connection is closed, and the channel that it concerns.
struct Closed {
    channel: Option<String>,
    reason: String,
}

impl Closed {
    fn new(reason: impl ToString) -> Self {
        Self { channel: None, reason: reason.to_string() }
    }
}

struct Connection<'s> {
    service: &'s TcpService,
    reader: OwnedReadHalf,
    receipts: Option<mpsc::Sender<(PendingReceipt, u64)>>,
    batch: ChannelMessages,
}

/// Messages of one channel.
#[derive(Default)]
struct ChannelMessages {
    channel: Option<String>,
    messages: Vec<Message>,
}

impl Connection<'_> {
    /// Reads until the other side ends. Messages before a wrong one are kept.
    async fn read(&mut self) -> Result<(), Closed> {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        loop {
            let decoded = self.take_frames(&mut buffer).await;
            self.hand_over().await?;
            decoded?;
            buffer.reserve(READ_BYTES);
            match self.reader.read_buf(&mut buffer).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) => return Err(Closed::new(e)),
            }
        }
        if let Some(frame) = self.service.settings.framing.finish(buffer).map_err(Closed::new)? {
            self.push(frame).await?;
            self.hand_over().await?;
        }
        Ok(())
    }

    async fn take_frames(&mut self, buffer: &mut BytesMut) -> Result<(), Closed> {
        let bytes_max = self.service.bytes_max();
        while let Some(frame) =
            self.service.settings.framing.decode(buffer, bytes_max).map_err(Closed::new)?
        {
            self.push(frame).await?;
        }
        Ok(())
    }

    async fn push(&mut self, frame: Frame) -> Result<(), Closed> {
        if self.batch.channel != frame.channel || self.batch.messages.len() >= BATCH_MESSAGES {
            self.hand_over().await?;
            self.batch.channel = frame.channel;
        }
        self.batch.messages.push(Message::new(frame.payload));
        Ok(())
    }

    /// Hands the batch to its source. While the source waits for the engine, nothing is read.
    async fn hand_over(&mut self) -> Result<(), Closed> {
        if self.batch.messages.is_empty() {
            return Ok(());
        }
        let channel = self.batch.channel.as_deref();
        let route = self.service.route(channel)?;
        let count = self.batch.messages.len() as u64;
        let at_channel =
            |e: Error| Closed { channel: channel.map(str::to_owned), reason: e.message().to_owned() };
        let pending = route.output.send(std::mem::take(&mut self.batch.messages)).await;
        let pending = pending.map_err(at_channel)?;
        if route.has_problem.swap(false, Ordering::Relaxed) {
            route.output.report_connected();
        }
        if let Some(receipts) = &self.receipts {
            let ended = receipts.send((pending, count)).await;
            ended.map_err(|_| Closed::new("acknowledgements cannot be sent"))?;
        }
        Ok(())
    }
}

/// Sends the number of messages of the connection that are durable, each time that it grows. Returns the writer
/// so that the connection stays open in both directions.
async fn acknowledge(
    mut writer: OwnedWriteHalf,
    mut pending: mpsc::Receiver<(PendingReceipt, u64)>,
) -> Result<OwnedWriteHalf, Closed> {
    let mut durable: u64 = 0;
    while let Some((receipt, count)) = pending.recv().await {
        receipt.wait().await.map_err(|e| Closed::new(e.message()))?;
        durable += count;
        writer.write_all(&durable.to_be_bytes()).await.map_err(Closed::new)?;
    }
    Ok(writer)
}
