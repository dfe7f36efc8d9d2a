//! Events that are older than the clock of an app with `@app:playback`.

use arrow_array::RecordBatch;
use tidemill_types::decode::FieldValue;
use tidemill_types::{Result, Timestamp, event_json, row_value};

use super::cascade::{Cascade, DEPTH_MAX};
use super::input::QueryInput;
use crate::queries::{LatePolicy, convert};

impl Cascade<'_> {
    /// Applies the corrections that late events cause. Where files read each other, a correction may cause further late
    /// events.
    pub(super) fn apply_corrections(&mut self) -> Result<()> {
        let queries = self.queries;
        let corrected = |unit: &usize| queries.units[*unit].plan.corrected.is_some();
        let units: Vec<usize> = (0..queries.units.len()).filter(corrected).collect();
        for _ in 0..DEPTH_MAX {
            let mut changed = false;
            for unit in &units {
                let mut out = Vec::new();
                self.state.with_queries(|flow| flow.apply_corrections(queries, *unit, &mut out));
                changed |= !out.is_empty();
                self.propagate(*unit, out, 1)?;
            }
            if !changed {
                return Ok(());
            }
        }
        let problem =
            format!("corrections lead to further ones more than {DEPTH_MAX} times: is there a loop?");
        let file = units.first().map_or("", |unit| queries.file_name(*unit));
        self.state.query_state.get_mut().count_failure(file, "late events", &problem);
        Ok(())
    }

    /// Returns whether an event is too late for a unit, after applying the late rule of its stream to it.
    pub(super) fn handle_if_late(
        &mut self,
        unit: usize,
        part: &QueryInput,
        row: usize,
        time: i64,
        depth: u32,
    ) -> Result<bool> {
        let queries = self.queries;
        let Some(stream) = part.stream else { return Ok(false) };
        let Some(late) = queries.units[unit].inputs.get(&stream).and_then(|i| i.late.as_ref()) else {
            return Ok(false);
        };
        let clock = self.state.query_state.get_mut().now(unit);
        let Some(behind) = clock.map(|now| now - time).filter(|behind| *behind > late.allowed) else {
            return Ok(false);
        };
        let schema = &self.deployment.program.streams()[stream];
        match &late.policy {
            LatePolicy::Drop | LatePolicy::Correct => {
                self.drop_late(unit, stream, &part.batch, row, behind, late.allowed);
            }
            LatePolicy::Stream(side) => {
                let Some(to) = self.deployment.program.stream_index(side) else { return Ok(false) };
                let target = &self.deployment.program.streams()[to];
                let cells = target.fields.iter().map(|f| match schema.field_index(&f.name) {
                    Some(i) => convert::cell_of(&row_value(&part.batch, i, row), f.ty),
                    None => FieldValue::Missing,
                });
                let cells = cells.collect();
                self.emit(None, to, cells, Timestamp(time.saturating_mul(1000)), depth + 1)?;
            }
        }
        Ok(true)
    }

    /// An event is left out by a unit: it came too far behind the clock, in milliseconds.
    pub(super) fn drop_late(
        &mut self,
        unit: usize,
        stream: usize,
        batch: &RecordBatch,
        row: usize,
        behind: i64,
        allowed: i64,
    ) {
        let schema = &self.deployment.program.streams()[stream];
        let file = self.queries.file_name(unit);
        let reason = format!("{behind} ms behind the clock of {file}, which allows {allowed}");
        let event = serde_json::Value::from(event_json(schema, batch, row)).to_string();
        self.output.late.push((stream, reason, event));
    }
}
