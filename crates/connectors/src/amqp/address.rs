//! Addresses of brokers, from the URLs that apps have for the Java client of each of them.

use url::Url;

use crate::logins::url_login;

/// Port of AMQP.
pub(super) const AMQP_PORT: u16 = 5672;
/// Port of AMQP over TLS.
const AMQPS_PORT: u16 = 5671;
/// Port on which ActiveMQ takes all of its protocols, if it is configured so, and Artemis by default.
const ACTIVEMQ_PORT: u16 = 61616;
/// The same over TLS.
const ACTIVEMQ_TLS_PORT: u16 = 61617;

/// Host and port at which a broker takes connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokerAddress {
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
}

/// Brokers of a URL, in the order in which they are tried, and the login in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokerUrl {
    pub brokers: Vec<BrokerAddress>,
    pub login: Option<(String, String)>,
}

impl std::fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl BrokerUrl {
    /// Parses the URL of one broker, or of several as `failover:(tcp://a:61616,tcp://b:61616)?…` and
    /// `(tcp://a:61616,tcp://b:61616)`. Options behind `?` are those of the Java client and have no effect.
    ///
    /// Errors: why the URL does not lead to AMQP. The URL is not repeated, because it may have a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.contains("brokerlist=") {
            return Err("it is the URL of a broker of AMQP 0.9.1; use the type `rabbitmq`".into());
        }
        let list = text.strip_prefix("failover:").map(|rest| rest.trim_start_matches("//"));
        let list = match list.unwrap_or(text).strip_prefix('(') {
            Some(rest) => rest.split_once(')').map(|(list, _)| list).ok_or("the `(` is not closed")?,
            None if list.is_some() => list.unwrap_or_default(),
            None => return Self::parse_one(text),
        };
        let mut all = Self { brokers: vec![], login: None };
        for one in list.split(',').filter(|one| !one.trim().is_empty()) {
            let one = Self::parse_one(one.trim())?;
            all.brokers.extend(one.brokers);
            all.login = all.login.or(one.login);
        }
        match all.brokers.is_empty() {
            true => Err("the list of brokers is empty".into()),
            false => Ok(all),
        }
    }

    fn parse_one(text: &str) -> Result<Self, String> {
        let no_url = "it is no URL; expected `amqp://host:5672`";
        let (scheme, _) = text.split_once("://").ok_or(no_url)?;
        if !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
            return Err(no_url.into());
        }
        let scheme = scheme.to_ascii_lowercase();
        let (default_port, is_tls) = match scheme.as_str() {
            "amqp" | "amqp+nio" => (AMQP_PORT, false),
            "amqps" | "amqp+ssl" | "amqp+nio+ssl" => (AMQPS_PORT, true),
            "tcp" | "nio" | "auto" | "auto+nio" => (ACTIVEMQ_PORT, false),
            "ssl" | "tcps" | "nio+ssl" | "auto+ssl" | "auto+nio+ssl" => (ACTIVEMQ_TLS_PORT, true),
            // a broker inside of the Java machine that runs the app: here it is the one beside this program
            "vm" => {
                let broker = BrokerAddress { host: "localhost".into(), port: AMQP_PORT, is_tls: false };
                return Ok(Self { brokers: vec![broker], login: None });
            }
            _ => {
                return Err(format!(
                    "`{scheme}://` is a protocol of one product; name its AMQP 1.0 port by `amqp.url='amqp://host:5672'`"
                ));
            }
        };
        let url = Url::parse(text).map_err(|_| no_url)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("the URL has no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let broker = BrokerAddress { host, port: url.port().unwrap_or(default_port), is_tls };
        Ok(Self { brokers: vec![broker], login: url_login(&url) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the brokers as `host:port` with `+` for TLS, or why not.
    fn brokers(text: &str) -> String {
        match BrokerUrl::parse(text) {
            Ok(url) => {
                let tls = |broker: &BrokerAddress| if broker.is_tls { "+" } else { "" };
                let all: Vec<_> = url.brokers.iter().map(|one| format!("{one}{}", tls(one))).collect();
                all.join(" ")
            }
            Err(e) => e,
        }
    }

    #[test]
    fn urls_lead_to_brokers() {
        for (url, expected) in [
            ("amqp://a", "a:5672"),
            ("amqps://a", "a:5671+"),
            ("amqp://a:1234?amqp.idleTimeout=10", "a:1234"),
            ("tcp://a:61616", "a:61616"),
            ("tcp://a", "a:61616"),
            ("ssl://a:5671?x=y", "a:5671+"),
            ("tcp://[::1]:5672", "[::1]:5672"),
            ("vm://localhost", "localhost:5672"),
            ("vm://embedded?broker.persistent=false", "localhost:5672"),
            ("failover:(tcp://a:1,ssl://b:2)?randomize=false", "a:1 b:2+"),
            ("failover://(tcp://a:1)", "a:1"),
            ("failover:tcp://a:1,tcp://b:2", "a:1 b:2"),
            ("(tcp://a:1,tcp://b:2)?ha=true", "a:1 b:2"),
            ("failover:()", "the list of brokers is empty"),
            ("failover:(tcp://a", "the `(` is not closed"),
            ("localhost:5672", "it is no URL; expected `amqp://host:5672`"),
            ("tcp://", "the URL has no host"),
            (
                "amqp://admin:admin@id/carbon?brokerlist='tcp://a:5672'",
                "it is the URL of a broker of AMQP 0.9.1; use the type `rabbitmq`",
            ),
        ] {
            assert_eq!(brokers(url), expected, "{url}");
        }
        for scheme in ["t3", "smf", "ldap", "http-remoting", "mq", "tibjmsnaming"] {
            let found = brokers(&format!("{scheme}://user:hunter2@a:1"));
            assert!(found.contains("`amqp.url=") && !found.contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn logins_are_read_from_urls() {
        let login = |url| BrokerUrl::parse(url).unwrap().login;
        assert_eq!(login("amqp://u:p%40@a"), Some(("u".into(), "p@".into())));
        assert_eq!(login("failover:(tcp://a,tcp://u:p@b)"), Some(("u".into(), "p".into())));
        assert_eq!(login("amqp://a"), None);
    }
}
