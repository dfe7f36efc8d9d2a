//! String columns: short strings are stored inline, long ones out of line.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;

/// Maximum length in bytes of an inline string.
const INLINE_BYTES: usize = 12;

/// Unused bytes up to which the out-of-line memory is not compacted.
const WASTE_BYTES_MAX: usize = 4096;

/// String column in the layout of Arrow's view arrays: 16 bytes per string. Strings of up to 12 bytes are
/// inline, longer ones are in one buffer, which is compacted when more than `WASTE_BYTES_MAX` bytes and half
/// of it are unused.
///
/// Copying, comparing and hashing short strings are operations on integers.
#[derive(Debug, Clone, Default)]
pub struct StringColumn {
    views: Vec<StringView>,
    /// The out-of-line strings.
    text: String,
    /// Number of bytes of `text` that no string uses.
    waste: usize,
}

/// A string: its length and content, or its length, its first four bytes and its offset in the out-of-line
/// buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct StringView {
    len: u32,
    rest: [u8; INLINE_BYTES],
}

impl StringView {
    fn inline(text: &[u8]) -> Self {
        let mut rest = [0; INLINE_BYTES];
        rest[..text.len()].copy_from_slice(text);
        Self { len: text.len() as u32, rest }
    }

    fn out_of_line(text: &[u8], start: u32) -> Self {
        let mut rest = [0; INLINE_BYTES];
        rest[..4].copy_from_slice(&text[..4]);
        rest[8..].copy_from_slice(&start.to_le_bytes());
        Self { len: text.len() as u32, rest }
    }

    #[inline]
    fn is_inline(self) -> bool {
        self.len as usize <= INLINE_BYTES
    }

    /// Returns a string of at most seven bytes as a number that represents it exactly.
    #[inline]
    fn tiny_key(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.rest;
        // the eighth byte is zero
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) | u64::from(self.len) << 56
    }

    fn start(self) -> usize {
        let [.., a, b, c, d] = self.rest;
        u32::from_le_bytes([a, b, c, d]) as usize
    }

    #[inline]
    fn range(self) -> Range<usize> {
        self.start()..self.start() + self.len as usize
    }

    /// Returns a short string as a number that represents it exactly; for a long one, its view.
    #[inline]
    fn inline_key(self) -> u128 {
        let mut bytes = [0; 16];
        bytes[..INLINE_BYTES].copy_from_slice(&self.rest);
        bytes[INLINE_BYTES..].copy_from_slice(&self.len.to_le_bytes());
        u128::from_le_bytes(bytes)
    }
}

