//! ClusTree: a tree of micro clusters that forget, and the centroids that k-means makes of them.
//!
//! Source: Kranen, Assent, Baldauf and Seidl, The ClusTree: Indexing Micro-Clusters for Anytime Stream Mining, 2011. Differs:
//! every event is inserted down to a leaf, so there are no buffers for events that have no time to get there.

use serde::{Deserialize, Serialize};

use super::float_bits;
use super::k_means::k_means;

/// Entries of a node.
const FANOUT: usize = 3;
/// Weight below which a micro cluster is forgotten if its place is needed.
const FORGOTTEN: f64 = 0.05;

/// The tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ClusTree {
    /// Levels of nodes at most.
    height_max: usize,
    /// Events after which a weight is half of what it was.
    #[serde(with = "float_bits")]
    horizon: f64,
    /// Events so far, by which time is counted.
    now: u64,
    root: TreeNode,
    height: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct TreeNode {
    entries: Vec<Entry>,
}

/// Cluster, with the node that has its parts; `None` for a micro cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    cluster: MicroCluster,
    child: Option<Box<TreeNode>>,
}

/// Weighted events: their weight and sum, as of the event with the number `at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MicroCluster {
    #[serde(with = "float_bits")]
    pub weight: f64,
    #[serde(with = "float_bits::list")]
    sum: Vec<f64>,
    at: u64,
}

impl MicroCluster {
    /// Returns its centre.
    pub(super) fn center(&self) -> Vec<f64> {
        self.sum.iter().map(|x| x / self.weight).collect()
    }

    /// Lets its weight fall to that of another time.
    fn age(&mut self, now: u64, horizon: f64) {
        let events = now.saturating_sub(self.at) as f64;
        let factor = (-events / horizon).exp2();
        self.weight *= factor;
        self.sum.iter_mut().for_each(|x| *x *= factor);
        self.at = now;
    }

    fn add(&mut self, other: &Self) {
        self.weight += other.weight;
        self.sum.iter_mut().zip(&other.sum).for_each(|(x, y)| *x += y);
    }

    fn distance(&self, other: &Self) -> f64 {
        let parts = self.sum.iter().zip(&other.sum).map(|(x, y)| x / self.weight - y / other.weight);
        parts.map(|x| x * x).sum()
    }
}

impl ClusTree {
    pub(super) fn new(height_max: usize, horizon: f64) -> Self {
        Self { height_max, horizon, now: 0, root: TreeNode::default(), height: 1 }
    }

    /// Adds an event.
    pub(super) fn add(&mut self, point: &[f64]) {
        self.now += 1;
        let new = MicroCluster { weight: 1.0, sum: point.to_vec(), at: self.now };
        let may_split = self.height < self.height_max;
        if let Some(sibling) = self.root.insert(new, self.now, self.horizon, may_split) {
            let old = std::mem::take(&mut self.root);
            self.root.entries = [old, sibling].into_iter().map(TreeNode::into_entry).collect();
            self.height += 1;
        }
    }

    /// Returns the micro clusters with their present weights; those that are forgotten are left out.
    pub(super) fn micro_clusters(&self) -> Vec<MicroCluster> {
        let mut all = vec![];
        self.root.collect(self.now, self.horizon, &mut all);
        all
    }

    /// Returns the centroids of `clusters` clusters; fewer if there are fewer micro clusters.
    pub(super) fn centroids(&self, clusters: usize, iterations: usize) -> Vec<Vec<f64>> {
        let points: Vec<_> = self.micro_clusters().iter().map(|of| (of.center(), of.weight)).collect();
        k_means(&points, clusters, iterations)
    }
}

impl TreeNode {
    fn into_entry(self) -> Entry {
        let mut cluster = self.entries.first().map(|entry| entry.cluster.clone());
        if let Some(cluster) = &mut cluster {
            self.entries.iter().skip(1).for_each(|entry| cluster.add(&entry.cluster));
        }
        let empty = MicroCluster { weight: 0.0, sum: vec![], at: 0 };
        Entry { cluster: cluster.unwrap_or(empty), child: Some(Box::new(self)) }
    }

    /// Inserts a micro cluster. Returns a second node if this one had to be split, which only happens if there may be
    /// one more level.
    fn insert(&mut self, new: MicroCluster, now: u64, horizon: f64, may_split: bool) -> Option<Self> {
        self.entries.iter_mut().for_each(|entry| entry.cluster.age(now, horizon));
        let nearest = |entries: &[Entry]| {
            let distance = |entry: &Entry| entry.cluster.distance(&new);
            let ranked = entries.iter().enumerate().map(|(at, entry)| (at, distance(entry)));
            ranked.min_by(|(_, a), (_, b)| a.total_cmp(b))
        };
        let is_leaf = self.entries.iter().all(|entry| entry.child.is_none());
        if !is_leaf {
            let (at, _) = nearest(&self.entries)?;
            let entry = self.entries.get_mut(at)?;
            entry.cluster.add(&new);
            let sibling = entry.child.as_mut()?.insert(new, now, horizon, may_split)?;
            if let Some(own) = entry.child.take() {
                *entry = own.into_entry();
            }
            self.entries.push(sibling.into_entry());
            return self.split();
        }
        if let Some((at, distance)) = nearest(&self.entries)
            && distance == 0.0
        {
            self.entries[at].cluster.add(&new);
            return None;
        }
        let entry = Entry { cluster: new, child: None };
        if let Some(forgotten) = self.entries.iter_mut().find(|entry| entry.cluster.weight < FORGOTTEN) {
            *forgotten = entry;
            return None;
        }
        self.entries.push(entry);
        if self.entries.len() <= FANOUT || may_split {
            return self.split();
        }
        self.merge_nearest();
        None
    }

