//! Execution of a query over a batch of chunks, with the same results as chunk by chunk.

use std::borrow::Cow;

use crate::columns::batch::{Batch, EventKind, split_by_key};
use crate::eval_error::EvalError;
use crate::expr::vector::{self, BatchRows, FailedRows};
use crate::expr::{EvalContext, Expr};
use crate::join::SideSource;
use crate::output_rate::{OutputRateLimiter, OutputRatePlan};
use crate::processor::Handler;
use crate::query::{Query, QueryPlan, Scheduler};
use crate::select::{FailedChunks, InputRows, SelectorInput};
use crate::window_operator::WindowOutput;

/// Result of running a query over a batch of chunks: output, and the chunks and timers that failed.
#[derive(Default)]
pub(crate) struct BatchOutput {
    /// Output, in the order of the input chunks.
    pub(crate) out: Batch,
    /// Input chunks that failed, ascending, and their errors.
    pub(crate) failed: FailedChunks,
    /// Errors of the timers that failed.
    pub(crate) timer_failures: Vec<EvalError>,
    /// The input chunk of the rejected event that was sampled for reports, if one was.
    pub(crate) sampled_chunk: Option<u32>,
}

impl BatchOutput {
    /// Sets the output, or records the failure.
    pub(crate) fn with_result(mut self, out: Result<Batch, EvalError>) -> Self {
        match out {
            Ok(out) => self.out = out,
            Err(failure) => self.timer_failures.push(failure),
        }
        self
    }
}

impl QueryPlan {
    /// Checks that the query can run over a batch of chunks. Errors: the reason why it cannot.
    pub(crate) fn check_batchable(&self) -> Result<(), &'static str> {
        let filters = |handlers: &[Handler]| handlers.iter().all(|h| matches!(h, Handler::Filter(_)));
        let plain = |handlers: &[Handler]| {
            handlers.iter().all(|h| matches!(h, Handler::Filter(condition) if vector::is_plain(condition)))
        };
        if !filters(&self.before) || !filters(&self.after) {
            return Err("it has a stream function");
        }
        if let Some(join) = &self.join {
            let [left, right] = &join.sides;
            if left.source == right.source {
                return Err("it joins a stream with itself");
            }
            if join.on.as_ref().is_some_and(|on| !vector::is_plain(on))
                || join.sides.iter().any(|side| !plain(&side.handlers))
                || join.search.is_some()
                || join.sides.iter().any(|side| !matches!(side.source, SideSource::Stream(_)))
            {
                return Err("its join is more than a comparison of two streams");
            }
        }
        if let Some(state) = &self.state
            && state.steps.iter().any(|step| !step.filters.iter().all(vector::is_plain))
        {
            return Err("a filter of its steps calls functions");
        }
        let select = &self.select;
        let selected = select.items.iter().map(|(_, expr)| expr);
        let summed = select.aggregates.iter().flat_map(|a| &a.args);
        let mut exprs = selected.chain(summed).chain(&select.group_by).chain(&select.having);
        if (self.join.is_some() || self.state.is_some()) && !exprs.all(vector::is_plain) {
            // if one match fails, the matches of the other events must be emitted
            return Err("its selection of matches calls functions");
        }
        let timers = self.schedulers().iter().filter(|s| **s != Scheduler::Rate).count();
        if (self.join.is_some() || self.state.is_some()) && timers + usize::from(self.has_ticks()) > 0 {
            return Err("it is time-driven");
        }
        if self.is_time_driven() && self.has_ticks() {
            return Err("both its window and its output are time-driven");
        }
        Ok(())
    }

    /// Returns whether the query can emit because time advances, without an event.
    pub(crate) fn has_timers(&self) -> bool {
        self.has_ticks() || self.is_time_driven()
    }

    fn is_time_driven(&self) -> bool {
        self.window.as_ref().is_some_and(|make| make().is_time_driven())
    }

    fn has_ticks(&self) -> bool {
        self.rate.as_ref().is_some_and(OutputRatePlan::has_ticks)
    }
}

