//! Options of both directions.

use std::time::Duration;

use snmp2::v3::{Auth, AuthProtocol, Cipher, Security};
use tidemill_connect::{OptionError, Options};

use super::agent::{Agent, SnmpLogin};

const VERSIONS: &[&str] = &["v1", "v2c", "v3"];
const TRANSPORTS: &[&str] = &["udp"];
/// The names with an `E` at their end are those of Siddhi's documentation.
const LEVELS: &[&str] =
    &["NO_AUTH_NO_PRIV", "AUTH_NO_PRIV", "AUTH_PRIV", "NO_AUTH_NO_PRIVE", "AUTH_NO_PRIVE", "AUTH_PRIVE"];
const AUTH_PROTOCOLS: &[&str] = &[
    "NO_AUTH",
    "AUTHMD5",
    "AUTHSHA",
    "AUTHHMAC128SHA224",
    "AUTHHMAC192SHA256",
    "AUTHHMAC256SHA384",
    "AUTHHMAC384SHA512",
    "AUTHHMAC192SHA512",
];
const PRIV_PROTOCOLS: &[&str] =
    &["NO_PRIV", "PRIVDES", "PRIVAES128", "PRIVDES128", "PRIVAES192", "PRIVAES256"];
/// Bytes of the shortest password, as RFC 3414 says.
const PASSWORD_BYTES_MIN: usize = 8;

/// Options of both directions.
macro_rules! snmp_options {
    ($($own:expr),* $(,)?) => {
        &[
            OptionSpec::text("host", "Name or address of the agent.").required(),
            OptionSpec::one_of("version", $crate::snmp::options::versions(), "Version of the protocol.").required(),
            $($own,)*
            OptionSpec::integer("agent.port", 1, 65535, "Port of the agent.").default("161"),
            OptionSpec::text("community", "Community, of versions 1 and 2c.").default("public").secret(),
            OptionSpec::one_of("transport.protocol", $crate::snmp::options::transports(), "Transport.").default("udp"),
            OptionSpec::integer("timeout", 1, 3_600_000, "Milliseconds that an answer may take.").default("1500"),
            OptionSpec::integer("retries", 0, 100, "How often a request is repeated that is not answered.").default("5"),
            OptionSpec::text("user.name", "User, of version 3.").default("noUser"),
            OptionSpec::one_of("security.lvl", $crate::snmp::options::levels(), "Level of version 3; default: by the protocols."),
            OptionSpec::one_of("auth.protocol", $crate::snmp::options::auth_protocols(), "How requests are authenticated, in version 3.").default("NO_AUTH"),
            OptionSpec::text("auth.password", "Password of the authentication.").default("authpass").secret(),
            OptionSpec::one_of("priv.protocol", $crate::snmp::options::priv_protocols(), "How requests are encrypted, in version 3.").default("NO_PRIV"),
            OptionSpec::text("priv.password", "Password of the encryption.").default("privpass").secret(),
            OptionSpec::text("engine.id", "Accepted without effect: the agent is asked for its own."),
            OptionSpec::text("engine.boot", "Accepted without effect, as `engine.id`."),
        ]
    };
}
pub(super) use snmp_options;

pub(super) const fn versions() -> &'static [&'static str] {
    VERSIONS
}

pub(super) const fn transports() -> &'static [&'static str] {
    TRANSPORTS
}

pub(super) const fn levels() -> &'static [&'static str] {
    LEVELS
}

pub(super) const fn auth_protocols() -> &'static [&'static str] {
    AUTH_PROTOCOLS
}

pub(super) const fn priv_protocols() -> &'static [&'static str] {
    PRIV_PROTOCOLS
}

