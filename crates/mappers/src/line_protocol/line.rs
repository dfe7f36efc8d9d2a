//! Parsing of a line.
//!
//! ```text
//! cpu,host=a,core=3 usage=0.5,idle=97i 1451606400000000000        plain: parsed here
//! cpu,host=a\ b text="x, y" 1451606400000000000                   quotes and escapes: parsed by `influxdb-line-protocol`
//! ```
//!
//! Nearly all lines are plain, and are parsed in one pass over their bytes. Everything else, bad lines among them, is left to the crate,
//! which decides what a line means. A plain line means the same to both: a test compares them.

use std::borrow::Cow;

use influxdb_line_protocol::{Error as ParseError, FieldValue, ParsedLine, parse_lines};
use smallvec::SmallVec;
use tidemill_types::decode::CellValue;

/// Name and value of a tag or a field.
pub(super) type LineCell<'t> = (&'t str, CellValue<'t>);

/// Line with its parts.
pub(super) enum DecodedLine<'t> {
    /// Without quotes, escapes and control characters.
    Plain(PlainLine<'t>),
    /// Any other.
    Other(ParsedLine<'t>),
}

/// Line whose parts stand in its text as they are.
pub(super) struct PlainLine<'t> {
    measurement: &'t str,
    cells: SmallVec<[LineCell<'t>; 16]>,
    time: Option<i64>,
}

impl<'t> DecodedLine<'t> {
    /// Parses a line; `None` for a comment.
    ///
    /// Errors: what is wrong with it.
    pub fn parse(text: &'t str) -> Result<Option<Self>, String> {
        if let Some(line) = PlainLine::parse(text) {
            return Ok(Some(Self::Plain(line)));
        }
        let mut parsed = parse_lines(text);
        let Some(first) = parsed.next() else { return Ok(None) };
        let first = first.map_err(|e| explain(&e))?;
        match parsed.next() {
            None => Ok(Some(Self::Other(first))),
            Some(_) => Err("a line end stands outside of quotes".to_owned()),
        }
    }

    /// Returns the measurement.
    pub fn measurement(&self) -> &str {
        match self {
            Self::Plain(line) => line.measurement,
            Self::Other(line) => line.series.measurement.as_str(),
        }
    }

    /// Returns the time as its number.
    pub fn time(&self) -> Option<i64> {
        match self {
            Self::Plain(line) => line.time,
            Self::Other(line) => line.timestamp,
        }
    }

    /// Returns the tags and then the fields.
    pub fn cells(&self) -> Cow<'_, [LineCell<'_>]> {
        match self {
            Self::Plain(line) => Cow::Borrowed(&line.cells),
            Self::Other(line) => {
                let tags = line.series.tag_set.iter().flatten();
                let tags = tags.map(|(name, value)| (name.as_str(), CellValue::Untyped(value.as_str())));
                let fields = line.field_set.iter().map(|(name, value)| (name.as_str(), field_value(value)));
                Cow::Owned(tags.chain(fields).collect())
            }
        }
    }
}

impl<'t> PlainLine<'t> {
    /// Parses a line; `None` if it is not plain.
    fn parse(text: &'t str) -> Option<Self> {
        let mut rest = Rest { text, at: 0 };
        if text.starts_with('#') {
            return None;
        }
        let (measurement, mut end) = rest.take(b", ", b"")?;
        let mut cells = SmallVec::new();
        while end? == b',' {
            let (name, _) = rest.take(b"=", b", ")?;
            let (value, next) = rest.take(b", ", b"=")?;
            cells.push((name, CellValue::Untyped(value)));
            end = next;
        }
        end = Some(b',');
        while end == Some(b',') {
            let (name, _) = rest.take(b"=", b", ")?;
            let (value, next) = rest.take(b", ", b"=")?;
            cells.push((name, plain_value(value)?));
            end = next;
        }
        let time = match end {
            None => None,
            Some(_) => Some(integer(rest.take(b"", b" ,=")?.0)?),
        };
        Some(Self { measurement, cells, time })
    }
}

/// Part of a line that has not been read.
struct Rest<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Rest<'t> {
    /// Takes the text up to one of `ends`, and the end; or all of it, if it is not to end with `=`. `None` if the text is empty, and for quotes,
    /// escapes, control characters and those of `others` in it.
    fn take(&mut self, ends: &[u8], others: &[u8]) -> Option<(&'t str, Option<u8>)> {
        let from = self.at;
        let bytes = &self.text.as_bytes()[from..];
        let is_end = |byte: &u8| ends.contains(byte);
        let is_special =
            |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\') || is_end(byte) || others.contains(byte);
        let found = bytes.iter().position(is_special);
        let end = match found {
            Some(at) => Some(bytes[at]).filter(is_end).map(Some)?,
            None => (ends != b"=").then_some(None)?,
        };
        let length = found.unwrap_or(bytes.len());
        self.at = from + length + usize::from(end.is_some());
        // ends are ASCII
        (length > 0).then(|| (&self.text[from..from + length], end))
    }
}

