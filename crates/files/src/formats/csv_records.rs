//! Records of CSV, as text cells.
//!
//! The parser takes a quote without an end as a text up to the end of the input, with all rows behind it. Here that is an
//! error: such a file was cut, or has a quote too much, and its rows would be gone in silence.

use std::collections::VecDeque;
use std::io::Read;

use csv::{ByteRecord, StringRecord};
use tidemill_types::{Error, Result};

use crate::error::unreadable;

/// Characters with a meaning in CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsvLayout {
    /// Character between two cells.
    pub delimiter: u8,
    /// Character around texts that contain delimiters or line ends; two of them inside of such a text are one.
    pub quote: u8,
}

impl Default for CsvLayout {
    fn default() -> Self {
        Self { delimiter: b',', quote: b'"' }
    }
}

/// Reader of CSV, record by record.
pub struct CsvRecords<R> {
    input: csv::Reader<QuoteWatch<R>>,
    /// Line and byte at which the last record begins.
    begin: (u64, u64),
}

impl<R: Read> CsvRecords<R> {
    /// Creates a reader that asks for up to `buffer_bytes` at a time. With `header`, the first record is not among those that
    /// [`Self::read`] returns.
    pub fn new(input: R, header: bool, layout: CsvLayout, buffer_bytes: usize) -> Self {
        let mut builder = csv::ReaderBuilder::new();
        builder.flexible(true).has_headers(header).delimiter(layout.delimiter).quote(layout.quote);
        let input = builder.buffer_capacity(buffer_bytes).from_reader(QuoteWatch::new(input, layout));
        Self { input, begin: (1, 0) }
    }

    /// Returns the names of the columns.
    ///
    /// Errors: the input cannot be read, is not UTF-8, or has a quote without an end.
    pub fn header(&mut self) -> Result<StringRecord> {
        let names = self.input.headers().map_err(csv_error)?.clone();
        self.check_quotes(1, names.as_byte_record())?;
        Ok(names)
    }

    /// Reads the next record. Returns whether there is one.
    ///
    /// Errors: the input cannot be read, or has a quote without an end; with its line.
    pub fn read(&mut self, record: &mut ByteRecord) -> Result<bool> {
        let begin = self.input.position().byte();
        if !self.input.read_byte_record(record).map_err(csv_error)? {
            return Ok(false);
        }
        // the parser counts the empty lines before a record, and the second character of the line end before it, as its own
        let end = self.input.position().clone();
        let has_line_feed = self.input.get_mut().ends_with_line_feed(end.byte());
        let own = line_feeds(record.as_slice()) + u64::from(has_line_feed);
        self.begin = (end.line().saturating_sub(own), begin);
        self.check_quotes(self.begin.0, record)?;
        Ok(true)
    }

    /// Returns the line, from 1, and the position in bytes at which the last record begins.
    pub fn begin(&self) -> (u64, u64) {
        self.begin
    }

    /// Returns the number of bytes of the records so far.
    pub fn bytes_read(&self) -> u64 {
        self.input.position().byte()
    }

    /// Errors: the input ended within quotes, so it did in the last cell of the record that begins at `line`.
    fn check_quotes(&self, line: u64, record: &ByteRecord) -> Result<()> {
        if !self.input.get_ref().unclosed {
            return Ok(());
        }
        let last = record.len().saturating_sub(1);
        let line = line + record.iter().take(last).map(line_feeds).sum::<u64>();
        Err(Error::invalid(format!(
            "line {line}: the quote that begins a text here has no end, so the rows from here on cannot be told apart"
        )))
    }
}

fn line_feeds(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

fn csv_error(e: csv::Error) -> Error {
    let message = e.to_string();
    match e.into_kind() {
        csv::ErrorKind::Io(e) => unreadable(e),
        _ => Error::invalid(message),
    }
}

/// Input whose quotes are followed, so that it is known at its end whether one is open.
///
/// A quote opens a text at the beginning of a cell only; elsewhere it is a character like others.
struct QuoteWatch<R> {
    input: R,
    layout: CsvLayout,
    within: bool,
    /// The byte before, a line end at the beginning and behind a byte order mark.
    last: u8,
    /// True if the byte before is a quote that closed a text.
    closed: bool,
    /// The first three bytes, which may be a byte order mark.
    head: Vec<u8>,
    /// Bytes so far.
    bytes: u64,
    /// Positions of the carriage returns that the parser may not have read yet.
    returns: VecDeque<u64>,
    /// True if the input has ended within quotes.
    unclosed: bool,
}

impl<R: Read> Read for QuoteWatch<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let mut read = self.input.read(into)?;
        // the parser takes a byte order mark alone for an empty input, and a part of one for text
        while self.bytes == 0 && read > 0 && read <= BOM.len() && read < into.len() {
            match self.input.read(&mut into[read..])? {
                0 => break,
                more => read += more,
            }
        }
        match read {
            0 if !into.is_empty() => self.unclosed = self.within,
            _ => self.follow(&into[..read]),
        }
        Ok(read)
    }
}

impl<R> QuoteWatch<R> {
    fn new(input: R, layout: CsvLayout) -> Self {
        Self {
            input,
            layout,
            within: false,
            last: b'\n',
            closed: false,
            head: Vec::new(),
            bytes: 0,
            returns: VecDeque::new(),
            unclosed: false,
        }
    }

    /// Returns whether a record that ends at this position ends with a line feed, and forgets what is before it.
    fn ends_with_line_feed(&mut self, end: u64) -> bool {
        while self.returns.front().is_some_and(|at| at + 1 < end) {
            self.returns.pop_front();
        }
        let ends_with_return = self.returns.front().is_some_and(|at| at + 1 == end);
        let is_cut = end == self.bytes && (self.last != b'\n' || self.unclosed);
        !ends_with_return && !is_cut
    }

