//! Lines of the text format and of CSV.

use bytes::{Bytes, BytesMut};

use crate::error::{PgError, Result, code};

/// Line that ends the data.
const END: &[u8] = b"\\.";

/// End of lines: as the first one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Newline,
    Return,
    Both,
}

/// Splits data into lines. In the text format a backslash takes the next byte along, in CSV quotes do.
#[derive(Default)]
pub(super) struct Lines {
    /// Quote and escape of CSV.
    quotes: Option<(u8, u8)>,
    end: Option<LineEnd>,
    /// Bytes of the input that were looked at, and the state behind them.
    scanned: usize,
    is_quoted: bool,
    is_escaped: bool,
    /// Number of the present line, and ends of lines in its quotes.
    number: u64,
    inside: u64,
    has_ended: bool,
}

impl Lines {
    pub fn of_csv(quote: u8, escape: u8) -> Self {
        Self { quotes: Some((quote, escape)), ..Self::default() }
    }

    /// Returns the number of the line that was taken last, from 1.
    pub fn number(&self) -> u64 {
        self.number.max(1)
    }

    /// Takes the next line without its end; `None` if it has not arrived.
    ///
    /// Errors: it ends in another way than the first one; with `is_end`, a quote that has no end.
    pub fn next(&mut self, input: &mut BytesMut, is_end: bool) -> Result<Option<Bytes>> {
        if self.has_ended {
            input.clear();
            return Ok(None);
        }
        let found = self.scan(input, is_end)?;
        let (line, skipped) = match found {
            Some(found) => found,
            None if is_end && !input.is_empty() => {
                if self.is_quoted {
                    self.count();
                    return Err(PgError::new(code::BAD_COPY, "unterminated CSV quoted field"));
                }
                (input.len(), 0)
            }
            None => return Ok(None),
        };
        self.count();
        self.scanned = 0;
        self.is_escaped = false;
        let mut record = input.split_to(line + skipped);
        record.truncate(line);
        if record.as_ref() == END {
            self.has_ended = true;
            input.clear();
            return Ok(None);
        }
        Ok(Some(record.freeze()))
    }

    fn count(&mut self) {
        self.number += 1 + std::mem::take(&mut self.inside);
    }

    /// Looks for the end of the line. Returns the length of the line, and that of its end.
    fn scan(&mut self, input: &[u8], is_end: bool) -> Result<Option<(usize, usize)>> {
        while let Some(byte) = input.get(self.scanned).copied() {
            let at = self.scanned;
            if let Some((quote, escape)) = self.quotes {
                if self.is_quoted && byte == escape && escape != quote {
                    self.is_escaped = !self.is_escaped;
                } else {
                    if byte == quote && !self.is_escaped {
                        self.is_quoted = !self.is_quoted;
                    }
                    self.is_escaped = false;
                }
                if self.is_quoted {
                    self.inside +=
                        u64::from(byte == if self.end == Some(LineEnd::Return) { b'\r' } else { b'\n' });
                    self.scanned += 1;
                    continue;
                }
            } else if byte == b'\\' {
                if at + 1 >= input.len() && !is_end {
                    return Ok(None);
                }
                self.scanned += 2;
                continue;
            }
            match byte {
                b'\r' => {
                    let next = input.get(at + 1);
                    if next.is_none() && !is_end && self.end != Some(LineEnd::Return) {
                        return Ok(None);
                    }
                    let is_both = next == Some(&b'\n');
                    let end = *self.end.get_or_insert(if is_both { LineEnd::Both } else { LineEnd::Return });
                    match end {
                        LineEnd::Both if is_both => return Ok(Some((at, 2))),
                        LineEnd::Return => return Ok(Some((at, 1))),
                        LineEnd::Both | LineEnd::Newline => {
                            return Err(self.other_end("carriage return", "\\r"));
                        }
                    }
                }
                b'\n' => match *self.end.get_or_insert(LineEnd::Newline) {
                    LineEnd::Newline => return Ok(Some((at, 1))),
                    LineEnd::Return | LineEnd::Both => return Err(self.other_end("newline", "\\n")),
                },
                _ => self.scanned += 1,
            }
        }
        Ok(None)
    }

    fn other_end(&mut self, name: &str, escape: &str) -> PgError {
        self.count();
        let (kind, hint) = match self.quotes {
            None => ("literal", format!("Use \"{escape}\" to represent {name}.")),
            Some(_) => ("unquoted", format!("Use quoted CSV field to represent {name}.")),
        };
        PgError::new(code::BAD_COPY, format!("{kind} {name} found in data")).with_hint(hint)
    }
}
