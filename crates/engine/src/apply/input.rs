//! Events of a record as queries read them.

use arrow_array::{RecordBatch, TimestampMicrosecondArray, cast::AsArray, types::TimestampMicrosecondType};
use tidemill_flow::Column;
use tidemill_types::{Error, Result};

use crate::entry::Events;

/// Events of one stream as the units here read them.
pub struct QueryInput {
    /// The stream, if the program knows it.
    pub stream: Option<usize>,
    /// Unit, stream of its plan, attributes.
    pub units: Vec<(usize, usize, Vec<Column>)>,
    /// The stream, where its events travel to other partitions.
    pub forward_stream: Option<usize>,
    /// The event times.
    pub times: TimestampMicrosecondArray,
    /// The events.
    pub batch: RecordBatch,
}

/// The event times of a batch.
pub fn times(batch: &RecordBatch) -> Result<TimestampMicrosecondArray> {
    let column = batch.column_by_name(tidemill_types::column::TIME);
    let times = column.and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
    times.cloned().ok_or_else(|| Error::internal("a batch of events without times"))
}

/// Calls `f` with part and row of each event in order of arrival.
pub fn for_each_arrival(events: &Events, mut f: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    match &events.order {
        Some(order) => {
            let mut next = vec![0; events.parts.len()];
            for part in order {
                let part = usize::from(*part);
                f(part, next[part])?;
                next[part] += 1;
            }
        }
        None => {
            for (part, (_, batch)) in events.parts.iter().enumerate() {
                for row in 0..batch.num_rows() {
                    f(part, row)?;
                }
            }
        }
    }
    Ok(())
}
