//! Source files, ranges and positions in them, and identifiers.

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};

/// Maximum size of a source file, in bytes. The lexer reports a larger file; [`SourceFile::new`] accepts it.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Identifier of a file of the app: its index in the list of files that the caller maintains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

/// A byte range `start..end` of a file; both ends are on character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Span {
    /// File that contains the range.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset one past the last byte.
    pub end: u32,
}

impl Span {
    /// Creates the range `start..end` of `file`; `end` is raised to `start` if it is smaller.
    pub fn new(file: FileId, start: u32, end: u32) -> Self {
        Self { file, start, end: end.max(start) }
    }

    /// Returns the smallest range that covers `self` and `other`, which must be in the file of `self`.
    pub fn to(self, other: Span) -> Self {
        Self::new(self.file, self.start.min(other.start), self.end.max(other.end))
    }

    /// Returns the empty range at the start of `self`.
    pub fn at_start(self) -> Self {
        Self::new(self.file, self.start, self.start)
    }

    /// Returns the empty range at the end of `self`.
    pub fn at_end(self) -> Self {
        Self::new(self.file, self.end, self.end)
    }
}

/// An identifier as written in the source, without backticks.
///
/// In a tree without errors, it is empty only as a quoted field name of an object in the rule language.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ident {
    /// Name without backticks.
    pub name: String,
    /// Source range, backticks included.
    pub span: Span,
}

/// A line and a column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Line number, from 1.
    pub line: u32,
    /// Column number, from 1, in characters; a tab counts as one.
    pub column: u32,
}

/// A source file with an index of its lines.
#[derive(Debug, Clone)]
pub struct SourceFile {
    id: FileId,
    name: String,
    text: String,
    line_starts: Vec<u32>,
}

impl SourceFile {
    /// Creates a file from its source text; `name` is the file name shown in messages.
    pub fn new(id: FileId, name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        // the lexer reads nothing past the limit, so every offset fits in 32 bits
        let readable = text.len().min(FILE_BYTES_MAX);
        let newlines = text.as_bytes()[..readable].iter().enumerate().filter(|(_, b)| **b == b'\n');
        let line_starts = std::iter::once(0).chain(newlines.map(|(i, _)| i as u32 + 1)).collect();
        Self { id, name: name.into(), text, line_starts }
    }

    /// Creates a file from bytes.
    ///
    /// Errors: `Invalid` with file, line and byte offset if the bytes are not UTF-8.
    pub fn from_bytes(id: FileId, name: impl Into<String>, bytes: &[u8]) -> Result<Self> {
        let name = name.into();
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(id, name, text)),
            Err(error) => {
                let at = error.valid_up_to();
                let line = bytes[..at].iter().filter(|b| **b == b'\n').count() + 1;
                Err(Error::invalid(format!(
                    "{name}:{line}: byte {at} (0x{:02x}) is not UTF-8; save the file as UTF-8",
                    bytes[at]
                )))
            }
        }
    }

    /// Returns the file's id.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns the file name shown in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the source text of `span`, which must be a range of this file. Out-of-bounds ranges give an
    /// empty string.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Returns the line and column of the byte `offset`; an offset past the end is clamped to the end.
    pub fn position(&self, offset: u32) -> Position {
        let line = self.line_of(offset);
        let start = self.line_starts[line] as usize;
        let end = (offset as usize).clamp(start, self.text.len());
        let before = self.text.get(start..end).unwrap_or("");
        Position { line: line as u32 + 1, column: before.chars().count() as u32 + 1 }
    }

    /// Returns the line `line` (from 1, clamped to the file) without its line ending, and the offset of its
    /// first byte.
    pub fn line(&self, line: u32) -> (&str, u32) {
        let index = (line.max(1) as usize - 1).min(self.line_starts.len() - 1);
        let start = self.line_starts[index];
        let end = self.line_starts.get(index + 1).map_or(self.text.len(), |next| *next as usize);
        let text = self.text.get(start as usize..end).unwrap_or("");
        (text.trim_end_matches(['\n', '\r']), start)
    }

    fn line_of(&self, offset: u32) -> usize {
        // the first start is 0, so the partition point is at least 1
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }
}

/// The source files of an app, indexed by [`FileId`].
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Appends a file and returns its id.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let id = self.next_id();
        self.files.push(SourceFile::new(id, name, text));
        id
    }

    /// Appends a file from bytes and returns its id. Errors: `Invalid` if they are not UTF-8.
    pub fn add_bytes(&mut self, name: impl Into<String>, bytes: &[u8]) -> Result<FileId> {
        let id = self.next_id();
        self.files.push(SourceFile::from_bytes(id, name, bytes)?);
        Ok(id)
    }

    fn next_id(&self) -> FileId {
        FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX))
    }

    /// Returns the file with the id `id`.
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// Returns all files, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_in_either_way() {
        let file = SourceFile::new(FileId(0), "a", "ä\tb\r\nzwei\n");
        assert_eq!(file.position(3), Position { line: 1, column: 3 });
        assert_eq!(file.position(6), Position { line: 2, column: 1 });
        assert_eq!(file.position(999), Position { line: 3, column: 1 });
        assert_eq!(file.line(1), ("ä\tb", 0));
        assert_eq!(file.line(2), ("zwei", 6));
        assert_eq!(file.line(3), ("", 11));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_place() {
        let error = SourceFile::from_bytes(FileId(0), "a.rules", b"x\ny\xff").unwrap_err();
        assert_eq!(error.message(), "a.rules:2: byte 3 (0xff) is not UTF-8; save the file as UTF-8");
    }
}
