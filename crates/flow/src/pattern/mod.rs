//! Patterns and sequences: queries that match a series of events.
//!
//! [`compile`] turns the syntax tree into a [`PatternPlan`]; a [`PatternMatcher`] stores the partial matches
//! and returns the completed ones. An automaton supports every form; patterns whose steps are all single
//! events have a faster implementation.

mod absence;
mod compile;
mod conditions;
mod inspect;
mod linear;
mod mask;
mod matcher;
mod matches;
mod nfa;
mod offer;
mod partial_match;
mod plan;
mod save;
mod scope;
mod why;

pub use compile::compile;
pub use inspect::{FailedCondition, PartialMatchStatus, StepStatus};
pub(crate) use linear::PatternRowPlan;
pub use matcher::PatternMatcher;
pub use matches::PatternMatches;
pub use plan::{
    EventSelector, LogicalStepSide, MatchReference, PatternPlan, ReferenceKind, StepKind, StepPlan, TimedPart,
};
pub use scope::{PatternScope, StepNames};
pub(crate) use why::why;

use crate::eval_error::EvalError;
use crate::limits::PatternLimits;

fn too_many(limits: &PatternLimits) -> EvalError {
    let full = EvalError::limit("pattern", limits.partial_matches_max, "partial matches");
    full.with_remedy("bound them with `within`")
}
