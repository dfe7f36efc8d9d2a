//! Stream processors that keep no state of their own, as their model belongs to the app.

use serde_json::Value as Json;

use crate::columns::batch::EventKind;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::models::Models;
use crate::registry::{ProcessorEvent, StreamProcessor};

/// Work of a query with a model: training it, or predicting by it.
pub(super) trait ModelStep: Send {
    /// Appends the added attributes of an event with these arguments to its values.
    ///
    /// Errors: the arguments do not fit the model. Nothing is appended then.
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError>;
}

/// Processor that applies a step to each current event.
pub(super) struct ModelProcessor<S>(pub S);

impl<S: ModelStep> StreamProcessor for ModelProcessor<S> {
    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        self.process_with_models(event, args, now, None, out)
    }

    fn process_with_models(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        _: i64,
        models: Option<&Models>,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        let models = models.ok_or_else(|| EvalError::internal("a model needs an app"))?;
        if event.kind == EventKind::Current {
            self.0.apply(models, args, &mut event.values)?;
        }
        out.push(event);
        Ok(())
    }

    fn save(&self) -> Json {
        Json::Null
    }

    fn restore(&mut self, _: &Json) -> Result<(), EvalError> {
        Ok(())
    }
}

/// Checks how many features an event has. Errors: the model was trained with another number.
pub(super) fn check_features(model: &str, trained: usize, given: usize) -> Result<(), EvalError> {
    match trained == given {
        true => Ok(()),
        false => {
            Err(EvalError::argument(format!("the model `{model}` has {trained} features, found {given}")))
        }
    }
}

/// Checks the parameters of a query that trains. Errors: the model was begun with others.
pub(super) fn check_parameters<P: PartialEq>(model: &str, known: &P, given: &P) -> Result<(), EvalError> {
    match known == given {
        true => Ok(()),
        false => Err(EvalError::argument(format!("another query trains `{model}` with other parameters"))),
    }
}
