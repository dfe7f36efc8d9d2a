//! Rows of a batch as text.

use std::collections::HashSet;

use bytes::Bytes;
use tidemill_connect::RefusedRow;

use super::statements::Target;
use crate::dialect::Dialect;
use crate::rows::RowValues;
use crate::text_format::write_cell;

/// Expected size of a value with its separator.
const CELL_BYTES: usize = 16;

/// Rows in the format of [`crate::text_format`], with the columns of the key first.
pub struct EncodedRows {
    text: Bytes,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    /// Row in the batch.
    row: usize,
    start: usize,
    key_end: usize,
    end: usize,
}

impl EncodedRows {
    /// Encodes rows; adds those that the database cannot have to `refused`. With `skips_null_keys`, rows whose key
    /// has a NULL are left out.
    pub fn encode<R: RowValues + ?Sized>(
        dialect: Dialect,
        targets: &[Target],
        keys: usize,
        skips_null_keys: bool,
        rows: &R,
        picked: &[usize],
        refused: &mut Vec<RefusedRow>,
    ) -> Self {
        let mut text = String::with_capacity(picked.len() * targets.len() * CELL_BYTES);
        let mut lines = Vec::with_capacity(picked.len());
        for row in picked {
            let is_null = |target: &Target| rows.value(*row, target.source).is_absent();
            if skips_null_keys && targets[..keys].iter().any(is_null) {
                continue;
            }
            let start = text.len();
            let mut key_end = start;
            let mut problem = None;
            for (index, target) in targets.iter().enumerate() {
                if index > 0 {
                    text.push('\t');
                }
                let value = rows.value(*row, target.source);
                if let Err(reason) = write_cell(dialect, target.ty, &value, &mut text) {
                    problem = Some(format!("column `{}`: {reason}", target.name));
                    break;
                }
                if index + 1 == keys {
                    key_end = text.len();
                }
            }
            match problem {
                None => {
                    text.push('\n');
                    lines.push(Line { row: *row, start, key_end, end: text.len() });
                }
                Some(reason) => {
                    text.truncate(start);
                    refused.push(RefusedRow { row: *row, reason });
                }
            }
        }
        Self { text: Bytes::from(text), lines }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the row in the batch.
    pub fn row(&self, index: usize) -> usize {
        self.lines[index].row
    }

    /// Returns the size of a row.
    pub fn bytes_of(&self, index: usize) -> usize {
        self.lines[index].end - self.lines[index].start
    }

    /// Returns the text of a range of rows and their number.
    pub fn range(&self, from: usize, to: usize) -> (Bytes, usize) {
        (self.text.slice(self.lines[from].start..self.lines[to - 1].end), to - from)
    }

    /// Returns the last row of each key within a range, in order.
    pub fn last_of_each_key(&self, from: usize, to: usize) -> Vec<usize> {
        let mut keys = HashSet::with_capacity(to - from);
        let key = |line: &Line| &self.text[line.start..line.key_end];
        let mut last: Vec<usize> =
            (from..to).rev().filter(|index| keys.insert(key(&self.lines[*index]))).collect();
        last.reverse();
        last
    }

    /// Returns the text of some rows.
    pub fn picked(&self, which: &[usize]) -> Bytes {
        if let (Some(first), Some(last)) = (which.first(), which.last())
            && last - first + 1 == which.len()
        {
            return self.range(*first, last + 1).0;
        }
        let size = which.iter().map(|index| self.bytes_of(*index)).sum();
        let mut text = Vec::with_capacity(size);
        for index in which {
            let line = self.lines[*index];
            text.extend_from_slice(&self.text[line.start..line.end]);
        }
        text.into()
    }
}
