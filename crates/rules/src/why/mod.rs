//! Why a rule fired for an event, or why not.
//!
//! While rules run, a [`Trace`] keeps the batches and of the documents only what cannot be found again: those a
//! rule's conditions were looking at. Everything else is computed when somebody asks.

mod explain;
mod save;
mod show;
mod trace;

pub use explain::{EvaluatedAgain, Explanation, FiredBinding, FiredFor, Outcome, RuleOutcome, Selector};
pub use save::TraceImage;
pub use show::Shown;
pub use trace::{Trace, TraceLimits};
