//! What came in and is not final, in order of time.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::column::Column;

use super::outputs::deep_copy;

/// Rows that lie together.
pub(super) const CHUNK_ROWS: usize = 1024;

/// Events, moves of the clock and changes by on-demand queries that are not final.
#[derive(Default)]
pub(super) struct InputBuffer {
    pub(super) entries: VecDeque<BufferedInput>,
    /// Whether they are in order of time.
    sorted: bool,
    /// By stream of the app its rows.
    pub(super) stores: Vec<BufferedRows>,
}

/// Something that is done to an app.
pub(super) struct BufferedInput {
    pub(super) time: i64,
    pub(super) kind: InputKind,
}

/// See [`BufferedInput`].
#[derive(Clone)]
pub(super) enum InputKind {
    /// An event: the row of its stream's store.
    Event { stream: u32, row: u64 },
    /// The clock goes there.
    Clock,
    /// An on-demand query.
    Change(Arc<str>),
}

impl InputBuffer {
    pub(super) fn new(catalog: &Catalog) -> Self {
        let store = |stream: &crate::catalog::Stream| BufferedRows {
            types: stream.attributes.iter().map(|(_, ty)| *ty).collect(),
            first_id: 0,
            next_id: 0,
            chunks: VecDeque::new(),
        };
        Self { stores: catalog.streams().iter().map(store).collect(), sorted: true, entries: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an event: a row of columns.
    pub(super) fn push_event(&mut self, stream: usize, columns: &[Column], row: usize, time: i64) {
        let number = self.stores[stream].push(columns, row);
        self.push(time, InputKind::Event { stream: stream as u32, row: number });
    }

    /// Adds a move of the clock.
    pub(super) fn push_clock(&mut self, to: i64) {
        self.push(to, InputKind::Clock);
    }

    /// Adds an on-demand query that changes something.
    pub(super) fn push_change(&mut self, time: i64, query: &str) {
        self.push(time, InputKind::Change(query.into()));
    }

    pub(super) fn push(&mut self, time: i64, what: InputKind) {
        self.sorted &= self.entries.back().is_none_or(|last| last.time <= time);
        self.entries.push_back(BufferedInput { time, kind: what });
    }

    /// Brings everything in order; what has the same time stays in order of arrival.
    pub(super) fn sort(&mut self) {
        if !self.sorted {
            self.entries.make_contiguous().sort_by_key(|entry| entry.time);
            self.sorted = true;
        }
    }

    /// How many are before an instant; they are in order.
    pub(super) fn count_before(&self, time: i64) -> usize {
        self.entries.partition_point(|entry| entry.time < time)
    }

    /// The time of the first event or move of the clock; they are in order.
    pub(super) fn first_time(&self) -> Option<i64> {
        let first = self.entries.iter().find(|entry| !matches!(entry.kind, InputKind::Change(_)));
        first.map(|entry| entry.time)
    }

    /// Lets the first ones go.
    pub(super) fn drop_front(&mut self, count: usize) {
        for entry in self.entries.drain(..count) {
            if let InputKind::Event { stream, row } = entry.kind {
                self.stores[stream as usize].release(row);
            }
        }
    }
}

/// Rows of a stream, in order of arrival.
#[derive(Default)]
pub(super) struct BufferedRows {
    pub(super) types: Vec<tidemill_types::FieldType>,
    /// The number of the first chunk's first row.
    first_id: u64,
    /// The number of the next row.
    next_id: u64,
    chunks: VecDeque<RowChunk>,
}

struct RowChunk {
    columns: Vec<Column>,
    /// Rows that were not released.
    live: usize,
}

impl BufferedRows {
    /// Adds a row; says which number it has.
    pub(super) fn push(&mut self, columns: &[Column], row: usize) -> u64 {
        if (self.next_id - self.first_id) as usize == self.chunks.len() * CHUNK_ROWS {
            let columns = self.types.iter().map(|ty| Column::new(*ty)).collect();
            self.chunks.push_back(RowChunk { columns, live: 0 });
        }
        if let Some(chunk) = self.chunks.back_mut() {
            for (column, from) in chunk.columns.iter_mut().zip(columns) {
                match from.ty() {
                    tidemill_types::FieldType::Object => column.push(deep_copy(&from.get(row))),
                    _ => column.push_from(from, row),
                }
            }
            chunk.live += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Where a row lies.
    pub(super) fn at(&self, row: u64) -> (&[Column], usize) {
        let place = (row - self.first_id) as usize;
        (&self.chunks[place / CHUNK_ROWS].columns, place % CHUNK_ROWS)
    }

    fn release(&mut self, row: u64) {
        let place = (row - self.first_id) as usize / CHUNK_ROWS;
        self.chunks[place].live -= 1;
        // the last one may still be filled
        while self.chunks.len() > 1 && self.chunks.front().is_some_and(|chunk| chunk.live == 0) {
            self.chunks.pop_front();
            self.first_id += CHUNK_ROWS as u64;
        }
    }
}
