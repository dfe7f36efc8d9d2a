//! Beginning of a connection: encryption, version of the protocol, login, settings of the session.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_access::{Action, Principal};
use tidemill_gateway::{Connection, ConnectionHandle};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::cancel::CancelKey;
use crate::error::{PgError, Result, code};
use crate::login::{BOUND, Credentials, PLAIN};
use crate::messages::input::{FirstMessage, SaslStart};
use crate::messages::output::{self, TransactionStatus};
use crate::messages::wire::{Wire, read_first};
use crate::settings::Settings;
use crate::shared::ServerState;

/// Maximum bytes of a message before the login, as PostgreSQL has it.
const LOGIN_MESSAGE_BYTES_MAX: usize = 10_000;
/// Newest version 3.x of the protocol that is spoken.
const MINOR_VERSION_MAX: u16 = 2;
/// Databases that clients connect to without a name of their own: the tools' own, and ours.
const DATABASES: [&str; 3] = ["tidemill", "postgres", "template1"];

const AUTHENTICATED: u32 = 0;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// A session whose client has logged in.
pub(crate) struct Started {
    pub wire: Wire,
    pub handle: ConnectionHandle,
    pub peer: SocketAddr,
    pub principal: Principal,
    pub settings: Settings,
    pub key: CancelKey,
}

/// First message of a client that begins a session.
struct Request {
    minor_version: u16,
    user: String,
    /// Settings, in the order in which they hold.
    settings: Vec<(String, String)>,
    /// Options of newer versions of the protocol.
    unknown_options: Vec<String>,
}

/// Begins the session of a client. Returns `None` without a session: it has only cancelled the statement of another session, was refused, or has
/// gone.
pub(crate) async fn start(connection: Connection, shared: &Arc<ServerState>) -> Option<Started> {
    let limit = shared.options.login_timeout;
    let (peer, handle) = (connection.peer, connection.handle.clone());
    let login = async {
        let (wire, request) = first_messages(connection, shared).await?;
        let started = log_in(wire, request, shared, peer, handle.clone()).await;
        Some(started)
    };
    let logged_in = tokio::select! {
        () = handle.draining() => return None,
        logged_in = timeout(limit, login) => logged_in,
    };
    match logged_in {
        Ok(Some(started)) => started,
        Ok(None) => None,
        Err(_) => {
            tracing::debug!(%peer, "the client has not logged in within {limit:?}: the connection is closed");
            None
        }
    }
}

/// Answers the requests before the startup message. Returns `None` if no session begins.
async fn first_messages(mut connection: Connection, shared: &Arc<ServerState>) -> Option<(Wire, Request)> {
    let (mut may_encrypt, mut may_use_gss) = (true, true);
    loop {
        let first = match read_first(&mut connection.socket, LOGIN_MESSAGE_BYTES_MAX).await {
            Ok(first) => FirstMessage::decode(first?),
            Err(error) => Err(error),
        };
        match first {
            Ok(FirstMessage::Encrypt) if may_encrypt => {
                may_encrypt = false;
                if !connection.can_encrypt() {
                    connection.socket.write_all(b"N").await.ok()?;
                    continue;
                }
                connection.socket.write_all(b"S").await.ok()?;
                let peer = connection.peer;
                match connection.encrypt().await {
                    Ok(encrypted) => connection = encrypted,
                    Err(error) => {
                        tracing::debug!(%peer, "TLS: {error}");
                        return None;
                    }
                }
            }
            Ok(FirstMessage::EncryptByGss) if may_use_gss => {
                may_use_gss = false;
                connection.socket.write_all(b"N").await.ok()?;
            }
            Ok(FirstMessage::Cancel { process, key }) => {
                shared.keys.cancel(process, &key);
                return None;
            }
            Ok(FirstMessage::Startup { minor_version, parameters }) => {
                let options = &shared.options;
                let wire = Wire::new(connection.socket, shared.memory.clone(), options.transfer_timeout);
                match Request::new(minor_version, parameters) {
                    Ok(request) => return Some((wire, request)),
                    Err(error) => {
                        refuse(wire, &error).await;
                        return None;
                    }
                }
            }
            Ok(FirstMessage::Encrypt | FirstMessage::EncryptByGss) => {
                tracing::debug!(peer = %connection.peer, "a second request for encryption: the connection is closed");
                return None;
            }
            Err(error) => {
                let wire =
                    Wire::new(connection.socket, shared.memory.clone(), shared.options.transfer_timeout);
                refuse(wire, &error).await;
                return None;
            }
        }
    }
}

