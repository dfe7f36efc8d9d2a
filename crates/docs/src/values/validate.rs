//! Validation: bytes from outside are walked once, completely, before they become a document.

use bytes::Bytes;

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::StoreLimits;
use crate::values::raw::{elements, le_i32, tag, value_len};

/// Checks that `bytes` is one well-formed BSON document within the default limits, and returns it.
///
/// Checked: every length and end byte, known types, UTF-8 in names and strings, booleans, array elements
/// named `0, 1, 2…`, size and depth. Errors: `InvalidBson` with the byte position, `DocumentTooLarge`,
/// `Overflow` (too deep).
pub fn validate(bytes: impl Into<Bytes>) -> Result<DocBytes> {
    let bytes = bytes.into();
    check(&bytes, &StoreLimits::default())?;
    Ok(bytes)
}

/// Checks as [`validate`] does, with the given limits.
pub fn check(bytes: &[u8], limits: &StoreLimits) -> Result<()> {
    if bytes.len() > limits.document_bytes_max {
        return Err(too_large(bytes.len(), limits.document_bytes_max));
    }
    let end = document_end(bytes, 0, bytes.len())?;
    if end != bytes.len() {
        return Err(invalid(
            end,
            "expected the end of the document",
            format!("{} more bytes", bytes.len() - end),
        ));
    }
    check_document(bytes, 0, end, false, limits.depth_max, limits.depth_max)
}

/// Returns the path of the first field that a document, or one inside of it, has twice.
///
/// ```
/// let twice = [&b"\x1a\0\0\0\x03a\0"[..], b"\x12\0\0\0\x08b\0\x01\x08c\0\x01\x08b\0\0\0", b"\0"].concat();
/// assert_eq!(tidemill_docs::repeated_field(&twice).as_deref(), Some("a.b"));
/// ```
pub fn repeated_field(doc: &[u8]) -> Option<String> {
    let mut path = Vec::new();
    has_repeated_field(doc, false, &mut path)
        .then(|| path.iter().rev().copied().collect::<Vec<_>>().join("."))
}

/// Fields of a document up to which each is compared with those before it.
const COMPARED_FIELDS_MAX: usize = 16;

/// Returns whether a field comes twice, and adds the names that lead there, the last first.
fn has_repeated_field<'d>(doc: &'d [u8], is_array: bool, path: &mut Vec<&'d str>) -> bool {
    let name_of = |name: &'d [u8]| std::str::from_utf8(name).unwrap_or_default();
    let mut few = smallvec::SmallVec::<[&[u8]; COMPARED_FIELDS_MAX]>::new();
    let mut many = hashbrown::HashSet::new();
    for element in elements(doc) {
        if is_array {
            // its elements are numbered
        } else if few.len() < COMPARED_FIELDS_MAX {
            if few.contains(&element.name) {
                path.push(name_of(element.name));
                return true;
            }
            few.push(element.name);
        } else {
            if many.is_empty() {
                many.extend(few.iter().copied());
            }
            if !many.insert(element.name) {
                path.push(name_of(element.name));
                return true;
            }
        }
        let inner = matches!(element.value.tag, tag::DOCUMENT | tag::ARRAY);
        let of_array = element.value.tag == tag::ARRAY;
        if inner && has_repeated_field(element.value.bytes, of_array, path) {
            path.push(name_of(element.name));
            return true;
        }
    }
    false
}

pub(crate) fn too_large(found: usize, max: usize) -> DocsError {
    DocsError::new(
        ErrorCode::DocumentTooLarge,
        format!(
            "document too large: {found} bytes, limit of {max} bytes (document_bytes_max); split it or store a reference"
        ),
    )
}

fn invalid(at: usize, expected: &str, found: impl std::fmt::Display) -> DocsError {
    DocsError::new(ErrorCode::InvalidBson, format!("BSON byte {at}: {expected}, found {found}"))
}

