//! Limits of the evaluation of one expression on one document.
//!
//! An expression is small and may still ask for more than a machine has: `$reduce` doubles a string in each of 60 steps, or puts an
//! array into an array a million times, and `$map` over `$range` over `$range` takes 10^12 steps. So each value that is made
//! is charged with the memory that it needs, and a value that is nested too deeply is refused before a function that calls itself for
//! each level meets it. What one document may cost in this way many documents may cost each, so each charge is also a step of the
//! thread's budget.

use bson::Bson;
use tidemill_types::budget;

use super::EvalValue;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::EXPRESSION_WORK_MAX;

/// Levels of a value that an expression makes; a document has at most 100.
const VALUE_DEPTH_MAX: usize = 200;
/// Bytes for which a step counts that makes a small value.
const STEP_BYTES: usize = 64;
/// Bytes of values that count as one more step of the thread's budget.
const BYTES_PER_STEP: usize = 1 << 10;

/// Budget that is left for an evaluation.
pub(super) struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: EXPRESSION_WORK_MAX }
    }
}

impl Budget {
    /// Takes what a step costs that has made this value. Errors: nothing is left, or the value is nested too deeply.
    pub fn charge(&mut self, value: &EvalValue) -> Result<()> {
        let before = self.left;
        self.take(STEP_BYTES)?;
        if let Some(value) = value {
            self.charge_value(value, VALUE_DEPTH_MAX)?;
        }
        Ok(budget::steps(1 + ((before - self.left) / BYTES_PER_STEP) as u64)?)
    }

    fn charge_value(&mut self, value: &Bson, levels: usize) -> Result<()> {
        let levels = levels.checked_sub(1).ok_or_else(|| {
            let message =
                format!("an expression makes a value that is nested deeper than {VALUE_DEPTH_MAX} levels");
            DocsError::new(ErrorCode::Overflow, message)
        })?;
        match value {
            Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => self.take(text.len()),
            Bson::Binary(binary) => self.take(binary.bytes.len()),
            Bson::Array(elements) => {
                self.take(size_of_val(elements.as_slice()))?;
                elements.iter().try_for_each(|element| self.charge_value(element, levels))
            }
            Bson::Document(document) => document.iter().try_for_each(|(name, value)| {
                // a field has its name, its value and a place in the index of names
                self.take(name.len() + size_of::<(String, Bson)>() + size_of::<usize>())?;
                self.charge_value(value, levels)
            }),
            _ => Ok(()),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(DocsError::new(
                ErrorCode::ExpressionWork,
                format!(
                    "an expression makes values of more than {EXPRESSION_WORK_MAX} bytes for one document: let it take fewer \
                     elements or steps"
                ),
            )),
        }
    }
}
