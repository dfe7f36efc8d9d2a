//! The sink: one message over SMTP for each event or group of events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use lettre::message::header::ContentType;
use lettre::message::{Attachment, Mailbox, Mailboxes, MultiPart, SinglePart};
use lettre::transport::smtp::PoolConfig;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, Template, runtime,
};
use tidemill_types::{Error, EventId, Result};

use super::Security;

/// Timeout for an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the attachments of one message.
const ATTACHMENT_BYTES_MAX: u64 = 32 << 20;
/// Replies of the kind 5xx that are about the connection or the login, not about the message: no TLS, no login, wrong
/// password, no service.
const CONNECTION_CODES: [u16; 6] = [502, 521, 530, 534, 535, 538];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("address", "Address of the sender.").required(),
    OptionSpec::text("username", "User who logs in; by default the address of the sender."),
    OptionSpec::text("password", "Password of the user.").secret(),
    OptionSpec::text("host", "Host of the SMTP server.").default("smtp.gmail.com"),
    OptionSpec::integer(
        "port",
        1,
        65535,
        "Port of the SMTP server; by default 465, and 25 with ssl.enable='false'.",
    ),
    super::SSL_ENABLE,
    super::STARTTLS,
    super::CA_FILE,
    OptionSpec::flag("auth", "true", "Whether to log in."),
    OptionSpec::text("to", "Addresses of the recipients, separated by commas.").required().dynamic(),
    OptionSpec::text("cc", "Addresses that get a copy, separated by commas.").dynamic(),
    OptionSpec::text("bcc", "Addresses that get a copy and are not shown, separated by commas.").dynamic(),
    OptionSpec::text("subject", "Subject.").required().dynamic(),
    OptionSpec::text("content.type", "Type of the content, such as text/html.").default("text/plain"),
    OptionSpec::text(
        "attachments",
        "Files to attach, separated by commas; of a directory, all files directly in it.",
    )
    .dynamic(),
    OptionSpec::integer("connection.pool.size", 1, 64, "Messages that are sent at the same time.")
        .default("1"),
];

/// Type of the sink.
pub(crate) struct EmailSinkType;

impl SinkType for EmailSinkType {
    fn name(&self) -> &'static str {
        "email"
    }

    fn summary(&self) -> &'static str {
        "Sends each event as an e-mail over SMTP."
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
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let template = |name| context.template(options, name);
        let from: Mailbox = options.text("address").parse().map_err(|e| {
            let error = OptionError::option("address", format!("this is no address: {e}")).open();
            error.expected(["name@example.com"])
        })?;
        let password = options.get("password").map(str::to_owned);
        if options.flag("auth") && password.is_none() {
            let message = "the sink `email` needs the option `password`";
            return Err(OptionError::connector(message).expected(["password='…'", "auth='false'"]));
        }
        let credentials = password.filter(|_| options.flag("auth")).map(|password| {
            let user = options.get("username").map_or_else(|| from.email.to_string(), str::to_owned);
            Credentials::new(user, password)
        });
        let mut content_type = options.text("content.type").trim().to_owned();
        if content_type.starts_with("text/") && !content_type.to_ascii_lowercase().contains("charset") {
            content_type.push_str("; charset=utf-8");
        }
        let content_type = ContentType::parse(&content_type).map_err(|_| {
            OptionError::option("content.type", "this is no content type").expected(["text/html"])
        })?;
        let authorities = super::ca_file(options, context)?;
        let authorities = authorities.map(|file| Certificate::from_pem(&file.bytes)).transpose();
        let authorities = authorities.map_err(|e| OptionError::option(super::CA_FILE.name, e.to_string()))?;
        let security = Security::of(options);
        let default_port = if security == Security::Tls { 465 } else { 25 };
        let envelope = Addressing { from, to: template("to")?, cc: template("cc")?, bcc: template("bcc")? };
        for (name, text) in [("to", &envelope.to), ("cc", &envelope.cc), ("bcc", &envelope.bcc)] {
            if let Some(written) = text.constant() {
                parse_addresses(written).map_err(|e| OptionError::option(name, e).open())?;
            }
        }
        Ok(Box::new(EmailSink {
            server: SmtpConnection {
                host: options.text("host").to_owned(),
                port: options.integer("port").map_or(default_port, |port| port as u16),
                security,
                authorities,
                credentials,
                connections: options.integer("connection.pool.size").unwrap_or(1) as u32,
            },
            addressing: envelope,
            subject: template("subject")?,
            attachments: template("attachments")?,
            content_type,
            dir: context.dir.clone(),
            id_suffix: message_id_suffix(&context.writer),
            transport: None,
        }))
    }
}