/// Returns the end of the document that starts at `at`, which must not exceed `limit`.
fn document_end(bytes: &[u8], at: usize, limit: usize) -> Result<usize> {
    let len = bytes.get(at..limit).and_then(le_i32);
    let Some(len) = len else {
        return Err(invalid(at, "expected a document length of 4 bytes", format!("{} bytes", limit - at)));
    };
    let end =
        usize::try_from(len).ok().filter(|l| *l >= 5).and_then(|l| at.checked_add(l)).filter(|e| *e <= limit);
    let Some(end) = end else {
        return Err(invalid(at, &format!("expected a document length from 5 to {}", limit - at), len));
    };
    if bytes[end - 1] != 0 {
        return Err(invalid(end - 1, "expected the end byte 0", bytes[end - 1]));
    }
    Ok(end)
}

fn check_document(
    bytes: &[u8],
    start: usize,
    end: usize,
    array: bool,
    left: usize,
    max: usize,
) -> Result<()> {
    let Some(left) = left.checked_sub(1) else {
        return Err(DocsError::new(
            ErrorCode::Overflow,
            format!("BSON byte {start}: nested deeper than {max} levels (depth_max)"),
        ));
    };
    let mut at = start + 4;
    let mut count = 0_u32;
    while at < end - 1 {
        let kind = bytes[at];
        if kind == 0 {
            return Err(invalid(at, &format!("expected the end of the document at byte {}", end - 1), 0));
        }
        let name_at = at + 1;
        let Some(name_len) = memchr::memchr(0, &bytes[name_at..end - 1]) else {
            return Err(invalid(name_at, "expected a field name that ends with 0", "none"));
        };
        let name = &bytes[name_at..name_at + name_len];
        if std::str::from_utf8(name).is_err() {
            return Err(invalid(name_at, "expected a field name in UTF-8", name.escape_ascii()));
        }
        if array && crate::values::path::array_index(name) != Some(count) {
            return Err(invalid(
                name_at,
                &format!("expected array element \"{count}\""),
                format!("{:?}", name.escape_ascii().to_string()),
            ));
        }
        count = count.saturating_add(1);
        let value_at = name_at + name_len + 1;
        // the last byte of the document is its end, not part of a value
        let rest = &bytes[value_at..end - 1];
        let Some(len) = value_len(kind, rest) else {
            return Err(match crate::values::raw::type_name(kind) {
                "unknown" => invalid(at, "expected a BSON type", format!("{kind:#04x}")),
                name => invalid(
                    value_at,
                    &format!("expected a value of type {name}"),
                    format!("{} other bytes", rest.len()),
                ),
            });
        };
        check_value(bytes, kind, value_at, len, left, max)?;
        at = value_at + len;
    }
    Ok(())
}

fn check_value(bytes: &[u8], kind: u8, at: usize, len: usize, left: usize, max: usize) -> Result<()> {
    let value = &bytes[at..at + len];
    match kind {
        tag::STRING | tag::CODE | tag::SYMBOL => check_text(value, at),
        tag::BOOL if value[0] > 1 => Err(invalid(at, "expected a boolean of 0 or 1", value[0])),
        tag::DOCUMENT | tag::ARRAY => {
            let end = document_end(bytes, at, at + len)?;
            check_document(bytes, at, end, kind == tag::ARRAY, left, max)
        }
        tag::BINARY if value[4] == 2 => {
            let inner = le_i32(&value[5..]).and_then(|n| usize::try_from(n).ok());
            if inner.is_none_or(|n| n + 9 != len) {
                return Err(invalid(
                    at + 5,
                    "expected the matching inner length of an old binary",
                    "another length",
                ));
            }
            Ok(())
        }
        tag::DB_POINTER => check_text(&value[..len - 12], at),
        tag::REGEX if std::str::from_utf8(value).is_err() => {
            Err(invalid(at, "expected a regular expression in UTF-8", value.escape_ascii()))
        }
        tag::CODE_WITH_SCOPE => check_code_with_scope(bytes, at, len, left, max),
        _ => Ok(()),
    }
}

