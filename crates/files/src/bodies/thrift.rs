//! Reader of Thrift's compact protocol, as much of it as the limits of Parquet bodies need.
//!
//! ```text
//! struct: (delta of the field's number << 4 | type) value … 0
//! ```

use tidemill_types::{Error, Result};

/// Depth of nested values up to which they are skipped.
const DEPTH_MAX: usize = 32;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
pub(super) const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;

/// Reader of bytes that are not trusted.
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Calls `each` for the fields of a struct, with number and type; it returns whether it has read the value.
    pub fn fields(&mut self, mut each: impl FnMut(&mut Self, i32, u8) -> Result<bool>) -> Result<()> {
        let mut number = 0_i32;
        loop {
            let head = self.byte()?;
            let ty = head & 0x0f;
            if head == 0 {
                return Ok(());
            }
            number = match head >> 4 {
                0 => i32::try_from(self.signed()?).map_err(|_| damaged())?,
                delta => number.checked_add(i32::from(delta)).ok_or_else(damaged)?,
            };
            if !each(self, number, ty)? {
                self.skip(ty, 0)?;
            }
        }
    }

    /// Reads the head of a list: the number and the type of its items.
    pub fn list(&mut self) -> Result<(u64, u8)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.unsigned()?,
            count => u64::from(count),
        };
        Ok((count, head & 0x0f))
    }

    /// Reads an integer of any width.
    pub fn signed(&mut self) -> Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or_else(damaged)?;
        self.at += 1;
        Ok(byte)
    }

    fn unsigned(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged())
    }

    fn skip_bytes(&mut self, count: u64) -> Result<()> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        self.at = end.filter(|end| *end <= self.bytes.len()).ok_or_else(damaged)?;
        Ok(())
    }

    fn skip(&mut self, ty: u8, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(damaged());
        }
        match ty {
            TRUE | FALSE => Ok(()),
            BYTE => self.skip_bytes(1),
            I16 | I32 | I64 => self.unsigned().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.unsigned()?;
                self.skip_bytes(length)
            }
            LIST | SET => {
                let (count, ty) = self.list()?;
                (0..count).try_for_each(|_| self.skip_item(ty, depth))
            }
            MAP => {
                let count = self.unsigned()?;
                if count == 0 {
                    return Ok(());
                }
                let types = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_item(types >> 4, depth)?;
                    self.skip_item(types & 0x0f, depth)
                })
            }
            STRUCT => self.skip_fields(depth + 1),
            _ => Err(damaged()),
        }
    }

    /// Skips an item of a list or map, where a truth value has a byte of its own.
    fn skip_item(&mut self, ty: u8, depth: usize) -> Result<()> {
        match ty {
            TRUE | FALSE => self.skip_bytes(1),
            ty => self.skip(ty, depth + 1),
        }
    }

    fn skip_fields(&mut self, depth: usize) -> Result<()> {
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            if head >> 4 == 0 {
                self.unsigned()?;
            }
            self.skip(head & 0x0f, depth)?;
        }
    }
}

fn damaged() -> Error {
    Error::invalid("its metadata is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_others_are_skipped() {
        // 1: i32 = -3, 3: list of two texts, 4: struct { 1: true, 2: double }, 6: i32 = 300
        let bytes = [
            0x15, 0x05, 0x29, 0x28, 1, b'a', 2, b'b', b'c', 0x1c, 0x11, 0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0x25, 0xd8, 0x04, 0,
        ];
        let mut reader = Reader::new(&bytes);
        let mut found = vec![];
        reader
            .fields(|reader, number, ty| {
                if ty == I32 {
                    found.push((number, reader.signed()?));
                }
                Ok(ty == I32)
            })
            .unwrap();
        assert_eq!(found, [(1, -3), (6, 300)]);
        assert_eq!(reader.position(), bytes.len());
        for end in 0..bytes.len() {
            assert!(Reader::new(&bytes[..end]).fields(|_, _, _| Ok(false)).is_err(), "{end}");
        }
    }

    #[test]
    fn long_counts_and_deep_values_are_damage() {
        // a list of 2^63 structs, and structs in structs
        let long = [0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(Reader::new(&long).fields(|_, _, _| Ok(false)).is_err());
        assert!(Reader::new(&[0x1c; 4096]).fields(|_, _, _| Ok(false)).is_err());
    }
}
