//! Columnar evaluation of a selection over many chunks.

use std::borrow::Cow;

use super::input::{SelectorInput, gather, group_ids_in, is_strictly_ascending, pick};
use super::{SelectPlan, Selector, order};
use crate::columns::batch::{Batch, EventKind, EventRow};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::vector::{self, BatchRows, FailedRows, inputs};
use crate::expr::{EvalContext, Expr, Node, OUTPUT};
use crate::select::sums::GroupIds;

/// Minimum number of rows for columnar evaluation; fewer rows cost less row at a time.
pub(crate) const COLUMNAR_ROWS_MIN: usize = 8;

/// Maximum capacity, in rows, of an output batch that is kept for reuse.
const REUSED_ROWS_MAX: usize = 64;

/// Maximum number of group ids that are kept if no state depends on them.
const GROUPS_KEPT: usize = 4096;

/// Failed chunks: index in the input, and error.
pub(crate) type FailedChunks = Vec<(u32, EvalError)>;

/// Input columns that a plan reads, by use.
#[derive(Debug, Clone, Default)]
pub(super) struct ReferencedColumns {
    pub(super) groups: Vec<usize>,
    pub(super) args: Vec<usize>,
    pub(super) items: Vec<usize>,
    having: Vec<usize>,
}

impl ReferencedColumns {
    /// Returns all of them, ascending.
    pub(super) fn all_columns(&self) -> Vec<usize> {
        let mut all = [&*self.groups, &self.args, &self.items, &self.having].concat();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl SelectPlan {
    /// Returns whether columnar evaluation gives the same results as row-at-a-time evaluation.
    pub(crate) fn is_columnar(&self) -> bool {
        let items: Vec<&Expr> = self.items.iter().map(|(_, x)| x).collect();
        let args = self.aggregates.iter().flat_map(|a| &a.args);
        let mut slots = true;
        let mut plain = true;
        for expr in items.iter().copied().chain(args).chain(&self.group_by).chain(&self.having) {
            plain &= vector::is_plain(expr);
            expr.walk(&mut |x| {
                slots &= !matches!(x.node, Node::Column { slot, .. } if slot > OUTPUT);
            });
        }
        // with aggregates or `having`, a failing expression must stop its chunk at its row, with the
        // aggregates changed only by the rows before
        let stateless = self.aggregates.is_empty() && self.having.is_none();
        slots && if stateless { !vector::order_matters(&items) } else { plain }
    }

    pub(super) fn referenced_columns(&self) -> ReferencedColumns {
        ReferencedColumns {
            groups: inputs(&self.group_by),
            args: inputs(self.aggregates.iter().flat_map(|a| &a.args)),
            items: inputs(self.items.iter().map(|(_, x)| x)),
            having: inputs(&self.having),
        }
    }
}

impl Selector {
    /// Processes many chunks and returns the output of each. Failed chunks are added to `failed` and emit
    /// nothing.
    pub(crate) fn select(
        &mut self,
        input: &SelectorInput<'_>,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        match self.columnar && input.len() >= COLUMNAR_ROWS_MIN {
            true => self.select_columnar(input, host, failed),
            false => self.chunk_by_chunk(&input.to_batch(), host, failed),
        }
    }

    /// Processes a few chunks that share a clock and returns their output. Errors: the first failure; all
    /// chunks are processed nevertheless.
    pub(crate) fn chunks<'r, C: Iterator<Item = EventRow<'r>> + Clone>(
        &mut self,
        chunks: impl Iterator<Item = C>,
        clock: i64,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        let mut out = self.empty();
        let mut done = Ok(());
        for chunk in chunks {
            done = done.and(self.chunk(chunk, clock, host, &mut out));
        }
        done.map(|()| out)
    }

    /// Returns an empty batch for the output.
    pub(crate) fn empty(&mut self) -> Batch {
        self.spare.take().unwrap_or_else(|| Batch::new(self.plan.types()))
    }

    /// Recycles the memory of an output batch after use.
    pub(crate) fn reuse(&mut self, mut out: Batch) {
        // the memory of a column that is shared cannot be reused
        let own =
            out.columns.iter().all(Column::is_unshared) && out.columns.len() == self.plan.outputs().len();
        if own && out.times.capacity() <= REUSED_ROWS_MAX {
            out.clear();
            self.spare = Some(out);
        }
    }

    fn chunk_by_chunk(&mut self, input: &Batch, host: &dyn EvalContext, failed: &mut FailedChunks) -> Batch {
        let mut out = self.empty();
        for (number, (rows, clock)) in input.chunks().enumerate() {
            if let Err(failure) = self.chunk(input.rows(rows), clock, host, &mut out) {
                failed.push((number as u32, failure));
            }
            out.input_chunks.resize(out.chunk_ends.len(), Some(number as u32));
        }
        out
    }

    pub(super) fn select_columnar(
        &mut self,
        input: &SelectorInput<'_>,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        let plan = self.plan.clone();
        let wanted = plan.output_events;
        let ids = (!plan.group_by.is_empty()).then(|| self.group_ids(input));
        let aggregates = self.aggregates(input, ids.as_deref(), host);
        let all = !input.kinds.contains(&EventKind::Reset)
            && (wanted.current || !input.kinds.contains(&EventKind::Current))
            && (wanted.expired || !input.kinds.contains(&EventKind::Expired));
        let wanted_rows =
            || (0..input.len() as u32).filter(|row| wanted.has(input.kinds[*row as usize])).collect();
        let rows: Option<Vec<u32>> = (!all).then(wanted_rows);
        let chunks = input.chunks_of(rows.as_deref());
        let ids = ids.map(|ids| match &rows {
            None => ids,
            Some(rows) => pick(&ids, rows),
        });
        self.emit(ProjectedRows { rows, chunks, ids, aggregates, items: None }, input, host, failed)
    }

    /// Applies `having`, grouping, order, offset and limit to the projected rows and returns the output.
    /// Failed chunks are added to `failed` and emit nothing.
    pub(super) fn emit(
        &mut self,
        mut made: ProjectedRows,
        input: &SelectorInput<'_>,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) -> Batch {
        let plan = self.plan.clone();
        made.aggregates.iter_mut().for_each(Column::share);
        if let Some(having) = &plan.having {
            made.compute(&self.plan, &self.referenced, input, host, failed);
            let satisfying = made.matching_rows(having, &self.referenced, input, host);
            made.retain_rows(&satisfying);
        }
        if plan.last_only() && !is_strictly_ascending(&made.chunks) {
            let last = made.last_of_chunks();
            made.retain_rows(&last);
        }
        if made.items.is_none() {
            made.compute(&self.plan, &self.referenced, input, host, failed);
        }
        if !failed.is_empty() {
            made.drop_chunks(failed);
        }
        if !plan.order_by.is_empty() || plan.offset > 0 || plan.limit.is_some() {
            let arranged = made.order_and_limit(&plan, input);
            made.retain_rows(&arranged);
        }
        self.finish(made, input)
    }

    /// Returns the group id of each event if the window that the events are about to enter stores group ids.
    pub(crate) fn groups_of(&mut self, events: &Batch) -> Option<Vec<u32>> {
        self.group_column?;
        Some(self.find_group_ids(&events.columns, &events.kinds))
    }

    /// Returns the group id of a single event as [`Self::groups_of`] does.
    pub(crate) fn group_of_row(&mut self, event: &Batch) -> Option<u32> {
        self.group_column?;
        if event.kinds[0] == EventKind::Reset {
            // a reset belongs to all groups
            return Some(0);
        }
        Some(self.find_group_id(&event.columns, 0))
    }

    pub(super) fn group_ids(&mut self, input: &SelectorInput<'_>) -> Vec<u32> {
        if let Some(column) = self.group_column {
            return group_ids_in(&input.columns(&[column], None)[column]);
        }
        let columns = input.columns(&self.referenced.groups, None);
        self.find_group_ids(&columns, &input.kinds)
    }

    pub(super) fn find_group_ids(&mut self, columns: &[Column], kinds: &[EventKind]) -> Vec<u32> {
        let key = |x: &Expr| match x.node {
            Node::Column { column, .. } => Cow::Borrowed(&columns[column]),
            _ => Cow::Owned(Column::new(x.ty)),
        };
        let keys: Vec<Cow<'_, Column>> = self.plan.group_by.iter().map(key).collect();
        let ids = self.groups.ids_of_columns(&keys, kinds);
        self.grow();
        ids
    }

    /// Returns the aggregate values after each wanted event.
    fn aggregates(
        &mut self,
        input: &SelectorInput<'_>,
        ids: Option<&[u32]>,
        host: &dyn EvalContext,
    ) -> Vec<Column> {
        if self.accumulators.is_empty() {
            return vec![];
        }
        let columns = input.columns(&self.referenced.args, None);
        // comparisons and arithmetic do not read the clock
        let lanes =
            BatchRows { slots: [&columns, &[], &[]], times: &input.times, clocks: &input.times, host };
        let ids = GroupIds::of(ids);
        let calls = self.accumulators.iter_mut().zip(&self.plan.aggregates);
        let values = calls.map(|(total, call)| {
            // plain expressions do not fail
            let args: Vec<Column> =
                call.args.iter().map(|x| vector::column(x, &lanes, &mut FailedRows::new())).collect();
            total.update_batch(call.ty, ids, &input.kinds, &args, self.plan.output_events)
        });
        values.collect()
    }

    fn finish(&mut self, made: ProjectedRows, input: &SelectorInput<'_>) -> Batch {
        let ProjectedRows { rows, chunks, ids, mut items, .. } = made;
        items.iter_mut().for_each(|items| items.truncate(self.plan.outputs().len()));
        let mut out = Batch {
            columns: items.unwrap_or_default(),
            times: rows.as_ref().map_or_else(|| input.times.to_vec(), |rows| pick(&input.times, rows)),
            kinds: rows.as_ref().map_or_else(|| input.kinds.to_vec(), |rows| pick(&input.kinds, rows)),
            ..Batch::default()
        };
        if let Some(ids) = ids.filter(|_| self.names_groups) {
            out.groups = ids.iter().map(ToString::to_string).collect();
        }
        let no_chunk_is_empty = || input.ends.first() != Some(&0) && is_strictly_ascending(&input.ends);
        if rows.is_none() && no_chunk_is_empty() {
            // all rows of the input are emitted
            out.chunk_ends = input.ends.to_vec();
            out.chunk_clocks = input.clocks.to_vec();
            out.input_chunks = (0..out.chunk_ends.len() as u32).map(Some).collect();
        } else if is_strictly_ascending(&chunks) {
            out.chunk_ends.extend(1..=chunks.len() as u32);
            out.chunk_clocks = pick(&input.clocks, &chunks);
            out.input_chunks = chunks.iter().map(|chunk| Some(*chunk)).collect();
        } else {
            for (row, chunk) in chunks.iter().enumerate() {
                if chunks.get(row + 1) != Some(chunk) {
                    out.chunk_ends.push(row as u32 + 1);
                    out.chunk_clocks.push(input.clocks[*chunk as usize]);
                    out.input_chunks.push(Some(*chunk));
                }
            }
        }
        let forgets = self.accumulators.is_empty() && !self.names_groups && self.group_column.is_none();
        if forgets && self.groups.len() > GROUPS_KEPT {
            self.groups = super::GroupValues::default();
        }
        out
    }
}

/// Partially projected output: row selection, chunk and group of each row, and the columns computed so far.
pub(super) struct ProjectedRows {
    /// Input row of each output row; `None` for all input rows in order.
    pub(super) rows: Option<Vec<u32>>,
    /// Chunk of each row.
    pub(super) chunks: Vec<u32>,
    /// Group of each row; `None` without `group by`.
    pub(super) ids: Option<Vec<u32>>,
    /// Aggregate values.
    pub(super) aggregates: Vec<Column>,
    /// Output columns, once they are computed.
    pub(super) items: Option<Vec<Column>>,
}

impl ProjectedRows {
    /// Keeps the rows at `places`, in that order.
    fn retain_rows(&mut self, places: &[u32]) {
        if places.len() == self.chunks.len() && places.iter().enumerate().all(|(i, place)| i as u32 == *place)
        {
            return;
        }
        self.rows = Some(match &self.rows {
            None => places.to_vec(),
            Some(rows) => pick(rows, places),
        });
        self.chunks = pick(&self.chunks, places);
        self.ids = self.ids.as_ref().map(|ids| pick(ids, places));
        for column in self.aggregates.iter_mut().chain(self.items.iter_mut().flatten()) {
            *column = gather(column, places);
        }
    }

