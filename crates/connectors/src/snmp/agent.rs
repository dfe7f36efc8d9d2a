//! Requests to one agent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use snmp2::v3::Security;
use snmp2::{AsyncSession, Oid, Value};
use tidemill_types::{Error, Result};
use tokio::time::timeout;

use super::value::{Reading, oid, reading};

/// Asked when a sink connects; every agent has it: the time since it was started.
const UP_TIME: &str = "1.3.6.1.2.1.1.3.0";

/// Authentication of requests.
pub(super) enum SnmpLogin {
    V1(Vec<u8>),
    V2c(Vec<u8>),
    V3(Box<Security>),
}

/// An agent.
pub(super) struct Agent {
    host: String,
    port: u16,
    login: SnmpLogin,
    timeout: Duration,
    retries: u32,
    session: Option<AsyncSession>,
}

/// Answer of an agent.
pub(super) struct Answer {
    /// Error of the protocol; 0 without one.
    pub status: u32,
    /// Number of the variable that is at fault, from 1; 0 without one.
    pub index: u32,
    pub values: Vec<(String, Reading)>,
}

impl Agent {
    pub(super) fn new(host: &str, port: u16, login: SnmpLogin, timeout: Duration, retries: u32) -> Self {
        let host = host.trim_matches(['[', ']']).to_owned();
        Self { host, port, login, timeout, retries, session: None }
    }

    /// Returns the agent as messages show it.
    pub(super) fn name(&self) -> String {
        format!("the agent {} port {}", self.host, self.port)
    }

    /// Asks for something that every agent has, on a new socket.
    ///
    /// Errors: `Unavailable` if the agent does not answer.
    pub(super) async fn connect(&mut self) -> Result<()> {
        self.session = None;
        self.get(&[UP_TIME.to_owned()]).await.map(drop)
    }

    /// Asks for values.
    ///
    /// Errors: `Unavailable` if the agent does not answer.
    pub(super) async fn get(&mut self, names: &[String]) -> Result<Answer> {
        self.request(names, None).await
    }

    /// Sets values.
    ///
    /// Errors: `Unavailable` if the agent does not answer.
    pub(super) async fn set(&mut self, values: &[(String, Setting)]) -> Result<Answer> {
        let names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
        self.request(&names, Some(values)).await
    }

    async fn request(&mut self, names: &[String], set: Option<&[(String, Setting)]>) -> Result<Answer> {
        let oids = names.iter().map(|name| oid(name)).collect::<Result<Vec<_>, _>>();
        let oids = oids.map_err(Error::invalid)?;
        let mut problem = "no answer".to_owned();
        for _ in 0..=self.retries {
            let limit = self.timeout;
            match timeout(limit, self.try_request(&oids, set)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) => problem = why,
                Err(_) => problem = format!("no answer in {} ms", limit.as_millis()),
            }
            // an answer that comes late must not become that of the next request
            self.session = None;
        }
        Err(Error::unavailable(format!("{}: {problem}", self.name())))
    }

    async fn try_request(
        &mut self,
        oids: &[Oid<'_>],
        set: Option<&[(String, Setting)]>,
    ) -> Result<Answer, String> {
        if self.session.is_none() {
            self.session = Some(self.open().await?);
        }
        let Some(session) = &mut self.session else { return Err("not connected".to_owned()) };
        // the agent may tell new counters of version 3 instead of answering; then the request is repeated
        for _ in 0..3 {
            let asked = match set {
                None => session.get_many(&oids.iter().collect::<Vec<_>>()).await,
                Some(values) => {
                    let values: Vec<_> =
                        oids.iter().zip(values.iter().map(|(_, value)| value.as_value())).collect();
                    session.set(&values).await
                }
            };
            return match asked {
                Ok(pdu) => Ok(Answer {
                    status: pdu.error_status,
                    index: pdu.error_index,
                    values: pdu.varbinds.map(|(name, value)| (name.to_string(), reading(&value))).collect(),
                }),
                Err(snmp2::Error::AuthUpdated) => continue,
                Err(e) => Err(self.described(&e)),
            };
        }
        Err("the agent does not accept the time of the requests".to_owned())
    }

    async fn open(&self) -> Result<AsyncSession, String> {
        let place = (self.host.as_str(), self.port);
        let number = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        let number = (number & 0x7fff_ffff) as i32;
        let opened = match &self.login {
            SnmpLogin::V1(community) => AsyncSession::new_v1(place, community, number).await,
            SnmpLogin::V2c(community) => AsyncSession::new_v2c(place, community, number).await,
            SnmpLogin::V3(security) => AsyncSession::new_v3(place, number, (**security).clone()).await,
        };
        let mut session = opened.map_err(|e| e.to_string())?;
        session.init().await.map_err(|e| self.described(&e))?;
        Ok(session)
    }

    /// Returns why a request failed.
    fn described(&self, e: &snmp2::Error) -> String {
        match (described(e), &self.login) {
            // what an agent reports about a user that it does not know has another form than an answer
            (why, SnmpLogin::V3(_)) if why.starts_with(UNUSABLE) => {
                format!("{why}: are the user, the protocols and the passwords right?")
            }
            (why, _) => why,
        }
    }
}

/// A value to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    Integer(i64),
    Text(String),
}

impl Setting {
    fn as_value(&self) -> Value<'_> {
        match self {
            Self::Integer(n) => Value::Integer(*n),
            Self::Text(text) => Value::OctetString(text.as_bytes()),
        }
    }
}

/// Beginning of the reason for an answer that cannot be parsed.
const UNUSABLE: &str = "the answer cannot be used";

fn described(e: &snmp2::Error) -> String {
    match e {
        snmp2::Error::AuthFailure(kind) => format!("the agent does not accept the login: {kind}"),
        snmp2::Error::Crypto(_) => "the answer cannot be decrypted: is `priv.password` right?".to_owned(),
        snmp2::Error::Receive => "nothing listens there".to_owned(),
        snmp2::Error::Send => "the request cannot be sent".to_owned(),
        snmp2::Error::CommunityMismatch => "the answer has another community".to_owned(),
        e => format!("{UNUSABLE}: {e}"),
    }
}
