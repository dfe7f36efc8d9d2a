//! Rows as JSON objects.

use std::fmt::Write as _;

use base64::Engine as _;
use bytes::Bytes;
use tidemill_types::Timestamp;

use crate::text_format::civil;

/// Digits that every number of them keeps in a `double`.
const EXACT_DIGITS: usize = 15;

/// Writes a row as a JSON object.
#[derive(Debug)]
pub struct RowWriter {
    text: String,
}

impl Default for RowWriter {
    fn default() -> Self {
        Self { text: "{".into() }
    }
}

impl RowWriter {
    /// Begins a field, whose value has to follow.
    pub fn name(&mut self, prefix: &str, name: &str) -> &mut Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push('"');
        self.escaped(prefix);
        self.escaped(name);
        self.text.push_str("\":");
        self
    }

    /// Writes null.
    pub fn null(&mut self) {
        self.text.push_str("null");
    }

    /// Writes `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.text.push_str(if value { "true" } else { "false" });
    }

    /// Writes a number that JSON and Rust write alike.
    pub fn number(&mut self, value: impl std::fmt::Display) {
        // writing to a string cannot fail
        let _ = write!(self.text, "{value}");
    }

    /// Writes a text.
    pub fn string(&mut self, value: &str) {
        self.text.push('"');
        self.escaped(value);
        self.text.push('"');
    }

    /// Writes a decimal number: as a number if a `double` keeps all of its digits, otherwise, and for `NaN`, as a text.
    pub fn decimal(&mut self, value: &str) {
        let digits = value.bytes().filter(u8::is_ascii_digit).count();
        let leading = value.trim_start_matches('-').bytes().take_while(|b| *b == b'0' || *b == b'.');
        let zeros = leading.filter(|b| *b == b'0').count();
        match is_json_number(value) && digits.saturating_sub(zeros) <= EXACT_DIGITS {
            true => self.text.push_str(value),
            false => self.string(value),
        }
    }

    /// Writes a number of the type `float` or `double`; NaN and infinite ones as texts.
    pub fn float(&mut self, value: &str) {
        match is_json_number(value) {
            // without a point, readers may take it for an integer, which has no sign then
            _ if value == "-0" => self.text.push_str("-0.0"),
            true => self.text.push_str(value),
            false => self.string(value),
        }
    }

    /// Writes a document that is JSON already.
    pub fn json(&mut self, document: &str) {
        // a document may have line ends, which the parsers of messages take as space
        self.text.push_str(document);
    }

    /// Writes bytes in base64.
    pub fn bytes(&mut self, value: &[u8]) {
        self.text.push('"');
        base64::engine::general_purpose::STANDARD.encode_string(value, &mut self.text);
        self.text.push('"');
    }

    /// Writes a time, as milliseconds since 1970 if `as_number` is set.
    pub fn time(&mut self, time: Timestamp, as_number: bool) {
        match civil(time) {
            _ if as_number => self.number(time.micros().div_euclid(1000)),
            None => self.number(time.micros().div_euclid(1000)),
            Some(at) => {
                let [month, day, hour, minute, second] = at.parts;
                let _ = write!(
                    self.text,
                    "\"{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}",
                    at.year
                );
                if at.micros > 0 {
                    let _ = write!(self.text, ".{:06}", at.micros);
                }
                self.text.push_str("Z\"");
            }
        }
    }

    /// Returns the object.
    pub fn finish(mut self) -> Bytes {
        self.text.push('}');
        Bytes::from(self.text)
    }

    fn escaped(&mut self, text: &str) {
        let special = |c: char| c == '"' || c == '\\' || c < ' ';
        let mut rest = text;
        while let Some(at) = rest.find(special) {
            let (plain, behind) = rest.split_at(at);
            self.text.push_str(plain);
            let mut chars = behind.chars();
            match chars.next() {
                Some('"') => self.text.push_str("\\\""),
                Some('\\') => self.text.push_str("\\\\"),
                Some('\n') => self.text.push_str("\\n"),
                Some('\r') => self.text.push_str("\\r"),
                Some('\t') => self.text.push_str("\\t"),
                Some(c) => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(c));
                }
                None => {}
            }
            rest = chars.as_str();
        }
        self.text.push_str(rest);
    }
}

/// Returns whether a text of a database is a number of JSON. Databases write no other forms of numbers than these, `NaN`
/// and `Infinity`.
fn is_json_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    unsigned.starts_with(|c: char| c.is_ascii_digit())
        && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_json() {
        let mut row = RowWriter::default();
        row.name("", "a\"b").string("tab\t quote\" back\\ \u{1} ж");
        row.name("before_", "n").null();
        row.name("", "small").decimal("0.0000000000000123");
        row.name("", "large").decimal("12345678901234567.5");
        row.name("", "nan").float("NaN");
        row.name("", "f").float("1e-07");
        row.name("", "t").time(Timestamp(1_700_000_000_123_456), false);
        row.name("", "ms").time(Timestamp(-1), true);
        row.name("", "b").bytes(b"\x00\xff");
        let text = String::from_utf8(row.finish().to_vec()).unwrap();
        let expected = concat!(
            r#"{"a\"b":"tab\t quote\" back\\ \u0001 ж","before_n":null,"small":0.0000000000000123,"#,
            r#""large":"12345678901234567.5","nan":"NaN","f":1e-07,"t":"2023-11-14T22:13:20.123456Z","ms":-1,"b":"AP8="}"#
        );
        assert_eq!(text, expected);
    }
}
