//! Reader of a JSON array of events, as many programs export it: `[{…}, {…}]`, over any number of lines.

use std::io::{BufRead, BufReader, Cursor, Read};

use tidemill_connect::SourceBatch;
use tidemill_types::{Error, Result, RowDecoder, RowOrigin, Timestamp};

use crate::error::unreadable;
use crate::event_reader::{EventReader, of_rows};
use crate::options::{READ_BYTES, ReadOptions};

/// Positions are numbers of elements.
pub(crate) struct JsonArrayReader {
    elements: ArrayElements,
    decoder: RowDecoder,
    options: ReadOptions,
    /// Error that ended reading while rows were decoded that are returned before it.
    failed: Option<Error>,
    /// Position after the rows returned so far.
    returned: u64,
}

impl JsonArrayReader {
    /// Creates a reader of an input that [begins an array](begins_array).
    pub(crate) fn new(input: Box<dyn Read + Send>, decoder: RowDecoder, options: ReadOptions) -> Self {
        let elements = ArrayElements::new(input, options.line_bytes_max);
        Self { elements, decoder, options, failed: None, returned: options.start }
    }

    fn finish(&mut self) -> SourceBatch {
        self.returned = self.elements.next;
        of_rows(self.decoder.finish(), self.returned)
    }
}

impl EventReader for JsonArrayReader {
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let mut bytes = 0;
        loop {
            match self.elements.read() {
                Ok(Some((origin, too_long))) => {
                    let element = self.elements.element();
                    bytes += element.len();
                    if origin.number < self.options.start {
                        continue;
                    }
                    match (too_long, element.is_empty()) {
                        (true, _) => {
                            let max = self.options.line_bytes_max;
                            let message = format!("the element is longer than {max} bytes");
                            self.decoder.reject(origin, message, element);
                        }
                        (false, true) => {
                            self.decoder.reject(
                                origin,
                                "expected an object before the comma or bracket",
                                b"",
                            );
                        }
                        (false, false) => self.decoder.push_json(origin, element, now),
                    }
                }
                Ok(None) => return Ok((self.elements.next > self.returned).then(|| self.finish())),
                Err(e) if self.decoder.rows_read() == 0 => return Err(e),
                Err(e) => {
                    self.failed = Some(e);
                    return Ok(Some(self.finish()));
                }
            }
            if self.decoder.rows_read() >= self.options.batch_rows || bytes >= self.options.batch_bytes {
                return Ok(Some(self.finish()));
            }
        }
    }
}

/// Returns whether the first character of an input begins an array, and the input from its start on.
pub(crate) fn begins_array(mut input: Box<dyn Read + Send>) -> Result<(bool, Box<dyn Read + Send>)> {
    let mut begin = Vec::new();
    loop {
        let mut more = [0; 64];
        let read = input.read(&mut more).map_err(unreadable)?;
        begin.extend_from_slice(&more[..read]);
        let first = tidemill_types::without_bom(&begin).trim_ascii_start().first();
        // the first bytes may be a part of a byte order mark
        if read == 0 || (first.is_some() && begin.len() > 2) {
            let is_array = first == Some(&b'[');
            return Ok((is_array, Box::new(Cursor::new(begin).chain(input))));
        }
    }
}

/// Place in the input.
enum Part {
    Before,
    Within,
    Behind,
}

/// The elements of an array, one after the other.
pub(crate) struct ArrayElements {
    input: BufReader<Box<dyn Read + Send>>,
    /// Text of the last element, with white space around it; only its beginning if it is too long.
    element: Vec<u8>,
    bytes_max: usize,
    /// Number of the next element.
    next: u64,
    /// Line, from 1, and position of the next byte.
    line: u64,
    offset: u64,
    part: Part,
}

impl ArrayElements {
    /// Creates a reader of an input that [begins an array](begins_array). Elements may have up to `bytes_max` bytes.
    pub(crate) fn new(input: Box<dyn Read + Send>, bytes_max: usize) -> Self {
        Self {
            input: BufReader::with_capacity(READ_BYTES, input),
            element: Vec::new(),
            bytes_max,
            next: 0,
            line: 1,
            offset: 0,
            part: Part::Before,
        }
    }

    /// Returns the text of the last element, of one that is too long its beginning.
    pub(crate) fn element(&self) -> &[u8] {
        self.element.trim_ascii()
    }

    /// Reads the next element. Returns its origin, and whether it is too long; `None` at the end.
    ///
    /// Errors: the input cannot be read; the array has no end, or something behind it.
    pub(crate) fn read(&mut self) -> Result<Option<(RowOrigin, bool)>> {
        if matches!(self.part, Part::Before) {
            while let Some(byte) = self.byte()? {
                if byte == b'[' {
                    self.part = Part::Within;
                    break;
                }
            }
        }
        if matches!(self.part, Part::Behind) {
            return self.check_end().map(|()| None);
        }
        self.element.clear();
        let (mut depth, mut in_text, mut escaped) = (0_u64, false, false);
        let mut origin = None;
        loop {
            let (line, offset) = (self.line, self.offset);
            let Some(byte) = self.byte()? else {
                return Err(Error::invalid(format!(
                    "line {line}: the input ends within its array: expected `]` behind the last element"
                )));
            };
            if origin.is_none() && !byte.is_ascii_whitespace() {
                origin = Some(RowOrigin { number: self.next, line: Some(line), offset: Some(offset) });
            }
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'{' | b'[' => depth += 1,
                b']' if depth == 0 => {
                    self.part = Part::Behind;
                    // an empty array has no element
                    if self.next == 0 && self.element.trim_ascii().is_empty() {
                        return self.check_end().map(|()| None);
                    }
                    break;
                }
                b',' if depth == 0 => break,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if self.element.len() <= self.bytes_max {
                self.element.push(byte);
            }
        }
        let here = RowOrigin { number: self.next, line: Some(self.line), offset: Some(self.offset) };
        self.next += 1;
        Ok(Some((origin.unwrap_or(here), self.element.len() > self.bytes_max)))
    }

