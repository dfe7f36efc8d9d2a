//! Regular expressions of filters and expressions.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use regex::Regex;
use tidemill_types::budget;

use super::compiled_regex;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::{REGEX_BYTES_MAX, REGEX_TEXT_BYTES_MAX};

/// Exponents of the numbers of trials for which a backtracking expression is compiled, each when it is needed first.
const TRIALS_LOG2: Range<u32> = 10..21;
/// Trials times bytes of text that one match may take, about five seconds in the worst case. A trial may look at the whole rest of
/// the text.
const WORK_LOG2: u32 = 33;
/// Trials times bytes of text that count as one step of a budget.
const WORK_PER_STEP_LOG2: u32 = 13;
/// Bytes of text that count as one step for an expression that takes time in proportion to the text.
const BYTES_PER_STEP: usize = 64;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// Takes time in proportion to the text.
    Linear(Regex),
    /// Looks around or refers to its groups, which takes trials.
    Backtracking(Arc<BacktrackingPattern>),
}

#[derive(Debug)]
pub(crate) struct BacktrackingPattern {
    source: String,
    /// The expression with a limit of trials for each of [`TRIALS_LOG2`].
    by_trials: [OnceLock<fancy_regex::Regex>; TRIALS_LOG2.end as usize - TRIALS_LOG2.start as usize],
}

/// Places of the groups of a match in bytes, the whole match first; `None` for a group that takes no part.
pub(crate) type Groups = Vec<Option<Range<usize>>>;

impl Pattern {
    /// Compiles an expression. Errors: it is not valid, its flags are unknown.
    pub fn new(pattern: &str, options: &str) -> Result<Self> {
        let error = match compiled_regex(pattern, options) {
            Ok(regex) => return Ok(Self::Linear(regex)),
            Err(error) => error,
        };
        let flags: String = options.chars().filter(|flag| *flag != 'u').collect();
        let source = if flags.is_empty() { pattern.to_owned() } else { format!("(?{flags}){pattern}") };
        let compiled = BacktrackingPattern { source, by_trials: std::array::from_fn(|_| OnceLock::new()) };
        // a malformed expression has been reported by the parser; a construct that the linear kind lacks may
        // still be valid
        let lacks = error.message().contains("not supported");
        compiled.compiled(TRIALS_LOG2.start).map_err(|e| if lacks { e } else { error })?;
        Ok(Self::Backtracking(Arc::new(compiled)))
    }

    /// Returns whether the text matches.
    ///
    /// Errors: this cannot be told in time.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        match self {
            Self::Linear(regex) => {
                budget::steps((text.len() / BYTES_PER_STEP) as u64)?;
                Ok(regex.is_match(text))
            }
            Self::Backtracking(pattern) => pattern.attempt(text, |regex| regex.is_match(text)),
        }
    }

    /// Returns the groups of the first match at `from` or behind it.
    ///
    /// Errors: this cannot be told in time.
    pub fn groups_from(&self, text: &str, from: usize) -> Result<Option<Groups>> {
        match self {
            Self::Linear(regex) => {
                budget::steps(1 + (text.len().saturating_sub(from) / BYTES_PER_STEP) as u64)?;
                let found = regex.captures_at(text, from);
                Ok(found.map(|found| found.iter().map(|group| group.map(|group| group.range())).collect()))
            }
            Self::Backtracking(pattern) => {
                let found = pattern.attempt(text, |regex| regex.captures_from_pos(text, from))?;
                Ok(found.map(|found| {
                    found.iter().map(|group| group.map(|group| group.start()..group.end())).collect()
                }))
            }
        }
    }
}

impl BacktrackingPattern {
    /// Runs a match with few trials, and if they are not enough with as many as the text allows. The steps of the budget depend on
    /// the text alone, so that a write that is applied again takes the same ones.
    fn attempt<T>(
        &self,
        text: &str,
        run: impl Fn(&fancy_regex::Regex) -> fancy_regex::Result<T>,
    ) -> Result<T> {
        let length_log2 = text.len().max(1).ilog2() + 1;
        let most = WORK_LOG2.saturating_sub(length_log2).clamp(TRIALS_LOG2.start, TRIALS_LOG2.end - 1);
        // a search without a match needs a trial for each byte, and some more
        let few = (length_log2 + 2).clamp(TRIALS_LOG2.start, most);
        if text.len() > REGEX_TEXT_BYTES_MAX {
            return Err(self.too_long(text));
        }
        for trials in [few, most] {
            budget::steps(1 + (1_u64 << (trials + length_log2) >> WORK_PER_STEP_LOG2))?;
            match run(self.compiled(trials)?) {
                Ok(found) => return Ok(found),
                Err(_) if trials < most => {}
                Err(why) => {
                    return Err(DocsError::bad_value(format!("regular expression {:?}: {why}", self.source)));
                }
            }
            if few == most {
                break;
            }
        }
        Err(self.too_long(text))
    }

    fn compiled(&self, trials_log2: u32) -> Result<&fancy_regex::Regex> {
        let place = &self.by_trials[(trials_log2 - TRIALS_LOG2.start) as usize];
        if let Some(regex) = place.get() {
            return Ok(regex);
        }
        let built = fancy_regex::RegexBuilder::new(&self.source)
            .backtrack_limit(1 << trials_log2)
            .delegate_size_limit(REGEX_BYTES_MAX)
            .build();
        let built =
            built.map_err(|e| DocsError::bad_value(format!("regular expression {:?}: {e}", self.source)))?;
        Ok(place.get_or_init(|| built))
    }

    fn too_long(&self, text: &str) -> DocsError {
        DocsError::new(
            ErrorCode::BadValue,
            format!(
                "regular expression {:?} looks around or refers to its groups: limit of {REGEX_TEXT_BYTES_MAX} bytes of text, found {}",
                self.source,
                text.len()
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::budget::Budget;

    use super::*;

    #[test]
    fn trials_are_bounded_by_the_text() {
        let pattern = Pattern::new(r"(x+x+)+\1y", "").unwrap();
        assert!(pattern.is_match(&"x".repeat(200)).is_err());
        let plain = Pattern::new("(?<!a)b", "").unwrap();
        assert_eq!(plain.is_match(&"a".repeat(REGEX_TEXT_BYTES_MAX)), Ok(false));
        assert_eq!(plain.is_match(&format!("{}b", "c".repeat(REGEX_TEXT_BYTES_MAX - 1))), Ok(true));
        let error = plain.is_match(&"a".repeat(REGEX_TEXT_BYTES_MAX + 1)).unwrap_err();
        assert!(error.message().contains("limit of 65535 bytes"), "{error}");
    }

    #[test]
    fn hostile_texts_take_more_steps_than_others() {
        let steps = |text: &str| {
            let budget = Budget::unlimited();
            let _entered = budget.enter();
            let _ = Pattern::new(r"(x+x+)+\1y", "").unwrap().is_match(text);
            budget.steps_taken()
        };
        assert!(steps("a short text with xxxy in it") < 100);
        assert!(steps(&"x".repeat(1000)) > 100_000);
    }
}
