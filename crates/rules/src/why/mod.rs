//! Explains why a rule fired for an event, or why not.
//!
//! While rules run, a [`Trace`] stores the batches, and of the documents only those that cannot be found
//! again later: the ones a rule's conditions were looking at. Everything else is computed on request.

mod explain;
mod render;
mod save;
mod trace;

pub use explain::{BoundDocument, Explanation, Outcome, ReevaluationInfo, RuleFiring, RuleOutcome, Selector};
pub use render::RenderedTerm;
pub use save::TraceImage;
pub use trace::{Trace, TraceLimits};
