//! Options of both directions, and the settings that they make.

use std::time::Duration;

use async_nats::ServerAddr;
use tidemill_connect::{ConnectorContext, OptionError, Options};
use tokio_rustls::rustls::ClientConfig;

use crate::client_tls::{TlsOptionNames, named_client_config};
use crate::logins::{percent_decode, url_login};
use crate::pairs::{parse_names, parse_pairs};

/// Options of both directions.
macro_rules! nats_options {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            OptionSpec::text("bootstrap.servers", "Addresses of servers with commas: `nats://host:4222`, or `tls://host:4222`; default: nats://localhost:4222.").secret(),
            OptionSpec::text("server.urls", "Another name of `bootstrap.servers`.").secret(),
            OptionSpec::text("client.id", "Name of this client in lists of the server; default: one made of the name of the source or sink."),
            OptionSpec::text("cluster.id", "Any text: messages go through JetStream, the successor of NATS Streaming."),
            OptionSpec::text("streaming.cluster.id", "Another name of `cluster.id`."),
            OptionSpec::text("stream.name", "Name of the JetStream stream; default: the one that has the subject, or else a new one."),
            OptionSpec::integer("ack.wait", 1, 86_400, "Seconds to wait for an acknowledgement of JetStream.").default("30"),
            OptionSpec::one_of("auth.type", &["user", "token", "tls"], "How the client logs in; default: what the other options say."),
            OptionSpec::text("username", "User."),
            OptionSpec::text("password", "Password.").secret(),
            OptionSpec::text("token", "Token that takes the place of user and password.").secret(),
            OptionSpec::text("truststore.file", "PEM file with the authorities that are trusted; default: those of the system."),
            OptionSpec::text("truststore.password", "Accepted without effect; certificates are public.").secret(),
            OptionSpec::text("truststore.algorithm", "Accepted without effect."),
            OptionSpec::text("tls.store.type", "Accepted without effect; the files are PEM files."),
            OptionSpec::flag("client.verify", "false", "Accepted without effect: a certificate is shown if `keystore.file` names one."),
            OptionSpec::text("keystore.file", "PEM file with the client's certificate, and its key."),
            OptionSpec::text("keystore.key.file", "PEM file with the key, if it is not with the certificate."),
            OptionSpec::text("keystore.password", "Accepted without effect; PEM keys are not encrypted.").secret(),
            OptionSpec::text("keystore.algorithm", "Accepted without effect."),
            OptionSpec::text("optional.configuration", "Properties of the Java client: `io.nats.client.timeout:2000,io.nats.client.pinginterval:60000`; others have no effect."),
        ]
    };
}
pub(super) use nats_options;

const DEFAULT_SERVER: &str = "nats://localhost:4222";
const PREFIX: &str = "io.nats.client.";
const TLS_OPTIONS: TlsOptionNames =
    TlsOptionNames { authorities: "truststore.file", certificate: "keystore.file", key: "keystore.key.file" };

/// Connection settings.
#[derive(Clone)]
pub(super) struct NatsSettings {
    pub servers: Vec<ServerAddr>,
    /// Their hosts and ports, for messages.
    pub addresses: String,
    pub client_name: String,
    pub login: LoginMethod,
    /// TLS for servers that demand it.
    pub tls: Option<ClientConfig>,
    /// True to refuse servers without TLS.
    pub requires_tls: bool,
    pub connect_timeout: Duration,
    pub ping_interval: Duration,
    /// Timeout for an acknowledgement.
    pub ack_wait: Duration,
    /// Name of the stream from the options.
    pub stream: Option<String>,
}

/// Method of logging in.
#[derive(Clone)]
pub(super) enum LoginMethod {
    Anonymous,
    User(String, String),
    Token(String),
}

impl NatsSettings {
    /// Reads the options.
    pub(super) fn new(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let servers = parse_servers(options)?;
        let addresses: Vec<_> = servers.iter().map(|s| format!("{}:{}", s.host(), s.port())).collect();
        let wants_tls = ["truststore.file", "keystore.file", "keystore.key.file"]
            .iter()
            .any(|name| options.is_written(name))
            || options.get("auth.type").is_some_and(|kind| kind.eq_ignore_ascii_case("tls"))
            || servers.iter().any(ServerAddr::tls_required);
        let tls = named_client_config(options, TLS_OPTIONS, &context.dir);
        // a server may ask for TLS on its own, which then fails without authorities
        let tls = if wants_tls { Some(tls?) } else { tls.ok() };
        let mut settings = Self {
            login: login(options, &servers)?,
            servers,
            addresses: addresses.join(","),
            client_name: options.get("client.id").unwrap_or(&context.name).to_owned(),
            tls: tls.map(|tls| (*tls).clone()),
            requires_tls: wants_tls,
            connect_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            ack_wait: Duration::from_secs(options.integer("ack.wait").unwrap_or(30).unsigned_abs()),
            stream: options.get("stream.name").map(str::to_owned),
        };
        if let Some(name) = &settings.stream
            && (name.is_empty() || name.contains(['.', '*', '>', '/', '\\', ' ', '\t']))
        {
            let message =
                format!("`{name}` is no name of a stream; expected no spaces, `.`, `*`, `>` or `/`");
            return Err(OptionError::option("stream.name", message));
        }
        settings.apply_java_properties(options)?;
        Ok(settings)
    }

