//! Tuples of the binary format.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::{PgError, Result, code};

/// Beginning of the data; flags and the length of an extension follow.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const HEADER_BYTES: usize = SIGNATURE.len() + 8;
/// Flags that change how data is read; lower ones may be ignored.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// Splits data into tuples. A tuple is returned with the number of its fields.
#[derive(Default)]
pub(super) struct Tuples {
    has_begun: bool,
    has_ended: bool,
    /// Bytes of the extension of the header that are still to be skipped.
    skipped: usize,
    /// Bytes of the present tuple that were looked at, and its fields that were not.
    scanned: usize,
    fields_left: Option<usize>,
}

impl Tuples {
    /// Takes the next tuple; `None` if it has not arrived.
    ///
    /// Errors: the data is not in the format; with `is_end`, it ends inside of a tuple.
    pub fn next(&mut self, input: &mut BytesMut, is_end: bool) -> Result<Option<Bytes>> {
        let bad = |message: &str| PgError::new(code::BAD_COPY, message.to_owned());
        if !self.has_begun {
            let arrived = input.len().min(SIGNATURE.len());
            if input[..arrived] != SIGNATURE[..arrived] || is_end && arrived < SIGNATURE.len() && arrived > 0
            {
                return Err(bad("COPY file signature not recognized"));
            }
            if input.len() < HEADER_BYTES {
                return match is_end && !input.is_empty() {
                    true => Err(bad("invalid COPY file header (missing flags)")),
                    false => Ok(None),
                };
            }
            input.advance(SIGNATURE.len());
            if input.get_u32() & CRITICAL_FLAGS != 0 {
                return Err(bad("unrecognized critical flags in COPY file header"));
            }
            let extension = input.get_i32();
            self.skipped =
                usize::try_from(extension).map_err(|_| bad("invalid COPY file header (missing length)"))?;
            self.has_begun = true;
        }
        let skipped = self.skipped.min(input.len());
        input.advance(skipped);
        self.skipped -= skipped;
        if self.has_ended {
            return match input.is_empty() {
                true => Ok(None),
                false => Err(bad("received copy data after EOF marker")),
            };
        }
        if self.skipped > 0 {
            return if is_end { Err(bad("invalid COPY file header (wrong length)")) } else { Ok(None) };
        }
        match self.scan(input)? {
            Some(0) => {
                input.advance(2);
                self.has_ended = true;
                self.reset();
                self.next(input, is_end)
            }
            Some(length) => {
                self.reset();
                Ok(Some(input.split_to(length).freeze()))
            }
            None if is_end && !input.is_empty() => Err(bad("unexpected EOF in COPY data")),
            None => Ok(None),
        }
    }

    fn reset(&mut self) {
        (self.scanned, self.fields_left) = (0, None);
    }

    /// Looks for the end of the tuple; returns its length, 0 for the mark behind the last one.
    fn scan(&mut self, input: &[u8]) -> Result<Option<usize>> {
        let mut left = match self.fields_left {
            Some(left) => left,
            None => {
                let Some(count) = input.first_chunk::<2>() else { return Ok(None) };
                let count = i16::from_be_bytes(*count);
                if count == -1 {
                    return Ok(Some(0));
                }
                self.scanned = 2;
                usize::try_from(count).map_err(|_| {
                    PgError::new(
                        code::BAD_COPY,
                        format!("row field count is {count}: expected a number from 0 on"),
                    )
                })?
            }
        };
        while left > 0 {
            self.fields_left = Some(left);
            let Some(length) = input.get(self.scanned..).and_then(<[u8]>::first_chunk::<4>) else {
                return Ok(None);
            };
            let length = match i32::from_be_bytes(*length) {
                -1 => 0,
                length => usize::try_from(length)
                    .map_err(|_| PgError::new(code::BAD_COPY, format!("invalid field size {length}")))?,
            };
            let end = self.scanned + 4 + length;
            if end > input.len() {
                return Ok(None);
            }
            self.scanned = end;
            left -= 1;
        }
        Ok(Some(self.scanned))
    }
}
