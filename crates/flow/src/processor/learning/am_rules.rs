//! AMRules: a list of rules that predict a number, each with a linear model, which grows with the events.
//!
//! An event is for the first rule that covers it, or for the default rule. A rule that has seen enough gets one more
//! condition; what the default rule would split off becomes a new rule. A rule whose errors have become more is dropped.
//!
//! Source: Almeida, Ferreira and Gama, Adaptive Model Rules from Data Streams, 2013.

use serde::{Deserialize, Serialize};

use super::adwin::Adwin;
use super::float_bits;
use super::gaussian::{Gaussian, hoeffding_bound};
use super::regression::{LinearModel, SplitPoints};

/// Rules of a model; a model that has so many makes no new ones.
pub(super) const RULES_MAX: usize = 500;
/// Conditions of a rule.
const CONDITIONS_MAX: usize = 64;
/// Events that a rule has seen before events may be anomalies to it.
const ANOMALY_EVENTS_MIN: f64 = 30.0;
/// Least odds, as a logarithm for each feature, below which an event is an anomaly.
const ANOMALY_ODDS: f64 = -4.6;
/// Share of the features that are unlikely in an anomaly.
const ANOMALY_SHARE: f64 = 0.5;
/// Page-Hinkley: events before it, error that is tolerated in standard deviations of the target, and sum that is a change.
const PAGE_HINKLEY_MIN: f64 = 30.0;
const PAGE_HINKLEY_ALPHA: f64 = 0.005;
const PAGE_HINKLEY_LAMBDA: f64 = 35.0;

/// Parameters of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RuleParameters {
    pub features: usize,
    #[serde(with = "float_bits")]
    pub confidence: f64,
    #[serde(with = "float_bits")]
    pub tie_threshold: f64,
    /// Events of a rule between two attempts to expand it.
    pub grace_period: u64,
    pub change: ChangeDetector,
    pub anomaly: AnomalyDetector,
}

/// Detector of rules whose errors have increased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ChangeDetector {
    None,
    Adwin,
    PageHinkley,
}

/// Detector of events from which a rule does not learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AnomalyDetector {
    None,
    /// Share of the features with an unlikely value.
    Ratio,
    /// Mean logarithm of the odds of all features.
    Odds,
}

