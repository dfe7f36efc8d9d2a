//! Operators on strings.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::Bson;
use tidemill_types::budget;

use super::arrays::ELEMENTS_MAX;
use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, ErrorCode, Result};

/// Bytes of text that count as one step of the budget.
const BYTES_PER_STEP: usize = 1 << 10;
/// Bytes above which a result is refused, those of a document.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// Returns the string of an argument; `None` for null.
fn text<'a>(name: &str, value: &'a EvalValue) -> Result<Option<&'a str>> {
    match value {
        Some(Bson::String(text)) => Ok(Some(text)),
        value if is_nullish(value) => Ok(None),
        value => Err(wrong_type(name, "a string", value)),
    }
}

fn string(text: String) -> Result<EvalValue> {
    Ok(Some(Bson::String(text)))
}

fn null() -> Result<EvalValue> {
    Ok(Some(Bson::Null))
}

fn whole(name: &str, value: Option<&EvalValue>) -> Result<Option<i64>> {
    match value {
        None => Ok(None),
        Some(Some(Bson::Int32(n))) => Ok(Some((*n).into())),
        Some(Some(Bson::Int64(n))) => Ok(Some(*n)),
        Some(Some(Bson::Double(n))) if n.fract() == 0.0 => Ok(Some(*n as i64)),
        Some(value) => Err(wrong_type(name, "a whole number", value)),
    }
}

pub(super) fn concat(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let mut out = String::new();
    for argument in arguments {
        let text =
            text(name, argument).map_err(|e| DocsError::new(ErrorCode::NotConcatenable, e.message()))?;
        match text {
            Some(text) => out.push_str(text),
            None => return null(),
        }
        if out.len() > RESULT_BYTES_MAX {
            return Err(DocsError::bad_value(format!(
                "{name}: a result of more than {RESULT_BYTES_MAX} bytes"
            )));
        }
    }
    string(out)
}

/// Null and missing values count as the empty string.
fn cased(name: &str, arguments: &[EvalValue], change: fn(&str) -> String) -> Result<EvalValue> {
    let text = arguments.first().map(|value| text(name, value)).transpose()?.flatten();
    string(change(text.unwrap_or_default()))
}

pub(super) fn to_lower(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    cased(name, arguments, str::to_ascii_lowercase)
}

pub(super) fn to_upper(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    cased(name, arguments, str::to_ascii_uppercase)
}

pub(super) fn compare_ignoring_case(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [a, b] = arguments else { return null() };
    let upper = |value| text(name, value).map(|text| text.unwrap_or_default().to_ascii_uppercase());
    let order: Ordering = upper(a)?.cmp(&upper(b)?);
    Ok(Some(Bson::Int32(order as i32)))
}

fn measured(name: &str, arguments: &[EvalValue], measure: fn(&str) -> usize) -> Result<EvalValue> {
    match arguments.first() {
        Some(Some(Bson::String(text))) => Ok(Some(Bson::Int32(measure(text) as i32))),
        other => Err(wrong_type(name, "a string", other.unwrap_or(&None))),
    }
}

pub(super) fn length(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    measured(name, arguments, |text| text.chars().count())
}

pub(super) fn length_bytes(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    measured(name, arguments, str::len)
}

pub(super) fn substring(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, from, count] = arguments else { return null() };
    let text = text(name, value)?.unwrap_or_default();
    let index = |value| -> Result<usize> {
        let number = whole(name, Some(value))?.and_then(|n| usize::try_from(n).ok());
        number
            .ok_or_else(|| DocsError::bad_value(format!("{name} expects an index and a length of 0 or more")))
    };
    string(text.chars().skip(index(from)?).take(index(count)?).collect())
}

pub(super) fn index_of(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, part, bounds @ ..] = arguments else { return null() };
    let Some(text) = text(name, value)? else { return null() };
    let Some(Bson::String(part)) = part else { return Err(wrong_type(name, "a string to look for", part)) };
    let bound = |value: Option<&EvalValue>| -> Result<Option<usize>> {
        let number = whole(name, value)?;
        let negative = || DocsError::bad_value(format!("{name} expects indexes of 0 or more"));
        number.map(|n| usize::try_from(n).map_err(|_| negative())).transpose()
    };
    let from = bound(bounds.first())?.unwrap_or(0);
    let end = bound(bounds.get(1))?.unwrap_or(usize::MAX);
    // places in bytes of the first character and of the one behind the last; an index may lie behind the text
    let place = |index: usize| text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index);
    budget::steps((text.len() / BYTES_PER_STEP) as u64)?;
    let Some(start) = place(from) else { return Ok(Some(Bson::Int32(-1))) };
    let searched = text.get(start..place(end).unwrap_or(text.len())).unwrap_or_default();
    let found = memchr::memmem::find(searched.as_bytes(), part.as_bytes());
    let found = found.filter(|_| from <= end).and_then(|at| searched.get(..at));
    Ok(Some(Bson::Int32(found.map_or(-1, |before| (from + before.chars().count()) as i32))))
}

