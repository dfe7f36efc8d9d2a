//! Source of the condition of an `expression` window: a constant, or an attribute of its events.

use std::sync::Arc;

use tidemill_types::FieldType;

use super::condition::{Condition, ConditionCompiler, Evaluator};
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::store::{RowId, RowStore};

/// Source of a condition.
#[derive(Clone)]
pub(super) enum ConditionSource {
    /// Constant in the app.
    Fixed(Arc<Condition>),
    /// Column of the events that contains the source text of the condition.
    Column(usize, Arc<ConditionCompiler>),
}

impl ConditionSource {
    pub(super) fn of(parameter: &Parameter, source: &WindowInput<'_>) -> Result<Self, String> {
        let conditions = ConditionCompiler::new(source);
        if parameter.expr.as_const().is_some() {
            return Ok(Self::Fixed(conditions.compile(parameter.constant_text("the condition")?)?));
        }
        let column = parameter.column("the condition", &[FieldType::String])?;
        Ok(Self::Column(column, Arc::new(conditions)))
    }

    /// Returns the evaluator to begin with; `None` if the condition comes with the events.
    pub(super) fn evaluator(&self) -> Option<Evaluator> {
        match self {
            Self::Fixed(condition) => Some(Evaluator::new(Arc::clone(condition))),
            Self::Column(..) => None,
        }
    }

    /// Returns a new evaluator if row `seq` brings another condition than `before`; `None` if it is
    /// unchanged. Errors: the condition is null or does not compile.
    pub(super) fn changed(
        &self,
        seq: RowId,
        before: Option<&Evaluator>,
        rows: &RowStore,
    ) -> Result<Option<Evaluator>, EvalError> {
        let Self::Column(column, conditions) = self else { return Ok(None) };
        let Some(text) = rows.text(seq, *column) else {
            return Err(EvalError::null("the condition of the expression window"));
        };
        if before.is_some_and(|before| before.text() == text) {
            return Ok(None);
        }
        Ok(Some(Evaluator::new(conditions.compile(text).map_err(EvalError::argument)?)))
    }

    /// Restores a saved evaluator.
    pub(super) fn restore(&self, saved: &SavedEvaluator) -> Result<Option<Evaluator>, EvalError> {
        let Some((text, aggregates)) = saved else { return Ok(None) };
        let condition = match self {
            Self::Fixed(condition) => Arc::clone(condition),
            Self::Column(_, conditions) => conditions.compile(text).map_err(EvalError::argument)?,
        };
        let mut evaluator = Evaluator::new(condition);
        evaluator.restore(aggregates)?;
        Ok(Some(evaluator))
    }
}

/// Source text of the condition and state of its aggregates; `None` before the first event brought a
/// condition.
pub(super) type SavedEvaluator = Option<(String, serde_json::Value)>;

pub(super) fn save(evaluator: Option<&Evaluator>) -> SavedEvaluator {
    evaluator.map(|evaluator| (evaluator.text().to_owned(), evaluator.save()))
}