    fn follow(&mut self, mut bytes: &[u8]) {
        self.returns.extend(memchr::memchr_iter(b'\r', bytes).map(|at| self.bytes + at as u64));
        self.bytes += bytes.len() as u64;
        while self.head.len() < BOM.len() && !bytes.is_empty() {
            let (first, rest) = bytes.split_at(1);
            self.follow_text(first);
            self.head.extend(first);
            bytes = rest;
            if self.head == BOM {
                self.last = b'\n';
            }
        }
        self.follow_text(bytes);
    }

    fn follow_text(&mut self, bytes: &[u8]) {
        let mut closed = if self.closed { Some(0) } else { None };
        for at in memchr::memchr_iter(self.layout.quote, bytes) {
            let before = at.checked_sub(1).map_or(self.last, |at| bytes[at]);
            if self.within {
                self.within = false;
                closed = Some(at + 1);
            } else {
                let begins_cell = before == self.layout.delimiter || matches!(before, b'\n' | b'\r');
                // two quotes in a text are one of its characters
                self.within = begins_cell || closed == Some(at);
            }
        }
        if let Some(last) = bytes.last() {
            self.last = *last;
            self.closed = closed == Some(bytes.len());
        }
    }
}

/// Byte order mark.
const BOM: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all records as text, or the error, for a reader that gets `part` bytes at a time.
    fn read(text: &[u8], part: usize) -> Result<Vec<Vec<String>>, String> {
        struct Parts<'t>(&'t [u8], usize);
        impl Read for Parts<'_> {
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                let size = self.1.min(into.len()).min(self.0.len());
                let (now, rest) = self.0.split_at(size);
                into[..size].copy_from_slice(now);
                self.0 = rest;
                Ok(size)
            }
        }
        let mut records = CsvRecords::new(Parts(text, part), false, CsvLayout::default(), 64);
        let (mut record, mut all) = (ByteRecord::new(), vec![]);
        while records.read(&mut record).map_err(|e| e.to_string())? {
            all.push(record.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect());
        }
        Ok(all)
    }

    #[test]
    fn a_quote_without_an_end_is_told_with_its_line() {
        for (text, line) in [
            ("\"", 1),
            ("a,b\n1,\"x\n2,y\n", 2),
            ("a,b\n\"x\ny\",\"z\n", 3),
            ("a\n\"\"\"\n", 2),
            ("a\r\n1\r\n\"2\r\n", 3),
            ("a\n1\n\"x\"\"", 3),
            ("\u{feff}\"a\n", 1),
        ] {
            for part in 1..=text.len() {
                let error = read(text.as_bytes(), part).unwrap_err();
                assert!(
                    error.starts_with(&format!("line {line}: the quote that")),
                    "{text:?} {part}: {error}"
                );
            }
        }
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        for (text, lines) in [
            ("a\nb\nc", &[1, 2, 3][..]),
            ("a\r\nb\r\nc\r\n", &[1, 2, 3]),
            ("\n\na\n\r\n\nb\n", &[3, 6]),
            ("a,\"x\r\ny\"\r\nb\r\n", &[1, 3]),
            ("a\nb\r\nc\nd", &[1, 2, 3, 4]),
            ("\u{feff}a\nb", &[1, 2]),
        ] {
            for part in 1..=text.len() {
                let input = text.as_bytes().chunks(part).map(std::io::Cursor::new);
                let input = input
                    .fold(Box::new(std::io::empty()) as Box<dyn Read>, |all, more| Box::new(all.chain(more)));
                let mut records = CsvRecords::new(input, false, CsvLayout::default(), 64);
                let (mut record, mut found) = (ByteRecord::new(), vec![]);
                while records.read(&mut record).unwrap() {
                    found.push(records.begin().0);
                }
                assert_eq!(found, lines, "{text:?} {part}");
            }
        }
    }

    #[test]
    fn other_quotes_are_no_error() {
        for text in [
            "a\"\"b\n",
            "a\"b,c\n",
            "\"a\"b\"c\n",
            "\"a\"\"b\"\n",
            "\"\",\"\"\n",
            "\u{feff}\"a\",b\n",
            "\u{bf}\"a\n",
            "\u{4fff}\"a\n",
            " \"a\n",
            "\"a\n\"\n\n",
            "",
        ] {
            for part in 1..=text.len().max(1) {
                assert!(read(text.as_bytes(), part).is_ok(), "{text:?} {part}");
            }
        }
    }

    /// For random texts of few characters, an open quote is one to which a quote can be added so that nothing else changes
    /// than the last cell.
    #[test]
    fn random_texts_agree_with_the_parser() {
        let mut seed = 0x5eed_u64;
        for _ in 0..5_000 {
            let mut text = Vec::new();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut bits = seed >> 20;
            for _ in 0..(bits % 12) {
                bits /= 6;
                text.push(b"\"\",\nax"[(bits % 6) as usize]);
            }
            // within quotes, a line end that is added makes no further record, and the text of the last cell longer
            let parse = |text: &[u8]| -> Vec<ByteRecord> {
                let mut reader = csv::ReaderBuilder::new();
                reader
                    .flexible(true)
                    .has_headers(false)
                    .from_reader(text)
                    .into_byte_records()
                    .map(Result::unwrap)
                    .collect()
            };
            let cell = |records: &[ByteRecord]| {
                records.last().and_then(|r| r.iter().next_back().map(<[u8]>::len)).unwrap_or(0)
            };
            let (before, after) = (parse(&text), parse(&[&text[..], b"\n"].concat()));
            let is_open = cell(&after) > cell(&before);
            let shown = String::from_utf8_lossy(&text);
            assert_eq!(read(&text, 3).is_err(), is_open, "{shown:?}");
        }
    }
}
