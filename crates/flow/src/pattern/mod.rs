//! Patterns and sequences: queries that wait for one event after another.
//!
//! [`compile`] makes a [`PatternPlan`] of the syntax tree; a [`PatternMatcher`] keeps the partial matches and says which are done.
//! An automaton does that for every form; patterns of nothing but single events, one after the other, have a shorter way.

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
pub(crate) use conditions::conjuncts;
pub use inspect::{FailedCondition, PartialMatchStatus, StepStatus};
pub use matcher::PatternMatcher;
pub use matches::PatternMatches;
pub use plan::{
    EventSelector, LogicalStepSide, MatchReference, PatternLimits, PatternPlan, ReferenceKind, StepKind,
    StepPlan,
};
pub use scope::{PatternScope, StepNames};
pub(crate) use why::why;

use crate::expr::EvalError;

fn too_many(held: usize, limits: &PatternLimits) -> EvalError {
    let most = limits.partial_matches_max;
    EvalError(format!("{held} partial matches wait, at most {most} may: bound them with `within`"))
}
