//! Count, mean and variance of numbers that arrive one by one.

use serde::{Deserialize, Serialize};

use super::float_bits;

/// Welford's running moments, with the range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Gaussian {
    #[serde(with = "float_bits")]
    pub count: f64,
    #[serde(with = "float_bits")]
    pub mean: f64,
    #[serde(with = "float_bits")]
    squares: f64,
    #[serde(with = "float_bits")]
    pub min: f64,
    #[serde(with = "float_bits")]
    pub max: f64,
}

impl Default for Gaussian {
    fn default() -> Self {
        Self { count: 0.0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl Gaussian {
    /// Adds a number.
    pub(super) fn add(&mut self, x: f64) {
        self.count += 1.0;
        let delta = x - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (x - self.mean);
        self.min = self.min.min(x);
        self.max = self.max.max(x);
    }

    /// Returns the variance of the sample.
    pub(super) fn variance(&self) -> f64 {
        if self.count > 1.0 { (self.squares / (self.count - 1.0)).max(0.0) } else { 0.0 }
    }

    /// Returns the standard deviation of the sample.
    pub(super) fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }

    /// Returns the density at `x` of the normal distribution with these moments.
    pub(super) fn density(&self, x: f64) -> f64 {
        let deviation = self.deviation();
        if self.count <= 0.0 {
            return 0.0;
        }
        if deviation <= 0.0 {
            return if x == self.mean { 1.0 } else { 0.0 };
        }
        let z = (x - self.mean) / deviation;
        (-0.5 * z * z).exp() / (deviation * (2.0 * std::f64::consts::PI).sqrt())
    }

    /// Returns how many of the numbers are at most `x`, as far as a normal distribution tells; exact outside of the range.
    pub(super) fn count_up_to(&self, x: f64) -> f64 {
        if x < self.min {
            return 0.0;
        }
        if x >= self.max {
            return self.count;
        }
        let deviation = self.deviation();
        if deviation <= 0.0 {
            return if x >= self.mean { self.count } else { 0.0 };
        }
        self.count * normal_probability((x - self.mean) / deviation)
    }
}

/// Returns the probability that a standard normal number is at most `z`.
fn normal_probability(z: f64) -> f64 {
    // the error function by Abramowitz and Stegun, 7.1.26, with an error below 1.5e-7
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = ((((1.061_405_429 * t - 1.453_152_027) * t + 1.421_413_741) * t - 0.284_496_736) * t
        + 0.254_829_592)
        * t;
    let erf = 1.0 - poly * (-x * x).exp();
    if z >= 0.0 { 0.5 * (1.0 + erf) } else { 0.5 * (1.0 - erf) }
}

/// Returns Hoeffding's bound for the mean of `count` numbers in a range.
pub(super) fn hoeffding_bound(range: f64, confidence: f64, count: f64) -> f64 {
    (range * range * (1.0 / confidence).ln() / (2.0 * count)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_probabilities() {
        let mut of = Gaussian::default();
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().for_each(|x| of.add(x));
        assert_eq!((of.mean, of.min, of.max), (5.0, 2.0, 9.0));
        assert!((of.variance() - 32.0 / 7.0).abs() < 1e-12);
        assert_eq!((of.count_up_to(1.9), of.count_up_to(9.0)), (0.0, 8.0));
        assert!((of.count_up_to(5.0) - 4.0).abs() < 1e-6);
        for (z, p) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1)] {
            assert!((normal_probability(z) - p).abs() < 2e-7, "{z}");
        }
        assert!((hoeffding_bound(1.0, 1e-7, 200.0) - 0.200_737).abs() < 1e-5);
    }
}