/// Connection to an SMTP server.
struct SmtpConnection {
    host: String,
    port: u16,
    security: Security,
    /// Authorities that are trusted besides those of the system.
    authorities: Option<Certificate>,
    credentials: Option<Credentials>,
    connections: u32,
}

struct Addressing {
    from: Mailbox,
    to: Template,
    cc: Template,
    bcc: Template,
}

struct EmailSink {
    server: SmtpConnection,
    addressing: Addressing,
    subject: Template,
    attachments: Template,
    content_type: ContentType,
    /// Directory at which relative paths of attachments start.
    dir: PathBuf,
    /// Suffix of the ids of all messages.
    id_suffix: String,
    transport: Option<AsyncSmtpTransport<Tokio1Executor>>,
}

#[async_trait]
impl SinkConnector for EmailSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.transport = None;
        let transport = self.server.transport()?;
        match transport.test_connection().await {
            Ok(true) => {}
            Ok(false) => return Err(self.server.failed("the server does not answer as an SMTP server")),
            Err(e) => return Err(self.server.failed(e)),
        }
        self.transport = Some(transport);
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        // a connection that fails is not used again
        let Some(transport) = self.transport.take() else {
            return Err(self.server.failed("it is not connected"));
        };
        let messages = batch.messages_from(progress);
        let (sink, transport_of_all) = (&*self, &transport);
        let sending: Vec<_> =
            messages.iter().map(|message| sink.send(transport_of_all, batch, message)).collect();
        let mut sent = futures::stream::iter(sending).buffered(self.server.connections as usize);
        let mut waiting = messages.iter();
        while let (Some(outcome), Some(message)) = (sent.next().await, waiting.next()) {
            match outcome {
                Ok(()) => progress.took(message),
                Err(SendError::Refused(reason)) => progress.refused(message, &reason),
                Err(SendError::Failed(e)) => return Err(self.server.failed(e)),
            }
        }
        drop(sent);
        self.transport = Some(transport);
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(transport) = self.transport.take() {
            transport.shutdown().await;
        }
    }
}

impl Drop for EmailSink {
    fn drop(&mut self) {
        // connections are closed by a task, which needs a runtime
        let _entered = runtime().enter();
        self.transport = None;
    }
}

/// Why a message is not sent.
enum SendError {
    /// The message will never be taken.
    Refused(String),
    /// The connection or the server fails at the moment.
    Failed(lettre::transport::smtp::Error),
}

impl EmailSink {
    async fn send(
        &self,
        transport: &AsyncSmtpTransport<Tokio1Executor>,
        batch: &SinkBatch,
        payload: &Payload,
    ) -> Result<(), SendError> {
        let message = self.message(batch, payload).map_err(SendError::Refused)?;
        let envelope = message.envelope();
        let is_ascii = envelope.to().iter().all(|to| to.to_string().is_ascii());
        match transport.send(message.clone()).await {
            Ok(_) => Ok(()),
            Err(e) => {
                let code = e.status().map_or(0, u16::from);
                let refused = e.is_permanent() && !CONNECTION_CODES.contains(&code);
                // the server does not take addresses of other scripts
                let cannot_be_sent = e.is_client() && !is_ascii;
                match refused || cannot_be_sent {
                    true => Err(SendError::Refused(format!("the SMTP server refuses the message: {e}"))),
                    false => Err(SendError::Failed(e)),
                }
            }
        }
    }

