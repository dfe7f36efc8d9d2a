//! Options of both directions, and the settings that they make.

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::{AMQPScheme, AMQPUri};
use tidemill_connect::{ConnectorContext, OptionError, Options};

use crate::client_tls::{TLS_OPTIONS, TlsOptionNames, identity};
use crate::pairs::parse_pairs;
use crate::tls::OptionFile;

/// Types of exchanges.
pub(super) const EXCHANGE_TYPES: &[&str] = &["direct", "fanout", "topic", "headers"];

/// Options of both directions.
macro_rules! rabbit_options {
    ($($own:expr),* $(,)?) => {
        &[
            OptionSpec::text("uri", "Address of the broker: `amqp://user:password@host:5672/vhost`, or `amqps://` with TLS.").required().secret(),
            OptionSpec::integer("heartbeat", 0, 3600, "Seconds of silence after which the connection counts as lost; 0 for never.").default("60"),
            $($own,)*
            OptionSpec::flag("tls.enabled", "false", "Whether to use TLS also with `amqp://`."),
            OptionSpec::text("tls.truststore.path", "PEM file with the authorities that are trusted; default: those of the system."),
            OptionSpec::text("tls.truststore.password", "Accepted without effect; certificates are public.").secret(),
            OptionSpec::text("tls.truststore.type", "Accepted without effect; the file is a PEM file."),
            OptionSpec::text("tls.version", "Accepted without effect: TLS 1.2 or 1.3, as the broker can."),
            OptionSpec::text("tls.certificate.file", "PEM file with the certificate of this client."),
            OptionSpec::text("tls.key.file", "PEM file with the key of this client, if it is not with the certificate."),
        ]
    };
}
pub(super) use rabbit_options;

/// Connection settings.
#[derive(Clone)]
pub(super) struct RabbitSettings {
    pub uri: AMQPUri,
    pub tls: OwnedTLSConfig,
    /// Name of the connection in lists of the broker.
    pub name: String,
}

impl RabbitSettings {
    /// Reads the options.
    pub(super) fn new(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        // the address is not repeated, because it may have a password
        let wrong = |why: &str| {
            OptionError::option("uri", format!("{why}; expected `amqp://user:password@host:5672/vhost`"))
        };
        let mut uri: AMQPUri = options.text("uri").parse().map_err(|_| wrong("it is no URL of AMQP"))?;
        if uri.authority.host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let has_port = url::Url::parse(options.text("uri")).is_ok_and(|url| url.port().is_some());
        if options.flag("tls.enabled") && uri.scheme == AMQPScheme::AMQP {
            uri.scheme = AMQPScheme::AMQPS;
            if !has_port {
                uri.authority.port = 5671;
            }
        }
        uri.query.heartbeat = options.integer("heartbeat").and_then(|seconds| u16::try_from(seconds).ok());
        Ok(Self { uri, tls: tls_config(options, context)?, name: context.name.clone() })
    }

    /// Returns the address for messages.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.uri.authority.host, self.uri.authority.port)
    }
}

fn tls_config(options: &Options, context: &ConnectorContext) -> Result<OwnedTLSConfig, OptionError> {
    let names = TlsOptionNames { authorities: "tls.truststore.path", ..TLS_OPTIONS };
    let identity = identity(options, names, &context.dir)?
        .map(|(certificate, key)| OwnedIdentity::PKCS8 { pem: certificate.pem.bytes, key: key.pem.bytes });
    let text = |file: OptionFile| {
        file.certificates()?;
        String::from_utf8(file.pem.bytes.clone()).map_err(|_| file.wrong("the file is no text"))
    };
    let cert_chain = OptionFile::read(options, names.authorities, &context.dir)?.map(text).transpose()?;
    Ok(OwnedTLSConfig { identity, cert_chain })
}

/// Returns a text as AMQP's short string. Errors: it has more than 255 bytes.
pub(super) fn short_string(text: &str) -> Result<ShortString, String> {
    ShortString::try_new(text).map_err(|_| format!("it has {} bytes; AMQP takes 255", text.len()))
}

/// Returns the short string in an option.
pub(super) fn short_option(options: &Options, name: &str) -> Result<ShortString, OptionError> {
    short_string(options.text(name)).map_err(|e| OptionError::option(name, e))
}

/// Longest headers, in bytes: what is left of the smallest usual frame beside the other properties.
const HEADER_BYTES_MAX: usize = 64_000;

/// Parses headers `'name:value','name:value'`.
///
/// Errors: what was expected.
pub(super) fn parse_headers(text: &str) -> Result<FieldTable, String> {
    // all properties of a message are in one frame, and the broker closes the connection of who sends a larger one
    if text.len() > HEADER_BYTES_MAX {
        return Err(format!("they have {} bytes; AMQP takes {HEADER_BYTES_MAX} in a frame", text.len()));
    }
    let mut table = FieldTable::default();
    for (name, value) in parse_pairs(text)? {
        let name = short_string(&name).map_err(|e| format!("the name of a header: {e}"))?;
        table.insert(name, AMQPValue::LongString(value.into()));
    }
    Ok(table)
}
