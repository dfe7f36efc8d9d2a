//! `unique:…`: windows that buffer one event per key; a newer one replaces the older, or with `first…` is
//! ignored.

mod batch;
mod sliding;
mod tumbling;

use std::sync::Arc;

pub(super) use self::batch::UniqueBatch;
use self::sliding::{EvictionBound, FirstPerKey, LatestPerKey};
use self::tumbling::{BatchTrigger, UniqueTumbling};
use super::build::arity;
use super::key::KeyEncoder;
use super::time_batch::TimeSpans;
use crate::registry::{Parameter, WindowInput};
use crate::window::WindowConstructor;

/// `unique:ever(key, …)`: the newest event of each key.
pub(super) fn ever(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=usize::MAX, "ever(key, …)")?;
    latest(KeyEncoder::unique(parameters)?, EvictionBound::None)
}

/// `unique:first(key, …)`: the first event of each key.
pub(super) fn first(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=usize::MAX, "first(key, …)")?;
    let keys = KeyEncoder::unique(parameters)?;
    Ok(Arc::new(move || Box::new(FirstPerKey::new(keys.clone()))))
}

/// `unique:length(key, n)`: the newest event of each of the last `n` keys.
pub(super) fn length(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=2, "length(key, n)")?;
    let n = positive(&parameters[1])?;
    latest(KeyEncoder::unique(&parameters[..1])?, EvictionBound::Length(n))
}

/// `unique:time(key, span)`: the newest event of each key, for `span`.
pub(super) fn time(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=2, "time(key, span)")?;
    let span = parameters[1].span("the span")?;
    latest(KeyEncoder::unique(&parameters[..1])?, EvictionBound::Age(span))
}

fn latest(keys: KeyEncoder, limit: EvictionBound) -> Result<WindowConstructor, String> {
    Ok(Arc::new(move || Box::new(LatestPerKey::new(keys.clone(), limit))))
}

/// `unique:lengthBatch(key, n)`: batches of `n` keys, with their newest events.
pub(super) fn length_batch(
    parameters: &[Parameter],
    _: &WindowInput<'_>,
) -> Result<WindowConstructor, String> {
    until_length(parameters, "lengthBatch(key, n)", false)
}

/// `unique:firstLengthBatch(key, n)`: batches of `n` keys, with their first events.
pub(super) fn first_length_batch(
    parameters: &[Parameter],
    _: &WindowInput<'_>,
) -> Result<WindowConstructor, String> {
    until_length(parameters, "firstLengthBatch(key, n)", true)
}

fn until_length(parameters: &[Parameter], form: &str, first: bool) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=2, form)?;
    let n = positive(&parameters[1])?;
    tumbling(KeyEncoder::unique(&parameters[..1])?, first, move || BatchTrigger::Length(n))
}

/// `unique:timeBatch(key, span [, start])`: the keys of each span as a batch, with their newest events.
pub(super) fn time_batch(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    until_time(parameters, "timeBatch(key, span [, start])", false)
}

/// `unique:firstTimeBatch(key, span [, start])`: the keys of each span as a batch, with their first events.
pub(super) fn first_time_batch(
    parameters: &[Parameter],
    _: &WindowInput<'_>,
) -> Result<WindowConstructor, String> {
    until_time(parameters, "firstTimeBatch(key, span [, start])", true)
}

fn until_time(parameters: &[Parameter], form: &str, first: bool) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=3, form)?;
    let span = parameters[1].period("the span")?;
    let start = parameters.get(2).map(|p| p.instant("the start")).transpose()?;
    tumbling(KeyEncoder::unique(&parameters[..1])?, first, move || {
        BatchTrigger::Time(TimeSpans::new(span, start))
    })
}

/// `unique:timeLengthBatch(key, span [, start], n)`: the keys of each span as a batch, with their newest
/// events. If `n` keys arrive before the end of the span, they are emitted then, and nothing more until the
/// end.
pub(super) fn time_length_batch(
    parameters: &[Parameter],
    _: &WindowInput<'_>,
) -> Result<WindowConstructor, String> {
    arity(parameters, 3..=4, "timeLengthBatch(key, span [, start], n)")?;
    let span = parameters[1].period("the span")?;
    let start = (parameters.len() == 4).then(|| parameters[2].instant("the start")).transpose()?;
    let n = positive(&parameters[parameters.len() - 1])?;
    let until = move || BatchTrigger::Either { spans: TimeSpans::new(span, start), n, full: false };
    tumbling(KeyEncoder::unique_or_constant(&parameters[..1])?, false, until)
}

fn tumbling(
    keys: KeyEncoder,
    first: bool,
    until: impl Fn() -> BatchTrigger + Send + Sync + 'static,
) -> Result<WindowConstructor, String> {
    Ok(Arc::new(move || Box::new(UniqueTumbling::new(keys.clone(), first, until()))))
}

fn positive(parameter: &Parameter) -> Result<usize, String> {
    match parameter.count("the length")? {
        0 => Err("the length must be a constant int above 0, found `0`".into()),
        n => Ok(n as usize),
    }
}
