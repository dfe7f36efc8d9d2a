//! A selection over a window that lets its oldest rows go as others arrive, where only those that arrive come out.
//!
//! Then nobody has to put together what leaves: the aggregates read it where it lies, in its order.

use std::borrow::Cow;
use std::ops::Range;

use tidemill_types::FieldType;

use super::accumulators::GroupAccumulators;
use super::columns::ProjectedRows;
use super::sums::{AggregateUpdates, GroupIds};
use super::{FailedChunks, Selector, SelectorInput};
use crate::batch::{Batch, EventKind};
use crate::column::Column;
use crate::expr::EvalContext;
use crate::expr::vector::{self, BatchRows, FailedRows};
use crate::store::{RowId, RowStore};
use crate::window::CompletedBatch;
use crate::window_operator::SlidingEvictions;

impl Selector {
    /// Whether what leaves is of interest to aggregates only, and all of them are worked off many events at once.
    pub(crate) fn supports_sliding_path(&self) -> bool {
        self.columnar && self.plan.output_events.current && !self.plan.output_events.expired
    }

    /// What comes out of events that arrived one by one, while `slid` left; `ids` are the groups of those that arrived,
    /// if they are kept with the rows. All rows are in `rows`; the places of those that fail are added to `failed`.
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

    /// Whether batches are worked off column by column.
    pub(crate) fn supports_batch_path(&self) -> bool {
        self.columnar
    }

    /// What comes out of batches of rows, each behind a reset. `clocks` are those of the rows that arrived, by whose
    /// places `failed` tells what could not be worked off.
    pub(crate) fn select_batches(
        &mut self,
        batches: &[CompletedBatch],
        clocks: &[i64],
        rows: &RowStore,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        let mut all = self.empty();
        // where only the last of each group comes out, nobody asks what the totals were before
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

    /// What comes out of one batch where that is the last row of each group.
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
        // comparisons and arithmetic do not ask for times
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

    /// The values of the aggregates behind each event that arrived.
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
        // all are of one group where there are no groups
        let (new_ids, old_ids) = match ids {
            Some(ids) => (Cow::Borrowed(ids), self.group_ids_of_rows(rows, left.clone())),
            None => (Cow::Owned(vec![0; arrived.len()]), vec![0; count as usize]),
        };
        let old = read_columns(rows, &self.referenced.args, &left);
        // comparisons and arithmetic do not ask for times
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

    /// The groups of rows that follow each other.
    fn group_ids_of_rows(&mut self, rows: &RowStore, of: Range<RowId>) -> Vec<u32> {
        if let Some(column) = self.group_column {
            return super::input::group_ids_in(&rows.range(column, of));
        }
        let columns = read_columns(rows, &self.referenced.groups, &of);
        self.find_group_ids(&columns, &vec![EventKind::Current; (of.end - of.start) as usize])
    }
}

/// As many columns as rows have, without values.
fn empty_columns(rows: &RowStore) -> Vec<Column> {
    rows.types().iter().map(|_| Column::new(FieldType::Bool)).collect()
}

/// The columns `read` of rows that follow each other; the others are empty. What goes on as it is goes on without a copy.
fn read_columns(rows: &RowStore, read: &[usize], of: &Range<RowId>) -> Vec<Column> {
    let mut columns = empty_columns(rows);
    for column in read {
        columns[*column] = rows.range(*column, of.clone());
        columns[*column].share();
    }
    columns
}

/// The groups in the order in which they first show, and the last row of each.
fn last_of_groups(ids: &[u32]) -> (Vec<u32>, Vec<u32>) {
    const NOT_YET: u32 = u32::MAX;
    let count = ids.iter().max().map_or(0, |id| *id as usize + 1);
    let mut last = vec![NOT_YET; count];
    // every row's group is written down, and the next one over it if it is known: whether it is cannot be foretold
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
