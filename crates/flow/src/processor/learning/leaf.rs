//! Leaf of a Hoeffding tree: what it has seen of each class, how it predicts, and by what it could be split.

use serde::{Deserialize, Serialize};

use super::float_bits;
use super::gaussian::Gaussian;
use super::hoeffding::{Criterion, Prediction, TreeParameters, most_likely};

/// Thresholds that are tried for each feature.
const THRESHOLDS: usize = 10;
/// Share of the events that each side of a split has at least.
const SIDE_SHARE_MIN: f64 = 0.01;

/// Merit, feature and threshold of a split.
pub(super) type Candidate = (f64, usize, f64);

/// Statistics of the events that reached a leaf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Leaf {
    /// Events of each class.
    #[serde(with = "float_bits::list")]
    counts: Vec<f64>,
    /// Distribution of each feature in each class, by feature.
    features: Vec<Vec<Gaussian>>,
    /// Events since the last attempt to split.
    since_attempt: u64,
    /// Number of correct predictions by the largest class, and by naive Bayes.
    majority_hits: u64,
    bayes_hits: u64,
}

impl Leaf {
    pub(super) fn new(parameters: &TreeParameters) -> Self {
        Self {
            counts: vec![0.0; parameters.classes],
            features: vec![vec![Gaussian::default(); parameters.classes]; parameters.features],
            since_attempt: 0,
            majority_hits: 0,
            bayes_hits: 0,
        }
    }

    /// Returns how many events it has seen.
    pub(super) fn count(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// Returns how many classes it has seen.
    pub(super) fn classes_seen(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0.0).count()
    }

    /// Returns whether all events are of one class.
    pub(super) fn is_pure(&self) -> bool {
        self.classes_seen() < 2
    }

    /// Returns whether it is time to try a split.
    pub(super) fn is_due(&self, grace_period: u64) -> bool {
        self.since_attempt >= grace_period.max(1)
    }

    /// Notes that a split was tried.
    pub(super) fn note_attempt(&mut self) {
        self.since_attempt = 0;
    }

    /// Learns from an event.
    pub(super) fn learn(&mut self, features: &[f64], class: usize) {
        self.majority_hits += u64::from(most_likely(&self.counts) == Some(class));
        self.bayes_hits += u64::from(most_likely(&self.bayes(features)) == Some(class));
        self.since_attempt += 1;
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1.0;
        }
        for (of, x) in self.features.iter_mut().zip(features) {
            if let Some(of) = of.get_mut(class) {
                of.add(*x);
            }
        }
    }

    /// Returns the share of each class; all are 0 before the first event.
    pub(super) fn predict(&self, by: Prediction, features: &[f64]) -> Vec<f64> {
        let is_bayes = match by {
            Prediction::Majority => false,
            Prediction::NaiveBayes => true,
            Prediction::Adaptive => self.bayes_hits > self.majority_hits,
        };
        let bayes = if is_bayes { self.bayes(features) } else { vec![] };
        // far from all that was seen, densities are 0 and say nothing
        let shares = if bayes.iter().sum::<f64>() > 0.0 { bayes } else { self.counts.clone() };
        let total: f64 = shares.iter().sum();
        if total > 0.0 { shares.into_iter().map(|share| share / total).collect() } else { shares }
    }

    fn bayes(&self, features: &[f64]) -> Vec<f64> {
        let total = self.count();
        if total <= 0.0 {
            return vec![0.0; self.counts.len()];
        }
        let share = |(class, count): (usize, &f64)| {
            let densities =
                self.features.iter().zip(features).filter_map(|(of, x)| Some(of.get(class)?.density(*x)));
            densities.fold(count / total, |product, density| product * density)
        };
        self.counts.iter().enumerate().map(share).collect()
    }
}

/// Returns the best split of each of the two best features.
pub(super) fn best_splits(leaf: &Leaf, criterion: Criterion) -> [Option<Candidate>; 2] {
    let mut best: [Option<Candidate>; 2] = [None, None];
    for (feature, of) in leaf.features.iter().enumerate() {
        let Some((merit, threshold)) = best_threshold(leaf, of, criterion) else { continue };
        let candidate = Some((merit, feature, threshold));
        let is_above = |other: Option<Candidate>| other.is_none_or(|(other, ..)| merit > other);
        if is_above(best[0]) {
            best = [candidate, best[0]];
        } else if is_above(best[1]) {
            best[1] = candidate;
        }
    }
    best
}

fn best_threshold(leaf: &Leaf, of: &[Gaussian], criterion: Criterion) -> Option<(f64, f64)> {
    let min = of.iter().map(|class| class.min).fold(f64::INFINITY, f64::min);
    let max = of.iter().map(|class| class.max).fold(f64::NEG_INFINITY, f64::max);
    if !(max > min && (max - min).is_finite()) {
        return None;
    }
    let before = impurity(&leaf.counts, criterion);
    let total = leaf.count();
    let mut best: Option<(f64, f64)> = None;
    for step in 1..=THRESHOLDS {
        let threshold = min + (max - min) * step as f64 / (THRESHOLDS + 1) as f64;
        let left: Vec<f64> = of.iter().map(|class| class.count_up_to(threshold)).collect();
        let right: Vec<f64> =
            leaf.counts.iter().zip(&left).map(|(all, left)| (all - left).max(0.0)).collect();
        let (left_share, right_share) = (left.iter().sum::<f64>() / total, right.iter().sum::<f64>() / total);
        if left_share.min(right_share) < SIDE_SHARE_MIN {
            continue;
        }
        let after = left_share * impurity(&left, criterion) + right_share * impurity(&right, criterion);
        let merit = before - after;
        if best.is_none_or(|(best, _)| merit > best) {
            best = Some((merit, threshold));
        }
    }
    best
}

/// Returns the entropy in bits, or Gini's index.
fn impurity(counts: &[f64], criterion: Criterion) -> f64 {
    let total: f64 = counts.iter().sum();
    if total <= 0.0 {
        return 0.0;
    }
    let shares = counts.iter().map(|count| count / total).filter(|share| *share > 0.0);
    match criterion {
        Criterion::InformationGain => shares.map(|share| -share * share.log2()).sum(),
        Criterion::Gini => 1.0 - shares.map(|share| share * share).sum::<f64>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impurities() {
        assert_eq!(impurity(&[4.0, 4.0], Criterion::InformationGain), 1.0);
        assert_eq!(impurity(&[4.0, 4.0], Criterion::Gini), 0.5);
        assert_eq!(impurity(&[4.0, 0.0], Criterion::InformationGain), 0.0);
        assert_eq!(impurity(&[], Criterion::Gini), 0.0);
    }
}