    fn times_and_clocks<'i>(&self, input: &'i SelectorInput<'_>) -> (Cow<'i, [i64]>, Cow<'i, [i64]>) {
        let times = match &self.rows {
            None => Cow::Borrowed(&*input.times),
            Some(rows) => Cow::Owned(pick(&input.times, rows)),
        };
        let clocks = match self.rows.is_none() && input.is_row_per_chunk() {
            true => Cow::Borrowed(&*input.clocks),
            false => Cow::Owned(pick(&input.clocks, &self.chunks)),
        };
        (times, clocks)
    }

    fn compute(
        &mut self,
        plan: &SelectPlan,
        used: &ReferencedColumns,
        input: &SelectorInput<'_>,
        host: &dyn EvalContext,
        failed: &mut FailedChunks,
    ) {
        let columns = input.columns(&used.items, self.rows.as_deref());
        let (times, clocks) = self.times_and_clocks(input);
        let lanes =
            BatchRows { slots: [&columns, &self.aggregates, &[]], times: &times, clocks: &clocks, host };
        let mut rows = FailedRows::new();
        self.items = Some(plan.items.iter().map(|(_, x)| vector::column(x, &lanes, &mut rows)).collect());
        for (row, failure) in rows {
            let chunk = self.chunks[row as usize];
            if failed.last().is_none_or(|(last, _)| *last != chunk) {
                failed.push((chunk, failure));
            }
        }
    }

