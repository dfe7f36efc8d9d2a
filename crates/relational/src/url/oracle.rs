//! `jdbc:oracle:thin:@//host:port/service`, as the driver of Oracle takes it.

use std::path::PathBuf;
use std::time::Duration;

use tidemill_types::nearest;

use super::{DatabaseUrl, TlsMode, number};
use crate::dialect::Dialect;

const FORM: &str = "jdbc:oracle:thin:@//host:port/service";

/// Parameters that have an effect. The driver takes them without regard to case.
const PARAMETERS: &[&str] = &["connect_timeout", "transport_connect_timeout", "wallet_location"];

/// Parses what follows `oracle:`.
pub(super) fn parse(rest: &str) -> Result<DatabaseUrl, String> {
    let rest = rest.strip_prefix("thin:").ok_or_else(|| format!("expected `{FORM}`"))?;
    // a password may have `@`, an address may not
    let (login, address) = rest.rsplit_once('@').ok_or_else(|| format!("expected `{FORM}`"))?;
    if address.starts_with('(') {
        return Err(format!("descriptors `(DESCRIPTION=…)` are not understood; write `{FORM}`"));
    }
    let mut url = DatabaseUrl::new(Dialect::Oracle, 1521);
    if !login.is_empty() {
        let (user, password) =
            login.split_once('/').ok_or("expected `user/password` before `@` in the URL")?;
        url.user = Some(unquoted(user)).filter(|user| !user.is_empty());
        url.password = Some(unquoted(password));
    }
    let (address, parameters) = address.split_once('?').unwrap_or((address, ""));
    let (protocol, address) = match address.split_once("//") {
        Some((protocol, address)) => (protocol.trim_end_matches(':'), address),
        None => ("", address),
    };
    match protocol.to_ascii_lowercase().as_str() {
        "" | "tcp" => {}
        "tcps" => url.tls = TlsMode::VerifyHost,
        other => return Err(format!("expected `{FORM}`, or `tcps://` before the host, found `{other}://`")),
    }
    if address.contains(',') {
        return Err("the URL names several hosts; write the one that takes writes".into());
    }
    let is_secure = url.tls != TlsMode::Disabled;
    let (host, rest) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest),
        None => address.split_at(address.find([':', '/']).unwrap_or(address.len())),
    };
    let (port, name) = match (rest.strip_prefix(':'), rest.strip_prefix('/')) {
        (Some(rest), _) => match rest.split_once([':', '/']) {
            Some((port, name)) => {
                url.is_sid = rest.as_bytes().get(port.len()) == Some(&b':');
                (Some(port), name)
            }
            None => (Some(rest), ""),
        },
        (None, Some(name)) => (None, name),
        (None, None) => (None, ""),
    };
    if let Some(port) = port {
        url.port = port.parse().map_err(|_| format!("expected `{FORM}`, found the port `{port}`"))?;
    } else if is_secure {
        url.port = 2484;
    }
    // `service:dedicated` names the kind of server process, which has no effect
    let (name, server) = name.split_once(':').unwrap_or((name, ""));
    if !server.is_empty() {
        url.without_effect.push(server.to_owned());
    }
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "._-$#:%".contains(c));
    if host.is_empty() || !is_name(host) || !is_name(name) {
        return Err(format!("expected `{FORM}`"));
    }
    if name.is_empty() {
        return Err(format!(
            "the URL names no service; write `{FORM}`, or `jdbc:oracle:thin:@host:port:sid`"
        ));
    }
    url.host = host.to_owned();
    url.database = name.to_owned();
    for part in parameters.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.to_ascii_lowercase().as_str() {
            "connect_timeout" | "transport_connect_timeout" => {
                let seconds = number(name, value)?;
                if seconds > 0 {
                    url.connect_timeout = Duration::from_secs(seconds);
                }
            }
            "wallet_location" => url.root_cert = Some(PathBuf::from(value)),
            "ssl_server_dn_match"
                if value.eq_ignore_ascii_case("off") || value.eq_ignore_ascii_case("no") =>
            {
                return Err(format!(
                    "`{name}={value}` in the URL is not supported: the certificate is checked"
                ));
            }
            "ssl_server_dn_match" => {}
            other => {
                if let Some(meant) = nearest(other, PARAMETERS.iter().copied()) {
                    return Err(format!(
                        "the URL has an unknown parameter `{name}`; did you mean `{meant}`?"
                    ));
                }
                url.without_effect.push(name.to_owned());
            }
        }
    }
    Ok(url)
}

fn unquoted(text: &str) -> String {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    quoted.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_driver() {
        let of = |text: &str| DatabaseUrl::parse(text).unwrap();
        for (text, shown) in [
            ("jdbc:oracle:thin:@//db:1522/plant", "oracle:thin:@//db:1522/plant"),
            ("jdbc:oracle:thin:@db:1522/plant", "oracle:thin:@//db:1522/plant"),
            ("jdbc:oracle:thin:@db/plant", "oracle:thin:@//db:1521/plant"),
            ("jdbc:oracle:thin:@db:1521:XE", "oracle:thin:@db:1521:XE"),
            ("jdbc:oracle:thin:@//[::1]:1521/plant", "oracle:thin:@//::1:1521/plant"),
            ("jdbc:oracle:thin:@tcps://db/plant?wallet_location=/w", "oracle:thin:@//db:2484/plant"),
        ] {
            assert_eq!(of(text).to_string(), shown, "{text}");
        }
        let url = of("jdbc:oracle:thin:scott/\"ti/g@er\"@//db/plant?connect_timeout=5&retry_count=3");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("scott"), Some("ti/g@er")));
        assert_eq!((url.connect_timeout, url.tls), (Duration::from_secs(5), TlsMode::Disabled));
        assert_eq!(url.without_effect, ["retry_count"]);
        assert_eq!(of("jdbc:oracle:thin:@tcps://db/plant").tls, TlsMode::VerifyHost);
    }
}