impl Query {
    /// Processes all chunks of `input`, each as [`Query::push`] would, and the timers that come due in
    /// between. `ticks` are the clock values of all chunks that were sent, ascending: at each, timers fire
    /// before the chunks.
    pub(crate) fn run(
        &mut self,
        port: usize,
        input: &Batch,
        ticks: &[i64],
        host: &dyn EvalContext,
    ) -> BatchOutput {
        let mut ran = BatchOutput::default();
        let plan = self.plan.clone();
        if plan.join.is_some() || plan.state.is_some() {
            // plain comparisons do not fail; only a row limit can
            let out = self.push(port, input, host);
            return ran.with_result(out);
        }
        self.stats.record_input(&plan, port, input);
        let cut = plan.cut_by.map(|column| split_by_key(input, column));
        let input = cut.as_deref().unwrap_or(input);
        let arrived = input;
        let input = apply_filters(&plan.before, SelectorInput::batch(input), host, &mut ran.failed);
        let passed = input.incoming.len();
        if arrived.chunk_ends.len() == arrived.len() {
            let dropped = (passed < arrived.len()).then(|| input.last_dropped_chunk(arrived.len())).flatten();
            ran.sampled_chunk = dropped.map(|chunk| chunk as u32);
            self.stats.record_passed_singly(&plan, arrived, passed, || dropped);
        } else {
            ran.sampled_chunk = (passed < arrived.len()).then(|| arrived.chunk_ends.len() as u32 - 1);
            self.stats.record_passed(&plan, arrived, passed, host);
        }
        let out = match &mut self.window {
            None => {
                let mut failed = FailedChunks::new();
                let mut out = self.selector.select(&input.incoming, host, &mut failed);
                input.map_to_input_chunks(&mut out, failed, &mut ran);
                out
            }
            Some(_) => self.run_window(&input, ticks, host, &mut ran),
        };
        ran.out = match &mut self.rate {
            None => out,
            Some(rate) if plan.has_ticks() => limit_with_ticks(rate, &out, ticks, &mut ran),
            Some(rate) => rate.push(&out),
        };
        ran.failed.sort_by_key(|(chunk, _)| *chunk);
        ran.failed.dedup_by_key(|(chunk, _)| *chunk);
        ran
    }

    /// Returns the output of the window and of the selection after it.
    fn run_window(
        &mut self,
        input: &FilteredInput<'_>,
        ticks: &[i64],
        host: &dyn EvalContext,
        ran: &mut BatchOutput,
    ) -> Batch {
        let Some(held) = &mut self.window else { return Batch::default() };
        let after = &self.plan.after;
        let arriving = input.incoming.to_batch();
        let ids = self.selector.groups_of(&arriving);
        let entered = held.append(&arriving, ids.as_deref());
        let each = after.is_empty()
            && arriving.chunk_ends.len() == arriving.len()
            && held.has_capacity_for(&entered);
        if each
            && self.selector.supports_batch_path()
            && let Some(batches) = held.process_batches(&arriving, entered.first)
        {
            let mut failed = FailedChunks::new();
            let mut out = self.selector.select_batches(
                &batches,
                &arriving.chunk_clocks,
                held.rows(),
                host,
                &mut failed,
            );
            input.map_to_input_chunks(&mut out, failed, ran);
            held.evict_unneeded();
            return out;
        }
        if each
            && self.selector.supports_sliding_path()
            && held.supports_sliding_path(entered.first)
            && let Some(slid) = held.process_sliding(&arriving, entered.first, ticks)
        {
            let mut failed = FailedChunks::new();
            let mut out = self.selector.select_sliding(&arriving, ids, &slid, held.rows(), host, &mut failed);
            input.map_to_input_chunks(&mut out, failed, ran);
            held.evict_unneeded();
            return out;
        }
        let WindowOutput { signals, clocks, origins, first, failed, timer_failures: broken } =
            held.process_all(&arriving, entered, ticks);
        ran.failed.extend(failed.into_iter().map(|(chunk, f)| (input.input_chunk(chunk), f)));
        ran.timer_failures.extend(broken);
        let incoming = SelectorInput {
            kinds: signals.items.iter().map(|s| s.kind).collect(),
            times: signals.items.iter().map(|s| s.time).collect(),
            ends: signals.ends.iter().map(|e| *e as u32).collect(),
            clocks: clocks.into(),
            rows: InputRows::Window { signals: &signals, rows: held.rows(), arrived: (&arriving, first) },
        };
        let mut failed = FailedChunks::new();
        let behind = match after.is_empty() {
            true => FilteredInput { incoming, origins: None },
            false => {
                let batch = incoming.to_batch().into_owned();
                apply_filters(after, SelectorInput::owned(batch), host, &mut failed)
            }
        };
        let mut late = FailedChunks::new();
        let mut out = self.selector.select(&behind.incoming, host, &mut late);
        for chunk in &mut out.input_chunks {
            let arrived = chunk.and_then(|chunk| origins[behind.input_chunk(chunk) as usize]);
            *chunk = arrived.map(|chunk| input.input_chunk(chunk));
        }
        failed.extend(late.into_iter().map(|(chunk, f)| (behind.input_chunk(chunk), f)));
        for (chunk, failure) in failed {
            match origins[chunk as usize] {
                Some(chunk) => ran.failed.push((input.input_chunk(chunk), failure)),
                None => ran.timer_failures.push(failure),
            }
        }
        held.evict_unneeded();
        out
    }
}