fn check_text(value: &[u8], at: usize) -> Result<()> {
    // value_len checked that the length fits, not that it is at least the NUL
    if value.len() < 5 || value.last() != Some(&0) || le_i32(value) != i32::try_from(value.len() - 4).ok() {
        return Err(invalid(at, "expected a string with its length and a 0 at its end", "other bytes"));
    }
    match std::str::from_utf8(&value[4..value.len() - 1]) {
        Ok(_) => Ok(()),
        Err(e) => Err(invalid(at + 4 + e.valid_up_to(), "expected UTF-8", "other bytes")),
    }
}

fn check_code_with_scope(bytes: &[u8], at: usize, len: usize, left: usize, max: usize) -> Result<()> {
    let end = at + len;
    let code_len = bytes.get(at + 4..end).and_then(|rest| value_len(tag::CODE, rest));
    let Some(code_len) = code_len else {
        return Err(invalid(at, "expected code with a scope", "other bytes"));
    };
    let scope_at = at + 4 + code_len;
    check_text(&bytes[at + 4..scope_at], at + 4)?;
    let scope_end = document_end(bytes, scope_at, end)?;
    if scope_end != end {
        return Err(invalid(
            scope_end,
            "expected the end of the scope",
            format!("{} more bytes", end - scope_end),
        ));
    }
    check_document(bytes, scope_at, scope_end, false, left, max)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};

    use super::*;

    fn bytes(doc: &bson::Document) -> Vec<u8> {
        bson::serialize_to_vec(doc).unwrap()
    }

    fn sample() -> Vec<u8> {
        bytes(&doc! {
            "_id": 1, "s": "text", "a": [1, { "b": true }], "n": Bson::Null, "d": 1.5,
            "r": Bson::RegularExpression(bson::Regex { pattern: "a".try_into().unwrap(), options: "i".try_into().unwrap() }),
            "bin": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] },
            "code": Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "x".into(), scope: doc! { "y": 1 } }),
        })
    }

    #[test]
    fn whole_documents_pass_and_cut_ones_do_not() {
        let whole = sample();
        validate(whole.clone()).unwrap();
        for end in 0..whole.len() {
            let e = validate(whole[..end].to_vec()).unwrap_err();
            assert_eq!(e.code(), 22, "{e}");
        }
        let e = validate([whole.clone(), vec![0]].concat()).unwrap_err();
        assert!(e.message().contains("1 more bytes"), "{e}");
    }

    #[test]
    fn any_changed_byte_is_refused_or_harmless() {
        let whole = sample();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                if let Ok(doc) = validate(changed) {
                    // everything that passes can be decoded
                    let doc = bson::RawDocument::from_bytes(&doc).unwrap();
                    bson::Document::try_from(doc).unwrap_or_else(|e| panic!("byte {at} bit {bit}: {e}"));
                }
            }
        }
    }

    #[test]
    fn limits_and_names() {
        let mut deep = doc! { "x": 1 };
        for _ in 0..99 {
            deep = doc! { "x": deep };
        }
        validate(bytes(&deep)).unwrap();
        let e = validate(bytes(&doc! { "x": deep })).unwrap_err();
        assert!(e.message().contains("deeper than 100"), "{e}");
        let large = bytes(&doc! { "x": "y".repeat(StoreLimits::default().document_bytes_max) });
        assert!(validate(large).is_err_and(|e| e.code() == 10334));
        let mut named = bytes(&doc! { "a": [1, 2] });
        let at = named.windows(2).position(|w| w == b"1\0").unwrap();
        named[at] = b'7';
        let e = validate(named).unwrap_err();
        assert!(e.message().contains("expected array element \"1\""), "{e}");
    }
}
