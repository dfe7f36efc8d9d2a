//! Selection over a sliding window that evicts its oldest rows first, where only arriving events are emitted.
//!
//! Evicted rows are not materialized: the aggregates read them from the row store, in order.

use std::borrow::Cow;
use std::ops::Range;

use tidemill_types::FieldType;

use super::accumulators::GroupAccumulators;
use super::columns::ProjectedRows;
use super::sums::{AggregateUpdates, GroupIds};
use super::{FailedChunks, Selector, SelectorInput};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::expr::EvalContext;
use crate::expr::vector::{self, BatchRows, FailedRows};
use crate::store::{RowId, RowStore};
use crate::window::CompletedBatch;
use crate::window_operator::SlidingEvictions;

impl Selector {
    /// Returns whether evicted rows matter only to aggregates, and all aggregates process many events at
    /// once.
    pub(crate) fn supports_sliding_path(&self) -> bool {
        self.columnar && self.plan.output_events.current && !self.plan.output_events.expired
    }

    /// Processes events that arrived as chunks of their own while the rows `slid` were evicted, and returns
    /// the output. `ids` are the groups of the arrived events if group ids are stored with the rows. `rows`
    /// contains all rows. Failed events are added to `failed` by index.
    pub(crate) fn select_sliding(
        &mut self,
        arrived: &Batch,
        ids: Option<Vec<u32>>,
        slid: &SlidingEvictions,
        rows: &RowStore,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        let input = SelectorInput::batch(arrived);
        let ids = match self.plan.group_by.is_empty() {
            true => None,
            false => Some(ids.unwrap_or_else(|| self.group_ids(&input))),
        };
        let aggregates = match self.accumulators.is_empty() {
            true => vec![],
            false => self.update_aggregates(arrived, ids.as_deref(), slid, rows, host),
        };
        let chunks = (0..arrived.len() as u32).collect();
        let made = ProjectedRows { rows: None, chunks, ids, aggregates, items: None };
        self.emit(made, &input, host, failed)
    }

    /// Returns whether batches are evaluated column by column.
    pub(crate) fn supports_batch_path(&self) -> bool {
        self.columnar
    }

    /// Processes batches of rows, each after a reset, and returns the output. `clocks` are those of the
    /// arriving rows; `failed` identifies a failed batch by the index of the row that completed it.
    pub(crate) fn select_batches(
        &mut self,
        batches: &[CompletedBatch],
        clocks: &[i64],
        rows: &RowStore,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        let mut all = self.empty();
        // if only the last row of each group is emitted, the aggregate values before it are not needed
        let last_only =
            self.plan.last_only() && self.plan.having.is_none() && self.plan.output_events.current;
        let mut read = self.referenced.all_columns();
        read.extend(self.group_column);
        for CompletedBatch { completing_row: at, rows: of } in batches {
            self.accumulators.iter_mut().for_each(GroupAccumulators::reset);
            let clock = clocks[*at as usize];
            let mut here = FailedChunks::new();
            if last_only {
                let out = self.select_last_per_group(of.clone(), clock, rows, host, &mut here);
                all.append(&out);
                all.input_chunks.resize(all.chunk_ends.len(), Some(*at));
                failed.extend(here.into_iter().map(|(_, failure)| (*at, failure)));
                continue;
            }
            let columns = read_columns(rows, &read, of);
            let times = rows.times_of(of.clone());
            let kinds = vec![EventKind::Current; times.len()];
            let (ends, clocks) = (vec![times.len() as u32], vec![clock]);
            let batch =
                Batch { columns, times, kinds, chunk_ends: ends, chunk_clocks: clocks, ..Batch::default() };
            let out = self.select_columnar(&SelectorInput::owned(batch), host, &mut here);
            failed.extend(here.into_iter().map(|(_, failure)| (*at, failure)));
            all.append(&out);
            all.input_chunks.resize(all.chunk_ends.len(), Some(*at));
        }
        all
    }

