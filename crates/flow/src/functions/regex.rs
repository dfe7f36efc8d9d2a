//! `regex:` Functions for Java's regular expressions. A null string matches nothing; a null pattern is an
//! error.

use std::sync::Arc;

use super::compile_cache::CompileCache;
use super::java::java_regex::{JavaRegex, MatchMode, patterns};
use super::library::{BatchScalarFn, NamespaceRegistrar, NullPolicy, ScalarFn, int, text};
use super::str::byte_of_unit;
use crate::columns::column::{Column, Data};
use crate::columns::value::Value;
use crate::expr::{ArgumentType, ColumnarValue};

pub(super) fn register(regex: &mut NamespaceRegistrar<'_>) {
    let forms = ["string regex, string text, int start? -> bool"];
    regex.build_batched("find", &forms, NullPolicy::Pass, |args| test(args, MatchMode::Any));
    let forms = ["string regex, string text -> bool"];
    regex.build_batched("matches", &forms, NullPolicy::Pass, |args| test(args, MatchMode::Whole));
    regex.build_batched("lookingAt", &forms, NullPolicy::Pass, |args| test(args, MatchMode::Start));
    let forms = ["string regex, string text, int group -> string"];
    regex.build("group", &forms, NullPolicy::Fail, |args| {
        let patterns = patterns(args, 0, MatchMode::Any)?;
        Ok(Box::new(move |args, _| {
            let pattern = patterns.get(text(args, 0)?)?;
            let group = usize::try_from(int(args, 2)?).map_err(|_| "`group` must not be negative")?;
            let found = pattern.find(text(args, 1)?, 0)?;
            let group = found.as_ref().and_then(|m| m.get(group));
            Ok(group.map_or(Value::Null, |m| Value::text(m.as_str())))
        }))
    });
}

fn test(args: &[ArgumentType], part: MatchMode) -> Result<(Box<ScalarFn>, Box<BatchScalarFn>), String> {
    let patterns = Arc::new(patterns(args, 0, part)?);
    let all = patterns.clone();
    let one: Box<ScalarFn> = Box::new(move |args, _| {
        let pattern = patterns.get(args[0].as_str().ok_or("`regex` is null")?)?;
        let Some(text) = args[1].as_str() else { return Ok(Value::Bool(false)) };
        let start = match args.get(2) {
            Some(Value::Null) => return Ok(Value::Bool(false)),
            Some(_) => int(args, 2)?,
            None => 0,
        };
        let from = usize::try_from(start).ok().and_then(|s| byte_of_unit(text, s));
        let from = from.ok_or_else(|| format!("`start` is out of bounds: there is no character {start}"))?;
        Ok(Value::Bool(pattern.matches(text, from)?))
    });
    Ok((one, Box::new(move |args, rows| test_batch(&all, args, rows))))
}

/// Tests each row from the start of its string. Caches the last pattern: a pattern from a column rarely
/// changes from row to row.
fn test_batch(patterns: &CompileCache<JavaRegex>, args: &[ColumnarValue<'_>], rows: usize) -> Option<Column> {
    let [regex, texts] = args else { return None };
    let mut last: Option<(&str, Arc<JavaRegex>)> = None;
    let mut found = Vec::with_capacity(rows);
    for row in 0..rows {
        let regex = regex.text(row)?;
        if last.as_ref().is_none_or(|(written, _)| *written != regex) {
            last = Some((regex, patterns.get(regex).ok()?));
        }
        let (_, pattern) = last.as_ref()?;
        found.push(match texts.text(row) {
            Some(text) => pattern.matches(text, 0).ok()?,
            None => false,
        });
    }
    Some(Column::of(Data::Bool(found)))
}
