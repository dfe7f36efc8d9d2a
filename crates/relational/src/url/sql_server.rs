//! `jdbc:sqlserver://host:port;name=value;…`, as the driver of SQL Server takes it.

use std::path::PathBuf;
use std::time::Duration;

use tidemill_types::nearest;

use super::{DatabaseUrl, TlsMode, flag, number};
use crate::dialect::Dialect;

const FORM: &str = "jdbc:sqlserver://host:port;databaseName=name";

/// Parameters that have an effect. The driver takes them without regard to case.
const PARAMETERS: &[&str] = &[
    "databaseName",
    "database",
    "serverName",
    "server",
    "portNumber",
    "port",
    "user",
    "userName",
    "password",
    "encrypt",
    "trustServerCertificate",
    "hostNameInCertificate",
    "serverCertificate",
    "loginTimeout",
    "applicationName",
];

/// Parses what follows `sqlserver:`.
pub(super) fn parse(rest: &str) -> Result<DatabaseUrl, String> {
    let rest = rest.strip_prefix("//").ok_or_else(|| format!("expected `{FORM}`"))?;
    let (authority, rest) = rest.split_at(rest.find(';').unwrap_or(rest.len()));
    if authority.contains(['/', '?', '@']) {
        return Err(format!("expected `{FORM}`, with `user` and `password` as parameters"));
    }
    let mut url = DatabaseUrl::new(Dialect::SqlServer, 1433);
    // what the driver does since its version 10
    url.tls = TlsMode::VerifyHost;
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let (host, instance) = host.split_once('\\').map_or((host, None), |(host, name)| (host, Some(name)));
    if let Some(port) = port {
        url.port = port.parse().map_err(|_| format!("expected `{FORM}`, found the port `{port}`"))?;
    } else if instance.is_some() {
        return Err(named_instance());
    }
    if !host.is_empty() {
        url.host = host.to_owned();
    }
    let mut encrypts = true;
    let mut trusts = false;
    for (name, value) in parameters(rest)? {
        match name.to_ascii_lowercase().as_str() {
            "databasename" | "database" => url.database = value,
            "servername" | "server" => url.host = value,
            "portnumber" | "port" => {
                let port = number(&name, &value)?;
                let wrong = || format!("`{name}` in the URL must be a port, found `{value}`");
                url.port = u16::try_from(port).map_err(|_| wrong())?;
            }
            "user" | "username" => url.user = Some(value),
            "password" => url.password = Some(value),
            "encrypt" => {
                encrypts = match value.trim().to_ascii_lowercase().as_str() {
                    "mandatory" => true,
                    "optional" => false,
                    "strict" => {
                        url.is_strict = true;
                        true
                    }
                    _ => flag(&name, &value)?,
                }
            }
            "trustservercertificate" => trusts = flag(&name, &value)?,
            "hostnameincertificate" => url.certificate_host = Some(value),
            "servercertificate" => url.root_cert = Some(PathBuf::from(value)),
            "logintimeout" => {
                let seconds = number(&name, &value)?;
                if seconds > 0 {
                    url.connect_timeout = Duration::from_secs(seconds);
                }
            }
            "applicationname" => url.application = Some(value),
            "instancename" => return Err(named_instance()),
            "integratedsecurity" if flag(&name, &value)? => return Err(no_login("integratedSecurity=true")),
            "authentication" | "authenticationscheme"
                if !["sqlpassword", "notspecified", "nativeauthentication"]
                    .contains(&value.trim().to_ascii_lowercase().as_str()) =>
            {
                return Err(no_login(&format!("{name}={value}")));
            }
            "truststore" => {
                return Err(
                    "`trustStore` in the URL is a file of Java; write `serverCertificate` with a file of \
                     certificates in PEM form"
                        .into(),
                );
            }
            "integratedsecurity" | "authentication" | "authenticationscheme" => {}
            other => {
                let lower: Vec<String> = PARAMETERS.iter().map(|name| name.to_ascii_lowercase()).collect();
                let meant = nearest(other, lower.iter().map(String::as_str));
                let meant = PARAMETERS.iter().find(|name| Some(name.to_ascii_lowercase().as_str()) == meant);
                if let Some(meant) = meant {
                    return Err(format!(
                        "the URL has an unknown parameter `{name}`; did you mean `{meant}`?"
                    ));
                }
                url.without_effect.push(name);
            }
        }
    }
    // the driver checks the certificate of a strict connection in any case
    url.tls = match (encrypts, trusts && !url.is_strict) {
        (false, _) => TlsMode::Disabled,
        (true, true) => TlsMode::Required,
        (true, false) => TlsMode::VerifyHost,
    };
    match url.database.is_empty() {
        true => Err(format!("the URL names no database; write `{FORM}`")),
        false => Ok(url),
    }
}

fn named_instance() -> String {
    "named instances are not looked up; write the port of the instance, `jdbc:sqlserver://host:port`".into()
}

fn no_login(parameter: &str) -> String {
    format!(
        "`{parameter}` in the URL is not supported; SQL Server is logged in to with `user` and `password`"
    )
}

/// Splits `;name=value;…`. A value in braces may have semicolons, and `}}` for a closing brace.
fn parameters(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = vec![];
    let mut rest = text;
    while let Some(next) = rest.strip_prefix(';') {
        let next = next.trim_start();
        if next.is_empty() || next.starts_with(';') {
            rest = next;
            continue;
        }
        let wrong = || "expected `;name=value;…` behind the server in the URL".to_owned();
        let (name, value) = next.split_once('=').ok_or_else(wrong)?;
        if name.contains(';') {
            return Err(wrong());
        }
        let value_text = value;
        let (value, after) = match value_text.strip_prefix('{') {
            Some(quoted) => braced(quoted).ok_or("the URL has a `{` without its `}`")?,
            None => {
                let end = value_text.find(';').unwrap_or(value_text.len());
                (value_text[..end].to_owned(), &value_text[end..])
            }
        };
        found.push((name.trim().to_owned(), value));
        rest = after;
    }
    match rest.is_empty() {
        true => Ok(found),
        false => Err("expected `;` behind a value in braces in the URL".into()),
    }
}

/// Returns the text up to the closing brace and what follows it.
fn braced(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('}')?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('}') {
            Some(after) => {
                value.push('}');
                rest = after;
            }
            None => return Some((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_driver() {
        let url = DatabaseUrl::parse(
            "jdbc:sqlserver://db.example:1434;databaseName=plant;encrypt=true;TrustServerCertificate=true;\
             user=it;password={a;b}}c};loginTimeout=5;applicationName=x;selectMethod=cursor;",
        )
        .unwrap();
        assert_eq!(url.to_string(), "sqlserver://db.example:1434;databaseName=plant");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("it"), Some("a;b}c")));
        assert_eq!((url.tls, url.connect_timeout), (TlsMode::Required, Duration::from_secs(5)));
        assert_eq!(url.without_effect, ["selectMethod"]);
        let url =
            DatabaseUrl::parse("jdbc:sqlserver://h;database=d;encrypt=strict;trustServerCertificate=true");
        assert!(matches!(url, Ok(url) if url.is_strict && url.tls == TlsMode::VerifyHost));
        let url = DatabaseUrl::parse("jdbc:sqlserver://;serverName=h;port=2;database=d").unwrap();
        assert_eq!(url.to_string(), "sqlserver://h:2;databaseName=d");
        assert_eq!(url.tls, TlsMode::VerifyHost);
        let url = DatabaseUrl::parse("jdbc:sqlserver://[::1];database=d;encrypt=false").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.tls), ("::1", 1433, TlsMode::Disabled));
    }
}
