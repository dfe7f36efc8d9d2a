//! Hoeffding adaptive tree: a tree of decisions that grows with the events and replaces branches that have become wrong.
//!
//! Source: Domingos and Hulten, Mining High-Speed Data Streams, 2000; Bifet and Gavaldà, Adaptive Learning from Evolving
//! Data Streams, 2009. Differs: events are not weighted by random numbers, so equal events make equal trees.

use serde::{Deserialize, Serialize};

use super::adwin::Adwin;
use super::float_bits;
use super::gaussian::hoeffding_bound;
use super::leaf::{Leaf, best_splits};

/// Nodes of a tree; a tree that has so many does not grow.
pub(super) const NODES_MAX: usize = 2000;
/// Errors that both a branch and its replacement have seen before they are compared.
const COMPARE_MIN: f64 = 300.0;
/// Confidence of that comparison.
const COMPARE_DELTA: f64 = 0.05;
/// Depth of a tree.
const DEPTH_MAX: usize = 64;

/// Parameters of a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TreeParameters {
    pub classes: usize,
    pub features: usize,
    /// Events of a leaf between two attempts to split it.
    pub grace_period: u64,
    pub criterion: Criterion,
    #[serde(with = "float_bits")]
    pub confidence: f64,
    #[serde(with = "float_bits")]
    pub tie_threshold: f64,
    /// True if a leaf stays one when no split gains anything.
    pub pre_prune: bool,
    pub prediction: Prediction,
}

/// Measure of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Criterion {
    InformationGain,
    Gini,
}

/// Method by which a leaf predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Prediction {
    Majority,
    NaiveBayes,
    /// The one of both that was right more often.
    Adaptive,
}

/// The tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HoeffdingTree {
    parameters: TreeParameters,
    root: Node,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Node {
    Leaf(Box<Leaf>),
    Split(Box<Split>),
}

/// A decision: events whose feature is at most the threshold go to the left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Split {
    feature: usize,
    #[serde(with = "float_bits")]
    threshold: f64,
    left: Node,
    right: Node,
    /// Errors of the branch, 0 or 1.
    errors: Adwin,
    /// Branch that learns since the errors have become more, with its own errors.
    replacement: Option<Box<Replacement>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Replacement {
    node: Node,
    errors: Adwin,
}

impl HoeffdingTree {
    pub(super) fn new(parameters: TreeParameters) -> Self {
        let root = Node::Leaf(Box::new(Leaf::new(&parameters)));
        Self { parameters, root }
    }

    pub(super) fn parameters(&self) -> &TreeParameters {
        &self.parameters
    }

    /// Returns the share of each class at the place of an event; all are 0 before the first event.
    pub(super) fn predict(&self, features: &[f64]) -> Vec<f64> {
        self.root.predict(&self.parameters, features)
    }

    /// Learns from an event of this class.
    pub(super) fn learn(&mut self, features: &[f64], class: usize) {
        let mut room = NODES_MAX.saturating_sub(self.root.nodes());
        let is_split = matches!(self.root, Node::Split(_));
        let errs = is_split && self.root.errs(&self.parameters, features, class);
        self.root.learn(errs, &self.parameters, features, class, 0, &mut room);
    }

    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.root.nodes()
    }

    /// Returns feature and threshold of the first decision.
    #[cfg(test)]
    pub(super) fn first_split(&self) -> Option<(usize, f64)> {
        match &self.root {
            Node::Leaf(_) => None,
            Node::Split(split) => Some((split.feature, split.threshold)),
        }
    }
}

/// Returns the class with the greatest share, the first one if several have it; `None` if no share is
/// positive.
pub(super) fn most_likely(shares: &[f64]) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (class, share) in shares.iter().enumerate() {
        if *share > best.map_or(0.0, |(_, share)| share) {
            best = Some((class, *share));
        }
    }
    best.map(|(class, _)| class)
}

impl Node {
    fn nodes(&self) -> usize {
        match self {
            Self::Leaf(_) => 1,
            Self::Split(split) => {
                let replacement =
                    split.replacement.as_ref().map_or(0, |replacement| replacement.node.nodes());
                1 + split.left.nodes() + split.right.nodes() + replacement
            }
        }
    }

