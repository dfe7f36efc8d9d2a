//! Fields of a record, where they are, and those that had to be written anew without their escapes.

use std::iter::Peekable;
use std::ops::Range;

use crate::command::{CopyFormat, CopyOptions};
use crate::error::{PgError, Result, code};

/// Fields of a record. They are kept for the next one, so that a record takes no memory of its own.
#[derive(Default)]
pub(super) struct Fields {
    places: Vec<Place>,
    /// Fields without their escapes and quotes.
    plain: Vec<u8>,
}

enum Place {
    Null,
    Record(Range<usize>),
    Plain(Range<usize>),
}

impl Fields {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns a field of the record that was split last; `None` for null.
    pub fn get<'r>(&'r self, record: &'r [u8], at: usize) -> Option<&'r [u8]> {
        match self.places.get(at)? {
            Place::Null => None,
            Place::Record(range) => record.get(range.clone()),
            Place::Plain(range) => self.plain.get(range.clone()),
        }
    }

    /// Splits a record.
    ///
    /// Errors: a quote of CSV has no end; a tuple of the binary format is damaged.
    pub fn split(&mut self, record: &[u8], options: &CopyOptions) -> Result<()> {
        self.places.clear();
        self.plain.clear();
        match options.format {
            CopyFormat::Text => {
                self.split_text(record, options);
                Ok(())
            }
            CopyFormat::Csv => self.split_csv(record, options),
            CopyFormat::Binary => self.split_tuple(record),
        }
    }

    fn split_text(&mut self, record: &[u8], options: &CopyOptions) {
        let mut start = 0;
        let mut at = 0;
        let mut has_escape = false;
        loop {
            match record.get(at) {
                Some(b'\\') => {
                    has_escape = true;
                    at += 2;
                }
                Some(byte) if *byte != options.delimiter => at += 1,
                found => {
                    let end = at.min(record.len());
                    let field = &record[start..end];
                    let place = match field {
                        field if field == options.null.as_bytes() => Place::Null,
                        field if has_escape => self.unescaped(field),
                        _ => Place::Record(start..end),
                    };
                    self.places.push(place);
                    if found.is_none() {
                        return;
                    }
                    at += 1;
                    start = at;
                    has_escape = false;
                }
            }
        }
    }

    fn unescaped(&mut self, field: &[u8]) -> Place {
        let start = self.plain.len();
        let mut rest = field.iter().copied().peekable();
        while let Some(byte) = rest.next() {
            if byte != b'\\' {
                self.plain.push(byte);
                continue;
            }
            // the byte of a number keeps its lowest bits, as in PostgreSQL
            if let Some(byte) = number(&mut rest, 8, 3) {
                self.plain.push(byte);
                continue;
            }
            match rest.next() {
                Some(b'b') => self.plain.push(0x08),
                Some(b'f') => self.plain.push(0x0c),
                Some(b'n') => self.plain.push(b'\n'),
                Some(b'r') => self.plain.push(b'\r'),
                Some(b't') => self.plain.push(b'\t'),
                Some(b'v') => self.plain.push(0x0b),
                Some(b'x') => {
                    let byte = number(&mut rest, 16, 2);
                    self.plain.push(byte.unwrap_or(b'x'));
                }
                Some(other) => self.plain.push(other),
                None => self.plain.push(b'\\'),
            }
        }
        Place::Plain(start..self.plain.len())
    }

    fn split_csv(&mut self, record: &[u8], options: &CopyOptions) -> Result<()> {
        let CopyOptions { delimiter, quote, escape, null, .. } = options;
        let mut at = 0;
        loop {
            let (start, plain) = (at, self.plain.len());
            let (mut is_quoted, mut had_quote) = (false, false);
            let end = loop {
                let Some(byte) = record.get(at).copied() else {
                    if is_quoted {
                        return Err(PgError::new(code::BAD_COPY, "unterminated CSV quoted field"));
                    }
                    break None;
                };
                at += 1;
                if is_quoted {
                    match record.get(at).copied() {
                        Some(next) if byte == *escape && (next == *escape || next == *quote) => {
                            self.plain.push(next);
                            at += 1;
                        }
                        _ if byte == *quote => is_quoted = false,
                        _ => self.plain.push(byte),
                    }
                } else if byte == *delimiter {
                    break Some(at - 1);
                } else if byte == *quote {
                    (is_quoted, had_quote) = (true, true);
                } else {
                    self.plain.push(byte);
                }
            };
            let range = start..end.unwrap_or(record.len());
            let place = match had_quote {
                true => Place::Plain(plain..self.plain.len()),
                false => {
                    self.plain.truncate(plain);
                    match &record[range.clone()] == null.as_bytes() {
                        true => Place::Null,
                        false => Place::Record(range),
                    }
                }
            };
            self.places.push(place);
            if end.is_none() {
                return Ok(());
            }
        }
    }

    /// Splits a tuple of the binary format: a number of fields, and each behind its length.
    fn split_tuple(&mut self, record: &[u8]) -> Result<()> {
        let damaged = || PgError::new(code::BAD_COPY, "unexpected EOF in COPY data");
        let mut at = 2;
        while at < record.len() {
            let length =
                record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
            at += 4;
            match usize::try_from(i32::from_be_bytes(length)) {
                Ok(length) => {
                    let end =
                        at.checked_add(length).filter(|end| *end <= record.len()).ok_or_else(damaged)?;
                    self.places.push(Place::Record(at..end));
                    at = end;
                }
                Err(_) => self.places.push(Place::Null),
            }
        }
        Ok(())
    }
}

/// Takes the digits of a byte; `None` without any.
fn number(rest: &mut Peekable<impl Iterator<Item = u8>>, radix: u32, digits: usize) -> Option<u8> {
    let mut value = None;
    for _ in 0..digits {
        let Some(digit) = rest.peek().and_then(|byte| char::from(*byte).to_digit(radix)) else { break };
        value = Some(value.unwrap_or(0) * radix + digit);
        rest.next();
    }
    value.map(|value: u32| (value & 0xff) as u8)
}