/// Tells a client why there is no session.
async fn refuse(mut wire: Wire, error: &PgError) {
    output::error(&mut wire.output, error);
    // the client may have gone
    let _ = wire.flush().await;
    wire.close().await;
}

async fn log_in(
    mut wire: Wire,
    request: Request,
    shared: &Arc<ServerState>,
    peer: SocketAddr,
    handle: ConnectionHandle,
) -> Option<Started> {
    let minor_version = request.minor_version.min(MINOR_VERSION_MAX);
    if request.minor_version > MINOR_VERSION_MAX || !request.unknown_options.is_empty() {
        let unknown: Vec<&str> = request.unknown_options.iter().map(String::as_str).collect();
        output::negotiate_version(&mut wire.output, minor_version, &unknown);
    }
    let logged_in = match &shared.credentials {
        None => Ok(Principal::local()),
        Some(credentials) => authenticate(&mut wire, credentials, &request.user).await,
    };
    let begun = logged_in.and_then(|principal| {
        let settings = request.settings(&principal)?;
        Ok((principal, settings))
    });
    let (principal, settings) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            tracing::info!(%peer, user = %request.user, "refused: {}", error.message);
            refuse(wire, &error).await;
            return None;
        }
    };
    handle.trust();
    let key = shared.keys.register(minor_version);
    output::authentication(&mut wire.output, AUTHENTICATED, &[]);
    for (name, value) in settings.reported() {
        output::parameter_status(&mut wire.output, name, &value);
    }
    output::backend_key(&mut wire.output, key.process, key.key());
    output::ready_for_query(&mut wire.output, TransactionStatus::Idle);
    wire.flush().await.ok()?;
    Some(Started { wire, handle, peer, principal, settings, key })
}

/// Lets the client prove who it is.
async fn authenticate(wire: &mut Wire, credentials: &Credentials, user: &str) -> Result<Principal> {
    let certificate = wire.certificate_hash();
    let mut mechanisms = Vec::new();
    if certificate.is_some() {
        mechanisms.extend_from_slice(BOUND.as_bytes());
        mechanisms.push(0);
    }
    mechanisms.extend_from_slice(PLAIN.as_bytes());
    mechanisms.extend_from_slice(&[0, 0]);
    output::authentication(&mut wire.output, SASL, &mechanisms);
    let SaslStart { mechanism, payload } = SaslStart::decode(answer(wire).await?)?;
    let (login, reply) = credentials.start(user, &mechanism, &payload, certificate.as_deref())?;
    output::authentication(&mut wire.output, SASL_CONTINUE, reply.as_bytes());
    let (principal, proof) = credentials.finish(&login, &answer(wire).await?)?;
    output::authentication(&mut wire.output, SASL_FINAL, proof.as_bytes());
    Ok(principal)
}

/// Sends what was asked and waits for the answer of the client.
async fn answer(wire: &mut Wire) -> Result<Bytes> {
    wire.flush().await?;
    loop {
        match wire.take(LOGIN_MESSAGE_BYTES_MAX)? {
            Some((b'p', content)) => return Ok(content),
            Some((other, _)) => {
                return Err(PgError::protocol(format!(
                    "expected an answer to the request for a login, found the message {:?}",
                    char::from(other)
                )));
            }
            None if wire.fill().await? => {}
            None => return Err(PgError::protocol("the client has gone during the login")),
        }
    }
}

