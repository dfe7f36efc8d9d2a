//! Regular expressions with Java's semantics: compiled once, then used to match, split and replace.

use fancy_regex::Regex;

use crate::expr::ArgumentType;
use crate::functions::compile_cache::CompileCache;
use crate::functions::java::java_regex_syntax::rewrite;
use crate::functions::java::literal_pattern::LiteralPattern;

/// Backtracking steps after which a match attempt fails.
const STEPS_MAX: usize = 1_000_000;

/// Match with its groups.
type Captures<'t> = fancy_regex::Captures<'t, str>;

/// Part of a string that a pattern must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchMode {
    /// Any part.
    Any,
    /// A prefix.
    Start,
    /// The whole string.
    Whole,
}

/// Compiled regular expression.
pub(crate) struct JavaRegex {
    regex: Regex,
    /// Literal search for patterns that are almost plain strings; it avoids the regex engine.
    literal: Option<LiteralPattern>,
}

impl JavaRegex {
    /// Compiles `pattern`. Errors: the pattern is invalid.
    fn compile(pattern: &str, part: MatchMode) -> Result<Self, String> {
        let wrong = |why: String| format!("`{pattern}` is not a valid pattern: {why}");
        let written = rewrite(pattern, part == MatchMode::Whole).map_err(wrong)?;
        let written = match part {
            MatchMode::Any => written,
            MatchMode::Start => format!(r"\A(?:{written})"),
            MatchMode::Whole => format!(r"\A(?:{written})\z"),
        };
        let regex = fancy_regex::RegexBuilder::new(&written).backtrack_limit(STEPS_MAX).build();
        let regex = regex.map_err(|e| wrong(e.to_string()))?;
        let literal = (part == MatchMode::Any).then(|| LiteralPattern::of(pattern)).flatten();
        Ok(Self { regex, literal })
    }

    /// Returns the first match at or after byte `from`.
    pub(in crate::functions) fn find<'t>(
        &self,
        text: &'t str,
        from: usize,
    ) -> Result<Option<Captures<'t>>, String> {
        self.regex.captures_from_pos(text, from).map_err(|e| e.to_string())
    }

    /// Returns whether there is a match at or after byte `from`.
    pub(in crate::functions) fn matches(&self, text: &str, from: usize) -> Result<bool, String> {
        if let (Some(literal), Some(text)) = (&self.literal, text.get(from..)) {
            return Ok(literal.is_in(text));
        }
        self.regex.find_from_pos(text, from).map(|m| m.is_some()).map_err(|e| e.to_string())
    }

    /// Returns the number of groups, not counting the whole match.
    pub(in crate::functions) fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// Calls `take` for each match until it returns false. After an empty match the search continues one
    /// character later.
    fn each(
        &self,
        text: &str,
        mut take: impl FnMut(&Captures<'_>) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut from = 0;
        while from <= text.len() {
            let Some(found) = self.find(text, from)? else { break };
            let whole = found.get(0).map_or(from..from, |m| m.range());
            if !take(&found)? {
                break;
            }
            from = if whole.is_empty() {
                whole.end + text[whole.end..].chars().next().map_or(1, char::len_utf8)
            } else {
                whole.end
            };
        }
        Ok(())
    }

    /// Splits `text` at the matches. Trailing empty parts are dropped, as is an empty leading part caused by
    /// an empty match. Without a match, the whole text is the only part.
    pub(crate) fn split<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, String> {
        let mut parts = Vec::new();
        let mut from = 0;
        let mut found = false;
        self.each(text, |m| {
            let range = m.get(0).map_or(0..0, |m| m.range());
            if range.end > 0 {
                found = true;
                parts.push(&text[from..range.start]);
                from = range.end;
            }
            Ok(true)
        })?;
        if !found {
            return Ok(vec![text]);
        }
        parts.push(&text[from..]);
        while parts.last().is_some_and(|p| p.is_empty()) {
            parts.pop();
        }
        Ok(parts)
    }

    /// Replaces every match, or only the first. `replacement` may refer to groups as `$1` and `${name}`; a
    /// backslash escapes the next character. Returns `None` if nothing matches.
    pub(in crate::functions) fn replace(
        &self,
        text: &str,
        replacement: &str,
        all: bool,
    ) -> Result<Option<String>, String> {
        if let Some(literal) = self.literal.as_ref().and_then(LiteralPattern::plain)
            && !replacement.contains(['$', '\\'])
        {
            return Ok(literal.replace(text, replacement, all));
        }
        let mut out = String::new();
        let mut from = 0;
        let mut found = false;
        self.each(text, |m| {
            let range = m.get(0).map_or(0..0, |m| m.range());
            found = true;
            out.push_str(&text[from..range.start]);
            self.expand(replacement, m, &mut out)?;
            from = range.end;
            Ok(all)
        })?;
        out.push_str(&text[from..]);
        Ok(found.then_some(out))
    }

    fn expand(&self, replacement: &str, found: &Captures<'_>, out: &mut String) -> Result<(), String> {
        let mut rest = replacement;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\\' => {
                    let next = rest.chars().next().ok_or("the replacement ends with a backslash")?;
                    rest = &rest[next.len_utf8()..];
                    out.push(next);
                }
                '$' => rest = self.group(rest, found, out)?,
                c => out.push(c),
            }
        }
        Ok(())
    }

    /// Expands the group reference after a `$`; returns the rest of the replacement.
    fn group<'r>(&self, rest: &'r str, found: &Captures<'_>, out: &mut String) -> Result<&'r str, String> {
        if let Some(named) = rest.strip_prefix('{') {
            let (name, rest) = named.split_once('}').ok_or("a `${` in the replacement is not closed")?;
            if !self.regex.capture_names().flatten().any(|n| n == name) {
                return Err(format!("the pattern has no group `{name}`"));
            }
            out.push_str(found.name(name).map_or("", |m| m.as_str()));
            return Ok(rest);
        }
        let mut digits = rest.chars().map_while(|c| c.to_digit(10));
        let mut group = digits
            .next()
            .ok_or("a `$` in the replacement must be followed by a group: write `\\$` for the character")?
            as usize;
        let mut length = 1;
        // take as many digits as still form the number of an existing group
        for digit in digits {
            if group * 10 + digit as usize > self.groups() {
                break;
            }
            group = group * 10 + digit as usize;
            length += 1;
        }
        if group > self.groups() {
            return Err(format!("the pattern has no group {group}"));
        }
        out.push_str(found.get(group).map_or("", |m| m.as_str()));
        Ok(&rest[length..])
    }
}

/// Creates the cache of compiled patterns for argument `i`. Errors: the argument is constant and not a valid
/// pattern.
pub(crate) fn patterns(
    args: &[ArgumentType],
    i: usize,
    part: MatchMode,
) -> Result<CompileCache<JavaRegex>, String> {
    CompileCache::of(args, i, move |pattern| JavaRegex::compile(pattern, part))
}