    /// Returns the indexes of the rows that satisfy `having`.
    fn matching_rows(
        &self,
        having: &Expr,
        used: &ReferencedColumns,
        input: &SelectorInput<'_>,
        host: &dyn EvalContext,
    ) -> Vec<u32> {
        let columns = input.columns(&used.having, self.rows.as_deref());
        let (times, clocks) = self.times_and_clocks(input);
        let output = self.items.as_deref().unwrap_or_default();
        let lanes =
            BatchRows { slots: [&columns, &self.aggregates, output], times: &times, clocks: &clocks, host };
        let mask = vector::mask(having, &lanes, &mut FailedRows::new());
        (0..mask.len() as u32).filter(|row| mask[*row as usize]).collect()
    }

    /// Returns the index of the last row of each chunk, or of each group of each chunk, in the order in which
    /// a chunk first contains the groups.
    fn last_of_chunks(&self) -> Vec<u32> {
        let mut last: Vec<u32> = Vec::with_capacity(self.chunks.len());
        // per group: the last chunk that contained it, and its index in `last`
        let groups = self.ids.iter().flatten().max().map_or(0, |id| *id as usize + 1);
        let mut seen: Vec<(u32, u32)> = vec![(u32::MAX, 0); groups];
        for (row, chunk) in self.chunks.iter().enumerate() {
            let before = row.checked_sub(1).is_some_and(|before| self.chunks[before] == *chunk);
            let behind = self.chunks.get(row + 1) == Some(chunk);
            match &self.ids {
                _ if !before && !behind => last.push(row as u32),
                None => match before {
                    true => *last.last_mut().expect("the chunk's first is there") = row as u32,
                    false => last.push(row as u32),
                },
                Some(ids) => {
                    let (shown, place) = &mut seen[ids[row] as usize];
                    if *shown == *chunk {
                        last[*place as usize] = row as u32;
                    } else {
                        (*shown, *place) = (*chunk, last.len() as u32);
                        last.push(row as u32);
                    }
                }
            }
        }
        last
    }

