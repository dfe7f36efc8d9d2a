//! Facts that the first member of a cluster has fixed, for nodes that have not joined.

use tidemill_cluster::{ClusterFacts, Record, State};
use tidemill_log::Log;
use tidemill_types::{Error, Result};

use super::CONTROL;
/// Bytes of the control partition that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Returns the facts that the first member of a cluster has fixed; `None` if it has had no member.
///
/// Errors: `Unavailable` if the control partition cannot be read; `Invalid` if this version does not understand a record.
pub fn facts(control: &dyn Log) -> Result<Option<ClusterFacts>> {
    let ends = control.latest_ends()?;
    let end = ends.get(CONTROL.0 as usize).copied().unwrap_or_default();
    let mut state = State::default();
    while state.next() < end {
        let records = control.read(CONTROL, state.next(), READ_BYTES)?;
        if records.is_empty() {
            return Err(Error::unavailable(format!(
                "the control partition ends at offset {}, and its records from {end} on cannot be read",
                state.next()
            )));
        }
        for record in records {
            let place = |e: Error| e.context(format!("record {} of the control partition", record.offset));
            state.apply(record.offset, &Record::decode(&record.payload).map_err(place)?).map_err(place)?;
            if let Some(cluster) = state.cluster() {
                return Ok(Some(cluster.clone()));
            }
        }
    }
    Ok(None)
}