    fn predict(&self, parameters: &TreeParameters, features: &[f64]) -> Vec<f64> {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(leaf) => return leaf.predict(parameters.prediction, features),
                Self::Split(split) => node = split.child(features),
            }
        }
    }

    /// Returns whether this node predicts another class.
    fn errs(&self, parameters: &TreeParameters, features: &[f64], class: usize) -> bool {
        most_likely(&self.predict(parameters, features)) != Some(class)
    }

    /// Learns from an event. `errs` is what [`Self::errs`] returns for it: one prediction serves all splits on its path.
    fn learn(
        &mut self,
        errs: bool,
        parameters: &TreeParameters,
        features: &[f64],
        class: usize,
        depth: usize,
        room: &mut usize,
    ) {
        match self {
            Self::Leaf(leaf) => {
                leaf.learn(features, class);
                if leaf.is_due(parameters.grace_period) && *room >= 2 && depth < DEPTH_MAX {
                    leaf.note_attempt();
                    if let Some((feature, threshold)) = split_of(leaf, parameters) {
                        *room -= 2;
                        let leaf = || Self::Leaf(Box::new(Leaf::new(parameters)));
                        *self = Self::Split(Box::new(Split {
                            feature,
                            threshold,
                            left: leaf(),
                            right: leaf(),
                            errors: Adwin::default(),
                            replacement: None,
                        }));
                    }
                }
            }
            Self::Split(split) => {
                if let Some(better) = split.learn(errs, parameters, features, class, depth, room) {
                    *self = better;
                }
            }
        }
    }
}

impl Split {
    fn child(&self, features: &[f64]) -> &Node {
        if features.get(self.feature).is_some_and(|x| *x <= self.threshold) {
            &self.left
        } else {
            &self.right
        }
    }

    /// Learns from an event, `errs` if the branch predicts another class for it. Returns the replacement if it is better.
    fn learn(
        &mut self,
        errs: bool,
        parameters: &TreeParameters,
        features: &[f64],
        class: usize,
        depth: usize,
        room: &mut usize,
    ) -> Option<Node> {
        let before = self.errors.mean();
        let has_changed = self.errors.add(f64::from(u8::from(errs))) && self.errors.mean() > before;
        if has_changed && self.replacement.is_none() && *room >= 1 {
            *room -= 1;
            let node = Node::Leaf(Box::new(Leaf::new(parameters)));
            self.replacement = Some(Box::new(Replacement { node, errors: Adwin::default() }));
        }
        let mut replacement_errs = false;
        if let Some(replacement) = &mut self.replacement {
            replacement_errs = replacement.node.errs(parameters, features, class);
            replacement.errors.add(f64::from(u8::from(replacement_errs)));
            let (old, new) = (&self.errors, &replacement.errors);
            if old.width() > COMPARE_MIN && new.width() > COMPARE_MIN {
                let share = 1.0 / old.width() + 1.0 / new.width();
                let spread = 2.0 * old.mean() * (1.0 - old.mean()) * (2.0 / COMPARE_DELTA).ln() * share;
                let bound = spread.sqrt();
                if old.mean() - new.mean() > bound {
                    return self.replacement.take().map(|replacement| {
                        let mut node = replacement.node;
                        node.learn(replacement_errs, parameters, features, class, depth, room);
                        node
                    });
                }
                if new.mean() - old.mean() > bound {
                    self.replacement = None;
                }
            }
        }
        if let Some(replacement) = &mut self.replacement {
            replacement.node.learn(replacement_errs, parameters, features, class, depth, room);
        }
        let child = if features.get(self.feature).is_some_and(|x| *x <= self.threshold) {
            &mut self.left
        } else {
            &mut self.right
        };
        child.learn(errs, parameters, features, class, depth + 1, room);
        None
    }
}

/// Returns feature and threshold by which a leaf splits, if one is better than the others by Hoeffding's bound.
fn split_of(leaf: &Leaf, parameters: &TreeParameters) -> Option<(usize, f64)> {
    if leaf.is_pure() {
        return None;
    }
    let [best, second] = best_splits(leaf, parameters.criterion);
    let (merit, feature, threshold) = best?;
    let stay = if parameters.pre_prune { 0.0 } else { f64::NEG_INFINITY };
    let second = second.map_or(0.0, |(merit, ..)| merit).max(stay);
    let range = match parameters.criterion {
        Criterion::InformationGain => (leaf.classes_seen().max(2) as f64).log2(),
        Criterion::Gini => 1.0,
    };
    let bound = hoeffding_bound(range, parameters.confidence, leaf.count());
    let is_better = merit - second > bound || bound < parameters.tie_threshold;
    (is_better && merit > stay.max(0.0)).then_some((feature, threshold))
}
