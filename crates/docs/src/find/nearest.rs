//! Documents in the order of their distance from a point.

use hashbrown::HashSet;
use tidemill_types::budget;

use super::{FindOptions, SORT_ENTRY_BYTES, VisitCounts};
use crate::collection::Collection;
use crate::error::Result;
use crate::filter::Filter;
use crate::index::IndexId;
use crate::memory::HeldMemory;
use crate::plan::{IndexAccess, near_ranges};
use crate::rows::RowIndex;

/// Radius of the first circle that is searched, in radians: 60 metres on the earth.
const FIRST_RADIUS: f64 = 1e-5;
/// By how much the next circle is larger.
const GROWTH: f64 = 4.0;

impl Collection {
    /// Returns the access to all documents that may be near enough for a filter with `$near`.
    pub(super) fn all_near(&self, index: IndexId, filter: &Filter) -> Option<IndexAccess> {
        let (path, near) = filter.near()?;
        let geo = self.index(index)?.geo.as_deref()?;
        let ranges = near_ranges(geo, path, near, near.max);
        Some(IndexAccess { index, ranges, reverse: false, equal: 0, ranged: true, exact: false })
    }

    /// Returns the rows of the nearest documents that match, in order: searches circles that grow until there are enough documents
    /// inside.
    pub(super) fn find_nearest(
        &self,
        index: IndexId,
        filter: &Filter,
        options: &FindOptions,
        (skip, limit): (usize, usize),
        counts: &VisitCounts,
    ) -> Result<Vec<RowIndex>> {
        let (Some((path, near)), Some(index)) = (filter.near(), self.index(index)) else {
            return Ok(Vec::new());
        };
        let Some(geo) = index.geo.as_deref() else { return Ok(Vec::new()) };
        let wanted = skip.saturating_add(limit);
        let mut radius = if wanted == usize::MAX { near.max } else { FIRST_RADIUS.max(near.min * 2.0) };
        let mut seen = HashSet::new();
        let mut found: Vec<(f64, RowIndex)> = Vec::new();
        let mut held = HeldMemory::default();
        loop {
            let is_last = radius >= near.max;
            for range in near_ranges(geo, path, near, radius.min(near.max)) {
                for (_, slot) in range.entries(index) {
                    counts.keys.set(counts.keys.get() + 1);
                    if !seen.insert(*slot) {
                        continue;
                    }
                    counts.documents.set(counts.documents.get() + 1);
                    held.add(SORT_ENTRY_BYTES)?;
                    budget::check()?;
                    let Some(doc) = self.doc_at(*slot).filter(|doc| filter.matches_bytes(doc)) else {
                        continue;
                    };
                    if options.bounds.as_ref().is_some_and(|bounds| !bounds.contain(doc)) {
                        continue;
                    }
                    found.extend(near.distance(path, doc)?.map(|distance| (distance, *slot)));
                }
            }
            filter.check()?;
            // documents outside of the circle may have been found, too, but not all of them
            if is_last || found.iter().filter(|(distance, _)| *distance <= radius).count() >= wanted {
                break;
            }
            radius *= GROWTH;
        }
        found.sort_unstable_by(|(a, at), (b, other)| a.total_cmp(b).then(at.cmp(other)));
        Ok(found.into_iter().map(|(_, slot)| slot).skip(skip).take(limit).collect())
    }
}