/// Reads the options of both directions.
///
/// Errors: options that make no sense together.
pub(super) fn agent(options: &Options) -> Result<Agent, OptionError> {
    let host = options.text("host").trim();
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(
            OptionError::option("host", "expected a name or an address").expected(["host='10.0.0.7'"])
        );
    }
    let community = options.text("community").as_bytes().to_vec();
    let login = match options.text("version").trim().to_ascii_lowercase().as_str() {
        "v1" => SnmpLogin::V1(community),
        "v2c" => SnmpLogin::V2c(community),
        _ => SnmpLogin::V3(Box::new(security(options)?)),
    };
    let is_v3 = matches!(login, SnmpLogin::V3(_));
    let of_v3 =
        ["user.name", "security.lvl", "auth.protocol", "auth.password", "priv.protocol", "priv.password"];
    if let Some(name) = of_v3.into_iter().find(|name| !is_v3 && options.is_written(name)) {
        return Err(OptionError::option(name, "it is an option of version 3").expected(["version='v3'"]));
    }
    if is_v3 && options.is_written("community") {
        return Err(
            OptionError::option("community", "version 3 has users instead").expected(["user.name='…'"])
        );
    }
    let port = options.integer("agent.port").unwrap_or(161) as u16;
    let timeout = Duration::from_millis(options.integer("timeout").unwrap_or(1500) as u64);
    Ok(Agent::new(host, port, login, timeout, options.integer("retries").unwrap_or(5) as u32))
}

fn security(options: &Options) -> Result<Security, OptionError> {
    let word = |name: &str| options.text(name).trim().to_ascii_uppercase();
    let auth = match word("auth.protocol").as_str() {
        "NO_AUTH" => None,
        "AUTHMD5" => Some(AuthProtocol::Md5),
        "AUTHSHA" => Some(AuthProtocol::Sha1),
        "AUTHHMAC128SHA224" => Some(AuthProtocol::Sha224),
        "AUTHHMAC192SHA256" => Some(AuthProtocol::Sha256),
        "AUTHHMAC256SHA384" => Some(AuthProtocol::Sha384),
        _ => Some(AuthProtocol::Sha512),
    };
    let cipher = match word("priv.protocol").as_str() {
        "NO_PRIV" => None,
        "PRIVDES" => Some(Cipher::Des),
        "PRIVAES128" | "PRIVDES128" => Some(Cipher::Aes128),
        "PRIVAES192" => Some(Cipher::Aes192),
        _ => Some(Cipher::Aes256),
    };
    let level = word("security.lvl");
    let (wants_auth, wants_cipher) = match level.trim_end_matches('E') {
        "" => (auth.is_some(), cipher.is_some()),
        "NO_AUTH_NO_PRIV" => (false, false),
        "AUTH_NO_PRIV" => (true, false),
        _ => (true, true),
    };
    let (Some(auth), true) = (auth, wants_auth) else {
        return match (wants_auth, wants_cipher) {
            (false, false) => {
                Ok(Security::new(options.text("user.name").as_bytes(), b"").with_auth(Auth::NoAuthNoPriv))
            }
            (true, _) => Err(OptionError::option("security.lvl", "the level needs `auth.protocol`")
                .expected(["auth.protocol='AUTHSHA'"])),
            (false, true) => Err(OptionError::option(
                "priv.protocol",
                "encryption needs authentication: write `auth.protocol`",
            )
            .expected(["auth.protocol='AUTHSHA'"])),
        };
    };
    let password = |name: &str| match options.text(name).len() {
        length if length < PASSWORD_BYTES_MIN => {
            Err(OptionError::option(name, format!("a password has at least {PASSWORD_BYTES_MIN} characters")))
        }
        _ => Ok(options.text(name).as_bytes().to_vec()),
    };
    let privacy = match (cipher, wants_cipher) {
        (_, false) => Auth::AuthNoPriv,
        (Some(cipher), true) => Auth::AuthPriv { cipher, privacy_password: password("priv.password")? },
        (None, true) => {
            return Err(OptionError::option("security.lvl", "the level needs `priv.protocol`")
                .expected(["priv.protocol='PRIVAES128'"]));
        }
    };
    let security = Security::new(options.text("user.name").as_bytes(), &password("auth.password")?);
    Ok(security.with_auth_protocol(auth).with_auth(privacy))
}