/// Input that remains after filters. `origins` maps each remaining chunk to its input chunk; `None` for all
/// chunks.
struct FilteredInput<'a> {
    incoming: SelectorInput<'a>,
    origins: Option<Vec<u32>>,
}

impl FilteredInput<'_> {
    /// Returns the last of `chunks` input chunks without a remaining row.
    fn last_dropped_chunk(&self, chunks: usize) -> Option<usize> {
        let left = self.origins.as_ref()?.iter().rev();
        let mut before = chunks;
        for origin in left {
            if *origin as usize + 1 != before {
                break;
            }
            before -= 1;
        }
        before.checked_sub(1)
    }

    /// Maps the chunks of the output and the failed chunks back to the chunks before the filters.
    fn map_to_input_chunks(&self, out: &mut Batch, failed: FailedChunks, ran: &mut BatchOutput) {
        out.input_chunks.iter_mut().flatten().for_each(|chunk| *chunk = self.input_chunk(*chunk));
        ran.failed.extend(failed.into_iter().map(|(chunk, f)| (self.input_chunk(chunk), f)));
    }

    fn input_chunk(&self, chunk: u32) -> u32 {
        self.origins.as_ref().map_or(chunk, |origins| origins[chunk as usize])
    }
}

/// Returns the events that satisfy the conditions; a reset always passes. A chunk with an event that fails is
/// dropped.
fn apply_filters<'a>(
    handlers: &[Handler],
    input: SelectorInput<'a>,
    host: &dyn EvalContext,
    failed: &mut FailedChunks,
) -> FilteredInput<'a> {
    let mut now = FilteredInput { incoming: input, origins: None };
    for handler in handlers {
        let Handler::Filter(condition) = handler else { continue };
        let (rows, chunks) = passing_rows(condition, &now, host, failed);
        if rows.len() == now.incoming.len() {
            continue;
        }
        let origins = chunks.iter().map(|chunk| now.input_chunk(*chunk)).collect();
        now = FilteredInput { incoming: now.incoming.take_rows(rows, &chunks), origins: Some(origins) };
    }
    now
}

/// Returns the rows that pass, and the chunks that contain one.
fn passing_rows(
    condition: &Expr,
    input: &FilteredInput<'_>,
    host: &dyn EvalContext,
    failed: &mut FailedChunks,
) -> (Vec<u32>, Vec<u32>) {
    let incoming = &input.incoming;
    let columns = incoming.columns(&vector::inputs([condition]), None);
    if vector::is_plain(condition) {
        // a plain condition neither fails nor reads the clock
        let times = &incoming.times;
        let lanes = BatchRows { slots: [&columns, &[], &[]], times, clocks: times, host };
        let mut mask = vector::mask(condition, &lanes, &mut FailedRows::new());
        mask.iter_mut().zip(&*incoming.kinds).for_each(|(passes, kind)| *passes |= *kind == EventKind::Reset);
        let rows = true_indices(&mask);
        let mut chunks = incoming.chunks_of(Some(&rows));
        if !incoming.is_row_per_chunk() {
            chunks.dedup();
        }
        return (rows, chunks);
    }
    let of = incoming.chunks_of(None);
    let clocks: Vec<i64> = of.iter().map(|chunk| incoming.clocks[*chunk as usize]).collect();
    let lanes = BatchRows { slots: [&columns, &[], &[]], times: &incoming.times, clocks: &clocks, host };
    let mut rows_failed = FailedRows::new();
    let mask = vector::mask(condition, &lanes, &mut rows_failed);
    let mut bad: Vec<u32> = Vec::new();
    for (row, failure) in rows_failed {
        if incoming.kinds[row as usize] == EventKind::Reset {
            // it passes regardless of the condition
            continue;
        }
        let chunk = of[row as usize];
        if bad.last() != Some(&chunk) {
            bad.push(chunk);
            failed.push((input.input_chunk(chunk), failure));
        }
    }
    let passes = |row: &usize| {
        (mask[*row] || incoming.kinds[*row] == EventKind::Reset)
            && (bad.is_empty() || bad.binary_search(&of[*row]).is_err())
    };
    let rows: Vec<u32> = (0..mask.len()).filter(passes).map(|row| row as u32).collect();
    let mut chunks: Vec<u32> = rows.iter().map(|row| of[*row as usize]).collect();
    chunks.dedup();
    (rows, chunks)
}

