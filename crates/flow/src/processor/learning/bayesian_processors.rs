//! `#streamingml:updateBayesianRegression(…)` and `#streamingml:bayesianRegression(…)`.

use std::sync::Arc;

use tidemill_types::FieldType;

use super::bayesian::BayesianRegression;
use super::model_processor::{ModelProcessor, ModelStep, check_features};
use super::parameters::{Parameters, features_of};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::models::Models;
use crate::registry::BoundStreamProcessor;

/// Kind of the models.
const KIND: &str = "Bayesian regression";
const TRAIN: &str = "streamingml:updateBayesianRegression(model.name, target [, model.samples] [, model.optimizer] [, learning.rate], feature, …)";
const PREDICT: &str = "streamingml:bayesianRegression(model.name [, prediction.samples], feature, …)";
const OPTIMIZERS: [&str; 5] = ["ADAM", "NADAM", "ADAGRAD", "AMSGRAD", "SGD"];

/// Binds the processor that trains. Samples, optimizer and learning rate are checked and have no effect: the distribution is
/// computed exactly, where Siddhi approaches it by steps.
pub(super) fn train(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(TRAIN, args);
    let model = read.name()?;
    let (target, ty) = read.attribute("target")?;
    if !matches!(ty, FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double) {
        return Err(read.wrong(&format!("`target` must be a number; it is {ty}")));
    }
    if matches!(read.next_constant(), Some(FieldType::Int | FieldType::Long)) {
        read.integer("model.samples", 1, i64::from(i32::MAX))?;
    }
    if read.next_constant() == Some(FieldType::String) {
        read.word("model.optimizer", &OPTIMIZERS)?;
    }
    if read.next_constant().is_some() {
        read.share("learning.rate")?;
    }
    let first = read.place();
    read.features(read.attributes()?)?;
    let made = move || BayesianTrainer { model: model.clone(), target, first };
    Ok((Arc::new(move || Box::new(ModelProcessor(made()))), vec![("loss".to_owned(), FieldType::Double)]))
}

/// Binds the processor that predicts.
pub(super) fn predict(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(PREDICT, args);
    let model = read.name()?;
    if read.next_constant().is_some() {
        read.integer("prediction.samples", 1, i64::from(i32::MAX))?;
    }
    let first = read.place();
    read.features(read.attributes()?)?;
    let added = ["prediction", "confidence"].map(|name| (name.to_owned(), FieldType::Double));
    let made = move || BayesianPredictor { model: model.clone(), first };
    Ok((Arc::new(move || Box::new(ModelProcessor(made()))), added.to_vec()))
}

struct BayesianTrainer {
    model: String,
    /// Index of the target among the arguments.
    target: usize,
    /// Index of the first feature among the arguments.
    first: usize,
}

impl ModelStep for BayesianTrainer {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let target = match args.get(self.target).and_then(Value::as_f64) {
            Some(target) if target.is_finite() => target,
            Some(target) => return Err(EvalError::argument(format!("the target of the model is {target}"))),
            None => return Err(EvalError::null("the target of the model")),
        };
        let features = features_of(args.get(self.first..).unwrap_or_default())?;
        let loss = models.with(KIND, &self.model, |model: &mut Option<BayesianRegression>| {
            let prior;
            let before = match model {
                Some(model) => model,
                None => {
                    prior = BayesianRegression::new(features.len());
                    &prior
                }
            };
            check_features(&self.model, before.features(), features.len())?;
            let loss = before.predict(&features).loss(target);
            let after = before.after(&features, target).ok_or_else(|| {
                EvalError::argument(format!("the numbers of the event are too large for `{}`", self.model))
            })?;
            *model = Some(after);
            Ok(loss)
        })?;
        values.push(Value::Double(loss));
        Ok(())
    }
}

struct BayesianPredictor {
    model: String,
    /// Index of the first feature among the arguments.
    first: usize,
}

impl ModelStep for BayesianPredictor {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let features = features_of(args.get(self.first..).unwrap_or_default())?;
        let predicted = models.with(KIND, &self.model, |model: &mut Option<BayesianRegression>| {
            let Some(model) = model else { return Ok(None) };
            check_features(&self.model, model.features(), features.len())?;
            Ok(Some(model.predict(&features)))
        })?;
        match predicted {
            Some(predicted) => values.extend([
                Value::Double(predicted.mean),
                predicted.confidence().map_or(Value::Null, Value::Double),
            ]),
            // nothing was learnt yet
            None => values.extend([Value::Null, Value::Null]),
        }
        Ok(())
    }
}