pub(super) fn split(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, separator] = arguments else { return null() };
    let (Some(value), Some(separator)) = (text(name, value)?, text(name, separator)?) else { return null() };
    if separator.is_empty() {
        return Err(DocsError::bad_value("$split requires a non-empty separator"));
    }
    let mut parts = Vec::new();
    for part in value.split(separator) {
        if parts.len() == ELEMENTS_MAX {
            return Err(DocsError::bad_value(format!("{name}: limit of {ELEMENTS_MAX} elements")));
        }
        parts.push(Bson::String(part.to_owned()));
    }
    Ok(Some(Bson::Array(parts)))
}

/// `$trim`, `$ltrim`, `$rtrim`
pub(super) fn trim(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, characters] = arguments else { return null() };
    let Some(value) = text(name, value)? else { return null() };
    // a set, as text and characters may both have millions
    let characters: Option<HashSet<char>> =
        text(name, characters)?.map(|characters| characters.chars().collect());
    let trimmed = |c: char| match &characters {
        Some(characters) => characters.contains(&c),
        None => c.is_whitespace() || c == '\0',
    };
    let value = if name == "$rtrim" { value } else { value.trim_start_matches(trimmed) };
    let value = if name == "$ltrim" { value } else { value.trim_end_matches(trimmed) };
    string(value.to_owned())
}

/// `$replaceOne`, `$replaceAll`
pub(super) fn replace(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [input, find, replacement] = arguments else { return null() };
    let (Some(input), Some(find), Some(replacement)) =
        (text(name, input)?, text(name, find)?, text(name, replacement)?)
    else {
        return null();
    };
    budget::steps((input.len() / BYTES_PER_STEP) as u64)?;
    let count = if name == "$replaceOne" { 1 } else { input.matches(find).count() };
    if input.len().saturating_add(count.saturating_mul(replacement.len())) > RESULT_BYTES_MAX {
        return Err(DocsError::bad_value(format!("{name}: a result of more than {RESULT_BYTES_MAX} bytes")));
    }
    string(input.replacen(find, replacement, count))
}

/// Returns the bytes from an index on; a length below 0 means all of them.
pub(super) fn substring_bytes(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, from, count] = arguments else { return null() };
    let text = match value {
        Some(Bson::String(text)) => text.clone(),
        value if is_nullish(value) => String::new(),
        value => match super::convert::to_string(name, std::slice::from_ref(value))? {
            Some(Bson::String(text)) => text,
            _ => String::new(),
        },
    };
    let (from, count) = (whole(name, Some(from))?.unwrap_or(0), whole(name, Some(count))?.unwrap_or(0));
    let from = usize::try_from(from);
    let from = from.map_err(|_| DocsError::bad_value(format!("{name} expects an index of 0 or more")))?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (from, end) = (from.min(text.len()), from.saturating_add(count).min(text.len()));
    let part = text.get(from..end.max(from));
    let part =
        part.ok_or_else(|| DocsError::bad_value(format!("{name}: a bound lies inside a character")))?;
    string(part.to_owned())
}

pub(super) fn index_of_bytes(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, part, bounds @ ..] = arguments else { return null() };
    let Some(text) = text(name, value)? else { return null() };
    let Some(Bson::String(part)) = part else { return Err(wrong_type(name, "a string to look for", part)) };
    let bound = |at: usize, default: usize| -> Result<usize> {
        let number = whole(name, bounds.get(at))?.map(usize::try_from).transpose();
        number
            .map(|number| number.unwrap_or(default))
            .map_err(|_| DocsError::bad_value(format!("{name} expects indexes of 0 or more")))
    };
    let (from, end) = (bound(0, 0)?, bound(1, text.len())?.min(text.len()));
    let bytes = text.as_bytes().get(from..end).unwrap_or_default();
    let at = memchr::memmem::find(bytes, part.as_bytes()).map(|at| at + from);
    let inside = from <= end && (from < end || part.is_empty());
    Ok(Some(Bson::Int32(at.filter(|_| inside).map_or(-1, |at| at as i32))))
}
