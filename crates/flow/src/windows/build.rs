//! Construction of windows from their names and parameters.

use std::ops::RangeInclusive;

use super::{
    batch, cron, expression, expression_batch, external_time, external_time_batch, frequent, length,
    length_batch, lossy_frequent, session, sort, time, time_batch, time_length, unique,
};
use crate::registry::{Parameter, Registry, WindowInput};
use crate::window::WindowConstructor;

type WindowFactoryFn = fn(&[Parameter], &WindowInput<'_>) -> Result<WindowConstructor, String>;

/// Built-in windows by name.
const WINDOWS: &[(&str, WindowFactoryFn)] = &[
    ("batch", batch::build),
    ("cron", cron::build),
    ("delay", time::delay),
    ("expression", expression::build),
    ("expressionBatch", expression_batch::build),
    ("externalTime", external_time::build),
    ("externalTimeBatch", external_time_batch::build),
    ("frequent", frequent::build),
    ("length", length::build),
    ("lengthBatch", length_batch::build),
    ("lossyFrequent", lossy_frequent::build),
    ("session", session::build),
    ("sort", sort::build),
    ("time", time::build),
    ("timeBatch", time_batch::build),
    ("timeLength", time_length::build),
    ("unique:ever", unique::ever),
    ("unique:externalTimeBatch", external_time_batch::build_unique),
    ("unique:first", unique::first),
    ("unique:firstLengthBatch", unique::first_length_batch),
    ("unique:firstTimeBatch", unique::first_time_batch),
    ("unique:length", unique::length),
    ("unique:lengthBatch", unique::length_batch),
    ("unique:time", unique::time),
    ("unique:timeBatch", unique::time_batch),
    ("unique:timeLengthBatch", unique::time_length_batch),
];

/// Registers the built-in windows.
pub(crate) fn register(registry: &mut Registry) {
    for (name, build) in WINDOWS {
        registry.window(name, build);
    }
}

/// Checks the number of parameters; `form` is the expected form, for the error.
pub(super) fn arity(
    parameters: &[Parameter],
    allowed: RangeInclusive<usize>,
    form: &str,
) -> Result<(), String> {
    if allowed.contains(&parameters.len()) {
        return Ok(());
    }
    let given = match parameters.len() {
        0 => "no parameters".to_owned(),
        1 => "1 parameter".to_owned(),
        n => format!("{n} parameters"),
    };
    Err(format!("expected {form}, found {given}"))
}
