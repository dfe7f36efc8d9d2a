//! Regular expressions: `$regexMatch`, `$regexFind`, `$regexFindAll`, each with input, regex and options.

use bson::{Bson, Document};
use tidemill_types::budget;

use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, Result};
use crate::filter::{Groups, Pattern};

/// Matches of one input; more are refused.
const MATCHES_MAX: usize = 100_000;

/// Returns the input and the pattern; `None` if one is null.
fn operands<'a>(name: &str, arguments: &'a [EvalValue]) -> Result<Option<(&'a str, Pattern)>> {
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
    // compiling takes longer than a step
    budget::steps(100)?;
    let pattern = match arguments.get(1) {
        Some(Some(Bson::String(pattern))) => Some(Pattern::new(pattern, options)?),
        Some(Some(Bson::RegularExpression(pattern))) => {
            let own = pattern.options.to_string();
            if !own.is_empty() && !options.is_empty() {
                return Err(DocsError::bad_value(format!("{name}: options in both `regex` and `options`")));
            }
            Some(Pattern::new(pattern.pattern.as_str(), if own.is_empty() { options } else { &own })?)
        }
        Some(value) if !is_nullish(value) => {
            return Err(wrong_type(name, "a regular expression or a string", value));
        }
        _ => None,
    };
    Ok(input.zip(pattern))
}

pub(super) fn is_match(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let matches = match operands(name, arguments)? {
        Some((input, pattern)) => pattern.is_match(input)?,
        None => false,
    };
    Ok(Some(Bson::Boolean(matches)))
}

pub(super) fn find(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((input, pattern)) = operands(name, arguments)? else { return Ok(Some(Bson::Null)) };
    let found = pattern.groups_from(input, 0)?;
    Ok(Some(found.map_or(Bson::Null, |found| Bson::Document(described(input, &found, &mut (0, 0))))))
}

pub(super) fn find_all(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((input, pattern)) = operands(name, arguments)? else { return Ok(Some(Bson::Array(Vec::new()))) };
    let mut found = Vec::new();
    let (mut from, mut last_end, mut before) = (0, None, (0, 0));
    while from <= input.len()
        && let Some(groups) = pattern.groups_from(input, from)?
    {
        let whole = groups.first().cloned().flatten().unwrap_or(from..from);
        // behind an empty match, and behind one at whose end an empty one follows, the search continues at
        // the next character
        let next = input[whole.end..].chars().next().map_or(1, char::len_utf8);
        from = if whole.is_empty() { whole.end + next } else { whole.end };
        if whole.is_empty() && last_end == Some(whole.end) {
            continue;
        }
        last_end = Some(whole.end);
        if found.len() == MATCHES_MAX {
            return Err(DocsError::bad_value(format!("{name}: more than {MATCHES_MAX} matches")));
        }
        found.push(Bson::Document(described(input, &groups, &mut before)));
    }
    Ok(Some(Bson::Array(found)))
}

/// Returns `{ match, idx, captures }`; the index counts characters. `before` is a place before the match, in bytes and in characters, and
/// becomes its place, so that the characters before 100,000 matches are counted once.
fn described(input: &str, groups: &Groups, before: &mut (usize, usize)) -> Document {
    let text = |range: &std::ops::Range<usize>| input.get(range.clone()).unwrap_or_default();
    let whole = groups.first().cloned().flatten().unwrap_or_default();
    let between = input.get(before.0..whole.start).map_or(0, |text| text.chars().count());
    *before = (whole.start, before.1 + between);
    let captures = groups.iter().skip(1);
    let captures = captures.map(|group| group.as_ref().map_or(Bson::Null, |group| text(group).into()));
    let mut found = Document::new();
    found.insert("match", text(&whole));
    found.insert("idx", before.1 as i32);
    found.insert("captures", captures.collect::<Vec<Bson>>());
    found
}
