//! Input that is not final, in time order.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::columns::column::Column;

use super::outputs::deep_copy;

/// Number of rows of a chunk.
pub(super) const CHUNK_ROWS: usize = 1024;

/// Events, clock advances and changing on-demand queries that are not final.
#[derive(Default)]
pub(super) struct InputBuffer {
    pub(super) entries: VecDeque<BufferedInput>,
    /// True if `entries` is in time order.
    sorted: bool,
    /// Buffered rows by stream index.
    pub(super) stores: Vec<BufferedRows>,
}

/// One input of an app.
pub(super) struct BufferedInput {
    pub(super) time: i64,
    pub(super) kind: InputKind,
}

/// Kind of a [`BufferedInput`].
#[derive(Clone)]
pub(super) enum InputKind {
    /// An event: the id of its row in the buffer of its stream.
    Event { stream: u32, row: u64 },
    /// A clock advance.
    Clock,
    /// An on-demand query that changes a table.
    Change(Arc<str>),
}

impl InputBuffer {
    pub(super) fn new(catalog: &Catalog) -> Self {
        let store = |stream: &crate::catalog::CatalogStream| BufferedRows {
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

    /// Appends an event, row `row` of `columns`.
    pub(super) fn push_event(&mut self, stream: usize, columns: &[Column], row: usize, time: i64) {
        let number = self.stores[stream].push(columns, row);
        self.push(time, InputKind::Event { stream: stream as u32, row: number });
    }

    /// Appends a clock advance.
    pub(super) fn push_clock(&mut self, to: i64) {
        self.push(to, InputKind::Clock);
    }

    /// Appends an on-demand query that changes a table.
    pub(super) fn push_change(&mut self, time: i64, query: &str) {
        self.push(time, InputKind::Change(query.into()));
    }

    pub(super) fn push(&mut self, time: i64, what: InputKind) {
        self.sorted &= self.entries.back().is_none_or(|last| last.time <= time);
        self.entries.push_back(BufferedInput { time, kind: what });
    }

    /// Sorts the entries by time; entries of one time stay in order of arrival.
    pub(super) fn sort(&mut self) {
        if !self.sorted {
            self.entries.make_contiguous().sort_by_key(|entry| entry.time);
            self.sorted = true;
        }
    }

    /// Returns the number of entries before `time`. The entries must be sorted.
    pub(super) fn count_before(&self, time: i64) -> usize {
        self.entries.partition_point(|entry| entry.time < time)
    }

    /// Returns the time of the first event or clock advance. The entries must be sorted.
    pub(super) fn first_time(&self) -> Option<i64> {
        let first = self.entries.iter().find(|entry| !matches!(entry.kind, InputKind::Change(_)));
        first.map(|entry| entry.time)
    }

    /// Drops the first `count` entries.
    pub(super) fn drop_front(&mut self, count: usize) {
        for entry in self.entries.drain(..count) {
            if let InputKind::Event { stream, row } = entry.kind {
                self.stores[stream as usize].release(row);
            }
        }
    }
}

/// Buffered rows of a stream, in order of arrival.
#[derive(Default)]
pub(super) struct BufferedRows {
    pub(super) types: Vec<tidemill_types::FieldType>,
    /// Id of the first row of the first chunk.
    first_id: u64,
    /// Id of the next row.
    next_id: u64,
    chunks: VecDeque<RowChunk>,
}

struct RowChunk {
    columns: Vec<Column>,
    /// Number of rows that were not released.
    live: usize,
}

impl BufferedRows {
    /// Appends a row. Returns its id.
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

    /// Returns the location of a row: the columns of its chunk and its index there.
    pub(super) fn at(&self, row: u64) -> (&[Column], usize) {
        let place = (row - self.first_id) as usize;
        (&self.chunks[place / CHUNK_ROWS].columns, place % CHUNK_ROWS)
    }

    fn release(&mut self, row: u64) {
        let place = (row - self.first_id) as usize / CHUNK_ROWS;
        self.chunks[place].live -= 1;
        // the last chunk may still be filled
        while self.chunks.len() > 1 && self.chunks.front().is_some_and(|chunk| chunk.live == 0) {
            self.chunks.pop_front();
            self.first_id += CHUNK_ROWS as u64;
        }
    }
}