impl Request {
    fn new(minor_version: u16, parameters: Vec<(String, String)>) -> Result<Self> {
        let (mut user, mut database) = (String::new(), String::new());
        let (mut settings, mut unknown_options) = (Vec::new(), Vec::new());
        for (name, value) in parameters {
            match name.as_str() {
                "user" => user = value,
                "database" => database = value,
                "options" => settings.splice(0..0, command_line(&value)?).for_each(drop),
                "replication" if !["false", "off", "no", "0"].contains(&value.as_str()) => {
                    return Err(PgError::fatal(
                        code::NOT_SUPPORTED,
                        "replication is not supported: follow a stream over HTTP, or write it to a sink",
                    ));
                }
                "replication" => {}
                name if name.starts_with("_pq_.") => unknown_options.push(name.to_owned()),
                _ => settings.push((name, value)),
            }
        }
        if user.is_empty() {
            return Err(PgError::fatal("28000", "no PostgreSQL user name specified in startup packet"));
        }
        // clients that name no database ask for the one of the user's name
        if !database.is_empty() && database != user && !DATABASES.contains(&database.as_str()) {
            return Err(PgError::fatal(
                code::NO_DATABASE,
                format!("database \"{database}\" does not exist: expected tidemill"),
            ));
        }
        Ok(Self { minor_version, user, settings, unknown_options })
    }

    fn settings(&self, principal: &Principal) -> Result<Settings> {
        let mut settings = Settings::new(&self.user, principal.can_everywhere(Action::Administer));
        for (name, value) in &self.settings {
            let set = settings.set(name, value);
            set.map_err(|error| PgError { severity: crate::error::Severity::Fatal, ..error })?;
        }
        settings.finish_login();
        Ok(settings)
    }
}

/// Returns the settings of a command line: `-c name=value`, `-cname=value`, `--name=value`. A backslash is before a space in a value.
fn command_line(text: &str) -> Result<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => words.last_mut().into_iter().for_each(|word| word.extend(characters.next())),
            c if c.is_whitespace() => words.push(String::new()),
            c => words.last_mut().into_iter().for_each(|word| word.push(c)),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(setting), _) => Some(setting.to_owned()),
            (None, Some("")) => words.next(),
            (None, Some(setting)) => Some(setting.to_owned()),
            (None, None) => None,
        };
        let setting = setting.as_deref().and_then(|setting| setting.split_once('='));
        let (name, value) = setting.ok_or_else(|| {
            PgError::fatal(code::SYNTAX, format!("options \"{text}\": expected -c name=value"))
        })?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings_before_those_with_their_own_names() {
        let pairs = [
            ("user", "ana"),
            ("TimeZone", "UTC"),
            ("options", "-c a.b=x\\ y -cTimeZone=+2 --statement-timeout=5s"),
        ];
        let parameters = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let request = Request::new(0, parameters).unwrap();
        let settings = request.settings(&Principal::local()).unwrap();
        assert_eq!(settings.get("a.b").unwrap(), "x y");
        assert_eq!(settings.get("timezone").unwrap(), "UTC");
        assert_eq!(settings.get("statement_timeout").unwrap(), "5s");
        for wrong in ["-c", "-x", "--a", "a=b"] {
            assert!(command_line(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_session_needs_a_user_and_a_database_that_exists() {
        let request = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Request::new(0, pairs.collect()).map_err(|error| error.code)
        };
        assert_eq!(request(&[]).err(), Some("28000"));
        assert_eq!(request(&[("user", "ana"), ("database", "other")]).err(), Some("3D000"));
        assert_eq!(request(&[("user", "ana"), ("replication", "database")]).err(), Some("0A000"));
        assert!(request(&[("user", "ana"), ("database", "ana"), ("replication", "off")]).is_ok());
        let request = request(&[("user", "ana"), ("_pq_.x", "1")]).unwrap();
        assert_eq!(request.unknown_options, ["_pq_.x"]);
    }
}
