//! Property files of JNDI: what a Java client looks up in them, URLs of brokers and names of destinations.

use std::collections::BTreeMap;
use std::path::Path;

/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;
/// Prefixes of the URL of a connection factory, which the products write differently.
const FACTORY_PREFIXES: [&str; 2] = ["connectionfactory.", "connectionFactory."];
/// Prefixes of the names of destinations.
const DESTINATION_PREFIXES: [&str; 2] = ["queue.", "topic."];
/// URL of brokers that have no factories by name.
const PROVIDER_URL: &str = "java.naming.provider.url";

/// Entries of a property file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct JndiFile(BTreeMap<String, String>);

impl JndiFile {
    /// Reads a file.
    ///
    /// Errors: it cannot be read, or is too large.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("cannot read {}: {e}", path.display());
        let size = std::fs::metadata(path).map_err(|e| wrong(&e))?.len();
        if size > BYTES_MAX {
            return Err(wrong(&format!("it has {size} bytes; a property file has at most {BYTES_MAX}")));
        }
        let bytes = std::fs::read(path).map_err(|e| wrong(&e))?;
        // property files are Latin-1, and those of today UTF-8
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|e| e.into_bytes().iter().map(|byte| char::from(*byte)).collect());
        Ok(Self(parse(&text)))
    }

    /// Returns the URL of a connection factory.
    pub(super) fn factory_url(&self, factory: &str) -> Option<&str> {
        let named = FACTORY_PREFIXES.iter().find_map(|prefix| self.0.get(&format!("{prefix}{factory}")));
        named.or_else(|| self.0.get(PROVIDER_URL)).map(String::as_str)
    }

    /// Returns the names of the connection factories.
    pub(super) fn factories(&self) -> Vec<&str> {
        let name =
            |key: &'_ str| FACTORY_PREFIXES.iter().find_map(|prefix| key.strip_prefix(prefix)).map(str::len);
        self.0.keys().filter_map(|key| Some(&key[key.len() - name(key)?..])).collect()
    }

    /// Returns the name at the broker of a destination.
    pub(super) fn destination<'s>(&'s self, name: &'s str) -> &'s str {
        let found = DESTINATION_PREFIXES.iter().find_map(|prefix| self.0.get(&format!("{prefix}{name}")));
        found.map_or(name, String::as_str)
    }
}

/// Parses `key = value` lines: comments with `#` and `!`, escapes by `\`, and lines that `\` continues.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut line = line.to_owned();
        while ends_with_escape(&line) {
            line.pop();
            match lines.next() {
                Some(next) => line.push_str(next.trim_start()),
                None => break,
            }
        }
        let (key, value) = split(&line);
        entries.insert(unescape(key.trim_end()), unescape(value));
    }
    entries
}

fn ends_with_escape(line: &str) -> bool {
    (line.len() - line.trim_end_matches('\\').len()) % 2 == 1
}

/// Splits at the first `=` or `:` that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' => return (&line[..at], line[at + 1..].trim()),
            _ => {}
        }
    }
    (line, "")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, c == '\\') {
            (_, false) => out.push(c),
            _ => match rest.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('u') => {
                    let digits: String = rest.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    out.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                Some(c) => out.push(c),
                None => {}
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_files_are_read() {
        let file = JndiFile(parse(
            "# brokers\n! more\nconnectionfactory.Q = amqp\\://a:5672?x=y\nconnectionFactory.T: tcp://b\n\
             queue.orders=shop/\\\n   orders\ntopic.\\u0061 = b\nempty\n",
        ));
        assert_eq!(file.factory_url("Q"), Some("amqp://a:5672?x=y"));
        assert_eq!(file.factory_url("T"), Some("tcp://b"));
        assert_eq!(file.factory_url("X"), None);
        assert_eq!(file.factories(), ["T", "Q"]);
        assert_eq!((file.destination("orders"), file.destination("a")), ("shop/orders", "b"));
        assert_eq!(file.destination("other"), "other");
        let file = JndiFile(parse("java.naming.provider.url = amqp://c"));
        assert_eq!(file.factory_url("X"), Some("amqp://c"));
    }
}
