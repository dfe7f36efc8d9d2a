//! Patterns and sequences: queries that wait for one event after another.
//!
//! [`compile`] makes a [`StatePlan`] of the syntax tree; a [`Machine`] keeps the partial matches and says which are done.

mod absent;
mod compile;
mod machine;
mod names;
mod offer;
mod plan;
mod record;
mod save;

pub use compile::compile;
pub use machine::{CHAIN_MAX, Machine, RECORDS_MAX};
pub use names::{Lookup, StepNames};
pub use plan::{Form, LogicalForm, Reference, StatePlan, StepPlan, Which};
