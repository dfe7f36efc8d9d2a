//! `#streamingml:updatePerceptronClassifier(…)` and `#streamingml:perceptronClassifier(…)`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::float_bits;
use super::model_processor::{ModelProcessor, ModelStep, check_features};
use super::parameters::{Parameters, features_of};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::models::Models;
use crate::registry::BoundStreamProcessor;

/// Kind of the models.
const KIND: &str = "perceptron";
const TRAIN: &str = "streamingml:updatePerceptronClassifier(model.name, label [, learning.rate], feature, …)";
const CLASSIFY: &str =
    "streamingml:perceptronClassifier(model.name [, model.bias [, model.threshold]], feature, …)";
/// Weighted sum above which training takes an event for `true`.
const THRESHOLD: f64 = 0.5;

/// A perceptron: one weight for each feature, 0 at first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Perceptron {
    #[serde(with = "float_bits::list")]
    weights: Vec<f64>,
}

impl Perceptron {
    fn sum(&self, features: &[f64]) -> f64 {
        self.weights.iter().zip(features).map(|(weight, x)| weight * x).sum()
    }

    /// Learns from an event: its features are added to the weights, or subtracted, if its label is not predicted.
    ///
    /// Errors: the weights would be no numbers any more.
    fn learn(&mut self, features: &[f64], label: bool, rate: f64) -> Result<(), EvalError> {
        let step = match (label, self.sum(features) > THRESHOLD) {
            (true, false) => rate,
            (false, true) => -rate,
            _ => return Ok(()),
        };
        let weights: Vec<f64> =
            self.weights.iter().zip(features).map(|(weight, x)| weight + step * x).collect();
        if weights.iter().any(|weight| !weight.is_finite()) {
            return Err(EvalError::argument("the features are too large for the weights of the model"));
        }
        self.weights = weights;
        Ok(())
    }
}

/// Binds the processor that trains.
pub(super) fn train(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(TRAIN, args);
    let model = read.name()?;
    let (label, ty) = read.attribute("label")?;
    if !matches!(ty, FieldType::Bool | FieldType::String) {
        return Err(
            read.wrong(&format!("`label` must be a bool, or a string with true or false; it is {ty}"))
        );
    }
    let rate = match read.next_constant() {
        Some(_) => read.share("learning.rate")?,
        None => 0.1,
    };
    let first = read.place();
    let features = read.features(read.attributes()?)?;
    let added = (1..=features).map(|n| (format!("featureWeight{n}"), FieldType::Double)).collect();
    let made = move || PerceptronTrainer { model: model.clone(), label, rate, first };
    Ok((Arc::new(move || Box::new(ModelProcessor(made()))), added))
}

/// Binds the processor that classifies.
pub(super) fn classify(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(CLASSIFY, args);
    let model = read.name()?;
    let bias = if read.next_constant().is_some() { read.number("model.bias")? } else { 0.0 };
    let threshold =
        if read.next_constant().is_some() { read.threshold("model.threshold")? } else { THRESHOLD };
    let first = read.place();
    read.features(read.attributes()?)?;
    let added = [("prediction", FieldType::Bool), ("confidenceLevel", FieldType::Double)];
    let made = move || Classifier { model: model.clone(), bias, threshold, first };
    Ok((
        Arc::new(move || Box::new(ModelProcessor(made()))),
        added.map(|(name, ty)| (name.to_owned(), ty)).to_vec(),
    ))
}

struct PerceptronTrainer {
    model: String,
    /// Index of the label among the arguments.
    label: usize,
    rate: f64,
    /// Index of the first feature among the arguments.
    first: usize,
}

impl ModelStep for PerceptronTrainer {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let label = match args.get(self.label) {
            Some(Value::Bool(label)) => *label,
            Some(Value::Null) | None => return Err(EvalError::null("the label of the model")),
            Some(text) => {
                let is = |word: &str| text.as_str().is_some_and(|text| text.eq_ignore_ascii_case(word));
                match (is("true"), is("false")) {
                    (true, _) => true,
                    (_, true) => false,
                    _ => {
                        return Err(EvalError::argument(format!(
                            "the label of `{}` must be true or false, found `{text}`",
                            self.model
                        )));
                    }
                }
            }
        };
        let features = features_of(args.get(self.first..).unwrap_or_default())?;
        let weights = models.with(KIND, &self.model, |model: &mut Option<Perceptron>| {
            let mut learnt =
                model.clone().unwrap_or_else(|| Perceptron { weights: vec![0.0; features.len()] });
            check_features(&self.model, learnt.weights.len(), features.len())?;
            learnt.learn(&features, label, self.rate)?;
            Ok(model.insert(learnt).weights.clone())
        })?;
        values.extend(weights.into_iter().map(Value::Double));
        Ok(())
    }
}

struct Classifier {
    model: String,
    bias: f64,
    threshold: f64,
    /// Index of the first feature among the arguments.
    first: usize,
}

impl ModelStep for Classifier {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let features = features_of(args.get(self.first..).unwrap_or_default())?;
        let sum = models.with(KIND, &self.model, |model: &mut Option<Perceptron>| {
            let Some(model) = model else { return Ok(None) };
            check_features(&self.model, model.weights.len(), features.len())?;
            Ok(Some(model.sum(&features) + self.bias))
        })?;
        match sum {
            Some(sum) => values.extend([Value::Bool(sum > self.threshold), Value::Double(sum)]),
            // nothing was learnt yet
            None => values.extend([Value::Null, Value::Null]),
        }
        Ok(())
    }
}