    /// Drops the rows of failed chunks.
    fn drop_chunks(&mut self, failed: &FailedChunks) {
        let good = |chunk: &u32| failed.binary_search_by_key(chunk, |(chunk, _)| *chunk).is_err();
        let places: Vec<u32> =
            (0..self.chunks.len() as u32).filter(|place| good(&self.chunks[*place as usize])).collect();
        self.retain_rows(&places);
    }

    /// Returns the indexes of the rows after order, offset and limit of each chunk.
    fn order_and_limit(&self, plan: &SelectPlan, input: &SelectorInput<'_>) -> Vec<u32> {
        let items = self.items.as_deref().unwrap_or_default();
        let kind = |place: u32| {
            let row = self.rows.as_ref().map_or(place, |rows| rows[place as usize]);
            input.kinds[row as usize]
        };
        let mut out = Vec::with_capacity(self.chunks.len());
        let places: Vec<u32> = (0..self.chunks.len() as u32).collect();
        for chunk in places.chunk_by(|a, b| self.chunks[*a as usize] == self.chunks[*b as usize]) {
            let mut chunk = chunk.to_vec();
            if !plan.order_by.is_empty() {
                // runs of current and of expired events are sorted separately
                for run in chunk.chunk_by_mut(|a, b| kind(*a) == kind(*b)) {
                    run.sort_by(|a, b| {
                        let value = |row: u32| move |column: usize| items[column].get(row as usize);
                        order(&plan.order_by, value(*a), value(*b))
                    });
                }
            }
            out.extend(chunk.into_iter().skip(plan.offset).take(plan.limit.unwrap_or(usize::MAX)));
        }
        out
    }
}
