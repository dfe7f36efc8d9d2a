//! `regex:` Regular expressions of Java. A text that is null matches nothing; a pattern that is null fails.

use super::library::{Compute, Library, Nulls, int, text};
use super::pattern::{Part, patterns};
use super::str::byte_of_unit;
use crate::registry::Arg;
use crate::value::Value;

pub(super) fn register(regex: &mut Library<'_>) {
    let forms = ["string regex, string text, int start? -> bool"];
    regex.build("find", &forms, Nulls::Pass, |args| test(args, Part::Any));
    let forms = ["string regex, string text -> bool"];
    regex.build("matches", &forms, Nulls::Pass, |args| test(args, Part::Whole));
    regex.build("lookingAt", &forms, Nulls::Pass, |args| test(args, Part::Start));
    let forms = ["string regex, string text, int group -> string"];
    regex.build("group", &forms, Nulls::Fail, |args| {
        let patterns = patterns(args, 0, Part::Any)?;
        Ok(Box::new(move |args, _| {
            let pattern = patterns.get(text(args, 0)?)?;
            let group = usize::try_from(int(args, 2)?).map_err(|_| "there are no groups below 0")?;
            let found = pattern.find(text(args, 1)?, 0)?;
            let group = found.as_ref().and_then(|m| m.get(group));
            Ok(group.map_or(Value::Null, |m| Value::text(m.as_str())))
        }))
    });
}

fn test(args: &[Arg], part: Part) -> Result<Box<Compute>, String> {
    let patterns = patterns(args, 0, part)?;
    Ok(Box::new(move |args, _| {
        let pattern = patterns.get(args[0].as_str().ok_or("`regex` is null")?)?;
        let Some(text) = args[1].as_str() else { return Ok(Value::Bool(false)) };
        let start = match args.get(2) {
            Some(Value::Null) => return Ok(Value::Bool(false)),
            Some(_) => int(args, 2)?,
            None => 0,
        };
        let from = usize::try_from(start).ok().and_then(|s| byte_of_unit(text, s));
        let from = from.ok_or_else(|| format!("there is no character {start}"))?;
        Ok(Value::Bool(pattern.matches(text, from)?))
    }))
}
