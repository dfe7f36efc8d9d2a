//! Batches in a partition: the events of each key pass the key's queries together, and the output of all keys is
//! merged into the order of the input.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::instances::start_query;
use super::plan::{KeyPart, PartitionPlan, StreamKeys};
use super::saving::instance_mut;
use super::{KeyId, PartitionRuntime};
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::explain::EventSamples;
use crate::expr::vector::is_plain;
use crate::expr::{EvalContext, Frame};
use crate::processor::Handler;
use crate::query::{BatchOutput, QueryPlan, Target};
use crate::select::FailedChunks;

/// Consecutive events of one key within a chunk.
pub(crate) struct ChunkRun {
    /// The key.
    pub key: KeyId,
    /// Index of the chunk.
    pub chunk: u32,
    /// Rows of the events, ascending.
    rows: SmallVec<[u32; 2]>,
}

/// The events of a batch, by key.
#[derive(Default)]
pub(crate) struct ChunkRuns {
    /// The runs in order of arrival.
    pub runs: Vec<ChunkRun>,
    /// The chunks with an event for which no key could be created, ascending.
    pub failed: FailedChunks,
}

impl ChunkRuns {
    /// Returns true if no chunk has events of several keys.
    pub fn is_one_key_per_chunk(&self) -> bool {
        self.runs.windows(2).all(|pair| pair[0].chunk < pair[1].chunk)
    }
}

impl PartitionPlan {
    /// Returns why batches are processed row at a time; `None` if they are not.
    ///
    /// Events can be grouped by key if no key acts without an event of its own, if an event goes to at most
    /// one key, and if what fails can be traced back to its event.
    pub(crate) fn row_at_a_time_reason(&self) -> Option<&'static str> {
        let one_key = |read: usize| {
            let keys = self.keys.iter().find(|keys| keys.stream == read);
            keys.is_some_and(
                |StreamKeys { parts, .. }| matches!(parts.as_slice(), [KeyPart::Value(key)] if is_plain(key)),
            )
        };
        if !self.reads().all(one_key) {
            return Some("a partition reads a stream without a key, or one with several");
        }
        if !self.schedulers().is_empty() {
            return Some("a query in a partition waits for the clock");
        }
        self.queries.iter().find_map(|query| query.check_batchable_by_key().err())
    }
}

impl QueryPlan {
    fn check_batchable_by_key(&self) -> Result<(), &'static str> {
        self.check_batchable()?;
        if self.state.is_some() || self.join.is_some() {
            return Err("a partition has a pattern or a join");
        }
        if self.rate.is_some() {
            return Err("a query in a partition has an output rate");
        }
        if !matches!(self.target, Target::Stream(_) | Target::Table(..)) {
            return Err("a query in a partition writes an inner stream or a window");
        }
        let filters = self.before.iter().chain(&self.after);
        let mut conditions = filters.filter_map(|handler| match handler {
            Handler::Filter(condition) => Some(condition),
            Handler::Function(..) | Handler::Stateful(_) => None,
        });
        if !conditions.all(is_plain) {
            return Err("a filter in a partition calls functions");
        }
        Ok(())
    }
}

impl PartitionRuntime {
    /// Finds the keys of a batch whose plan has no [`PartitionPlan::row_at_a_time_reason`], and creates the new
    /// ones. Events with a null key belong to no run.
    pub(crate) fn chunk_runs(&mut self, stream: usize, events: &Batch, host: &dyn EvalContext) -> ChunkRuns {
        let plan = self.plan.clone();
        let mut found = ChunkRuns::default();
        let Some(StreamKeys { parts, .. }) = plan.keys.iter().find(|keys| keys.stream == stream) else {
            return found;
        };
        let (mut text, mut last) = (String::new(), String::new());
        for (chunk, (rows, now)) in events.chunks().enumerate() {
            let chunk = chunk as u32;
            for row in rows {
                let slots = [Some((events.columns.as_slice(), row))];
                let frame = Frame { rows: &slots, time: events.times[row], now, host };
                text.clear();
                let key = match parts.first().map(|part| part.write_key(&frame, &mut text)) {
                    None | Some(Ok(false)) => continue,
                    Some(Ok(true)) => match found.runs.last_mut() {
                        Some(run) if run.chunk == chunk && last == text => {
                            run.rows.push(row as u32);
                            continue;
                        }
                        _ => self.key_for_event(&text, now),
                    },
                    Some(Err(failure)) => Err(failure),
                };
                match key {
                    Ok(key) => {
                        std::mem::swap(&mut last, &mut text);
                        found.runs.push(ChunkRun { key, chunk, rows: SmallVec::from_elem(row as u32, 1) });
                    }
                    Err(failure) => {
                        found.failed.push((chunk, failure));
                        break;
                    }
                }
            }
        }
        found
    }

