//! `#streamingml:updateHoeffdingTree(…)` and `#streamingml:hoeffdingTreeClassifier(…)`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::hoeffding::{Criterion, HoeffdingTree, Prediction, TreeParameters, most_likely};
use super::model_processor::{ModelProcessor, ModelStep, check_features, check_parameters};
use super::parameters::{Parameters, features_of};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::models::Models;
use crate::registry::BoundStreamProcessor;

/// Kind of the models.
const KIND: &str = "Hoeffding tree";
const TRAIN: &str = "streamingml:updateHoeffdingTree(model.name, no.of.classes [, grace.period, split.criterion, split.confidence, tie.break.threshold, binary.split, pre.prune, leaf.prediction.strategy], feature, …, label)";
const CLASSIFY: &str = "streamingml:hoeffdingTreeClassifier(model.name, feature, …)";
/// Constants behind the number of classes, all of them or none.
const HYPER_PARAMETERS: usize = 7;
/// Classes of a model.
const CLASSES_MAX: i64 = 1000;

/// A tree with the names of its classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Classifier {
    tree: HoeffdingTree,
    /// Labels, in the order of their first event.
    labels: Vec<String>,
    /// Events, and how many of them were predicted before they were learnt.
    events: u64,
    hits: u64,
}

/// Binds the processor that trains.
pub(super) fn train(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(TRAIN, args);
    let model = read.name()?;
    let classes = read.integer("no.of.classes", 2, CLASSES_MAX)? as usize;
    let mut parameters = TreeParameters {
        classes,
        features: 0,
        grace_period: 200,
        criterion: Criterion::InformationGain,
        confidence: 1e-7,
        tie_threshold: 0.05,
        pre_prune: false,
        prediction: Prediction::Adaptive,
    };
    match read.constants() {
        0 => {}
        HYPER_PARAMETERS => {
            parameters.grace_period = read.integer("grace.period", 0, i64::from(i32::MAX))? as u64;
            parameters.criterion = match read.integer("split.criterion", 0, 1)? {
                0 => Criterion::InformationGain,
                _ => Criterion::Gini,
            };
            parameters.confidence = read.share("split.confidence")?;
            parameters.tie_threshold = read.threshold("tie.break.threshold")?;
            // splits by numbers have two sides in any case
            read.flag("binary.split")?;
            parameters.pre_prune = read.flag("pre.prune")?;
            parameters.prediction = match read.integer("leaf.prediction.strategy", 0, 2)? {
                0 => Prediction::Majority,
                1 => Prediction::NaiveBayes,
                _ => Prediction::Adaptive,
            };
        }
        count => {
            return Err(read.wrong(&format!("{count} constants behind `no.of.classes`, expected 0 or 7")));
        }
    }
    let (attributes, first) = (read.attributes()?, read.place());
    let Some((label, features)) = attributes.split_last() else {
        return Err(read.wrong("there is no feature and no label"));
    };
    if !matches!(label.ty, FieldType::String | FieldType::Bool) {
        return Err(read.wrong("the label, which is the last parameter, must be a string or a bool"));
    }
    parameters.features = read.features(features)?;
    let made = move || HoeffdingTrainer { model: model.clone(), parameters: parameters.clone(), first };
    Ok((Arc::new(move || Box::new(ModelProcessor(made()))), vec![("accuracy".to_owned(), FieldType::Double)]))
}

/// Binds the processor that predicts.
pub(super) fn classify(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(CLASSIFY, args);
    let model = read.name()?;
    read.features(read.attributes()?)?;
    let added =
        vec![("prediction".to_owned(), FieldType::String), ("confidenceLevel".to_owned(), FieldType::Double)];
    Ok((Arc::new(move || Box::new(ModelProcessor(HoeffdingPredictor { model: model.clone() }))), added))
}

struct HoeffdingTrainer {
    model: String,
    parameters: TreeParameters,
    /// Index of the first feature among the arguments.
    first: usize,
}

impl Classifier {
    /// Learns from an event. Returns the share of events that were predicted before they were learnt.
    fn learn(&mut self, features: &[f64], label: &str) -> Result<f64, EvalError> {
        let known = self.labels.iter().position(|known| known == label);
        let classes = self.tree.parameters().classes;
        let class = match known {
            Some(class) => class,
            None if self.labels.len() < classes => {
                self.labels.push(label.to_owned());
                self.labels.len() - 1
            }
            None => {
                return Err(EvalError::argument(format!(
                    "the label `{label}` is one more than the {classes} classes of the model: {}",
                    self.labels.join(", ")
                )));
            }
        };
        self.events += 1;
        self.hits += u64::from(most_likely(&self.tree.predict(features)) == Some(class));
        self.tree.learn(features, class);
        Ok(self.hits as f64 / self.events as f64)
    }
}

