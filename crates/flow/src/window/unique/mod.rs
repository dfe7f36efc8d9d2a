//! `unique:…`: windows that hold one event per key; a newer one pushes the older out, or with `first…` is ignored.

mod batch;
mod sliding;
mod tumbling;

use std::sync::Arc;

pub(super) use self::batch::UniqueBatch;
use self::sliding::{First, Latest, Limit};
use self::tumbling::{UniqueTumbling, Until};
use super::build::arity;
use super::key::Keys;
use super::time_batch::Spans;
use super::{MakeWindow, Parameter, Source};

/// `unique:ever(key, …)`: the newest event of each key.
pub(super) fn ever(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 1..=usize::MAX, "ever(key, …)")?;
    latest(Keys::unique(parameters)?, Limit::None)
}

/// `unique:first(key, …)`: the first event of each key.
pub(super) fn first(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 1..=usize::MAX, "first(key, …)")?;
    let keys = Keys::unique(parameters)?;
    Ok(Arc::new(move || Box::new(First::new(keys.clone()))))
}

/// `unique:length(key, n)`: the newest event of each of the last `n` keys.
pub(super) fn length(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 2..=2, "length(key, n)")?;
    let n = positive(&parameters[1])?;
    latest(Keys::unique(&parameters[..1])?, Limit::Length(n))
}

/// `unique:time(key, span)`: the newest event of each key, for `span`.
pub(super) fn time(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 2..=2, "time(key, span)")?;
    let span = parameters[1].span("the span")?;
    latest(Keys::unique(&parameters[..1])?, Limit::Age(span))
}

fn latest(keys: Keys, limit: Limit) -> Result<MakeWindow, String> {
    Ok(Arc::new(move || Box::new(Latest::new(keys.clone(), limit))))
}

/// `unique:lengthBatch(key, n)`: each `n` keys together, with their newest events.
pub(super) fn length_batch(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    until_length(parameters, "lengthBatch(key, n)", false)
}

/// `unique:firstLengthBatch(key, n)`: each `n` keys together, with their first events.
pub(super) fn first_length_batch(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    until_length(parameters, "firstLengthBatch(key, n)", true)
}

fn until_length(parameters: &[Parameter], form: &str, first: bool) -> Result<MakeWindow, String> {
    arity(parameters, 2..=2, form)?;
    let n = positive(&parameters[1])?;
    tumbling(Keys::unique(&parameters[..1])?, first, move || Until::Length(n))
}

/// `unique:timeBatch(key, span [, start])`: the keys of each span together, with their newest events.
pub(super) fn time_batch(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    until_time(parameters, "timeBatch(key, span [, start])", false)
}

/// `unique:firstTimeBatch(key, span [, start])`: the keys of each span together, with their first events.
pub(super) fn first_time_batch(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    until_time(parameters, "firstTimeBatch(key, span [, start])", true)
}

fn until_time(parameters: &[Parameter], form: &str, first: bool) -> Result<MakeWindow, String> {
    arity(parameters, 2..=3, form)?;
    let span = parameters[1].period("the span")?;
    let start = parameters.get(2).map(|p| p.instant("the start")).transpose()?;
    tumbling(Keys::unique(&parameters[..1])?, first, move || Until::Time(Spans::new(span, start)))
}

/// `unique:timeLengthBatch(key, span [, start], n)`: the keys of each span together, with their newest events; when `n`
/// came before its end they go out then, and nothing more until the end.
pub(super) fn time_length_batch(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 3..=4, "timeLengthBatch(key, span [, start], n)")?;
    let span = parameters[1].period("the span")?;
    let start = (parameters.len() == 4).then(|| parameters[2].instant("the start")).transpose()?;
    let n = positive(&parameters[parameters.len() - 1])?;
    let until = move || Until::Either { spans: Spans::new(span, start), n, full: false };
    tumbling(Keys::unique_or_constant(&parameters[..1])?, false, until)
}

fn tumbling(
    keys: Keys,
    first: bool,
    until: impl Fn() -> Until + Send + Sync + 'static,
) -> Result<MakeWindow, String> {
    Ok(Arc::new(move || Box::new(UniqueTumbling::new(keys.clone(), first, until()))))
}

fn positive(parameter: &Parameter) -> Result<usize, String> {
    match parameter.count("the length")? {
        0 => Err("the length is to be a constant int above 0, not `0`".into()),
        n => Ok(n as usize),
    }
}