    /// Sends runs of events to a query of their keys, each run as a chunk of its own. Returns the output in the
    /// order of the runs, with `input_chunks` and the failed chunks as indexes of the chunks of `events`.
    pub(crate) fn run_batch(
        &mut self,
        query: usize,
        port: usize,
        events: &Batch,
        runs: &[ChunkRun],
        host: &dyn EvalContext,
    ) -> BatchOutput {
        let mut by_key: Vec<(u32, u32)> =
            runs.iter().enumerate().map(|(number, run)| (run.key.0, number as u32)).collect();
        by_key.sort_unstable();
        let mut done = BatchOutput::default();
        let mut outputs = Vec::new();
        // for each chunk of the output the run that caused it, the index in `outputs`, and its rows
        let mut order: Vec<(u32, u32, std::ops::Range<usize>, i64)> = Vec::new();
        // of the rejected events of all keys the last one is remembered
        let (mut last, mut spare) = ((None, self.samples[query].take()), None);
        for group in by_key.chunk_by(|a, b| a.0 == b.0) {
            let input = input_of(events, runs, group);
            let out = self.run_key(KeyId(group[0].0), query, port, &input, &mut spare, host);
            let run_of = |chunk: u32| group[chunk as usize].1;
            let sampled = out.sampled_chunk.map(run_of);
            if sampled.is_some() && sampled >= last.0 {
                last.0 = sampled;
                std::mem::swap(&mut last.1, &mut spare);
            }
            let failed = out.failed.into_iter().map(|(chunk, f)| (runs[run_of(chunk) as usize].chunk, f));
            done.failed.extend(failed);
            done.timer_failures.extend(out.timer_failures);
            let number = outputs.len() as u32;
            for (origin, (rows, clock)) in out.out.input_chunks.iter().zip(out.out.chunks()) {
                // no query has timers here, so that every chunk of the output was caused by events
                if let Some(chunk) = origin {
                    order.push((run_of(*chunk), number, rows, clock));
                }
            }
            outputs.push(out.out);
        }
        self.samples[query] = last.1;
        done.failed.sort_by_key(|(chunk, _)| *chunk);
        // stable: chunks of one run keep their order
        order.sort_by_key(|(run, ..)| *run);
        let mut merged = Batch::new(self.plan.queries[query].select.types());
        for (run, number, rows, clock) in order {
            let from = &outputs[number as usize];
            for (column, from) in merged.columns.iter_mut().zip(&from.columns) {
                column.extend_range(from, rows.clone());
            }
            merged.times.extend_from_slice(&from.times[rows.clone()]);
            merged.kinds.extend_from_slice(&from.kinds[rows]);
            merged.end_chunk(clock);
            merged.input_chunks.push(Some(runs[run as usize].chunk));
        }
        done.out = merged;
        done
    }

    /// Sends chunks to a query of one key. `samples` is lent to the query for the event that it rejects last.
    fn run_key(
        &mut self,
        key: KeyId,
        query: usize,
        port: usize,
        input: &Batch,
        samples: &mut Option<Box<EventSamples>>,
        host: &dyn EvalContext,
    ) -> BatchOutput {
        let Some(instance) = instance_mut(&mut self.instances, &mut self.pending, key) else {
            return BatchOutput::default();
        };
        let plan = &self.plan.queries[query];
        let running = instance.queries[query].get_or_insert_with(|| start_query(plan, instance.started_at));
        if !plan.before.is_empty() {
            samples.get_or_insert_default().key = (key.0, instance.sequence);
            std::mem::swap(&mut running.stats.samples, samples);
        }
        let out = running.run(port, input, &input.chunk_clocks, host);
        if !plan.before.is_empty() {
            std::mem::swap(&mut running.stats.samples, samples);
        }
        if !out.out.is_empty() {
            running.stats.record_output(&out.out);
        }
        out
    }
}

/// Returns the runs of `group`, pairs of key and index of a run, as chunks.
fn input_of<'b>(events: &'b Batch, runs: &[ChunkRun], group: &[(u32, u32)]) -> Cow<'b, Batch> {
    let rows = group.iter().flat_map(|(_, run)| &runs[*run as usize].rows).copied();
    if group.len() == events.chunk_ends.len() && rows.clone().eq(0..events.len() as u32) {
        return Cow::Borrowed(events);
    }
    let rows: Vec<u32> = rows.collect();
    let mut input = Batch::new(events.columns.iter().map(Column::ty));
    for (column, from) in input.columns.iter_mut().zip(&events.columns) {
        column.gather(from, &rows);
    }
    input.times.extend(rows.iter().map(|row| events.times[*row as usize]));
    input.kinds.extend(rows.iter().map(|row| events.kinds[*row as usize]));
    let mut end = 0;
    for (_, run) in group {
        let run = &runs[*run as usize];
        end += run.rows.len() as u32;
        input.chunk_ends.push(end);
        input.chunk_clocks.push(events.chunk_clocks[run.chunk as usize]);
    }
    Cow::Owned(input)
}
