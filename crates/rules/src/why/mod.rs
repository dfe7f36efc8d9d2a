//! Why a rule fired for an event, or why not.
//!
//! While rules run, a [`Trace`] keeps the batches and of the documents only what cannot be found again: those a
//! rule's conditions were looking at. Everything else is computed when somebody asks.

mod explain;
mod render;
mod save;
mod trace;

pub use explain::{BoundDocument, Explanation, Outcome, ReevaluationInfo, RuleFiring, RuleOutcome, Selector};
pub use render::RenderedTerm;
pub use save::TraceImage;
pub use trace::{Trace, TraceLimits};
