//! The aggregates that come built in.

#![allow(
    clippy::mutable_key_type,
    reason = "a list used as a key is compared by its text, as Java does by its content"
)]

mod collect;
mod counted_multiset;
mod group_concat;
mod json;
mod logic;
mod min_max;
mod sets;
pub(crate) mod state;
mod statistics;
mod sums;

use std::sync::Arc;

use crate::expr::EvalError;
use crate::functions::signature::Signature;
use crate::registry::{Aggregator, AggregatorConstructor, ArgumentType, Registry};

/// Registers all of them.
pub fn register(registry: &mut Registry) {
    sums::register(registry);
    min_max::register(registry);
    statistics::register(registry);
    logic::register(registry);
    sets::register(registry);
    group_concat::register(registry);
    collect::register(registry);
    json::register(registry);
}

/// Registers an aggregate with its forms, written as those of functions; `make` is given the arguments of a call and
/// says how one without events is made.
fn add(
    registry: &mut Registry,
    name: &str,
    forms: &[&'static str],
    make: impl Fn(&[ArgumentType]) -> Result<AggregatorConstructor, String> + Send + Sync + 'static,
) {
    let signature = Signature::parse(forms);
    registry.aggregator(name, move |args| {
        let (_, ty) = signature.check(args)?;
        Ok((make(args)?, ty))
    });
}

/// How to make copies of an aggregate without events.
fn cloning_constructor<A: Aggregator + Clone + Sync + 'static>(
    empty: A,
) -> Result<AggregatorConstructor, String> {
    Ok(Arc::new(move || Box::new(empty.clone())))
}

/// The bool that argument `i` is; false if there is none.
fn flag(args: &[ArgumentType], i: usize) -> bool {
    args.get(i).and_then(|a| a.constant.as_ref()).is_some_and(|c| c.is_true())
}

/// The most values that a total remembers of one group.
const VALUES_MAX: usize = 50_000_000;

/// Errors: that a total which remembers so many values can remember no other.
fn check_capacity(values: usize, most: usize) -> Result<(), EvalError> {
    match values < most {
        true => Ok(()),
        false => Err(EvalError(format!("a total remembers {values} values, the most it may"))),
    }
}

/// That a state was not saved by the aggregate that is to take it.
fn foreign_state() -> EvalError {
    EvalError("the saved state is not one of this aggregate".into())
}