    /// Errors: there is something else than white space.
    fn check_end(&mut self) -> Result<()> {
        loop {
            let line = self.line;
            match self.byte()? {
                None => return Ok(()),
                Some(byte) if byte.is_ascii_whitespace() => {}
                Some(_) => {
                    return Err(Error::invalid(format!("line {line}: expected nothing behind the array")));
                }
            }
        }
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        let line = self.line;
        let available = self.input.fill_buf().map_err(|e| unreadable(e).context(format!("line {line}")))?;
        let Some(byte) = available.first().copied() else { return Ok(None) };
        self.input.consume(1);
        self.offset += 1;
        self.line += u64::from(byte == b'\n');
        Ok(Some(byte))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_types::{Field, FieldType, StreamSchema, event_json};

    use super::*;

    /// Reads a text in batches of two rows. Returns events, rejections and the error at the end.
    fn read(text: &str, start: u64) -> (Vec<String>, Vec<String>, Option<String>, u64) {
        let fields = vec![Field::new("a", FieldType::Long), Field::new("b", FieldType::Object)];
        let schema = Arc::new(StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None });
        let (is_array, input) = begins_array(Box::new(Cursor::new(text.to_owned().into_bytes()))).unwrap();
        assert!(is_array, "{text}");
        let decoder = RowDecoder::new(std::slice::from_ref(&schema), None);
        let options = ReadOptions { start, batch_rows: 2, line_bytes_max: 40, ..ReadOptions::default() };
        let mut reader = JsonArrayReader::new(input, decoder, options);
        let (mut events, mut rejected, mut position) = (vec![], vec![], start);
        loop {
            let batch = match reader.next(Timestamp(0)) {
                Ok(Some(batch)) => batch,
                Ok(None) => return (events, rejected, None, position),
                Err(e) => return (events, rejected, Some(e.to_string()), position),
            };
            for (_, rows) in &batch.rows.parts {
                let event = |row| serde_json::Value::Object(event_json(&schema, rows, row)).to_string();
                events.extend((0..rows.num_rows()).map(event));
            }
            rejected.extend(batch.rejected.iter().map(ToString::to_string));
            position = batch.position;
        }
    }

    #[test]
    fn elements_are_events() {
        let text = "\u{feff} [\n {\"a\": 1},\n {\"a\":2,\"b\":{\"x\":[\"],}\\\"\",{}]}} ,\n{\"a\":3}\n]\n\n";
        let all = [r#"{"a":1}"#, r#"{"a":2,"b":{"x":["],}\"",{}]}}"#, r#"{"a":3}"#];
        for start in 0..=3 {
            let (events, rejected, error, position) = read(text, start);
            assert_eq!(
                (&events[..], rejected.len(), error, position),
                (&all.map(String::from)[start as usize..], 0, None, 3)
            );
        }
        for empty in ["[]", " [ \n ]\n"] {
            assert_eq!(read(empty, 0), (vec![], vec![], None, 0));
        }
    }

    #[test]
    fn bad_elements_are_rejected_with_their_places() {
        let long = "x".repeat(50);
        let text = format!(
            "[{{\"a\":1}},\n7, {{\"a\":\"x\"}},,\n{{\"c\":\"{long}\"}},\n{{\"a\":2}} {{}},{{\"a\":3}},]"
        );
        let (events, rejected, error, position) = read(&text, 0);
        assert_eq!((events, error, position), (vec![r#"{"a":1}"#.to_owned(), r#"{"a":3}"#.into()], None, 8));
        let expected = [
            "line 2, byte 10: invalid type: integer `7`, expected a JSON object with the fields of S at byte 1",
            "line 2, byte 13: field `a`: expected long (a whole number of 64 bits), found \"x\"",
            "line 2, byte 23: expected an object before the comma or bracket",
            "line 3, byte 25: the element is longer than 40 bytes",
            "line 4, byte 85: not valid JSON: trailing characters at byte 9",
            "line 4, byte 104: expected an object before the comma or bracket",
        ];
        assert_eq!(rejected, expected);
    }

    #[test]
    fn an_array_without_an_end_is_an_error_after_its_rows() {
        for text in ["[{\"a\":1},\n{\"a\":2}", "[{\"a\":1},\n", "[{\"a\":1},\n{\"a\":2,\"b\":\"]"] {
            let (events, _, error, _) = read(text, 0);
            assert_eq!(events, [r#"{"a":1}"#]);
            assert_eq!(
                error.unwrap(),
                "line 2: the input ends within its array: expected `]` behind the last element"
            );
        }
        let (events, _, error, _) = read("[{\"a\":1}]\n{\"a\":2}", 0);
        assert_eq!((events.len(), error.unwrap().as_str()), (1, "line 2: expected nothing behind the array"));
    }
}
