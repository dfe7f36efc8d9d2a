//! Built-in aggregates.

#![allow(
    clippy::mutable_key_type,
    reason = "a list used as a key is compared by its text, as Java does by its content"
)]

mod collect;
mod counted_multiset;
mod group_concat;
mod json;
mod kalman;
mod logic;
mod min_max;
mod sets;
pub(crate) mod state;
mod statistics;
mod sums;

use std::sync::Arc;

use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::functions::signature::Signature;
use crate::registry::{Aggregator, AggregatorConstructor, Registry};

/// Registers all built-in aggregates.
pub fn register(registry: &mut Registry) {
    sums::register(registry);
    min_max::register(registry);
    statistics::register(registry);
    logic::register(registry);
    sets::register(registry);
    group_concat::register(registry);
    collect::register(registry);
    json::register(registry);
    kalman::register(registry);
}

/// Registers an aggregate with its signatures, in the syntax of functions. `make` receives the arguments of a
/// call and returns the constructor of an accumulator in its initial state.
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

/// Returns a constructor that clones an accumulator in its initial state.
fn cloning_constructor<A: Aggregator + Clone + Sync + 'static>(
    empty: A,
) -> Result<AggregatorConstructor, String> {
    Ok(Arc::new(move || Box::new(empty.clone())))
}

/// Returns the constant bool of argument `i`; false if it is absent.
fn flag(args: &[ArgumentType], i: usize) -> bool {
    args.get(i).and_then(|a| a.constant.as_ref()).is_some_and(|c| c.is_true())
}

/// Maximum number of values that an accumulator of one group stores.
const VALUES_MAX: usize = 50_000_000;

/// Checks that an accumulator with `values` stored values may store another. Errors: the limit is reached.
fn check_capacity(values: usize, most: usize) -> Result<(), EvalError> {
    match values < most {
        true => Ok(()),
        false => Err(EvalError::limit("aggregate", most, "stored values")),
    }
}

/// Returns the error for state that another aggregate saved.
fn foreign_state() -> EvalError {
    EvalError::state("the saved state does not match this aggregate")
}