/// The model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AmRules {
    parameters: RuleParameters,
    rules: Vec<AmRule>,
    default: AmRule,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AmRule {
    conditions: Vec<SplitCondition>,
    target: Gaussian,
    features: Vec<Gaussian>,
    splits: Vec<SplitPoints>,
    model: LinearModel,
    since_attempt: u64,
    errors: Adwin,
    page_hinkley: PageHinkley,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct SplitCondition {
    feature: usize,
    /// True for values up to the threshold, false for those above it.
    is_up_to: bool,
    #[serde(with = "float_bits")]
    threshold: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct PageHinkley {
    #[serde(with = "float_bits")]
    count: f64,
    #[serde(with = "float_bits")]
    mean: f64,
    #[serde(with = "float_bits")]
    sum: f64,
    #[serde(with = "float_bits")]
    least: f64,
}

impl AmRules {
    pub(super) fn new(parameters: RuleParameters) -> Self {
        let default = AmRule::new(vec![], &parameters);
        Self { parameters, rules: vec![], default }
    }

    pub(super) fn parameters(&self) -> &RuleParameters {
        &self.parameters
    }

    /// Returns the predicted number; 0 before the first event.
    pub(super) fn predict(&self, features: &[f64]) -> f64 {
        let rule = self.rules.iter().find(|rule| rule.covers(features)).unwrap_or(&self.default);
        rule.predict(features)
    }

    /// Learns from an event.
    pub(super) fn learn(&mut self, features: &[f64], target: f64) {
        let parameters = &self.parameters;
        let Some(at) = self.rules.iter().position(|rule| rule.covers(features)) else {
            if self.default.is_anomaly(features, parameters.anomaly) {
                return;
            }
            self.default.learn(features, target);
            let condition = self.default.expansion(parameters);
            if let Some(condition) = condition.filter(|_| self.rules.len() < RULES_MAX) {
                let mut rule = AmRule::new(vec![condition], parameters);
                // the new rule inherits the model, which fits its part as well as the whole
                rule.model = self.default.model.clone();
                self.rules.push(rule);
                self.default = AmRule::new(vec![], parameters).with_model_of(&self.default);
            }
            return;
        };
        let Some(rule) = self.rules.get_mut(at) else { return };
        if rule.is_anomaly(features, parameters.anomaly) {
            return;
        }
        if rule.has_changed(features, target, parameters.change) {
            self.rules.remove(at);
            return;
        }
        rule.learn(features, target);
        if let Some(condition) = rule.expansion(parameters) {
            let mut conditions = rule.conditions.clone();
            conditions.push(condition);
            *rule = AmRule::new(conditions, parameters).with_model_of(rule);
        }
    }

    #[cfg(test)]
    pub(super) fn rules(&self) -> usize {
        self.rules.len()
    }
}

impl SplitCondition {
    fn holds(&self, features: &[f64]) -> bool {
        features.get(self.feature).is_some_and(|x| (*x <= self.threshold) == self.is_up_to)
    }
}

impl AmRule {
    fn new(conditions: Vec<SplitCondition>, parameters: &RuleParameters) -> Self {
        Self {
            conditions,
            target: Gaussian::default(),
            features: vec![Gaussian::default(); parameters.features],
            splits: vec![SplitPoints::default(); parameters.features],
            model: LinearModel::new(parameters.features),
            since_attempt: 0,
            errors: Adwin::default(),
            page_hinkley: PageHinkley::default(),
        }
    }

    fn with_model_of(mut self, other: &Self) -> Self {
        self.model = other.model.clone();
        self
    }

    fn covers(&self, features: &[f64]) -> bool {
        self.conditions.iter().all(|condition| condition.holds(features))
    }

    fn predict(&self, features: &[f64]) -> f64 {
        self.model.predict(features)
    }

    fn learn(&mut self, features: &[f64], target: f64) {
        self.since_attempt += 1;
        self.model.learn(features, target);
        self.target.add(target);
        for ((of, splits), x) in self.features.iter_mut().zip(&mut self.splits).zip(features) {
            of.add(*x);
            splits.add(*x, target);
        }
    }

    /// Returns one more condition for the rule, if one is better than the others by Hoeffding's bound.
    fn expansion(&mut self, parameters: &RuleParameters) -> Option<SplitCondition> {
        if self.since_attempt < parameters.grace_period.max(1) || self.conditions.len() >= CONDITIONS_MAX {
            return None;
        }
        self.since_attempt = 0;
        let deviation = self.target.deviation();
        if deviation <= 0.0 {
            return None;
        }
        let mut candidates: Vec<_> = self
            .splits
            .iter()
            .enumerate()
            .filter_map(|(feature, splits)| Some((feature, splits.best(deviation)?)))
            .collect();
        candidates.sort_by(|(_, a), (_, b)| b.merit.total_cmp(&a.merit));
        let (feature, best) = candidates.first()?;
        if best.merit <= 0.0 {
            return None;
        }
        let ratio = candidates.get(1).map_or(0.0, |(_, second)| second.merit.max(0.0) / best.merit);
        let bound = hoeffding_bound(1.0, parameters.confidence, self.target.count);
        let is_better = ratio < 1.0 - bound || bound < parameters.tie_threshold;
        // the rule continues with the side whose targets differ less
        is_better.then_some(SplitCondition {
            feature: *feature,
            is_up_to: best.left_deviation <= best.right_deviation,
            threshold: best.threshold,
        })
    }

    fn is_anomaly(&self, features: &[f64], by: AnomalyDetector) -> bool {
        if by == AnomalyDetector::None || self.target.count < ANOMALY_EVENTS_MIN || self.conditions.is_empty()
        {
            return false;
        }
        // Cantelli's inequality: how likely a value as far from the mean is at most
        let odds = |(of, x): (&Gaussian, &f64)| {
            let (variance, distance) = (of.variance(), x - of.mean);
            if variance <= 0.0 {
                return if distance == 0.0 { 0.0 } else { 2.0 * ANOMALY_ODDS };
            }
            let p = variance / (variance + distance * distance);
            if p >= 0.5 { 0.0 } else { (p / (1.0 - p)).ln() }
        };
        let all: Vec<f64> = self.features.iter().zip(features).map(odds).collect();
        let count = all.len().max(1) as f64;
        match by {
            AnomalyDetector::None => false,
            AnomalyDetector::Ratio => {
                all.iter().filter(|odds| **odds < ANOMALY_ODDS).count() as f64 / count > ANOMALY_SHARE
            }
            AnomalyDetector::Odds => all.iter().sum::<f64>() / count < ANOMALY_ODDS,
        }
    }

    /// Notes the error of the rule for an event. Returns whether the errors have become more.
    fn has_changed(&mut self, features: &[f64], target: f64, by: ChangeDetector) -> bool {
        let deviation = self.target.deviation();
        let error = (self.predict(features) - target).abs();
        let error = if deviation > 0.0 { error / deviation } else { error };
        match by {
            ChangeDetector::None => false,
            ChangeDetector::Adwin => {
                let before = self.errors.mean();
                self.errors.add(error) && self.errors.mean() > before
            }
            ChangeDetector::PageHinkley => self.page_hinkley.add(error),
        }
    }
}

impl PageHinkley {
    /// Adds an error. Returns whether the errors have become more.
    fn add(&mut self, error: f64) -> bool {
        self.count += 1.0;
        self.mean += (error - self.mean) / self.count;
        self.sum += error - self.mean - PAGE_HINKLEY_ALPHA;
        self.least = self.least.min(self.sum);
        self.count > PAGE_HINKLEY_MIN && self.sum - self.least > PAGE_HINKLEY_LAMBDA
    }
}