/// Returns a string as [`StringColumn::tiny_key`] does.
#[inline]
pub(crate) fn tiny_key_of(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let word = |at: usize| Some(u64::from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
    let (len, byte) = (bytes.len(), |at: usize| u64::from(bytes[at]) << (8 * at));
    let low = match len {
        0 => 0,
        // the middle byte may also be the first or the last one
        1..=3 => byte(0) | byte(len / 2) | byte(len - 1),
        // the words overlap
        4..=7 => word(0)? | word(len - 4)? << (8 * (len - 4)),
        _ => return None,
    };
    Some(low | (len as u64) << 56)
}

/// Returns a string as [`StringColumn::inline_key`] does.
#[inline]
pub(crate) fn inline_key_of(text: &str) -> Option<u128> {
    (text.len() <= INLINE_BYTES).then(|| StringView::inline(text.as_bytes()).inline_key())
}

/// Returns the hash of a string as [`StringColumn::hash`] does.
#[inline]
pub(crate) fn hash_of(text: &str, hasher: &impl BuildHasher) -> u64 {
    let mut state = hasher.build_hasher();
    match inline_key_of(text) {
        Some(key) => state.write_u128(key),
        None => text.hash(&mut state),
    }
    state.finish()
}

impl StringColumn {
    /// Creates an empty column with capacity for this many strings and bytes of long strings.
    pub fn with_capacity(texts: usize, bytes: usize) -> Self {
        Self { views: Vec::with_capacity(texts), text: String::with_capacity(bytes), waste: 0 }
    }

    /// Returns the approximate size of the strings in bytes: that of the long ones.
    pub fn bytes(&self) -> usize {
        self.text.len() - self.waste
    }

    /// Creates a column of the strings in `text` that end at `ends`. `ends` ascends, is at character
    /// boundaries and within `text`.
    pub fn of(text: String, ends: &[u32]) -> Self {
        debug_assert!(ends.is_sorted() && ends.iter().all(|end| text.is_char_boundary(*end as usize)));
        let mut start = 0;
        let mut short = 0;
        let view = |end: &u32| {
            let of = &text.as_bytes()[start as usize..*end as usize];
            let view = match of.len() <= INLINE_BYTES {
                true => StringView::inline(of),
                false => StringView::out_of_line(of, start),
            };
            short += if view.is_inline() { of.len() } else { 0 };
            start = *end;
            view
        };
        let views: Vec<StringView> = ends.iter().map(view).collect();
        let waste = text.len() - start as usize + short;
        let mut texts = Self { views, text, waste };
        texts.compact_if_wasteful();
        texts
    }

    /// Returns the strings, concatenated, and the end offset of each. The total is limited to 4 GiB; strings
    /// beyond it are empty.
    pub fn into_parts(self) -> (String, Vec<u32>) {
        let bytes: usize = self.views.iter().map(|view| view.len as usize).sum();
        let in_a_row = || {
            let mut end = 0;
            let next = |view: &StringView| {
                let fits = !view.is_inline() && view.start() == end;
                end += view.len as usize;
                fits
            };
            self.views.iter().all(next)
        };
        if bytes == self.text.len() && in_a_row() {
            let mut end = 0;
            let ends = self.views.iter().map(|view| {
                end += view.len;
                end
            });
            let ends = ends.collect();
            return (self.text, ends);
        }
        let mut text = String::with_capacity(bytes);
        let mut ends = Vec::with_capacity(self.len());
        for i in 0..self.len() {
            let of = self.get(i);
            if text.len() + of.len() <= u32::MAX as usize {
                text.push_str(of);
            }
            ends.push(text.len() as u32);
        }
        (text, ends)
    }

    /// Returns the number of strings.
    #[inline]
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Returns whether the column has no strings.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Returns string `i`.
    #[inline]
    pub fn get(&self, i: usize) -> &str {
        let view = &self.views[i];
        match view.rest.get(..view.len as usize) {
            // SAFETY: inline views are made of complete strings only, see `view_of` and `of`
            Some(short) => unsafe { std::str::from_utf8_unchecked(short) },
            None => &self.text[view.range()],
        }
    }

    /// Returns whether string `i` equals string `j` of another column.
    #[inline]
    pub fn is_equal(&self, i: usize, other: &Self, j: usize) -> bool {
        let (a, b) = (self.views[i], other.views[j]);
        match a.is_inline() {
            true => a == b,
            false => a.len == b.len && self.get(i) == other.get(j),
        }
    }

    /// Returns the hash of string `i`; equal strings of any column have equal hashes.
    #[inline]
    pub fn hash(&self, i: usize, hasher: &impl BuildHasher) -> u64 {
        let view = self.views[i];
        let mut state = hasher.build_hasher();
        match view.is_inline() {
            true => state.write_u128(view.inline_key()),
            false => self.get(i).hash(&mut state),
        }
        state.finish()
    }

    /// Returns string `i` as a number that represents it exactly; `None` if it is not inline.
    #[inline]
    pub(crate) fn inline_key(&self, i: usize) -> Option<u128> {
        let view = self.views[i];
        view.is_inline().then(|| view.inline_key())
    }

    /// Returns string `i` as a number that represents it exactly; `None` if it has more than seven bytes.
    #[inline]
    pub(crate) fn tiny_key(&self, i: usize) -> Option<u64> {
        let view = self.views[i];
        (view.len < 8).then(|| view.tiny_key())
    }

    /// Returns [`Self::tiny_key`] of all strings; `None` if one of them has more than seven bytes.
    pub(crate) fn all_tiny_keys(&self) -> Option<Vec<u64>> {
        let lengths = self.views.iter().fold(0, |all, view| all | view.len);
        (lengths < 8).then(|| self.views.iter().map(|view| view.tiny_key()).collect())
    }

    /// Appends a string. The long strings are limited to 4 GiB in total; what exceeds that is cut off at a
    /// character boundary.
    #[inline]
    pub fn push(&mut self, text: &str) {
        let view = self.view_of(text);
        self.views.push(view);
    }

    /// Reserves capacity for `more` strings.
    pub fn reserve(&mut self, more: usize) {
        self.views.reserve(more);
    }

    #[inline]
    fn view_of(&mut self, text: &str) -> StringView {
        match text.len() <= INLINE_BYTES {
            true => StringView::inline(text.as_bytes()),
            false => self.push_out_of_line(text),
        }
    }

    fn push_out_of_line(&mut self, text: &str) -> StringView {
        let mut room = u32::MAX as usize - self.text.len();
        if text.len() > room && self.waste > 0 {
            self.compact();
            room = u32::MAX as usize - self.text.len();
        }
        let text = if text.len() <= room { text } else { &text[..text.floor_char_boundary(room)] };
        if text.len() <= INLINE_BYTES {
            return StringView::inline(text.as_bytes());
        }
        let start = self.text.len() as u32;
        self.text.push_str(text);
        StringView::out_of_line(text.as_bytes(), start)
    }

    /// Returns a copy of the first `len` strings with the capacity of all.
    pub fn first(&self, len: usize) -> Self {
        let mut copy = Self { text: String::with_capacity(self.text.len()), ..Self::default() };
        copy.reserve(self.len());
        copy.extend_range(self, 0..len);
        copy
    }

    /// Replaces string `i`.
    pub(crate) fn set(&mut self, i: usize, text: &str) {
        let before = self.views[i];
        if !before.is_inline() {
            if before.len as usize == text.len() {
                self.text.replace_range(before.range(), text);
                self.views[i] = StringView::out_of_line(text.as_bytes(), before.start() as u32);
                return;
            }
            self.waste += before.len as usize;
            self.views[i] = StringView::inline(b"");
        }
        self.views[i] = self.view_of(text);
        self.compact_if_wasteful();
    }

    /// Appends strings `rows` of another column.
    pub(crate) fn extend_range(&mut self, other: &Self, rows: Range<usize>) {
        if other.text.is_empty() {
            return self.views.extend_from_slice(&other.views[rows]);
        }
        self.reserve(rows.len());
        rows.for_each(|i| self.push_from(other, i));
    }

    /// Appends the strings of another column at `rows`.
    pub(crate) fn gather(&mut self, other: &Self, rows: &[u32]) {
        if other.text.is_empty() {
            return self.views.extend(rows.iter().map(|i| other.views[*i as usize]));
        }
        self.reserve(rows.len());
        rows.iter().for_each(|i| self.push_from(other, *i as usize));
    }

    /// Returns whether all strings are inline.
    pub(crate) fn are_inline(&self) -> bool {
        self.text.is_empty()
    }

    /// Creates a column of strings of columns whose strings [are inline](Self::are_inline); an empty string
    /// for `None`.
    pub(crate) fn from_inline<'a>(texts: impl Iterator<Item = Option<(&'a Self, usize)>>) -> Self {
        let view = |at: Option<(&Self, usize)>| at.map_or(StringView::inline(b""), |(of, i)| of.views[i]);
        Self { views: texts.map(view).collect(), text: String::new(), waste: 0 }
    }

    /// Appends string `i` of another column.
    #[inline]
    pub(crate) fn push_from(&mut self, other: &Self, i: usize) {
        let view = other.views[i];
        match view.is_inline() {
            true => self.views.push(view),
            false => self.push(other.get(i)),
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        if len == 0 {
            self.views.clear();
            self.text.clear();
            self.waste = 0;
        } else if len < self.len() {
            let gone = self.views[len..].iter().filter(|view| !view.is_inline());
            self.waste += gone.map(|view| view.len as usize).sum::<usize>();
            self.views.truncate(len);
            self.compact_if_wasteful();
        }
    }

    /// Compacts the out-of-line buffer if most of it is unused.
    fn compact_if_wasteful(&mut self) {
        let all = self.waste == self.text.len();
        if self.waste > 0 && (all || self.waste > WASTE_BYTES_MAX && self.waste > self.text.len() / 2) {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.text = String::with_capacity(text.len() - self.waste);
        self.waste = 0;
        for view in self.views.iter_mut().filter(|view| !view.is_inline()) {
            let of = &text[view.range()];
            *view = StringView::out_of_line(of.as_bytes(), self.text.len() as u32);
            self.text.push_str(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "longer than twelve bytes";

    fn all(texts: &StringColumn) -> Vec<&str> {
        (0..texts.len()).map(|i| texts.get(i)).collect()
    }

    #[test]
    fn short_and_long_texts_come_back() {
        let texts = ["", "a", "twelve bytes", "thirteen byte", LONG, "äöü", "ends"];
        let mut strings = StringColumn::default();
        texts.iter().for_each(|text| strings.push(text));
        assert_eq!(all(&strings), texts);
        let (text, ends) = strings.clone().into_parts();
        assert_eq!(text, texts.concat());
        assert_eq!(all(&StringColumn::of(text, &ends)), texts);
        let mut more = StringColumn::default();
        more.gather(&strings, &[4, 0, 2]);
        more.extend_range(&strings, 3..5);
        assert_eq!(all(&more), [LONG, "", "twelve bytes", "thirteen byte", LONG]);
        assert!(more.is_equal(0, &more, 4) && !more.is_equal(0, &more, 3));
    }

    #[test]
    fn keys_of_strings_are_those_of_columns() {
        let hasher = hashbrown::DefaultHashBuilder::default();
        for text in ["", "a", "ab", "äb", "abcd", "abcde", "S000001", "eightlen", "twelve bytes", LONG] {
            let mut strings = StringColumn::default();
            strings.push(text);
            assert_eq!(tiny_key_of(text), strings.tiny_key(0), "{text}");
            assert_eq!(inline_key_of(text), strings.inline_key(0), "{text}");
            assert_eq!(hash_of(text, &hasher), strings.hash(0, &hasher), "{text}");
        }
    }

    #[test]
    fn replaced_texts_leave_nothing_behind() {
        let mut texts = StringColumn::default();
        texts.push("short");
        texts.push(LONG);
        for round in 0..10_000 {
            texts.set(round % 2, &LONG.repeat(1 + round % 5));
            assert!(texts.text.len() < 64 << 10, "{}", texts.text.len());
        }
        texts.set(0, "now short");
        texts.set(1, &LONG.to_uppercase());
        assert_eq!(all(&texts), ["now short", &LONG.to_uppercase()]);
        texts.truncate(1);
        assert_eq!((all(&texts), texts.text.len()), (vec!["now short"], 0));
    }

    #[test]
    fn long_texts_in_a_row_go_on_where_they_lie() {
        let text = LONG.repeat(3);
        let (at, ends) = (text.as_ptr(), [24, 48, 72]);
        let (text, found) = StringColumn::of(text, &ends).into_parts();
        assert_eq!((text.as_ptr(), found), (at, ends.to_vec()));
    }
}