/// Returns the indexes of the true values.
fn true_indices(mask: &[bool]) -> Vec<u32> {
    // Without a branch, which would be unpredictable: every row is written to the next free entry, and the
    // entry is overwritten by the next row unless the row passes.
    let mut places = vec![0; mask.len() + 1];
    let mut count = 0;
    for (row, passes) in mask.iter().enumerate() {
        places[count] = row as u32;
        count += usize::from(*passes);
    }
    places.truncate(count);
    places
}

/// Passes the chunks through a rate limiter that has ticks; ticks that are due fire before a chunk. The
/// output of one input chunk either fits into the limit as a whole or fails.
fn limit_with_ticks(
    rate: &mut OutputRateLimiter,
    out: &Batch,
    ticks: &[i64],
    ran: &mut BatchOutput,
) -> Batch {
    let mut all = Batch::new(out.columns.iter().map(crate::Column::ty));
    let beats = |rate: &mut OutputRateLimiter, until: i64, all: &mut Batch| {
        while let Some(due) = rate.next_timer().filter(|due| *due <= until) {
            let now = ticks[ticks.partition_point(|tick| *tick < due)];
            match rate.fire_timer(now) {
                Some(more) => all.append(&more),
                None => break,
            }
        }
    };
    let origin = |chunk: usize| out.input_chunks.get(chunk).copied().flatten();
    let mut chunks = out.chunks().enumerate().peekable();
    while let Some((first, (rows, clock))) = chunks.next() {
        let mut together = vec![rows];
        while let Some((_, (rows, _))) =
            chunks.next_if(|(next, _)| origin(first).is_some() && origin(*next) == origin(first))
        {
            together.push(rows);
        }
        beats(rate, clock, &mut all);
        let end = together.last().map_or(0, |rows| rows.end);
        if let Err(failure) = rate.check_capacity(out, together[0].start..end) {
            match origin(first) {
                Some(chunk) => ran.failed.push((chunk, failure)),
                None => ran.timer_failures.push(failure),
            }
            continue;
        }
        for rows in together {
            all.append(&rate.push(&out.chunk(rows, clock)));
        }
    }
    if let Some(last) = ticks.last() {
        beats(rate, *last, &mut all);
    }
    all
}

impl Batch {
    /// Returns a chunk as a batch of its own.
    pub(crate) fn chunk(&self, rows: std::ops::Range<usize>, clock: i64) -> Self {
        let mut chunk = Self::new(self.columns.iter().map(crate::Column::ty));
        for (column, from) in chunk.columns.iter_mut().zip(&self.columns) {
            column.extend_range(from, rows.clone());
        }
        chunk.times.extend_from_slice(&self.times[rows.clone()]);
        chunk.kinds.extend_from_slice(&self.kinds[rows.clone()]);
        chunk.groups.extend(self.groups.get(rows).into_iter().flatten().cloned());
        chunk.end_chunk(clock);
        chunk
    }

    /// Returns the chunks after chunk `last`.
    pub(crate) fn chunks_after(&self, last: usize) -> Self {
        let mut rest = Self::new(self.columns.iter().map(crate::Column::ty));
        for (rows, clock) in self.chunks().skip(last + 1) {
            rest.append(&self.chunk(rows, clock));
        }
        rest.input_chunks = self.input_chunks.get(last + 1..).unwrap_or_default().to_vec();
        rest
    }

    /// Returns the chunk of a row.
    pub(crate) fn chunk_of(&self, row: usize) -> usize {
        self.chunk_ends.partition_point(|end| *end as usize <= row)
    }

    /// Appends all chunks of a batch with the same columns.
    pub(crate) fn append(&mut self, other: &Self) {
        let base = self.len() as u32;
        for (column, from) in self.columns.iter_mut().zip(&other.columns) {
            column.extend_range(from, 0..other.len());
        }
        self.times.extend_from_slice(&other.times);
        self.kinds.extend_from_slice(&other.kinds);
        self.groups.extend_from_slice(&other.groups);
        self.chunk_ends.extend(other.chunk_ends.iter().map(|end| end + base));
        self.chunk_clocks.extend_from_slice(&other.chunk_clocks);
    }

    /// Returns the batch without these chunks, which ascend.
    pub(crate) fn without_chunks(&self, chunks: &FailedChunks) -> Cow<'_, Self> {
        if chunks.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut rest = Self::new(self.columns.iter().map(crate::Column::ty));
        for (number, (rows, clock)) in self.chunks().enumerate() {
            if chunks.binary_search_by_key(&(number as u32), |(chunk, _)| *chunk).is_err() {
                rest.append(&self.chunk(rows, clock));
            }
        }
        Cow::Owned(rest)
    }
}
