//! Rows that a query holds: numbered as they arrive, forgotten from the oldest on.

use std::collections::VecDeque;

use tidemill_types::FieldType;

use crate::batch::Batch;
use crate::column::Column;
use crate::value::Value;

/// The number of a row; it never changes, and later rows have greater ones.
pub type Seq = u64;

/// Rows of one segment.
const SEGMENT_ROWS: u64 = 4096;

/// Rows in segments of typed columns.
///
/// A row costs its values and eight bytes for its time. Random access costs a shift and a mask.
#[derive(Debug, Clone)]
pub struct RowStore {
    types: Vec<FieldType>,
    segments: VecDeque<Segment>,
    /// The number of the first row of the first segment.
    base: Seq,
    next: Seq,
}

#[derive(Debug, Clone)]
struct Segment {
    columns: Vec<Column>,
    times: Vec<i64>,
}

impl RowStore {
    /// A store without rows.
    pub fn new(types: Vec<FieldType>) -> Self {
        Self { types, segments: VecDeque::new(), base: 0, next: 0 }
    }

    /// The types of its columns.
    pub fn types(&self) -> &[FieldType] {
        &self.types
    }

    /// The number that the next row will get.
    pub fn next(&self) -> Seq {
        self.next
    }

    /// Rows kept, forgotten ones that share a segment with others included.
    pub fn rows(&self) -> u64 {
        self.next - self.base
    }

    /// Adds rows `rows` of a batch with these columns; returns the number of the first.
    pub fn append(&mut self, batch: &Batch, rows: std::ops::Range<usize>) -> Seq {
        let first = self.next;
        for row in rows {
            if (self.next - self.base).is_multiple_of(SEGMENT_ROWS) {
                let columns = self.types.iter().map(|ty| Column::new(*ty)).collect();
                self.segments.push_back(Segment { columns, times: vec![] });
            }
            let segment = self.segments.back_mut().expect("made above, or not full yet");
            for (column, from) in segment.columns.iter_mut().zip(&batch.columns) {
                column.push_from(from, row);
            }
            segment.times.push(batch.times[row]);
            self.next += 1;
        }
        first
    }

    /// Forgets rows below `seq`, a segment at a time.
    pub fn forget_below(&mut self, seq: Seq) {
        while self.base + SEGMENT_ROWS <= seq.min(self.next) && !self.segments.is_empty() {
            self.segments.pop_front();
            self.base += SEGMENT_ROWS;
        }
    }

    fn at(&self, seq: Seq) -> (&Segment, usize) {
        let place = seq - self.base;
        (&self.segments[(place / SEGMENT_ROWS) as usize], (place % SEGMENT_ROWS) as usize)
    }

    /// The columns in which a row lies, and where in them.
    pub fn row(&self, seq: Seq) -> (&[Column], usize) {
        let (segment, row) = self.at(seq);
        (&segment.columns, row)
    }

    /// A row's timestamp.
    pub fn time(&self, seq: Seq) -> i64 {
        let (segment, row) = self.at(seq);
        segment.times[row]
    }

    /// A value.
    pub fn value(&self, seq: Seq, column: usize) -> Value {
        let (columns, row) = self.row(seq);
        columns[column].get(row)
    }
}
