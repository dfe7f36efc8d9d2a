//! Parts of a rule that predicts a number: its linear model, and the points at which it could be split.

use serde::{Deserialize, Serialize};

use super::float_bits;
use super::gaussian::Gaussian;

/// Points of a feature that are kept.
const POINTS_MAX: usize = 64;
/// Share of the events on each side of a split at least.
const SIDE_SHARE_MIN: f64 = 0.05;
/// First learning rate, and how it falls.
const RATE: f64 = 0.025;
const RATE_DECAY: f64 = 0.001;
/// Decay factor of old errors of the two models.
const FADING: f64 = 0.99;
/// Normalised values beyond this many deviations count as so many, so that one event does not throw the model off.
const DEVIATIONS_MAX: f64 = 3.0;

/// A linear model that learns by its errors, beside the mean of the targets: the one that erred less predicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LinearModel {
    /// Weight of each feature, and the constant.
    #[serde(with = "float_bits::list")]
    weights: Vec<f64>,
    features: Vec<Gaussian>,
    target: Gaussian,
    #[serde(with = "float_bits")]
    linear_error: f64,
    #[serde(with = "float_bits")]
    mean_error: f64,
}

impl LinearModel {
    pub(super) fn new(features: usize) -> Self {
        Self {
            weights: vec![0.0; features + 1],
            features: vec![Gaussian::default(); features],
            target: Gaussian::default(),
            linear_error: 0.0,
            mean_error: 0.0,
        }
    }

    /// Returns the predicted number; 0 before the first event.
    pub(super) fn predict(&self, features: &[f64]) -> f64 {
        let linear = self.linear(features);
        if self.linear_error <= self.mean_error && linear.is_finite() { linear } else { self.target.mean }
    }

    fn linear(&self, features: &[f64]) -> f64 {
        self.normal_prediction(&self.normalised(features)) * self.target.deviation() + self.target.mean
    }

    fn normalised(&self, features: &[f64]) -> Vec<f64> {
        let one = |(of, x): (&Gaussian, &f64)| {
            let deviation = of.deviation();
            if deviation > 0.0 {
                ((x - of.mean) / deviation).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX)
            } else {
                0.0
            }
        };
        self.features.iter().zip(features).map(one).collect()
    }

    fn normal_prediction(&self, normalised: &[f64]) -> f64 {
        let weighted = self.weights.iter().zip(normalised).map(|(weight, x)| weight * x);
        weighted.sum::<f64>() + self.weights.last().copied().unwrap_or_default()
    }

    /// Learns from an event.
    pub(super) fn learn(&mut self, features: &[f64], target: f64) {
        let (linear, mean) = ((self.linear(features) - target).abs(), (self.target.mean - target).abs());
        if self.target.count > 0.0 {
            self.linear_error = FADING * self.linear_error + linear;
            self.mean_error = FADING * self.mean_error + mean;
        }
        self.target.add(target);
        for (of, x) in self.features.iter_mut().zip(features) {
            of.add(*x);
        }
        let deviation = self.target.deviation();
        if deviation <= 0.0 {
            return;
        }
        let normalised = self.normalised(features);
        let target = ((target - self.target.mean) / deviation).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX);
        let rate = RATE / (1.0 + self.target.count * RATE_DECAY);
        let step = rate * (target - self.normal_prediction(&normalised));
        for (weight, x) in self.weights.iter_mut().zip(normalised.iter().chain([&1.0])) {
            *weight += step * x;
        }
    }
}

/// Points of one feature with the targets there, at most [`POINTS_MAX`]: the two nearest become one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SplitPoints(Vec<Point>);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Point {
    #[serde(with = "float_bits")]
    x: f64,
    #[serde(with = "float_bits")]
    count: f64,
    #[serde(with = "float_bits")]
    sum: f64,
    #[serde(with = "float_bits")]
    squares: f64,
}

/// A split, and what it makes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberSplit {
    pub threshold: f64,
    /// Reduction of the standard deviation of the target.
    pub merit: f64,
    pub left_deviation: f64,
    pub right_deviation: f64,
}

impl SplitPoints {
    /// Adds a value of the feature with its target.
    pub(super) fn add(&mut self, x: f64, target: f64) {
        let new = Point { x, count: 1.0, sum: target, squares: target * target };
        let at = self.0.partition_point(|point| point.x < x);
        match self.0.get_mut(at).filter(|point| point.x == x) {
            Some(point) => *point = point.with(&new),
            None => self.0.insert(at, new),
        }
        if self.0.len() > POINTS_MAX {
            let gap = |at: &usize| self.0[at + 1].x - self.0[*at].x;
            let nearest = (0..self.0.len() - 1).min_by(|a, b| gap(a).total_cmp(&gap(b))).unwrap_or(0);
            let removed = self.0.remove(nearest + 1);
            self.0[nearest] = self.0[nearest].with(&removed);
        }
    }

    /// Returns the best split of targets with this standard deviation.
    pub(super) fn best(&self, deviation: f64) -> Option<NumberSplit> {
        let all = self.0.iter().skip(1).fold(*self.0.first()?, |all, point| all.with(point));
        let mut left = Point { x: 0.0, count: 0.0, sum: 0.0, squares: 0.0 };
        let mut best: Option<NumberSplit> = None;
        for pair in self.0.windows(2) {
            left = left.with(&pair[0]);
            let right = Point {
                x: 0.0,
                count: all.count - left.count,
                sum: all.sum - left.sum,
                squares: all.squares - left.squares,
            };
            if left.count.min(right.count) < SIDE_SHARE_MIN * all.count {
                continue;
            }
            let (left_deviation, right_deviation) = (left.deviation(), right.deviation());
            let after = (left.count * left_deviation + right.count * right_deviation) / all.count;
            let merit = deviation - after;
            if best.is_none_or(|best| merit > best.merit) {
                let threshold = pair[0].x + (pair[1].x - pair[0].x) / 2.0;
                best = Some(NumberSplit { threshold, merit, left_deviation, right_deviation });
            }
        }
        best
    }
}

impl Point {
    fn with(&self, other: &Self) -> Self {
        let count = self.count + other.count;
        Self {
            x: self.x + (other.x - self.x) * other.count / count,
            count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    fn deviation(&self) -> f64 {
        if self.count <= 1.0 {
            return 0.0;
        }
        let mean = self.sum / self.count;
        ((self.squares - mean * self.sum) / (self.count - 1.0)).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found() {
        let mut points = SplitPoints::default();
        for n in 0..1000 {
            let x = f64::from(n * 37 % 1000) / 1000.0;
            points.add(x, if x < 0.3 { 1.0 } else { 5.0 });
        }
        assert_eq!(points.0.len(), POINTS_MAX);
        let best = points.best(1.83).unwrap();
        assert!((best.threshold - 0.3).abs() < 0.03, "{best:?}");
        assert!(best.merit > 1.4, "{best:?}");
    }

    #[test]
    fn a_line_is_learnt() {
        let mut model = LinearModel::new(2);
        for n in 0..20_000_u32 {
            let (a, b) = (f64::from(n * 37 % 101), f64::from(n * 53 % 97));
            model.learn(&[a, b], 3.0 * a - 2.0 * b + 7.0);
        }
        for (a, b) in [(10.0, 20.0), (90.0, 5.0), (50.0, 90.0)] {
            let (found, right) = (model.predict(&[a, b]), 3.0 * a - 2.0 * b + 7.0);
            assert!((found - right).abs() < 2.0, "{found} for {right}");
        }
    }
}
