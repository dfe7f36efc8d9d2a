//! Patterns and sequences: queries that wait for one event after another.
//!
//! [`compile`] makes a [`StatePlan`] of the syntax tree; a [`Machine`] keeps the partial matches and says which are done.
//! An automaton does that for every form; patterns of nothing but single events, one after the other, have a shorter way.

mod absent;
mod automaton;
mod chain;
mod compile;
mod conditions;
mod inspect;
mod machine;
mod mask;
mod matches;
mod names;
mod offer;
mod plan;
mod record;
mod save;
mod why;

pub use compile::compile;
pub(crate) use conditions::conjuncts;
pub use inspect::{Partial, Refused, StepReport};
pub use machine::Machine;
pub use matches::Matches;
pub use names::{Lookup, StepNames};
pub use plan::{Form, Limits, LogicalForm, Reference, StatePlan, StepPlan, What, Which};
pub(crate) use why::why;

use crate::expr::EvalError;

fn too_many(held: usize, limits: &Limits) -> EvalError {
    let most = limits.partial_matches_max;
    EvalError(format!("{held} partial matches wait, at most {most} may: bound them with `within`"))
}
