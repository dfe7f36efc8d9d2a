//! Linear regression whose weights and noise have a distribution, which each event makes narrower.
//!
//! The prior is conjugate (normal and inverse gamma), so the distribution after an event is known exactly and needs no samples:
//! C. Bishop, Pattern Recognition and Machine Learning, 3.3; K. Murphy, Machine Learning, 7.6.

use serde::{Deserialize, Serialize};

use super::float_bits;

/// Variance of each weight before the first event, in units of the variance of the noise.
const PRIOR_VARIANCE: f64 = 100.0;
/// Shape and scale of the distribution of the noise's variance before the first event.
const PRIOR_SHAPE: f64 = 1.0;
const PRIOR_SCALE: f64 = 1.0;

/// Distribution of the weights, starting with the intercept, and of the noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct BayesianRegression {
    #[serde(with = "float_bits::list")]
    mean: Vec<f64>,
    /// Covariance of the weights, in units of the variance of the noise.
    #[serde(with = "float_bits::lists")]
    covariance: Vec<Vec<f64>>,
    #[serde(with = "float_bits")]
    shape: f64,
    #[serde(with = "float_bits")]
    scale: f64,
}

/// Distribution of a target: Student's t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Predictive {
    pub mean: f64,
    degrees: f64,
    /// Square of the scale.
    square: f64,
}

impl Predictive {
    /// Returns the inverse of the standard deviation; `None` while that is infinite.
    pub(super) fn confidence(&self) -> Option<f64> {
        (self.degrees > 2.0).then(|| (self.square * self.degrees / (self.degrees - 2.0)).sqrt().recip())
    }

    /// Returns the negative logarithm of the density at a target.
    pub(super) fn loss(&self, target: f64) -> f64 {
        let (n, distance) = (self.degrees, (target - self.mean).powi(2) / self.square);
        let constant = libm::lgamma(n / 2.0) - libm::lgamma((n + 1.0) / 2.0);
        constant
            + 0.5 * (n * std::f64::consts::PI * self.square).ln()
            + (n + 1.0) / 2.0 * (distance / n).ln_1p()
    }
}

impl BayesianRegression {
    /// Creates the distribution before the first event.
    pub(super) fn new(features: usize) -> Self {
        let size = features + 1;
        let row = |at: usize| (0..size).map(|n| if n == at { PRIOR_VARIANCE } else { 0.0 }).collect();
        Self {
            mean: vec![0.0; size],
            covariance: (0..size).map(row).collect(),
            shape: PRIOR_SHAPE,
            scale: PRIOR_SCALE,
        }
    }

    /// Returns the number of features.
    pub(super) fn features(&self) -> usize {
        self.mean.len() - 1
    }

    /// Returns the product of the covariance and an event, and the event's own variance.
    fn spread(&self, x: &[f64]) -> (Vec<f64>, f64) {
        let spread: Vec<f64> = self.covariance.iter().map(|row| dot(row, x)).collect();
        let variance = 1.0 + dot(&spread, x).max(0.0);
        (spread, variance)
    }

    /// Returns the distribution of the target of an event.
    pub(super) fn predict(&self, features: &[f64]) -> Predictive {
        let x = with_intercept(features);
        let (_, variance) = self.spread(&x);
        Predictive {
            mean: dot(&self.mean, &x),
            degrees: 2.0 * self.shape,
            square: self.scale / self.shape * variance,
        }
    }

    /// Returns the distribution after an event; `None` if its numbers are too large for one.
    pub(super) fn after(&self, features: &[f64], target: f64) -> Option<Self> {
        let x = with_intercept(features);
        let (spread, variance) = self.spread(&x);
        let error = target - dot(&self.mean, &x);
        let mut next = self.clone();
        for (weight, s) in next.mean.iter_mut().zip(&spread) {
            *weight += s * error / variance;
        }
        for (row, a) in next.covariance.iter_mut().zip(&spread) {
            row.iter_mut().zip(&spread).for_each(|(cell, b)| *cell -= a * b / variance);
        }
        next.shape += 0.5;
        next.scale += 0.5 * error * error / variance;
        let mut cells = next.covariance.iter().flatten().chain(&next.mean);
        let finite = cells.all(|x| x.is_finite()) && next.scale.is_finite() && variance.is_finite();
        finite.then_some(next)
    }
}

fn with_intercept(features: &[f64]) -> Vec<f64> {
    std::iter::once(1.0).chain(features.iter().copied()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_the_exact_one() {
        // computed with numpy from the closed form over all events at once, not one after the other
        let events = [([1.0, 2.0], 3.0), ([2.0, -1.0], 0.5), ([0.0, 1.5], 2.0), ([-1.0, 0.5], -1.0)];
        let mut model = BayesianRegression::new(2);
        for (features, target) in &events {
            model = model.after(features, *target).unwrap();
        }
        let predicted = model.predict(&[0.5, 0.5]);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(predicted.mean, 0.8054384962545481);
        near(predicted.confidence().unwrap(), 1.1636241932147435);
        near(predicted.loss(1.0), 0.6507097959981565);
    }

    #[test]
    fn a_line_is_learnt_and_saved() {
        let mut model = BayesianRegression::new(1);
        assert_eq!(model.predict(&[1.0]).confidence(), None, "a variance of infinity");
        for n in 0..1000 {
            let x = (n * 37 % 101) as f64 / 10.0;
            let noise = if n % 2 == 0 { 0.1 } else { -0.1 };
            model = model.after(&[x], 3.0 * x - 7.0 + noise).unwrap();
        }
        let predicted = model.predict(&[4.0]);
        assert!((predicted.mean - 5.0).abs() < 0.01, "{predicted:?}");
        let saved = serde_json::from_value(serde_json::to_value(&model).unwrap()).unwrap();
        assert_eq!(model, saved);
        assert_eq!(model.after(&[1e200], 1.0), None);
    }
}
