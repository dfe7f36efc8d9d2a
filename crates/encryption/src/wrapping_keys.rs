//! Wrapping keys: the text that a key file has or a key command prints.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidemill_types::{Error, Result};
use zeroize::Zeroizing;

use crate::secret::{KEY_BYTES, SecretKey};

/// Maximum length of a key's name in bytes: shorter than a key in base64, so that a key is not taken for a name.
const NAME_BYTES_MAX: usize = 40;

/// Wrapping keys by name. The first wraps, the others only open what they wrapped before.
#[derive(Debug, Clone)]
pub struct WrappingKeys(Vec<(String, SecretKey)>);

impl WrappingKeys {
    /// Parses lines of the form `NAME BASE64`; empty lines and those that begin with `#` are passed over.
    ///
    /// Errors: `Invalid` with the number of the line and what is expected there, and never with its content.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys: Vec<(String, SecretKey)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, key) = parse_line(line).map_err(|e| e.context(format!("line {}", index + 1)))?;
            if keys.iter().any(|(other, _)| *other == name) {
                return Err(Error::invalid(format!(
                    "line {}: there is another key with the name `{name}`: give each key a name of its own",
                    index + 1
                )));
            }
            keys.push((name, key));
        }
        if keys.is_empty() {
            return Err(Error::invalid(
                "there is no key: expected a line `NAME BASE64`, as `tidemill keys new` prints it",
            ));
        }
        Ok(Self(keys))
    }

    /// Returns the key that wraps, with its name.
    pub fn current(&self) -> (&str, &SecretKey) {
        let (name, key) = self.0.first().expect("wrapping keys are parsed with at least one");
        (name, key)
    }

    /// Returns the key `name`.
    pub fn find(&self, name: &str) -> Option<&SecretKey> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, key)| key)
    }

    /// Returns the names, that of the current key first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

fn parse_line(line: &str) -> Result<(String, SecretKey)> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(text), None) = (words.next(), words.next(), words.next()) else {
        return Err(Error::invalid(
            "expected a name, a space and a key in base64, as `tidemill keys new` prints them",
        ));
    };
    // a name that is not one may be a key in the wrong place, so it is not shown
    check_name(name)?;
    let mut bytes = Zeroizing::new([0; KEY_BYTES * 2]);
    let decoded = STANDARD.decode_slice(text, &mut *bytes);
    let key = decoded.ok().and_then(|length| SecretKey::from_slice(&bytes[..length]));
    let key = key.ok_or_else(|| {
        Error::invalid(format!(
            "the key `{name}` is not {KEY_BYTES} bytes in base64 (44 characters, the last is `=`): `tidemill keys new` \
             prints such a line"
        ))
    })?;
    Ok((name.to_owned(), key))
}

fn check_name(name: &str) -> Result<()> {
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if fits && (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::invalid(
        "the name of the key is not a name: expected at most 40 letters, digits, `-`, `_` and `.`, then a space and the key",
    ))
}

/// Returns a line with a new random key. It is secret.
///
/// Errors: `Invalid` for a name that is not one; `Unavailable` when the system has no random numbers.
pub fn new_key_line(name: &str) -> Result<Zeroizing<String>> {
    check_name(name)?;
    let key = SecretKey::random()?;
    let mut line = Zeroizing::new(String::with_capacity(name.len() + 64));
    line.push_str(name);
    line.push(' ');
    STANDARD.encode_string(key.bytes(), &mut line);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_the_first_key_is_current() {
        let (new, old) = (new_key_line("2026").unwrap(), new_key_line("2025").unwrap());
        let keys = WrappingKeys::parse(&format!("# keys\n\n{}\r\n  {}\n", *new, *old)).unwrap();
        assert_eq!(keys.current().0, "2026");
        assert_eq!(keys.names().collect::<Vec<_>>(), ["2026", "2025"]);
        assert!(keys.find("2025").is_some() && keys.find("2024").is_none());
        let text = new.split_once(' ').unwrap().1;
        assert!(!format!("{keys:?}").contains(text));
    }

    #[test]
    fn bad_lines_are_refused_without_their_content() {
        let key = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
        assert!(WrappingKeys::parse(&format!("a {key}")).is_ok());
        for (text, expected) in [
            ("", "there is no key"),
            ("# only a remark", "there is no key"),
            (key, "line 1: expected a name"),
            ("\na", "line 2: expected a name"),
            (&format!("a {key} more"), "line 1: expected a name"),
            (&format!("a {}", &key[4..]), "the key `a` is not 32 bytes"),
            (&format!("a {key}{key}{key}{key}"), "the key `a` is not 32 bytes"),
            ("a $$$$", "the key `a` is not 32 bytes"),
            (&format!("{key} a"), "line 1: the name of the key is not a name"),
            (&format!("a {key}\na {key}"), "line 2: there is another key with the name `a`"),
        ] {
            let error = WrappingKeys::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains(&key[..12]) && !error.contains("$$$$"), "{error}");
        }
        assert!(new_key_line("a b").is_err() && new_key_line("").is_err());
    }
}
