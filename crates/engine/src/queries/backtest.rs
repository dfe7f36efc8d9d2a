//! Queries over history, in virtual time: what would have come out.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use tidemill_types::{PartitionId, Result, Timestamp, event_json};

use super::compile::CompiledApp;
use super::convert;
use super::output::StreamOutput;
use super::runtime::{QueryState, UnitOutput};

/// Maximum depth at which outputs of one file may lead to others.
const DEPTH_MAX: u32 = 16;

/// The queries of an app in one partition, with a clock that goes by the events. Rules do not run: what they emitted is
/// part of the history.
pub struct Backtest<'c> {
    compiled: &'c CompiledApp,
    flow: QueryState,
    out: Vec<BacktestEvent>,
}

/// An event that came out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BacktestEvent {
    /// Its stream.
    pub stream: String,
    /// Its time, milliseconds.
    pub time: i64,
    /// Its fields as JSON.
    pub event: String,
}

impl<'c> Backtest<'c> {
    /// Queries that have seen nothing. `compiled`: for one partition.
    pub fn new(compiled: &'c CompiledApp) -> Self {
        let flow = QueryState::new(&compiled.queries, PartitionId::FIRST);
        Self { compiled, flow, out: Vec::new() }
    }

    /// The streams whose history the queries need: those that they read and do not write themselves.
    pub fn input_streams(&self) -> Vec<usize> {
        let queries = &self.compiled.queries;
        let all = queries.files.iter().flat_map(|f| &f.placements).flat_map(|p| &p.queries);
        let written: BTreeSet<&str> = all.map(|(_, facts)| facts.writes.as_str()).collect();
        let streams = self.compiled.program.streams().iter().enumerate();
        streams
            .filter(|(i, s)| !queries.readers(*i).is_empty() && !written.contains(s.name.as_str()))
            .map(|(i, _)| i)
            .collect()
    }

    /// An event that was received at `received`: a batch of one row of the stream's batch schema.
    pub fn event(
        &mut self,
        stream: usize,
        one: &RecordBatch,
        time: Timestamp,
        received: Timestamp,
    ) -> Result<()> {
        self.advance(received)?;
        self.send(stream, one, convert::time_ms(time), convert::time_ms(received), None, 0)
    }

    /// Advances the clock to `to` and processes what falls due up to then, `to` included. Queries on the
    /// clock of their events (`@app:playback`) stay where their last event left them.
    pub fn advance(&mut self, to: Timestamp) -> Result<()> {
        let to = convert::time_ms(to);
        let queries = &self.compiled.queries;
        for (number, _) in queries.units.iter().enumerate().filter(|(_, unit)| !unit.plan.playback) {
            let mut out = Vec::new();
            let flow = self.flow.get_mut();
            if flow.is_not_started(number) {
                flow.start(queries, number, to, &mut out);
            }
            let mut last = i64::MIN;
            while let Some(due) = flow.next_due(number).filter(|due| *due <= to && *due > last) {
                flow.advance(queries, number, due, &mut out);
                last = due;
            }
            flow.advance(queries, number, to, &mut out);
            self.propagate(number, out, to, 0)?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        stream: usize,
        one: &RecordBatch,
        time: i64,
        now: i64,
        except: Option<usize>,
        depth: u32,
    ) -> Result<()> {
        let queries = &self.compiled.queries;
        for unit in queries.readers(stream).iter().copied().filter(|u| Some(*u) != except) {
            let Some(input) = queries.units[unit].inputs.get(&stream) else { continue };
            let time = if queries.units[unit].plan.playback { time } else { now };
            let event = convert::input_columns(one, input)?;
            let mut out = Vec::new();
            let flow = self.flow.get_mut();
            if flow.is_not_started(unit) {
                flow.start(queries, unit, time, &mut out);
            }
            if let Err(failure) = flow.send(queries, unit, input.stream, event, time, &mut out) {
                tracing::debug!(file = queries.file_name(unit), "{}", failure);
            }
            flow.apply_corrections(queries, unit, &mut out);
            self.propagate(unit, out, now, depth + 1)?;
        }
        Ok(())
    }

    fn propagate(&mut self, unit: usize, out: Vec<UnitOutput>, now: i64, depth: u32) -> Result<()> {
        let compiled = self.compiled;
        for out in &out {
            let Some(output) = compiled.queries.units[unit].output(out) else { continue };
            let schema = &compiled.program.streams()[output.stream];
            for row in 0..out.events.len() {
                let time = out.events.times[row];
                let mut made = StreamOutput::new(schema);
                let cells = convert::output_cells(schema, output, &out.events, row);
                made.push_event(&cells, Timestamp(time.saturating_mul(1000)), 0)?;
                let (one, _) = made.finish()?;
                let event = serde_json::Value::from(event_json(schema, &one, 0)).to_string();
                self.out.push(BacktestEvent { stream: schema.name.clone(), time, event });
                if depth < DEPTH_MAX {
                    self.send(output.stream, &one, time, now, Some(unit), depth)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the events that came out since the last call, in order.
    pub fn take_events(&mut self) -> Vec<BacktestEvent> {
        std::mem::take(&mut self.out)
    }
}
