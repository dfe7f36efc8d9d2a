//! Rendezvous hashing with weights, and fair shares.
//!
//! Each pair of a node and a partition has a score, and a partition prefers the node with the highest score. Scores do not depend on which
//! other nodes there are, so a node that returns gets what it had. Shares bound how many partitions a node gets: with 16
//! partitions, hashing alone would give one of four nodes seven of them.

use tidemill_types::PartitionId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::record::NodeName;

/// Returns the preference of `partition` for a node: higher for more weight, different for each pair.
///
/// The same on all machines: the hash is fixed, and the logarithm is computed in software.
pub(crate) fn score(partition: PartitionId, node: &NodeName, weight: u32) -> f64 {
    let hash = xxh3_64_with_seed(node.as_str().as_bytes(), u64::from(partition.0));
    // 53 bits, the middle of their interval, so that it is neither 0 nor 1
    let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    f64::from(weight) / -libm::log(uniform)
}

/// Fair share of a node: `count * weight / weights`, a fraction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    count: u64,
    weight: u64,
    weights: u64,
}

impl Share {
    /// Creates the share of a node of `weight` among nodes of `weights` in all, of `count` partitions.
    pub(crate) fn new(count: usize, weight: u32, weights: u64) -> Self {
        Self { count: count as u64, weight: u64::from(weight), weights: weights.max(1) }
    }

    /// Returns the share rounded up.
    pub(crate) fn ceil(self) -> usize {
        (self.count * self.weight).div_ceil(self.weights) as usize
    }

    /// Returns by how much `load` exceeds the share, multiplied by the sum of weights so that it has no fraction.
    pub(crate) fn surplus(self, load: usize) -> i128 {
        i128::from(load as u64) * i128::from(self.weights) - i128::from(self.count) * i128::from(self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn winner(partition: u32, nodes: &[(&str, u32)]) -> usize {
        let score = |(name, weight): &(&str, u32)| {
            score(PartitionId(partition), &NodeName::new(name).unwrap(), *weight)
        };
        let best = (0..nodes.len()).max_by(|a, b| score(&nodes[*a]).total_cmp(&score(&nodes[*b])));
        best.unwrap()
    }

    #[test]
    fn weights_decide_how_often_a_node_wins() {
        let wins = (0..30_000).filter(|p| winner(*p, &[("a", 100), ("b", 200)]) == 1).count();
        assert!((19_700..20_300).contains(&wins), "{wins}");
    }

    #[test]
    fn a_node_that_leaves_changes_nothing_between_the_others() {
        for partition in 0..1_000 {
            let three = winner(partition, &[("a", 1), ("b", 1), ("c", 1)]);
            if three < 2 {
                assert_eq!(winner(partition, &[("a", 1), ("b", 1)]), three);
            }
        }
    }

    #[test]
    fn scores_are_the_same_on_all_machines() {
        let bits = score(PartitionId(7), &NodeName::new("node-1").unwrap(), 100).to_bits();
        assert_eq!(bits, SCORE_OF_7_NODE_1);
    }

    /// A change of this number moves partitions of every cluster, so it needs a later protocol.
    const SCORE_OF_7_NODE_1: u64 = 4_644_299_743_208_631_242;

    #[test]
    fn a_surplus_has_the_sign_of_the_difference() {
        let share = Share::new(16, 1, 3);
        assert_eq!(share.ceil(), 6);
        assert!(share.surplus(5) < 0 && share.surplus(6) > 0);
        assert_eq!(Share::new(16, 1, 4).surplus(4), 0);
    }
}
