//! ADWIN: a window over numbers that shrinks when their mean changes.

use serde::{Deserialize, Serialize};

use super::float_bits;

/// Buckets of one size before two of them become one of double size.
const BUCKETS_MAX: usize = 5;
/// Confidence of a change.
const DELTA: f64 = 0.002;
/// A change is looked for after each so many numbers.
const CHECK_EACH: u64 = 32;
/// Numbers on each side of a cut at least.
const SIDE_MIN: f64 = 5.0;
/// Sizes of buckets; numbers beyond two to the power of this are dropped from the window.
const LEVELS_MAX: usize = 40;

/// The window, as buckets whose sizes double towards the past: memory grows with the logarithm of its width.
///
/// Source: Bifet and Gavaldà, Learning from Time-Changing Data with Adaptive Windowing, 2007.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Adwin {
    /// Buckets of `2^index` numbers each, the oldest first: total and sum of squared deviations.
    levels: Vec<Vec<AdwinBucket>>,
    #[serde(with = "float_bits")]
    width: f64,
    #[serde(with = "float_bits")]
    total: f64,
    #[serde(with = "float_bits")]
    variance: f64,
    seen: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct AdwinBucket {
    #[serde(with = "float_bits")]
    total: f64,
    #[serde(with = "float_bits")]
    variance: f64,
}

impl Adwin {
    /// Returns how many numbers the window has.
    pub(super) fn width(&self) -> f64 {
        self.width
    }

    /// Returns the mean of the window; 0 if it is empty.
    pub(super) fn mean(&self) -> f64 {
        if self.width > 0.0 { self.total / self.width } else { 0.0 }
    }

    /// Adds a number. Returns whether the mean has changed, and the window shrunk.
    pub(super) fn add(&mut self, x: f64) -> bool {
        if self.width > 0.0 {
            let delta = x - self.mean();
            self.variance += delta * delta * self.width / (self.width + 1.0);
        }
        self.width += 1.0;
        self.total += x;
        self.seen += 1;
        if self.levels.is_empty() {
            self.levels.push(vec![]);
        }
        self.levels[0].push(AdwinBucket { total: x, variance: 0.0 });
        self.compress();
        self.seen.is_multiple_of(CHECK_EACH) && self.shrink()
    }

    fn compress(&mut self) {
        let mut level = 0;
        while self.levels.get(level).is_some_and(|buckets| buckets.len() > BUCKETS_MAX) {
            let (a, b) = (self.levels[level].remove(0), self.levels[level].remove(0));
            let size = size_of(level);
            let delta = (a.total - b.total) / size;
            let merged = AdwinBucket {
                total: a.total + b.total,
                variance: a.variance + b.variance + delta * delta * size / 2.0,
            };
            if level + 1 == self.levels.len() {
                self.levels.push(vec![]);
            }
            self.levels[level + 1].push(merged);
            level += 1;
        }
        if self.levels.len() > LEVELS_MAX {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(level) = self.levels.len().checked_sub(1) else { return };
        if self.levels[level].is_empty() {
            self.levels.pop();
            return;
        }
        let bucket = self.levels[level].remove(0);
        let size = size_of(level);
        self.width -= size;
        self.total -= bucket.total;
        let delta = bucket.total / size - self.mean();
        let between =
            if self.width > 0.0 { delta * delta * size * self.width / (size + self.width) } else { 0.0 };
        self.variance = (self.variance - bucket.variance - between).max(0.0);
        if self.levels[level].is_empty() {
            self.levels.pop();
        }
    }

    /// Drops the oldest buckets as long as the rest has another mean.
    fn shrink(&mut self) -> bool {
        let mut changed = false;
        while self.has_cut() {
            self.drop_oldest();
            changed = true;
        }
        changed
    }

    /// Returns whether the window can be cut into two parts whose means differ.
    fn has_cut(&self) -> bool {
        if self.width < 2.0 * SIDE_MIN {
            return false;
        }
        let variance = self.variance / self.width;
        let log = (2.0 * self.width.ln() / DELTA).ln();
        let (mut old, mut old_total) = (0.0, 0.0);
        for (level, buckets) in self.levels.iter().enumerate().rev() {
            for bucket in buckets {
                old += size_of(level);
                old_total += bucket.total;
                let new = self.width - old;
                if new < SIDE_MIN {
                    return false;
                }
                if old < SIDE_MIN {
                    continue;
                }
                let difference = (old_total / old - (self.total - old_total) / new).abs();
                let harmonic = 1.0 / (1.0 / (old - SIDE_MIN + 1.0) + 1.0 / (new - SIDE_MIN + 1.0));
                let bound = (2.0 / harmonic * variance * log).sqrt() + 2.0 / (3.0 * harmonic) * log;
                if difference > bound {
                    return true;
                }
            }
        }
        false
    }
}

/// Returns how many numbers a bucket of this level has.
fn size_of(level: usize) -> f64 {
    (level as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_mean_is_found_and_no_other() {
        let mut window = Adwin::default();
        // 0, 0, 0, 1: a mean of one quarter
        let quiet = (0..2000).filter(|n| window.add(f64::from(u8::from(n % 4 == 3)))).count();
        assert_eq!((quiet, window.width()), (0, 2000.0));
        assert!((window.mean() - 0.25).abs() < 1e-12);
        let found = (0..1000).position(|n| window.add(f64::from(u8::from(n % 4 != 3))));
        assert!(found.is_some_and(|n| n < 300), "{found:?}");
        for n in 0..2000 {
            window.add(f64::from(u8::from(n % 4 != 3)));
        }
        assert!((window.mean() - 0.75).abs() < 0.02, "{}", window.mean());
        assert!(window.levels.iter().map(Vec::len).sum::<usize>() < 80);
    }
}