    /// Builds the message of a payload. Errors: why it can never be built.
    fn message(&self, batch: &SinkBatch, payload: &Payload) -> Result<lettre::Message, String> {
        let render = |template: &Template| template.render(&batch.rows, payload.row);
        let mut builder = lettre::Message::builder()
            .from(self.addressing.from.clone())
            .subject(one_line(&render(&self.subject)))
            .message_id(batch.ids.get(payload.row).map(|id| self.message_id(*id)))
            .date_now();
        let addresses = |template: &Template, name: &str| {
            parse_addresses(&render(template)).map_err(|e| format!("`{name}`: {e}"))
        };
        for mailbox in addresses(&self.addressing.to, "to")? {
            builder = builder.to(mailbox);
        }
        for mailbox in addresses(&self.addressing.cc, "cc")? {
            builder = builder.cc(mailbox);
        }
        for mailbox in addresses(&self.addressing.bcc, "bcc")? {
            builder = builder.bcc(mailbox);
        }
        let content = SinglePart::builder().header(self.content_type.clone()).body(payload.bytes.to_vec());
        let files = self.attached_files(&render(&self.attachments))?;
        let built = if files.is_empty() {
            builder.singlepart(content)
        } else {
            let mut parts = MultiPart::mixed().singlepart(content);
            for (name, bytes) in files {
                parts = parts.singlepart(Attachment::new(name).body(bytes, octets()));
            }
            builder.multipart(parts)
        };
        built.map_err(|e| format!("no message can be made of the event: {e}"))
    }

    /// Returns the id of the message of an event. It is the same when the event is sent again.
    fn message_id(&self, id: EventId) -> String {
        format!("<{}.{}.{}.{}>", id.partition.0, id.offset.0, id.row, self.id_suffix)
    }

    /// Reads the files that are attached.
    fn attached_files(&self, paths: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut files = vec![];
        let mut bytes = 0;
        for path in paths.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            let path = self.dir.join(path);
            let failed = |e: std::io::Error| format!("the attachment {} cannot be read: {e}", path.display());
            for file in files_at(&path).map_err(failed)? {
                bytes += std::fs::metadata(&file).map_err(failed)?.len();
                if bytes > ATTACHMENT_BYTES_MAX {
                    return Err(format!("the attachments are longer than {ATTACHMENT_BYTES_MAX} bytes"));
                }
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                files.push((name, std::fs::read(&file).map_err(failed)?));
            }
        }
        Ok(files)
    }
}

impl SmtpConnection {
    fn failed(&self, e: impl std::fmt::Display) -> Error {
        Error::unavailable(format!("cannot send with smtp://{}:{}: {e}", self.host, self.port))
    }

    fn transport(&self) -> Result<AsyncSmtpTransport<Tokio1Executor>> {
        let tls = match self.security {
            Security::Tls => Tls::Wrapper(self.tls_parameters()?),
            Security::StartTls => Tls::Required(self.tls_parameters()?),
            Security::StartTlsIfOffered => Tls::Opportunistic(self.tls_parameters()?),
            Security::None => Tls::None,
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&self.host)
            .port(self.port)
            .timeout(Some(TIMEOUT))
            .pool_config(PoolConfig::new().max_size(self.connections))
            .tls(tls);
        if let Some(credentials) = &self.credentials {
            builder = builder.credentials(credentials.clone());
        }
        Ok(builder.build())
    }

    fn tls_parameters(&self) -> Result<TlsParameters> {
        let mut builder = TlsParameters::builder(self.host.clone());
        if let Some(authorities) = &self.authorities {
            builder = builder.add_root_certificate(authorities.clone());
        }
        builder.build_rustls().map_err(|e| self.failed(e))
    }
}

/// Parses addresses that are separated by commas.
fn parse_addresses(text: &str) -> Result<Vec<Mailbox>, String> {
    if text.trim().is_empty() {
        return Ok(vec![]);
    }
    match text.parse::<Mailboxes>() {
        Ok(mailboxes) => Ok(mailboxes.into_iter().collect()),
        Err(e) => Err(format!("expected addresses such as `name@example.com`, found `{text}`: {e}")),
    }
}

/// Returns the text without line breaks, which a header cannot have.
fn one_line(text: &str) -> String {
    text.split(['\r', '\n']).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns a file, or the files directly in a directory by name.
fn files_at(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = vec![];
    for entry in std::fs::read_dir(path)? {
        let entry = entry?.path();
        if entry.is_file() {
            files.push(entry);
        }
    }
    files.sort();
    Ok(files)
}

fn octets() -> ContentType {
    // the text is a constant
    ContentType::parse("application/octet-stream").expect("a content type")
}

/// Returns the end of the ids of a sink's messages: its name, as an id may contain it, and a domain.
fn message_id_suffix(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{name}@tidemill")
}