    /// Returns the two entries that are nearest to each other, or farthest.
    fn pair(&self, is_farthest: bool) -> Option<(usize, usize)> {
        let pairs = (0..self.entries.len()).flat_map(|a| (a + 1..self.entries.len()).map(move |b| (a, b)));
        let ranked = pairs.map(|(a, b)| {
            let distance = self.entries[a].cluster.distance(&self.entries[b].cluster);
            (if is_farthest { -distance } else { distance }, (a, b))
        });
        ranked.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, pair)| pair)
    }

    fn merge_nearest(&mut self) {
        if let Some((a, b)) = self.pair(false) {
            let merged = self.entries.remove(b);
            self.entries[a].cluster.add(&merged.cluster);
        }
    }

    /// Splits a node with too many entries: the two that are farthest from each other take those that are nearer.
    fn split(&mut self) -> Option<Self> {
        if self.entries.len() <= FANOUT {
            return None;
        }
        let (a, b) = self.pair(true)?;
        let seeds = (self.entries[a].cluster.clone(), self.entries[b].cluster.clone());
        let (mut stay, mut go) = (vec![], vec![]);
        for (at, entry) in self.entries.drain(..).enumerate() {
            let is_near = entry.cluster.distance(&seeds.0) <= entry.cluster.distance(&seeds.1);
            let prefers_to_stay = if stay.len() >= FANOUT { false } else { is_near || go.len() >= FANOUT };
            if at == a || (at != b && prefers_to_stay) { stay.push(entry) } else { go.push(entry) }
        }
        self.entries = stay;
        Some(Self { entries: go })
    }

    fn collect(&self, now: u64, horizon: f64, all: &mut Vec<MicroCluster>) {
        for entry in &self.entries {
            match &entry.child {
                Some(child) => child.collect(now, horizon, all),
                None => {
                    let mut cluster = entry.cluster.clone();
                    cluster.age(now, horizon);
                    all.extend((cluster.weight >= FORGOTTEN).then_some(cluster));
                }
            }
        }
    }

    #[cfg(test)]
    fn nodes(&self) -> usize {
        1 + self
            .entries
            .iter()
            .filter_map(|entry| entry.child.as_ref())
            .map(|child| child.nodes())
            .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns points around three centres in turn, by a fixed pattern.
    fn points(count: u32, shift: f64) -> impl Iterator<Item = [f64; 2]> {
        (0..count).map(move |n| {
            let [x, y] = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]][n as usize % 3];
            let noise = |k: u32| f64::from(n * k % 101) / 101.0 - 0.5;
            [x + shift + noise(37), y + noise(53)]
        })
    }

    fn near(found: &[Vec<f64>], right: &[[f64; 2]]) -> bool {
        let is_near = |a: &[f64], b: &[f64; 2]| (a[0] - b[0]).hypot(a[1] - b[1]) < 0.5;
        found.len() == right.len()
            && right.iter().all(|right| found.iter().any(|found| is_near(found, right)))
    }

    #[test]
    fn clusters_are_found_and_old_ones_forgotten() {
        let mut tree = ClusTree::new(5, 100.0);
        points(600, 0.0).for_each(|point| tree.add(&point));
        let found = tree.centroids(3, 40);
        assert!(near(&found, &[[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]), "{found:?}");
        points(3000, 100.0).for_each(|point| tree.add(&point));
        let found = tree.centroids(3, 40);
        assert!(near(&found, &[[100.0, 0.0], [110.0, 0.0], [100.0, 10.0]]), "{found:?}");
    }

    #[test]
    fn the_tree_is_bounded_and_weights_are_kept() {
        let mut tree = ClusTree::new(3, 1e12);
        for n in 0..10_000_u32 {
            tree.add(&[f64::from(n * 7919 % 10_007), f64::from(n * 104_729 % 9973)]);
        }
        assert!(tree.height <= 3 && tree.root.nodes() <= 1 + 3 + 9, "{}", tree.root.nodes());
        assert!(tree.micro_clusters().len() <= 27);
        let weight: f64 = tree.micro_clusters().iter().map(|of| of.weight).sum();
        assert!((weight - 10_000.0).abs() < 1e-3, "{weight}");
    }
}
