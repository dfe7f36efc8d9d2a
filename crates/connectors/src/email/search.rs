//! Search terms of the source: `subject:alarm, from:carbon@`.

use mail_parser::{Address, Message};

/// Keys of a search term and their names in IMAP.
const KEYS: [(&str, &str); 5] =
    [("subject", "SUBJECT"), ("from", "FROM"), ("to", "TO"), ("cc", "CC"), ("bcc", "BCC")];

/// Conditions that all hold for the messages that are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SearchTerm(Vec<(usize, String)>);

impl SearchTerm {
    /// Parses `key:value` pairs that are separated by commas. Errors: what was expected.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut conditions = vec![];
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let known = pair.split_once(':').and_then(|(key, value)| {
                let index = KEYS.iter().position(|(name, _)| name.eq_ignore_ascii_case(key.trim()))?;
                Some((index, value.trim().to_owned()))
            });
            match known {
                Some((index, value)) if !value.is_empty() && !value.contains(['\r', '\n', '\0']) => {
                    conditions.push((index, value));
                }
                _ => {
                    return Err(format!(
                        "expected pairs `key:value` separated by commas with the keys subject, from, to, cc, bcc; \
                         found `{pair}`"
                    ));
                }
            }
        }
        Ok(Self(conditions))
    }

    /// Returns the IMAP search for messages with UIDs from `first` on.
    pub(super) fn query(&self, first: u64) -> String {
        let is_ascii = self.0.iter().all(|(_, value)| value.is_ascii());
        let mut query = if is_ascii { String::new() } else { "CHARSET UTF-8 ".to_owned() };
        query.push_str(&format!("UID {first}:*"));
        for (key, value) in &self.0 {
            let value = value.trim_matches('@').replace('\\', "\\\\").replace('"', "\\\"");
            query.push_str(&format!(" {} \"{value}\"", KEYS[*key].1));
        }
        query
    }

    /// Returns whether a message that the server found has the addresses that conditions with `@` demand: `name@`
    /// the whole name, `@domain` the whole domain, `name@domain` the whole address.
    pub(super) fn matches(&self, message: &Message<'_>) -> bool {
        self.0.iter().all(|(key, value)| {
            if *key == 0 || !value.contains('@') {
                return true;
            }
            let addresses = match KEYS[*key].0 {
                "from" => message.from(),
                "to" => message.to(),
                "cc" => message.cc(),
                _ => message.bcc(),
            };
            addresses.is_some_and(|addresses| has_address(addresses, value))
        })
    }
}

fn has_address(addresses: &Address<'_>, wanted: &str) -> bool {
    let wanted = wanted.to_lowercase();
    addresses.iter().filter_map(|one| one.address.as_deref()).any(|address| {
        let address = address.to_lowercase();
        match (wanted.starts_with('@'), wanted.ends_with('@')) {
            (true, _) => address.ends_with(&wanted),
            (_, true) => address.starts_with(&wanted),
            _ => address == wanted,
        }
    })
}

/// Encodes the name of a folder in the modified UTF-7 of IMAP (RFC 3501, section 5.1.3).
pub(super) fn encode_folder(name: &str) -> String {
    use base64::Engine as _;
    use base64::alphabet::IMAP_MUTF7;
    use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};

    let engine = GeneralPurpose::new(&IMAP_MUTF7, NO_PAD);
    let mut encoded = String::new();
    let mut foreign: Vec<u8> = vec![];
    let flush = |foreign: &mut Vec<u8>, encoded: &mut String| {
        if !foreign.is_empty() {
            encoded.push('&');
            encoded.push_str(&engine.encode(&foreign));
            encoded.push('-');
            foreign.clear();
        }
    };
    for c in name.chars() {
        if (' '..='~').contains(&c) {
            flush(&mut foreign, &mut encoded);
            encoded.push(c);
            if c == '&' {
                encoded.push('-');
            }
        } else {
            foreign.extend(c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| unit.to_be_bytes()));
        }
    }
    flush(&mut foreign, &mut encoded);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_become_searches() {
        let term = SearchTerm::parse("subject: a \"b\" , from:carbon@,Bcc:x").unwrap();
        assert_eq!(term.query(7), r#"UID 7:* SUBJECT "a \"b\"" FROM "carbon" BCC "x""#);
        assert_eq!(SearchTerm::parse("subject:ü").unwrap().query(1), "CHARSET UTF-8 UID 1:* SUBJECT \"ü\"");
        assert_eq!(SearchTerm::parse("").unwrap().query(1), "UID 1:*");
        for wrong in ["subject", "body:x", "from:"] {
            let found = SearchTerm::parse(wrong).unwrap_err();
            assert!(found.ends_with(&format!("found `{wrong}`")), "{found}");
        }
    }

    #[test]
    fn folders_are_encoded() {
        assert_eq!(encode_folder("Work & more"), "Work &- more");
        // the example of RFC 3501
        assert_eq!(encode_folder("~peter/mail/台北/日本語"), "~peter/mail/&U,BTFw-/&ZeVnLIqe-");
    }
}
