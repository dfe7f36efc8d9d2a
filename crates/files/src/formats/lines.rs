//! Lines of a text file.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use tidemill_types::{Result, RowOrigin};

use crate::compression::open_text;
use crate::error::unreadable;
use crate::options::READ_BYTES;

/// Reader of the lines of a text file.
pub struct LineReader {
    input: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
    /// Number of the next line, from 0, and its position in bytes.
    next: u64,
    offset: u64,
    bytes_max: usize,
}

/// Line of a text file.
#[derive(Debug, Clone, Copy)]
pub struct Line<'l> {
    /// Location; the row number is the number of the line, from 0.
    pub origin: RowOrigin,
    /// Content without surrounding whitespace; only the beginning of a line that is too long.
    pub bytes: &'l [u8],
    /// True if the line is longer than allowed.
    pub too_long: bool,
}

impl LineReader {
    /// Opens a file; one whose name ends in `.gz` or `.zst` is decompressed. Lines may have up to `bytes_max` bytes.
    ///
    /// Errors: `NotFound` or `Unavailable`, with the path.
    pub fn open(path: &Path, bytes_max: usize) -> Result<Self> {
        Ok(Self::new(open_text(path).map_err(|e| e.context(path.display()))?, bytes_max))
    }

    /// Creates a reader of any input.
    pub fn new(input: Box<dyn Read + Send>, bytes_max: usize) -> Self {
        let input = BufReader::with_capacity(READ_BYTES, input);
        Self { input, line: vec![], next: 0, offset: 0, bytes_max }
    }

    /// Returns the number of lines read so far.
    pub fn lines_read(&self) -> u64 {
        self.next
    }

    /// Reads the next line; `None` at the end. Lines that are too long are skipped but for their beginning.
    ///
    /// Errors: the file cannot be read, or its compressed content is damaged; with the line.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>> {
        let number = self.next;
        let named = |e| unreadable(e).context(format!("line {}", number + 1));
        self.line.clear();
        let mut limited = (&mut self.input).take(self.bytes_max as u64 + 1);
        let mut length = limited.read_until(b'\n', &mut self.line).map_err(named)?;
        if length == 0 {
            return Ok(None);
        }
        let too_long = length > self.bytes_max && self.line.last() != Some(&b'\n');
        if too_long {
            length += self.input.skip_until(b'\n').map_err(named)?;
        }
        let origin = RowOrigin { number, line: Some(number + 1), offset: Some(self.offset) };
        self.offset += length as u64;
        self.next += 1;
        Ok(Some(Line { origin, bytes: self.line.trim_ascii(), too_long }))
    }
}
