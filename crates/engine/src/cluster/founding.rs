//! Facts that the first member of a cluster has fixed, for nodes that have not joined.

use tidemill_cluster::{Record, State};
use tidemill_log::Log;
use tidemill_types::{Error, Result};

use super::CONTROL;
use crate::directory::partitioning::HomeRule;

/// Bytes of the control partition that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Returns the rule by which the queries of a cluster get their partitions: that of its first member, or the newest one if it has had
/// no member. Nodes that start at once take the same one.
///
/// Errors: `Unavailable` if the control partition cannot be read; `Invalid` if this version does not know the rule, or does not
/// understand a record.
pub fn home_rule(control: &dyn Log) -> Result<HomeRule> {
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
                return HomeRule::from_number(cluster.home_rule);
            }
        }
    }
    Ok(HomeRule::NEWEST)
}
