//! Gap filling: rows for the buckets of a time range in which a group has no rows.
//!
//! ```text
//! select time_bucket_gapfill('1 hour', _time) as bucket, carrier, locf(avg(distance)) … group by bucket, carrier
//!
//! Aggregate  groups by date_bin('1 hour', _time), carrier
//!    └ Projection  restores the names, adds the arguments of `locf` and `interpolate` as columns
//!        └ GapFill  for each carrier: the rows in the order of the buckets, and rows between them
//! ```
//!
//! The functions are marks in the text of the query. An analyzer rule ([`FillGaps`]) replaces them by a [`node::GapFill`],
//! whose bounds are expressions that the optimizer folds like others; [`GapFillPlanner`] turns them into numbers. The
//! aggregate itself is an ordinary one, so whatever serves aggregates serves it.

mod bounds;
mod buckets;
mod exec;
mod functions;
mod node;
mod planner;
mod rule;
mod series;

pub(crate) use functions::marker_functions;
pub(crate) use planner::GapFillQueryPlanner;
pub(crate) use rule::FillGaps;

use datafusion::error::DataFusionError;
use tidemill_types::Error;

/// Returns the error for a query that cannot be filled, in DataFusion's terms.
fn invalid(message: impl Into<String>) -> DataFusionError {
    DataFusionError::External(Box::new(Error::invalid(message.into())))
}
