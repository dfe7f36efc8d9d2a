//! `#streamingml:updateAMRulesRegressor(…)` and `#streamingml:AMRulesRegressor(…)`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::am_rules::{AmRules, AnomalyDetector, ChangeDetector, RuleParameters};
use super::float_bits;
use super::model_processor::{ModelProcessor, ModelStep, check_features, check_parameters};
use super::parameters::{Parameters, features_of};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::models::Models;
use crate::registry::BoundStreamProcessor;

/// Kind of the models.
const KIND: &str = "AMRules";
const TRAIN: &str = "streamingml:updateAMRulesRegressor(model.name [, split.confidence, tie.break.threshold, grace.period, change.detector, anomaly.detector], feature, …, target)";
const PREDICT: &str = "streamingml:AMRulesRegressor(model.name, feature, …)";
/// Constants behind the name, all of them or none.
const HYPER_PARAMETERS: usize = 5;

/// A model with its errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Regressor {
    rules: AmRules,
    events: u64,
    /// Sum of the squares of the errors of predictions before events were learnt.
    #[serde(with = "float_bits")]
    squares: f64,
}

impl Regressor {
    fn mean_squared_error(&self) -> f64 {
        if self.events > 0 { self.squares / self.events as f64 } else { 0.0 }
    }
}

/// Binds the processor that trains.
pub(super) fn train(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(TRAIN, args);
    let model = read.name()?;
    let mut parameters = RuleParameters {
        features: 0,
        confidence: 1e-7,
        tie_threshold: 0.05,
        grace_period: 200,
        change: ChangeDetector::PageHinkley,
        anomaly: AnomalyDetector::Odds,
    };
    match read.constants() {
        0 => {}
        HYPER_PARAMETERS => {
            parameters.confidence = read.share("split.confidence")?;
            parameters.tie_threshold = read.threshold("tie.break.threshold")?;
            parameters.grace_period = read.integer("grace.period", 0, i64::from(i32::MAX))? as u64;
            parameters.change = match read.integer("change.detector", 0, 2)? {
                0 => ChangeDetector::None,
                1 => ChangeDetector::Adwin,
                _ => ChangeDetector::PageHinkley,
            };
            parameters.anomaly = match read.integer("anomaly.detector", 0, 2)? {
                0 => AnomalyDetector::None,
                1 => AnomalyDetector::Ratio,
                _ => AnomalyDetector::Odds,
            };
        }
        count => return Err(read.wrong(&format!("{count} constants behind the name, expected 0 or 5"))),
    }
    let (attributes, first) = (read.attributes()?, read.place());
    let Some((target, features)) = attributes.split_last() else {
        return Err(read.wrong("there is no feature and no target"));
    };
    parameters.features = read.features(features)?;
    read.features(std::slice::from_ref(target)).map_err(|_| read.wrong("the target is no number"))?;
    let made = move || AmRulesTrainer { model: model.clone(), parameters: parameters.clone(), first };
    Ok((
        Arc::new(move || Box::new(ModelProcessor(made()))),
        vec![("meanSquaredError".to_owned(), FieldType::Double)],
    ))
}

/// Binds the processor that predicts.
pub(super) fn predict(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(PREDICT, args);
    let model = read.name()?;
    read.features(read.attributes()?)?;
    let added = ["prediction", "meanSquaredError"].map(|name| (name.to_owned(), FieldType::Double));
    Ok((
        Arc::new(move || Box::new(ModelProcessor(AmRulesPredictor { model: model.clone() }))),
        added.to_vec(),
    ))
}

struct AmRulesTrainer {
    model: String,
    parameters: RuleParameters,
    /// Index of the first feature among the arguments.
    first: usize,
}

impl ModelStep for AmRulesTrainer {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let all = features_of(args.get(self.first..).unwrap_or_default())?;
        let Some((target, features)) = all.split_last() else {
            return Err(EvalError::internal("the arguments of a model are missing"));
        };
        let error = models.with(KIND, &self.model, |model: &mut Option<Regressor>| {
            let model = model.get_or_insert_with(|| Regressor {
                rules: AmRules::new(self.parameters.clone()),
                events: 0,
                squares: 0.0,
            });
            check_parameters(&self.model, model.rules.parameters(), &self.parameters)?;
            let error = model.rules.predict(features) - target;
            model.events += 1;
            model.squares += error * error;
            model.rules.learn(features, *target);
            Ok(model.mean_squared_error())
        })?;
        values.push(Value::Double(error));
        Ok(())
    }
}

