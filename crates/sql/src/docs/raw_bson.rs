//! Zero-copy iteration over the elements of a BSON document.
//!
//! Documents were validated when they were stored. On damaged bytes the iteration ends early; it never reads
//! out of bounds.

pub(super) use tidemill_docs::element::tag;
use tidemill_docs::element::value_len;

/// A BSON value: its type byte and its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub tag: u8,
    pub bytes: &'a [u8],
}

/// Iterator over the elements of a document or array, in order: name without its NUL, and value.
pub(super) struct Elements<'a> {
    doc: &'a [u8],
    at: usize,
}

pub(super) fn elements(doc: &[u8]) -> Elements<'_> {
    Elements { doc, at: 4 }
}

impl<'a> Iterator for Elements<'a> {
    type Item = (&'a [u8], Raw<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let tag = *self.doc.get(self.at)?;
        if tag == 0 {
            return None;
        }
        let rest = self.doc.get(self.at + 1..)?;
        let name_len = memchr::memchr(0, rest)?;
        let value = &rest[name_len + 1..];
        let len = value_len(tag, value)?;
        self.at += 1 + name_len + 1 + len;
        Some((&rest[..name_len], Raw { tag, bytes: &value[..len] }))
    }
}

impl<'a> Raw<'a> {
    pub fn i32(self) -> i32 {
        self.bytes.first_chunk().map_or(0, |b| i32::from_le_bytes(*b))
    }

    pub fn i64(self) -> i64 {
        self.bytes.first_chunk().map_or(0, |b| i64::from_le_bytes(*b))
    }

    pub fn f64(self) -> f64 {
        f64::from_bits(self.i64() as u64)
    }

    pub fn bool(self) -> bool {
        self.bytes.first() == Some(&1)
    }

    /// Returns the contents of a string, without its length prefix and NUL.
    pub fn text(self) -> std::borrow::Cow<'a, str> {
        String::from_utf8_lossy(self.bytes.get(4..self.bytes.len().saturating_sub(1)).unwrap_or_default())
    }

    /// Returns the value as a decimal, or `None` if it has fewer than 16 bytes.
    pub fn decimal(self) -> Option<bson::Decimal128> {
        self.bytes.first_chunk().map(|b| bson::Decimal128::from_bytes(*b))
    }

    /// Decodes the value into a BSON tree.
    pub fn to_bson(self) -> Option<bson::Bson> {
        let mut doc = vec![0; 4];
        doc.push(self.tag);
        doc.push(0);
        doc.extend_from_slice(self.bytes);
        doc.push(0);
        let len = i32::try_from(doc.len()).ok()?;
        doc[..4].copy_from_slice(&len.to_le_bytes());
        let doc = bson::RawDocument::from_bytes(&doc).ok()?;
        bson::Bson::try_from(doc.get("").ok()??).ok()
    }
}

/// Cache of the target of each element of a document, by element position.
///
/// Documents of a collection mostly have equal fields in equal order. An element is then matched by comparing
/// its name with the name cached for its position, without hashing.
#[derive(Debug, Default)]
pub(super) struct FieldPositions {
    places: Vec<(Box<[u8]>, Option<usize>)>,
}

impl FieldPositions {
    /// Returns the target of the element `name` at position `place`; calls `find` if the cached name differs.
    #[inline]
    pub fn target(
        &mut self,
        place: usize,
        name: &[u8],
        find: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Option<usize> {
        if let Some((known, target)) = self.places.get(place)
            && **known == *name
        {
            return *target;
        }
        let target = find(name);
        if let Some(slot) = self.places.get_mut(place) {
            *slot = (name.into(), target);
        } else if place == self.places.len() && place < super::COLUMNS_MAX {
            // positions beyond the widest table are not cached
            self.places.push((name.into(), target));
        }
        target
    }
}