/// Returns the value of a field in its usual form.
fn plain_value(text: &str) -> Option<CellValue<'_>> {
    let (number, last) = text.split_at_checked(text.len() - 1)?;
    Some(match (text, last) {
        ("t" | "T" | "true" | "True" | "TRUE", _) => CellValue::Bool(true),
        ("f" | "F" | "false" | "False" | "FALSE", _) => CellValue::Bool(false),
        (_, "i") => CellValue::Int(integer(number)?),
        (_, "u") => CellValue::Unsigned(number.parse().ok().filter(|_| is_digits(number))?),
        _ => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_number = match digits.split_once('.') {
                Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
                None => is_digits(digits),
            };
            CellValue::Float(text.parse().ok().filter(|_| is_number)?)
        }
    })
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok().filter(|_| is_digits(text.strip_prefix('-').unwrap_or(text)))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn field_value<'p>(value: &'p FieldValue<'_>) -> CellValue<'p> {
    match value {
        FieldValue::I64(number) => CellValue::Int(*number),
        FieldValue::U64(number) => CellValue::Unsigned(*number),
        FieldValue::F64(number) => CellValue::Float(*number),
        FieldValue::String(text) => CellValue::Text(text.as_str()),
        FieldValue::Boolean(truth) => CellValue::Bool(*truth),
    }
}

/// Returns what is wrong with a line, and what was expected.
fn explain(error: &ParseError) -> String {
    const FORM: &str =
        "expected `measurement,tag=value field=value time`, with `\\` before a comma, space or `=` in a name";
    match error {
        ParseError::GenericParsingError { .. } | ParseError::MeasurementValueInvalid => {
            format!("not line protocol: {FORM}")
        }
        ParseError::FieldSetMissing => {
            "no field has a value: expected `field=value` behind the measurement and its tags".to_owned()
        }
        ParseError::TagSetMalformed => {
            "a tag has no value: expected `,tag=value` behind the measurement".to_owned()
        }
        ParseError::DuplicateTag { tag_key } => format!("field `{tag_key}` occurs twice"),
        ParseError::IntegerValueInvalid { value, .. } => {
            format!("`{value}i` is not a whole number of 64 bits")
        }
        ParseError::UIntegerValueInvalid { value, .. } => {
            format!("`{value}u` is not a whole number of 64 bits without a sign")
        }
        ParseError::FloatValueInvalid { value, .. } => format!("`{value}` is not a number"),
        ParseError::TimestampValueInvalid { value, .. } => {
            format!("the time `{value}` is not a whole number of 64 bits")
        }
        ParseError::EndsWithBackslash => {
            "a name or a tag ends with `\\`, which line protocol does not have".to_owned()
        }
        ParseError::CannotParseEntireLine { trailing_content } => {
            let shown: String = trailing_content.chars().take(60).collect();
            format!("expected the end of the line or a time as a whole number, found `{}`", shown.trim())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares a plain line with the crate's reading of it. Returns whether it is plain.
    fn check(text: &str) -> bool {
        let Some(plain) = PlainLine::parse(text) else { return false };
        let mut parsed = parse_lines(text);
        let other = parsed.next().expect("a line").map(DecodedLine::Other);
        let other = other.unwrap_or_else(|e| panic!("{text:?} is plain, and the crate says: {e}"));
        assert!(parsed.next().is_none(), "{text:?}");
        let plain = DecodedLine::Plain(plain);
        assert_eq!((plain.measurement(), plain.time()), (other.measurement(), other.time()), "{text:?}");
        assert_eq!(plain.cells(), other.cells(), "{text:?}");
        true
    }

    #[test]
    fn usual_lines_are_plain() {
        for line in [
            "cpu usage=0.5",
            "cpu,host=a,core=3 usage=-0.5,idle=97i,up=t,n=18446744073709551615u 1451606400000000000",
            "größe,ort=Köln n=1,wahr=FALSE -5",
        ] {
            assert!(check(line), "{line}");
        }
    }

    #[test]
    fn other_lines_are_left_to_the_crate() {
        for line in [
            "",
            "#cpu n=1",
            "cpu",
            "cpu ",
            "cpu,",
            "cpu,host",
            "cpu,host= n=1",
            "cpu,=a n=1",
            "cpu,host=a",
            "cpu,host=a ",
            "cpu n",
            "cpu n=",
            "cpu =1",
            "cpu n=1,",
            "cpu n=1 ",
            "cpu n=1 x",
            "cpu n=1 1 ",
            "cpu n=1  1",
            "cpu  n=1",
            "cpu n=\"x\"",
            "cpu\\ a n=1",
            "cpu,a=b=c n=1",
            "cpu,a,b=c n=1",
            "cpu n=1e5",
            "cpu n=.5",
            "cpu n=5.",
            "cpu n=+5",
            "cpu n=-",
            "cpu n=NaN",
            "cpu n=5ii",
            "cpu n=-5u",
            "cpu n=9223372036854775808i",
            "cpu n=1 9223372036854775808",
            "cpu n=tru",
            "cpu\tn=1",
            "cpu n=1\r",
            "cpu n=1\nb n=2",
            "cpu n=ä",
        ] {
            assert!(!check(line), "{line}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn a_plain_line_means_the_same_to_the_crate(
            text in "[cä][,a= ]{0,2}(,[ab]=[cd=]){0,2} ([xy]=(-?[0-9]{1,3}(\\.[0-9]{0,2})?|[0-9]{1,20}[iu]|t|False|\"z\"),?){1,3}( -?[0-9]{0,20})?"
        ) {
            check(&text);
        }

        #[test]
        fn any_text_is_plain_only_if_it_means_the_same_to_the_crate(text in "[cpu,= \\\\\"\n#\t\r\0ti0-9.ä-]{0,40}") {
            check(&text);
        }
    }
}
