//! Object identifiers and values.

use std::fmt::Write as _;

use serde_json::Value as Json;
use snmp2::{Oid, Value};

use crate::shortened::shortened;

/// A value of an agent as JSON; null for one that the agent does not have.
pub(super) type Reading = Json;

/// Parses an object identifier such as `1.3.6.1.2.1.1.3.0`.
///
/// Errors: the text is not an object identifier.
pub(super) fn oid(text: &str) -> Result<Oid<'static>, String> {
    let wrong = || format!("`{}` is no object identifier, such as 1.3.6.1.2.1.1.3.0", shortened(text));
    let text = text.trim().trim_start_matches('.');
    let numbers: Option<Vec<u64>> =
        text.split('.').map(|part| part.parse::<u32>().ok().map(u64::from)).collect();
    let numbers = numbers.filter(|numbers| (2..=128).contains(&numbers.len())).ok_or_else(wrong)?;
    Oid::from(&numbers).map_err(|_| wrong())
}

/// Returns a value as JSON. Bytes that are not text are shown in hexadecimal: `00:1a:2b`.
pub(super) fn reading(value: &Value<'_>) -> Reading {
    match value {
        Value::Boolean(flag) => Json::from(*flag),
        Value::Integer(n) => Json::from(*n),
        Value::OctetString(bytes) => Json::from(text(bytes)),
        Value::Opaque(bytes) => Json::from(hexadecimal(bytes)),
        Value::ObjectIdentifier(oid) => Json::from(oid.to_string()),
        Value::IpAddress([a, b, c, d]) => Json::from(format!("{a}.{b}.{c}.{d}")),
        Value::Counter32(n) | Value::Unsigned32(n) | Value::Timeticks(n) => Json::from(*n),
        Value::Counter64(n) => Json::from(*n),
        _ => Json::Null,
    }
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => {
            text.to_owned()
        }
        _ => hexadecimal(bytes),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        // writing to a string cannot fail
        let _ = write!(out, "{}{byte:02x}", if at == 0 { "" } else { ":" });
    }
    out
}

/// Returns the name of an error of the protocol.
pub(super) fn status_name(status: u32) -> String {
    const NAMES: [&str; 18] = [
        "tooBig",
        "noSuchName",
        "badValue",
        "readOnly",
        "genErr",
        "noAccess",
        "wrongType",
        "wrongLength",
        "wrongEncoding",
        "wrongValue",
        "noCreation",
        "inconsistentValue",
        "resourceUnavailable",
        "commitFailed",
        "undoFailed",
        "authorizationError",
        "notWritable",
        "inconsistentName",
    ];
    let name = (status as usize).checked_sub(1).and_then(|at| NAMES.get(at));
    name.map_or_else(|| format!("error {status}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_parsed() {
        assert_eq!(oid(" .1.3.6.1.2.1.1.3.0").unwrap().to_string(), "1.3.6.1.2.1.1.3.0");
        for wrong in ["", "1", "1.3.x", "sysUpTime.0", "1..3", "1.3.4294967296", "7.1"] {
            assert!(oid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_text_or_hexadecimal() {
        assert_eq!(reading(&Value::OctetString("Zürich\n".as_bytes())), Json::from("Zürich\n"));
        assert_eq!(reading(&Value::OctetString(&[0, 26, 255])), Json::from("00:1a:ff"));
        assert_eq!(reading(&Value::OctetString(b"")), Json::from(""));
        assert_eq!(reading(&Value::Counter64(u64::MAX)), Json::from(u64::MAX));
        assert_eq!(reading(&Value::NoSuchInstance), Json::Null);
    }
}
