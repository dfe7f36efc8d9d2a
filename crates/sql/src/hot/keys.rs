//! The keys of several blocks in one order.

use std::ops::Range;
use std::sync::Arc;

use super::layout::Layout;

/// Distinct keys of several blocks in their order, each with its places in the blocks.
#[derive(Debug)]
pub(crate) struct MergedKeys {
    /// Block and number of the key there, those of one key beside one another, in the order of the blocks.
    places: Vec<(usize, usize)>,
    /// End of the places of each key.
    ends: Vec<usize>,
}

impl MergedKeys {
    pub fn new(layouts: &[Arc<Layout>]) -> Self {
        let keys =
            |(block, layout): (usize, &Arc<Layout>)| (0..layout.key_count()).map(move |key| (block, key));
        let mut places: Vec<(usize, usize)> = layouts.iter().enumerate().flat_map(keys).collect();
        let bytes = |place: &(usize, usize)| layouts[place.0].encoded(place.1);
        if layouts.len() > 1 {
            places.sort_by(|a, b| bytes(a).cmp(bytes(b)));
        }
        let mut ends = Vec::new();
        for at in 1..=places.len() {
            if at == places.len() || bytes(&places[at - 1]) != bytes(&places[at]) {
                ends.push(at);
            }
        }
        Self { places, ends }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the places of a key.
    pub fn places(&self, key: usize) -> &[(usize, usize)] {
        let range: Range<usize> = key.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[key];
        &self.places[range]
    }
}