    /// Processes one batch and emits only the last row of each group.
    fn select_last_per_group(
        &mut self,
        of: Range<RowId>,
        clock: i64,
        rows: &RowStore,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        let ids = (!self.plan.group_by.is_empty()).then(|| self.group_ids_of_rows(rows, of.clone()));
        let count = (of.end - of.start) as usize;
        let args = read_columns(rows, &self.referenced.args, &of);
        // comparisons and arithmetic do not read times
        let times = vec![0; count];
        let lanes = BatchRows { slots: [&args, &[], &[]], times: &times, clocks: &times, host };
        for (total, call) in self.accumulators.iter_mut().zip(&self.plan.aggregates) {
            // plain expressions do not fail
            let arg = call.args.first().map(|x| vector::column(x, &lanes, &mut FailedRows::new()));
            total.accumulate(GroupIds::of(ids.as_deref()), arg.as_ref(), count);
        }
        let (groups, last) = match &ids {
            Some(ids) => last_of_groups(ids),
            None => (vec![0], vec![count as u32 - 1]),
        };
        let calls = self.accumulators.iter().zip(&self.plan.aggregates);
        let aggregates = calls.map(|(total, call)| total.values(call.ty, &groups)).collect();
        let seqs = || last.iter().map(|row| of.start + RowId::from(*row));
        let mut columns = empty_columns(rows);
        for column in &self.referenced.items {
            columns[*column] = rows.gather(*column, seqs().map(Some));
        }
        let mut times = rows.time_cursor();
        let batch = Batch {
            columns,
            times: seqs().map(|seq| times.get(seq)).collect(),
            kinds: vec![EventKind::Current; last.len()],
            chunk_ends: vec![last.len() as u32],
            chunk_clocks: vec![clock],
            ..Batch::default()
        };
        let made = ProjectedRows {
            rows: None,
            chunks: vec![0; last.len()],
            ids: Some(groups),
            aggregates,
            items: None,
        };
        self.emit(made, &SelectorInput::owned(batch), host, failed)
    }

    /// Returns the aggregate values after each arrived event.
    fn update_aggregates(
        &mut self,
        arrived: &Batch,
        ids: Option<&[u32]>,
        slid: &SlidingEvictions,
        rows: &RowStore,
        host: &dyn EvalContext,
    ) -> Vec<Column> {
        let count =
            slid.counts.before.iter().chain([&slid.counts.after_last]).map(|n| u64::from(*n)).sum::<u64>();
        let left = slid.oldest..slid.oldest + count;
        // without `group by`, all rows belong to one group
        let (new_ids, old_ids) = match ids {
            Some(ids) => (Cow::Borrowed(ids), self.group_ids_of_rows(rows, left.clone())),
            None => (Cow::Owned(vec![0; arrived.len()]), vec![0; count as usize]),
        };
        let old = read_columns(rows, &self.referenced.args, &left);
        // comparisons and arithmetic do not read times
        let times = vec![0; count as usize];
        let new_lanes = BatchRows {
            slots: [&arrived.columns, &[], &[]],
            times: &arrived.times,
            clocks: &arrived.chunk_clocks,
            host,
        };
        let old_lanes = BatchRows { slots: [&old, &[], &[]], times: &times, clocks: &times, host };
        let calls = self.accumulators.iter_mut().zip(&self.plan.aggregates);
        let values = calls.map(|(total, call)| {
            // plain expressions do not fail
            let arg = |lanes| call.args.first().map(|x| vector::column(x, lanes, &mut FailedRows::new()));
            total.update_sliding(
                call.ty,
                &slid.counts,
                &AggregateUpdates { ids: &new_ids, arg: arg(&new_lanes) },
                &AggregateUpdates { ids: &old_ids, arg: arg(&old_lanes) },
            )
        });
        values.collect()
    }

    /// Returns the group ids of consecutive rows.
    fn group_ids_of_rows(&mut self, rows: &RowStore, of: Range<RowId>) -> Vec<u32> {
        if let Some(column) = self.group_column {
            return super::input::group_ids_in(&rows.range(column, of));
        }
        let columns = read_columns(rows, &self.referenced.groups, &of);
        self.find_group_ids(&columns, &vec![EventKind::Current; (of.end - of.start) as usize])
    }
}

/// Returns as many columns as the rows have, all empty.
fn empty_columns(rows: &RowStore) -> Vec<Column> {
    rows.types().iter().map(|_| Column::new(FieldType::Bool)).collect()
}

/// Returns the columns `read` of consecutive rows; the other columns are empty. The columns are shared, so
/// that one that is emitted unchanged is not copied.
fn read_columns(rows: &RowStore, read: &[usize], of: &Range<RowId>) -> Vec<Column> {
    let mut columns = empty_columns(rows);
    for column in read {
        columns[*column] = rows.range(*column, of.clone());
        columns[*column].share();
    }
    columns
}

/// Returns the groups in order of first occurrence, and the last row of each.
fn last_of_groups(ids: &[u32]) -> (Vec<u32>, Vec<u32>) {
    const NOT_YET: u32 = u32::MAX;
    let count = ids.iter().max().map_or(0, |id| *id as usize + 1);
    let mut last = vec![NOT_YET; count];
    // Without a branch, which would be unpredictable: every row's group is written to the next free entry,
    // and the entry is overwritten by the next row unless the group was new.
    let mut groups = vec![0; count + 1];
    let mut shown = 0;
    for (row, id) in ids.iter().enumerate() {
        groups[shown] = *id;
        let last = &mut last[*id as usize];
        shown += usize::from(*last == NOT_YET);
        *last = row as u32;
    }
    groups.truncate(shown);
    let rows = groups.iter().map(|group| last[*group as usize]).collect();
    (groups, rows)
}
