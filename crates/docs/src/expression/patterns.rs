//! Regular expressions: `$regexMatch`, `$regexFind`, `$regexFindAll`, each with input, regex and options.

use bson::{Bson, Document};
use regex::{Captures, Regex};

use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, Result};
use crate::filter::compiled_regex;

/// Matches of one input; more are refused.
const MATCHES_MAX: usize = 100_000;

/// Returns the input and the pattern; `None` if one is null.
fn operands<'a>(name: &str, arguments: &'a [EvalValue]) -> Result<Option<(&'a str, Regex)>> {
    let options = match arguments.get(2) {
        Some(Some(Bson::String(options))) => options.as_str(),
        None | Some(None) => "",
        Some(value) if is_nullish(value) => "",
        Some(value) => return Err(wrong_type(name, "options, a string", value)),
    };
    let input = match arguments.first() {
        Some(Some(Bson::String(input))) => Some(input.as_str()),
        Some(value) if !is_nullish(value) => return Err(wrong_type(name, "an input, a string", value)),
        _ => None,
    };
    let pattern = match arguments.get(1) {
        Some(Some(Bson::String(pattern))) => Some(compiled_regex(pattern, options)?),
        Some(Some(Bson::RegularExpression(pattern))) => {
            let own = pattern.options.to_string();
            if !own.is_empty() && !options.is_empty() {
                return Err(DocsError::bad_value(format!("{name}: options in both `regex` and `options`")));
            }
            Some(compiled_regex(pattern.pattern.as_str(), if own.is_empty() { options } else { &own })?)
        }
        Some(value) if !is_nullish(value) => {
            return Err(wrong_type(name, "a regular expression or a string", value));
        }
        _ => None,
    };
    Ok(input.zip(pattern))
}

pub(super) fn is_match(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let matches = operands(name, arguments)?.is_some_and(|(input, pattern)| pattern.is_match(input));
    Ok(Some(Bson::Boolean(matches)))
}

pub(super) fn find(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((input, pattern)) = operands(name, arguments)? else { return Ok(Some(Bson::Null)) };
    Ok(Some(
        pattern
            .captures(input)
            .map_or(Bson::Null, |found| Bson::Document(described(input, &found, &mut (0, 0)))),
    ))
}

pub(super) fn find_all(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((input, pattern)) = operands(name, arguments)? else { return Ok(Some(Bson::Array(Vec::new()))) };
    let mut found = Vec::new();
    let mut before = (0, 0);
    for captures in pattern.captures_iter(input) {
        if found.len() == MATCHES_MAX {
            return Err(DocsError::bad_value(format!("{name}: more than {MATCHES_MAX} matches")));
        }
        found.push(Bson::Document(described(input, &captures, &mut before)));
    }
    Ok(Some(Bson::Array(found)))
}

/// Returns `{ match, idx, captures }`; the index counts characters. `before` is a place before the match, in bytes and in characters, and
/// becomes its place, so that the characters before 100,000 matches are counted once.
fn described(input: &str, captures: &Captures<'_>, before: &mut (usize, usize)) -> Document {
    let whole = captures.get(0);
    let start = whole.map_or(0, |found| found.start());
    let between = input.get(before.0..start).map_or(0, |text| text.chars().count());
    *before = (start, before.1 + between);
    let groups = captures.iter().skip(1);
    let groups = groups.map(|group| group.map_or(Bson::Null, |group| group.as_str().into()));
    let mut found = Document::new();
    found.insert("match", whole.map_or("", |found| found.as_str()));
    found.insert("idx", before.1 as i32);
    found.insert("captures", groups.collect::<Vec<Bson>>());
    found
}
