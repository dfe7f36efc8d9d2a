//! Events that a record emits for other partitions.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_rules::Outbound;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{PartitionId, Result};

use super::{ApplyReply, RecordApplier};
use crate::entry::{Emission, Entry, Events};
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::state::PartitionState;

impl RecordApplier<'_> {
    pub(super) fn emit(
        &mut self,
        state: &mut PartitionState,
        target: PartitionId,
        events: Events,
    ) -> Result<()> {
        *Arc::make_mut(&mut state.transfers).sent.entry(target.0).or_default() += events.rows() as u64;
        let emission = Emission { target, entry: Entry::Events(events) };
        if let Some(digest) = &mut self.digest {
            digest.emission(&emission)?;
        }
        self.applied.emissions.push(emission);
        Ok(())
    }

    /// Makes one emission for each target partition, its events in the order in which they were emitted.
    pub(super) fn emit_outbound(
        &mut self,
        state: &mut PartitionState,
        emitted: &[Outbound],
        reply: &mut ApplyReply,
    ) -> Result<()> {
        let streams = self.deployment.program.streams();
        let mut targets: Vec<PartitionId> = emitted.iter().map(|e| e.partition).collect();
        targets.sort_unstable();
        targets.dedup();
        let in_hash_order = is_planted(PlantedBug::EmitInHashOrder).then(|| in_hash_order(emitted));
        let emitted = in_hash_order.as_deref().unwrap_or(emitted);
        for target in targets {
            let mut builders: Vec<(usize, BatchBuilder)> = Vec::new();
            let mut order = Vec::new();
            for event in emitted.iter().filter(|e| e.partition == target) {
                let part = match builders.iter().position(|(stream, _)| *stream == event.stream) {
                    Some(part) => part,
                    None => {
                        builders.push((event.stream, BatchBuilder::new(streams[event.stream].clone())));
                        builders.len() - 1
                    }
                };
                builders[part].1.push_values(&event.cells, event.time)?;
                order.push(part as u16);
            }
            let parts: Vec<_> = builders
                .into_iter()
                .map(|(stream, mut builder)| (streams[stream].clone(), builder.finish()))
                .collect();
            if self.wants_reply {
                reply.emitted.extend(parts.iter().cloned());
            }
            let order = (parts.len() > 1).then_some(order);
            let events =
                Events { provenance: Some((self.id, self.offset)), parts, order, ..Events::default() };
            self.emit(state, target, events)?;
        }
        Ok(())
    }
}

/// Returns events as a planted bug orders them.
fn in_hash_order(emitted: &[Outbound]) -> Vec<Outbound> {
    let by_place: HashMap<usize, &Outbound> = emitted.iter().enumerate().collect();
    by_place.into_values().cloned().collect()
}
