//! Regular expressions as functions use them: compiled once, matched, split by and replaced as Java does.

use fancy_regex::Regex;

use super::compile_cache::CompileCache;
use super::java_regex_syntax::rewrite;
use super::literal_pattern::LiteralPattern;
use crate::registry::ArgumentType;

/// Steps after which a pattern that goes back and forth is given up.
const STEPS_MAX: usize = 1_000_000;

/// A match and its groups.
type Captures<'t> = fancy_regex::Captures<'t, str>;

/// Which part of a text a pattern is to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchMode {
    /// Any.
    Any,
    /// One that begins where the text begins.
    Start,
    /// All of it.
    Whole,
}

/// A compiled pattern.
pub(crate) struct JavaRegex {
    regex: Regex,
    /// The same where it is little more than a text, which is then looked for without a machine.
    literal: Option<LiteralPattern>,
}

impl JavaRegex {
    /// Errors: what is wrong with the pattern.
    fn compile(pattern: &str, part: MatchMode) -> Result<Self, String> {
        let wrong = |why: String| format!("the pattern `{pattern}` cannot be used: {why}");
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

    /// The first match at or after byte `from`.
    pub(super) fn find<'t>(&self, text: &'t str, from: usize) -> Result<Option<Captures<'t>>, String> {
        self.regex.captures_from_pos(text, from).map_err(|e| e.to_string())
    }

    /// Whether there is a match at or after byte `from`.
    pub(super) fn matches(&self, text: &str, from: usize) -> Result<bool, String> {
        if let (Some(literal), Some(text)) = (&self.literal, text.get(from..)) {
            return Ok(literal.is_in(text));
        }
        self.regex.find_from_pos(text, from).map(|m| m.is_some()).map_err(|e| e.to_string())
    }

    /// How many groups it has; the whole match is not counted.
    pub(super) fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// All matches. After one that is empty the search goes on a character further.
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

    /// The parts of a text between matches; empty ones at the end are left out, and one at the start that comes from
    /// an empty match. A text without a match is its only part.
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

    /// The text with every match, or the first, replaced. `replacement` may name groups: `$1`, `${name}`; a backslash
    /// takes the meaning from the character behind it. Nothing where nothing matches.
    pub(super) fn replace(&self, text: &str, replacement: &str, all: bool) -> Result<Option<String>, String> {
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

    /// What stands behind a `$`; returns what is left.
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
        let mut group = digits.next().ok_or("a `$` in the replacement names no group")? as usize;
        let mut length = 1;
        // as many digits as still name a group
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

/// The patterns that argument `i` gives. Errors: what is wrong with a constant one.
pub(crate) fn patterns(
    args: &[ArgumentType],
    i: usize,
    part: MatchMode,
) -> Result<CompileCache<JavaRegex>, String> {
    CompileCache::of(args, i, move |pattern| JavaRegex::compile(pattern, part))
}
