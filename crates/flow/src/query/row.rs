//! Processing of a single event by a query, without batches.
//!
//! A caller that sends one event at a time pays for everything that is done once per call, not once per event. So a
//! single event does not become a batch of one row. It is a [`Row`](crate::Row), a slice of borrowed values, on its whole
//! way: through the filters, into the window, the pattern or the join, through the select clause, and on to the
//! queries that read the output, to tables and to the [`OutputHandler`](crate::runtime::OutputHandler). Computed rows
//! and the strings that are read from state lie in an arena that is reset after each event, so that in the steady
//! state nothing is allocated.
//!
//! State is shared with the processing of batches: both update the same windows, accumulators, matches and tables. A
//! query may get single events and batches in turn, and its checkpoint does not tell them apart.
//!
//! A query with a part that row programs do not support gets a single event as a batch. That is decided when the app is
//! created; [`AppRuntime::batch_reason`](crate::runtime::AppRuntime::batch_reason) reports it.

use bumpalo::Bump;

use super::row_program::{RowInput, RowProgram};
use crate::columns::batch::EventKind;
use crate::columns::column::Column;
use crate::columns::row::{ArrivingRow, Row, RowOutput};
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, RowFrame, RowSource, keep};
use crate::join::JoinRowOutput;
use crate::query::Query;
use crate::select::COLUMNAR_ROWS_MIN;

/// A row of a store; its strings are copied into the arena when they are read.
struct StoredRow<'s, 'a> {
    columns: &'s [Column],
    row: usize,
    arena: &'a Bump,
}

impl<'a> RowSource<'a> for StoredRow<'_, 'a> {
    #[inline]
    fn get(&self, column: usize) -> ValueRef<'a> {
        keep(&self.columns[column].value_ref(self.row), self.arena)
    }
}

impl Query {
    /// Processes a single event as [`Self::push`] does a batch of one row.
    pub(crate) fn push_row<'a>(
        &mut self,
        program: &'a RowProgram,
        event: ArrivingRow<'a>,
        host: &dyn EvalContext,
        arena: &'a Bump,
    ) -> Result<RowOutput<'a>, EvalError> {
        let ArrivingRow { port, row, clock } = event;
        self.stats.arrived += 1;
        match &program.input {
            RowInput::Stream => {}
            RowInput::Pattern(pattern) => {
                let Some(machine) = &mut self.machine else { return Ok(RowOutput::NOTHING) };
                return machine.process_row(pattern, &program.select, event, arena);
            }
            RowInput::Join(plan) => {
                let Some(join) = &mut self.join else { return Ok(RowOutput::NOTHING) };
                self.stats.record_side_row(&self.plan, port, row, clock);
                return match join.process_row(plan, &program.select, event, host, arena)? {
                    JoinRowOutput::Rows(rows) => Ok(RowOutput::Rows { rows, is_chunk: true }),
                    JoinRowOutput::Matches(found) => {
                        self.select_joined(*found, host).map(|out| RowOutput::Batch(Box::new(out)))
                    }
                };
            }
        }
        let input = row.values;
        match self.plan.cut_by {
            Some(column) if input[column].is_null() => return Ok(RowOutput::NOTHING),
            Some(_) => {}
            None => {
                let frame = RowFrame::of_input(&input);
                if !program.filters.iter().all(|filter| filter.is_true(&frame)) {
                    self.stats.sample_row(&self.plan, row, clock);
                    return Ok(RowOutput::NOTHING);
                }
                self.stats.passed += 1;
            }
        }
        if self.window.is_some() {
            return self.push_window_row(program, row, clock, host, arena);
        }
        let group = self.selector.group_of(&program.select, &input);
        let output = self.selector.select_row(&program.select, group, &input, arena)?;
        Ok(RowOutput::one(output, row.time, arena))
    }

    fn push_window_row<'a>(
        &mut self,
        program: &'a RowProgram,
        row: Row<'a>,
        clock: i64,
        host: &dyn EvalContext,
        arena: &'a Bump,
    ) -> Result<RowOutput<'a>, EvalError> {
        let (select, input) = (&program.select, row.values);
        let stored = self.selector.stored_group_of(select, &input);
        let Some(held) = &mut self.window else { return Ok(RowOutput::NOTHING) };
        let seq = held.process_row(row, stored, clock)?;
        let changes = held.changes();
        let wanted = self.selector.plan().output_events;
        // an emission of the arriving event alone needs no batch
        let (mut emitted, mut alone) = (0, changes.ends.len() <= 1);
        for change in &changes.items {
            let is_wanted = match change.kind {
                EventKind::Current => wanted.current,
                EventKind::Expired => wanted.expired,
                EventKind::Reset => false,
            };
            emitted += usize::from(is_wanted);
            // an expired event is only retracted below, so one that is emitted needs a batch, also if it leaves at once
            alone &= match change.kind {
                EventKind::Current => change.seq == seq,
                EventKind::Expired => !is_wanted,
                EventKind::Reset => true,
            };
        }
        if !alone || emitted > usize::from(wanted.current) || changes.items.len() >= COLUMNAR_ROWS_MIN {
            return self.select_window_output(clock, host).map(|out| RowOutput::Batch(Box::new(out)));
        }
        let mut output = Ok(RowOutput::NOTHING);
        for change in &changes.items {
            let done = match change.kind {
                EventKind::Reset => {
                    self.selector.reset_aggregates();
                    Ok(())
                }
                EventKind::Expired => {
                    let (columns, at) = held.rows().row(change.seq);
                    let source = StoredRow { columns, row: at, arena };
                    let group = match self.selector.stored_group_in(columns, at) {
                        Some(group) => group,
                        None => self.selector.group_of(select, &source),
                    };
                    self.selector.accumulate_row(select, group, EventKind::Expired, &source)
                }
                EventKind::Current => {
                    let group = match stored {
                        Some(group) => group,
                        None => self.selector.group_of(select, &input),
                    };
                    let selected = self.selector.select_row(select, group, &input, arena);
                    selected.map(|values| output = Ok(RowOutput::one(values, change.time, arena)))
                }
            };
            if let Err(failure) = done {
                output = Err(failure);
                break;
            }
        }
        held.evict_unneeded();
        output
    }
}
