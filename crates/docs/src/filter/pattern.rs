//! Regular expressions of filters.

use std::sync::{Arc, OnceLock};

use regex::Regex;

use super::compiled_regex;
use crate::error::{DocsError, Result};

/// Steps in which an expression that looks around or refers to its groups must tell whether it matches.
const STEPS_MAX: usize = 1_000_000;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// Takes time in proportion to the text.
    Linear(Regex),
    /// Looks around or refers to its groups, which takes trials.
    Backtracking(Box<BacktrackingPattern>),
}

#[derive(Debug, Clone)]
pub(crate) struct BacktrackingPattern {
    regex: fancy_regex::Regex,
    /// The text on which it gave up.
    failure: Arc<OnceLock<DocsError>>,
}

impl Pattern {
    /// Compiles an expression. Errors: it is not valid, its flags are unknown.
    pub fn new(pattern: &str, options: &str) -> Result<Self> {
        let error = match compiled_regex(pattern, options) {
            Ok(regex) => return Ok(Self::Linear(regex)),
            Err(error) => error,
        };
        let flags: String = options.chars().filter(|flag| *flag != 'u').collect();
        let written = if flags.is_empty() { pattern.to_owned() } else { format!("(?{flags}){pattern}") };
        let built = fancy_regex::RegexBuilder::new(&written).backtrack_limit(STEPS_MAX).build();
        let regex = built.map_err(|_| error)?;
        Ok(Self::Backtracking(Box::new(BacktrackingPattern { regex, failure: Arc::default() })))
    }

    /// Returns whether the text matches. One that cannot be told in time does not, and [`Self::failure`] says so.
    pub fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Linear(regex) => regex.is_match(text),
            Self::Backtracking(pattern) => pattern.regex.is_match(text).unwrap_or_else(|why| {
                pattern.failure.get_or_init(|| {
                    DocsError::bad_value(format!("regular expression {:?}: {why}", pattern.regex.as_str()))
                });
                false
            }),
        }
    }

    pub fn failure(&self) -> Option<DocsError> {
        match self {
            Self::Linear(_) => None,
            Self::Backtracking(pattern) => pattern.failure.get().cloned(),
        }
    }
}
