//! The condition that an `expression` window goes by: always the same, or the one that its events bring along.

use std::sync::Arc;

use tidemill_types::FieldType;

use super::condition::{Condition, Conditions, Evaluator};
use super::{Parameter, Source};
use crate::expr::Failure;
use crate::store::{RowStore, Seq};

/// Where the condition comes from.
#[derive(Clone)]
pub(super) enum Origin {
    /// It is written in the app.
    Fixed(Arc<Condition>),
    /// It is an attribute of the events.
    Column(usize, Arc<Conditions>),
}

impl Origin {
    pub(super) fn of(parameter: &Parameter, source: &Source<'_>) -> Result<Self, String> {
        let conditions = Conditions::new(source);
        if parameter.expr.as_const().is_some() {
            return Ok(Self::Fixed(conditions.compile(parameter.constant_text("the condition")?)?));
        }
        let column = parameter.column("the condition", &[FieldType::String])?;
        Ok(Self::Column(column, Arc::new(conditions)))
    }

    /// What evaluates the condition from the start on, if it is known.
    pub(super) fn evaluator(&self) -> Option<Evaluator> {
        match self {
            Self::Fixed(condition) => Some(Evaluator::new(Arc::clone(condition))),
            Self::Column(..) => None,
        }
    }

    /// What evaluates the condition from row `seq` on, if it is another than before.
    pub(super) fn changed(
        &self,
        seq: Seq,
        before: Option<&Evaluator>,
        rows: &RowStore,
    ) -> Result<Option<Evaluator>, Failure> {
        let Self::Column(column, conditions) = self else { return Ok(None) };
        let Some(text) = rows.text(seq, *column) else {
            return Err(Failure("the condition of the expression window is null".into()));
        };
        if before.is_some_and(|before| before.text() == text) {
            return Ok(None);
        }
        Ok(Some(Evaluator::new(conditions.compile(text).map_err(Failure)?)))
    }

    /// Takes a saved evaluator back.
    pub(super) fn restore(&self, saved: &Saved) -> Result<Option<Evaluator>, Failure> {
        let Some((text, aggregates)) = saved else { return Ok(None) };
        let condition = match self {
            Self::Fixed(condition) => Arc::clone(condition),
            Self::Column(_, conditions) => conditions.compile(text).map_err(Failure)?,
        };
        let mut evaluator = Evaluator::new(condition);
        evaluator.restore(aggregates)?;
        Ok(Some(evaluator))
    }
}

/// The text of the condition and the state of its aggregates; none before the first event brought one along.
pub(super) type Saved = Option<(String, serde_json::Value)>;

pub(super) fn save(evaluator: Option<&Evaluator>) -> Saved {
    evaluator.map(|evaluator| (evaluator.text().to_owned(), evaluator.save()))
}