impl ModelStep for HoeffdingTrainer {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let Some((label, features)) = args.get(self.first..).and_then(<[Value]>::split_last) else {
            return Err(EvalError::internal("the arguments of a model are missing"));
        };
        let label = match label {
            Value::Str(label) => label.to_string(),
            Value::Bool(label) => label.to_string(),
            _ => return Err(EvalError::null("the label of the model")),
        };
        let features = features_of(features)?;
        let accuracy = models.with(KIND, &self.model, |model: &mut Option<Classifier>| {
            let model = model.get_or_insert_with(|| Classifier {
                tree: HoeffdingTree::new(self.parameters.clone()),
                labels: vec![],
                events: 0,
                hits: 0,
            });
            check_parameters(&self.model, model.tree.parameters(), &self.parameters)?;
            model.learn(&features, &label)
        })?;
        values.push(Value::Double(accuracy));
        Ok(())
    }
}

struct HoeffdingPredictor {
    model: String,
}

impl ModelStep for HoeffdingPredictor {
    fn apply(&self, models: &Models, args: &[Value], values: &mut Vec<Value>) -> Result<(), EvalError> {
        let features = features_of(args.get(1..).unwrap_or_default())?;
        let predicted = models.with(KIND, &self.model, |model: &mut Option<Classifier>| {
            let Some(model) = model else { return Ok(None) };
            check_features(&self.model, model.tree.parameters().features, features.len())?;
            let shares = model.tree.predict(&features);
            let class = most_likely(&shares);
            Ok(class.and_then(|class| Some((model.labels.get(class)?.clone(), *shares.get(class)?))))
        })?;
        match predicted {
            Some((label, share)) => values.extend([Value::text(&label), Value::Double(share)]),
            // nothing was learnt yet
            None => values.extend([Value::Null, Value::Null]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(features: usize) -> TreeParameters {
        TreeParameters {
            classes: 2,
            features,
            grace_period: 200,
            criterion: Criterion::InformationGain,
            confidence: 1e-7,
            tie_threshold: 0.05,
            pre_prune: false,
            prediction: Prediction::Adaptive,
        }
    }

    /// Returns event `n` of a pattern: two features from 0 to 1.
    fn features(n: u64) -> [f64; 2] {
        [37, 53].map(|k| (n * k % 1009) as f64 / 1009.0)
    }

    #[test]
    fn the_feature_that_decides_is_found() {
        let mut tree = HoeffdingTree::new(parameters(2));
        (0..5000).for_each(|n| tree.learn(&features(n), usize::from(features(n)[1] > 0.5)));
        let (feature, threshold) = tree.first_split().unwrap();
        assert!(feature == 1 && (threshold - 0.5).abs() < 0.06, "{feature} {threshold}");
        let right = (5000..6000).filter(|n| {
            most_likely(&tree.predict(&features(*n))) == Some(usize::from(features(*n)[1] > 0.5))
        });
        assert!(right.count() > 970);
    }

    #[test]
    fn exclusive_or_takes_two_levels() {
        let class = |x: [f64; 2]| usize::from((x[0] > 0.4) != (x[1] > 0.6));
        let mut tree = HoeffdingTree::new(parameters(2));
        (0..40_000).for_each(|n| tree.learn(&features(n), class(features(n))));
        let right =
            (0..1000).filter(|n| most_likely(&tree.predict(&features(*n))) == Some(class(features(*n))));
        let right = right.count();
        assert!(right > 950, "{right} with {} nodes", tree.nodes());
    }

    #[test]
    fn a_concept_that_changes_is_learnt_anew() {
        let mut tree = HoeffdingTree::new(parameters(2));
        let class = |n: u64, is_new: bool| usize::from((features(n)[0] > 0.5) != is_new);
        (0..10_000).for_each(|n| tree.learn(&features(n), class(n, false)));
        (0..2000).for_each(|n| tree.learn(&features(n), class(n, true)));
        let right = (0..1000).filter(|n| most_likely(&tree.predict(&features(*n))) == Some(class(*n, true)));
        let right = right.count();
        // 950 without replacements
        assert!(right > 980, "{right}");
    }

    #[test]
    fn trees_are_bounded_and_equal_after_a_restart() {
        let mut tree =
            HoeffdingTree::new(TreeParameters { grace_period: 1, tie_threshold: 1.0, ..parameters(2) });
        // labels without any sense let it split as often as it may
        let class = |n: u64| usize::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1);
        (0..30_000).for_each(|n| tree.learn(&features(n), class(n)));
        assert!((100..=super::super::hoeffding::NODES_MAX).contains(&tree.nodes()), "{}", tree.nodes());
        let mut restored: HoeffdingTree =
            serde_json::from_value(serde_json::to_value(&tree).unwrap()).unwrap();
        assert_eq!(restored, tree);
        for n in 30_000..31_000 {
            tree.learn(&features(n), class(n));
            restored.learn(&features(n), class(n));
        }
        assert_eq!(restored, tree);
    }
}
