//! Options of both directions, and the settings that they make.

use std::sync::Arc;
use std::time::Duration;

use tidemill_connect::{ConnectorContext, OptionError, Options};
use tokio_rustls::rustls::ClientConfig;
use url::Url;

use crate::client_tls::client_config;
use crate::logins::percent_decode;

/// Options of both directions.
macro_rules! mqtt_options {
    ($($own:expr),* $(,)?) => {
        $crate::client_tls::tls_options![
            OptionSpec::text("url", "Address of the broker: `tcp://host:1883`, or `ssl://host:8883` with TLS.").required().secret(),
            OptionSpec::one_of("protocol.version", &["3.1.1", "5"], "Version of MQTT.").default("3.1.1"),
            OptionSpec::text("client.id", "Name of this client at the broker; default: one that stays the same for a source, a random one for a sink."),
            OptionSpec::text("username", "User."),
            OptionSpec::text("password", "Password.").secret(),
            OptionSpec::integer("keep.alive", 5, 65535, "Seconds of silence after which the connection is checked.").default("60"),
            OptionSpec::integer("connection.timeout", 1, 3600, "Seconds that connecting may take.").default("30"),
            OptionSpec::integer("connection.timeout.interval", 1, 3600, "Another name of `connection.timeout`."),
            OptionSpec::integer("max.inflight", 1, 65535, "Messages that may wait for an acknowledgement.").default("100"),
            OptionSpec::flag("automatic.reconnect", "true", "Accepted without effect: a lost connection is always opened again."),
            OptionSpec::integer("max.reconnect.delay", 0, i64::MAX, "Accepted without effect: delays grow to 30 seconds."),
            $($own),*
        ]
    };
}
pub(super) use mqtt_options;

/// Connection settings.
#[derive(Clone)]
pub(super) struct MqttSettings {
    pub host: String,
    pub port: u16,
    pub tls: Option<Arc<ClientConfig>>,
    pub is_v5: bool,
    pub client_id: String,
    pub login: Option<(String, String)>,
    pub keep_alive: Duration,
    pub connect_timeout: Duration,
    pub inflight_max: u16,
    /// True if the broker forgets the session when the connection ends.
    pub clean_session: bool,
    /// True if messages are acknowledged by the program.
    pub manual_acks: bool,
}

impl MqttSettings {
    /// Reads the options. `client_id` is the default.
    pub(super) fn new(
        options: &Options,
        context: &ConnectorContext,
        client_id: impl FnOnce() -> String,
    ) -> Result<Self, OptionError> {
        let wrong = |message: String| OptionError::option("url", message);
        // the URL is not repeated, because it may have a password
        let url = Url::parse(options.text("url"))
            .map_err(|e| wrong(format!("not a URL ({e}); expected `tcp://host:port`")))?;
        let is_tls = match url.scheme() {
            "tcp" | "mqtt" => false,
            "ssl" | "tls" | "mqtts" => true,
            other => {
                return Err(wrong(format!(
                    "`{other}://` is not supported; expected `tcp://host:port` or `ssl://host:port`"
                )));
            }
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("the URL has no host; expected `tcp://host:port`".into()))?;
        let user = options.get("username").map(str::to_owned);
        let user = user.or_else(|| (!url.username().is_empty()).then(|| percent_decode(url.username())));
        let password = options.get("password").map(str::to_owned);
        let password = password.or_else(|| url.password().map(percent_decode));
        if user.is_none() && password.is_some() {
            return Err(OptionError::option("password", "a password needs `username`"));
        }
        let seconds = |name: &str| options.integer(name).map(|s| Duration::from_secs(s.unsigned_abs()));
        let timeout = seconds("connection.timeout.interval").or_else(|| seconds("connection.timeout"));
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(if is_tls { 8883 } else { 1883 }),
            tls: is_tls.then(|| client_config(options, &context.dir)).transpose()?,
            is_v5: options.text("protocol.version") == "5",
            client_id: options.get("client.id").map_or_else(client_id, str::to_owned),
            login: user.map(|user| (user, password.unwrap_or_default())),
            keep_alive: seconds("keep.alive").unwrap_or(Duration::from_secs(60)),
            connect_timeout: timeout.unwrap_or(Duration::from_secs(30)),
            inflight_max: options.integer("max.inflight").map_or(100, |n| n as u16),
            clean_session: options.flag("clean.session"),
            manual_acks: false,
        })
    }

    /// Returns the address for messages.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Returns the reason why a text is not the name of a topic, or not a filter of topics.
pub(super) fn topic_problem(topic: &str, is_filter: bool) -> Option<&'static str> {
    if topic.is_empty() {
        return Some("it is empty");
    }
    if topic.len() > 65535 {
        return Some("it has more than 65535 bytes");
    }
    if topic.contains('\0') {
        return Some("it has a zero character");
    }
    if !is_filter {
        return topic.contains(['+', '#']).then_some("a message cannot be sent to a wildcard (`+`, `#`)");
    }
    let levels: Vec<&str> = topic.split('/').collect();
    for (index, level) in levels.iter().enumerate() {
        if level.contains('#') && (*level != "#" || index + 1 != levels.len()) {
            return Some("`#` must be the whole last level");
        }
        if level.contains('+') && *level != "+" {
            return Some("`+` must be a whole level");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics() {
        for (topic, is_filter, is_good) in [
            ("a/b", false, true),
            ("a/+", false, false),
            ("a/+/c/#", true, true),
            ("#", true, true),
            ("a/#/b", true, false),
            ("a+", true, false),
            ("", true, false),
        ] {
            assert_eq!(topic_problem(topic, is_filter).is_none(), is_good, "{topic}");
        }
    }
}