    fn apply_java_properties(&mut self, options: &Options) -> Result<(), OptionError> {
        let wrong = |message: String| OptionError::option("optional.configuration", message);
        for (name, value) in parse_pairs(options.text("optional.configuration")).map_err(wrong)? {
            let Some(property) = name.strip_prefix(PREFIX) else {
                return Err(wrong(format!("`{name}` is no property of the client; expected `{PREFIX}…`")));
            };
            let setting = match property {
                "timeout" | "connection.timeout" => &mut self.connect_timeout,
                "pinginterval" => &mut self.ping_interval,
                _ => continue,
            };
            let ms = value.parse().ok().filter(|ms| (1..=86_400_000).contains(ms));
            let ms = ms.ok_or_else(|| {
                wrong(format!("`{name}`: expected milliseconds from 1 to 86400000, found `{value}`"))
            })?;
            *setting = Duration::from_millis(ms);
        }
        Ok(())
    }
}

/// Returns whether messages go through JetStream.
pub(super) fn is_jetstream(options: &Options) -> bool {
    ["cluster.id", "streaming.cluster.id", "stream.name"].iter().any(|name| options.is_written(name))
}

fn parse_servers(options: &Options) -> Result<Vec<ServerAddr>, OptionError> {
    let (name, text) = match (options.get("bootstrap.servers"), options.get("server.urls")) {
        (Some(_), Some(_)) => {
            let message = "it is another name of `bootstrap.servers`; write one of both";
            return Err(OptionError::option("server.urls", message));
        }
        (Some(text), None) => ("bootstrap.servers", text),
        (None, text) => ("server.urls", text.unwrap_or(DEFAULT_SERVER)),
    };
    // an address is not repeated, because it may have a password
    let wrong = |number: usize, why: &str| {
        OptionError::option(name, format!("address {number}: {why}; expected `nats://host:port`"))
    };
    let mut servers = vec![];
    for (index, address) in parse_names(text).iter().enumerate() {
        let number = index + 1;
        let server: ServerAddr = address.parse().map_err(|_| wrong(number, "it is no URL of NATS"))?;
        if !matches!(server.scheme(), "nats" | "tls") {
            return Err(wrong(number, &format!("`{}://` is not supported", server.scheme())));
        }
        if server.host().is_empty() {
            return Err(wrong(number, "it has no host"));
        }
        servers.push(server);
    }
    match servers.is_empty() {
        true => Err(OptionError::option(name, "expected addresses with commas: `nats://host:port`")),
        false => Ok(servers),
    }
}

/// Returns the login of the options, otherwise that of the first address that has one.
fn login(options: &Options, servers: &[ServerAddr]) -> Result<LoginMethod, OptionError> {
    let kind = options.get("auth.type").map(str::to_ascii_lowercase);
    let needs = |name: &str| {
        options.get(name).map(str::to_owned).ok_or_else(|| {
            OptionError::option(
                name,
                format!("`auth.type` is `{}`, which needs it", kind.as_deref().unwrap_or("")),
            )
        })
    };
    match kind.as_deref() {
        Some("user") => Ok(LoginMethod::User(needs("username")?, needs("password")?)),
        Some("token") => Ok(LoginMethod::Token(needs("token")?)),
        _ => match (options.get("username"), options.get("password"), options.get("token")) {
            (None, None, None) => {
                Ok(servers.iter().find_map(url_credentials).unwrap_or(LoginMethod::Anonymous))
            }
            (None, None, Some(token)) => Ok(LoginMethod::Token(token.to_owned())),
            (Some(user), password, None) => {
                Ok(LoginMethod::User(user.to_owned(), password.unwrap_or_default().to_owned()))
            }
            (None, Some(_), None) => Err(OptionError::option("password", "a password needs `username`")),
            (_, _, Some(_)) => Err(OptionError::option("token", "write either a token or user and password")),
        },
    }
}

fn url_credentials(server: &ServerAddr) -> Option<LoginMethod> {
    let url = server.clone().into_inner();
    let (user, password) = url_login(&url)?;
    // an address with one word before the host has a token
    Some(match url.password() {
        Some(_) => LoginMethod::User(user, password),
        None => LoginMethod::Token(percent_decode(url.username())),
    })
}

/// Longest subject, in bytes.
const SUBJECT_BYTES_MAX: usize = 3500;

/// Returns the reason why a text is not a subject, or not a pattern of subjects.
pub(super) fn subject_problem(subject: &str, is_pattern: bool) -> Option<&'static str> {
    if subject.is_empty() {
        return Some("it is empty");
    }
    // the server closes the connection of who sends a longer command, and has 4,096 bytes for all of it
    if subject.len() > SUBJECT_BYTES_MAX {
        return Some("it has more than 3500 bytes");
    }
    if subject.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Some("it has a space");
    }
    let tokens: Vec<&str> = subject.split('.').collect();
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "" => return Some("it has an empty part between two `.`"),
            "*" | ">" if !is_pattern => return Some("a message cannot be sent to a wildcard (`*`, `>`)"),
            ">" if index + 1 != tokens.len() => return Some("`>` must be the last part"),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects() {
        let (longest, longer) = ("x".repeat(3500), "x".repeat(3501));
        for (subject, is_pattern, is_good) in [
            (longest.as_str(), false, true),
            (longer.as_str(), false, false),
            ("a.b", false, true),
            ("a.*", false, false),
            ("a.*.c.>", true, true),
            ("a.>.b", true, false),
            ("a..b", true, false),
            ("a b", false, false),
            ("", true, false),
        ] {
            assert_eq!(subject_problem(subject, is_pattern).is_none(), is_good, "{subject}");
        }
    }
}
