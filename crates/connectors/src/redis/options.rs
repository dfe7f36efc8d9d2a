//! Options of both directions, and the settings that they make.

use std::path::Path;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use tidemill_connect::{ConnectorContext, OptionError, Options};

use crate::client_tls::{TLS_OPTIONS, identity};
use crate::tls::OptionFile;

/// Options of both directions.
macro_rules! redis_options {
    ($($own:expr),* $(,)?) => {
        $crate::client_tls::tls_options![
            OptionSpec::text("url", "Address of the server: `redis://user:password@host:6379/database`, or `rediss://` with TLS.").default("redis://localhost:6379").secret(),
            OptionSpec::text("username", "User, instead of the one in the address."),
            OptionSpec::text("password", "Password, instead of the one in the address.").secret(),
            OptionSpec::text("payload.field", "Field of an entry of a stream that has the message.").default("payload"),
            $($own),*
        ]
    };
}
pub(super) use redis_options;

/// Connection settings.
#[derive(Clone)]
pub(super) struct RedisSettings {
    pub client: Client,
    /// Host and port, for messages.
    pub address: String,
}

impl RedisSettings {
    /// Reads the options of a source or sink.
    pub(super) fn of_connector(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        Self::of_url("url", options.text("url"), options, &context.dir)
    }

    /// Connects to the address in an option.
    pub(super) fn of_url(
        option: &str,
        url: &str,
        options: &Options,
        dir: &Path,
    ) -> Result<Self, OptionError> {
        // the address is not repeated, because it may have a password
        let wrong = |why: &str| {
            OptionError::option(option, format!("{why}; expected `redis://user:password@host:6379/database`"))
        };
        let url = redis::parse_redis_url(url).ok_or_else(|| wrong("it is no URL of Redis"))?;
        let info = url.into_connection_info().map_err(|e| wrong(&e.to_string()))?;
        Self::new(option, info, options, dir)
    }

    /// Connects to an address, which an option names, with the login and the TLS of the other options.
    pub(super) fn new(
        option: &str,
        mut info: ConnectionInfo,
        options: &Options,
        dir: &Path,
    ) -> Result<Self, OptionError> {
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            ConnectionAddr::Unix(path) => path.display().to_string(),
            _ => return Err(OptionError::option(option, "such addresses are not supported")),
        };
        let mut login = info.redis_settings().clone();
        if let Some(user) = options.get("username") {
            login = login.set_username(user);
        }
        if let Some(password) = options.get("password") {
            login = login.set_password(password);
        }
        if login.username().is_some() && login.password().is_none() {
            return Err(OptionError::option("username", "a user needs a password"));
        }
        info = info.set_redis_settings(login);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                tidemill_tls::install_provider();
                Client::build_with_tls(info, certificates(options, dir)?)
            }
            _ => Client::open(info),
        };
        let client = client.map_err(|e| OptionError::option(option, e.to_string()))?;
        Ok(Self { client, address })
    }
}

fn certificates(options: &Options, dir: &Path) -> Result<TlsCertificates, OptionError> {
    let authorities = OptionFile::read(options, TLS_OPTIONS.authorities, dir)?;
    if let Some(file) = &authorities {
        file.certificates()?;
    }
    let client_tls = identity(options, TLS_OPTIONS, dir)?.map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.pem.bytes,
        client_key: key.pem.bytes,
    });
    Ok(TlsCertificates { client_tls, root_cert: authorities.map(|file| file.pem.bytes) })
}