struct AmRulesPredictor {
    model: String,
}

impl ModelStep for AmRulesPredictor {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let features = features_of(args.get(1..).unwrap_or_default())?;
        let predicted = models.with(KIND, &self.model, |model: &mut Option<Regressor>| {
            let Some(model) = model else { return Ok(None) };
            check_features(&self.model, model.rules.parameters().features, features.len())?;
            Ok(Some((model.rules.predict(&features), model.mean_squared_error())))
        })?;
        match predicted {
            Some((prediction, error)) => values.extend([Value::Double(prediction), Value::Double(error)]),
            // nothing was learnt yet
            None => values.extend([Value::Null, Value::Null]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(change: ChangeDetector) -> RuleParameters {
        RuleParameters {
            features: 2,
            confidence: 1e-7,
            tie_threshold: 0.05,
            grace_period: 200,
            change,
            anomaly: AnomalyDetector::Odds,
        }
    }

    /// Returns event `n` of a pattern: two features from 0 to 1.
    fn features(n: u64) -> [f64; 2] {
        [37, 53].map(|k| (n * k % 1009) as f64 / 1009.0)
    }

    /// Returns the mean squared error over a thousand events.
    fn error(rules: &AmRules, of: impl Fn([f64; 2]) -> f64) -> f64 {
        let error = |n| rules.predict(&features(n)) - of(features(n));
        (0..1000).map(|n| error(n) * error(n)).sum::<f64>() / 1000.0
    }

    #[test]
    fn steps_become_rules() {
        let of = |x: [f64; 2]| if x[0] <= 0.3 { 10.0 } else { -10.0 };
        let mut rules = AmRules::new(parameters(ChangeDetector::PageHinkley));
        (0..20_000).for_each(|n| rules.learn(&features(n), of(features(n))));
        let error = error(&rules, of);
        // the variance is 84
        assert!(rules.rules() >= 1 && error < 8.0, "{} rules, {error}", rules.rules());
    }

    #[test]
    fn a_plane_is_learnt() {
        let of = |x: [f64; 2]| 5.0 * x[0] - 3.0 * x[1] + 1.0;
        let mut rules = AmRules::new(parameters(ChangeDetector::PageHinkley));
        (0..20_000).for_each(|n| rules.learn(&features(n), of(features(n))));
        let error = error(&rules, of);
        // the variance is 2.8
        assert!(error < 0.1, "{} rules, {error}", rules.rules());
    }

    #[test]
    fn rules_that_became_wrong_are_dropped() {
        let old = |x: [f64; 2]| if x[0] <= 0.5 { 10.0 } else { -10.0 };
        let new = |x: [f64; 2]| if x[0] <= 0.5 { -10.0 } else { 10.0 };
        for change in [ChangeDetector::PageHinkley, ChangeDetector::Adwin] {
            let mut rules = AmRules::new(parameters(change));
            (0..10_000).for_each(|n| rules.learn(&features(n), old(features(n))));
            (0..1000).for_each(|n| rules.learn(&features(n), new(features(n))));
            let error = error(&rules, new);
            // 15 if no rule is dropped
            assert!(error < 5.0, "{change:?}: {} rules, {error}", rules.rules());
        }
    }

    #[test]
    fn models_are_bounded_and_equal_after_a_restart() {
        let mut rules = AmRules::new(RuleParameters {
            grace_period: 1,
            tie_threshold: 1.0,
            ..parameters(ChangeDetector::None)
        });
        let of = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64;
        (0..20_000).for_each(|n| rules.learn(&features(n), of(n)));
        assert!(rules.rules() <= super::super::am_rules::RULES_MAX);
        let mut restored: AmRules = serde_json::from_value(serde_json::to_value(&rules).unwrap()).unwrap();
        for n in 20_000..21_000 {
            rules.learn(&features(n), of(n));
            restored.learn(&features(n), of(n));
        }
        assert_eq!(restored, rules);
    }
}
