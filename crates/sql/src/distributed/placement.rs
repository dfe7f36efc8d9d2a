//! Tablets of nodes.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns the node that reads a file: the one whose name, together with that of the file, has the largest hash (rendezvous hashing).
///
/// The same file is read by the same node in each statement, so the caches of nodes add up. A node that joins or leaves changes the place
/// of its own files only. `nodes` is not empty.
pub(super) fn node_of<'n>(nodes: &'n [String], file: &str) -> &'n str {
    let score = |node: &str| {
        // its keys are fixed
        let mut hasher = DefaultHasher::new();
        (node, file).hash(&mut hasher);
        hasher.finish()
    };
    nodes.iter().max_by_key(|node| (score(node), node.as_str())).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn files_are_spread_and_stay_when_a_node_leaves() {
        let (three, two) = (names(&["n1", "n2", "n3"]), names(&["n1", "n3"]));
        let files: Vec<String> =
            (0..3_000).map(|i| format!("tables/events/readings/part-{i}.parquet")).collect();
        let of = |node: &str| files.iter().filter(|file| node_of(&three, file) == node).count();
        for node in &three {
            assert!((850..1_150).contains(&of(node)), "{node} has {}", of(node));
        }
        for file in &files {
            let before = node_of(&three, file);
            assert!(before == "n2" || node_of(&two, file) == before, "{file} moved from {before}");
        }
        assert!(files.iter().all(|file| node_of(&three, file) == node_of(&names(&["n3", "n2", "n1"]), file)));
    }
}
