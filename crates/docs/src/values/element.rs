//! The elements of a BSON document: their types, and the length of their values.
//!
//! Source: the BSON specification, version 1.1.

/// BSON type bytes.
pub mod tag {
    /// Double.
    pub const DOUBLE: u8 = 0x01;
    /// String.
    pub const STRING: u8 = 0x02;
    /// Document.
    pub const DOCUMENT: u8 = 0x03;
    /// Array.
    pub const ARRAY: u8 = 0x04;
    /// Binary data.
    pub const BINARY: u8 = 0x05;
    /// Undefined (deprecated).
    pub const UNDEFINED: u8 = 0x06;
    /// ObjectId.
    pub const OBJECT_ID: u8 = 0x07;
    /// Bool.
    pub const BOOL: u8 = 0x08;
    /// Date, milliseconds.
    pub const DATE: u8 = 0x09;
    /// Null.
    pub const NULL: u8 = 0x0A;
    /// Regular expression.
    pub const REGEX: u8 = 0x0B;
    /// DBPointer (deprecated).
    pub const DB_POINTER: u8 = 0x0C;
    /// JavaScript code.
    pub const CODE: u8 = 0x0D;
    /// Symbol (deprecated).
    pub const SYMBOL: u8 = 0x0E;
    /// JavaScript code with scope (deprecated).
    pub const CODE_WITH_SCOPE: u8 = 0x0F;
    /// 32-bit integer.
    pub const INT32: u8 = 0x10;
    /// MongoDB's internal timestamp.
    pub const TIMESTAMP: u8 = 0x11;
    /// 64-bit integer.
    pub const INT64: u8 = 0x12;
    /// 128-bit decimal.
    pub const DECIMAL: u8 = 0x13;
    /// Compares less than all other values.
    pub const MIN_KEY: u8 = 0xFF;
    /// Compares greater than all other values.
    pub const MAX_KEY: u8 = 0x7F;
}

/// Returns the length of a value of type `tag` at the start of `rest`; `None` when it does not fit or the
/// type is unknown.
pub fn value_len(tag: u8, rest: &[u8]) -> Option<usize> {
    let prefixed = |extra: usize| {
        let len = i32::from_le_bytes(*rest.first_chunk()?);
        usize::try_from(len).ok()?.checked_add(extra)
    };
    let len = match tag {
        tag::DOUBLE | tag::DATE | tag::TIMESTAMP | tag::INT64 => 8,
        tag::INT32 => 4,
        tag::BOOL => 1,
        tag::NULL | tag::UNDEFINED | tag::MIN_KEY | tag::MAX_KEY => 0,
        tag::OBJECT_ID => 12,
        tag::DECIMAL => 16,
        tag::STRING | tag::CODE | tag::SYMBOL => prefixed(4)?,
        tag::DOCUMENT | tag::ARRAY | tag::CODE_WITH_SCOPE => prefixed(0)?,
        tag::BINARY => prefixed(5)?,
        tag::DB_POINTER => prefixed(16)?,
        tag::REGEX => {
            let pattern = memchr::memchr(0, rest)? + 1;
            pattern + memchr::memchr(0, &rest[pattern..])? + 1
        }
        _ => return None,
    };
    (len <= rest.len()).then_some(len)
}
