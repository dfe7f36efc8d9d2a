//! Plans over indexes of geometries.

use super::bounds::KeyRange;
use super::{AccessPath, AccessPlan, IndexAccess, is_usable, sort_note};
use crate::collection::Collection;
use crate::filter::{Filter, FilterNode, ValueTest};
use crate::geo::{CellRanges, GeoIndex, GeoIndexKind, GeoTest, NearQuery, cell_key};
use crate::index::{Index, IndexId};
use crate::sort::SortOrder;
use crate::values::key::KeyBuf;
use crate::values::path::Path;

/// Worth of a plan, as much as that of an equality with one field.
const WORTH: usize = 4;

/// Returns the plan over an index of geometries with its score, or `None` if it does not help the filter.
pub(super) fn geo_candidate(
    at: IndexId,
    index: &Index,
    node: &FilterNode,
    sort: &SortOrder,
) -> Option<(usize, AccessPlan)> {
    let geo = index.geo.as_deref()?;
    let (path, ranges) = first_condition(node, &mut |path, test| {
        Some((path.clone(), key_ranges(geo.place(path)?, &geo.cells_of(test)?)))
    })?;
    let sorted = sort.is_empty();
    let text = format!(
        "index {}: {} of {path}{}",
        index.spec.name,
        ranges_of_cells(ranges.len()),
        sort_note(sorted, sort)
    );
    let access = IndexAccess { index: at, ranges, reverse: false, equal: 0, ranged: true, exact: false };
    let plan = AccessPlan { access: AccessPath::Index(access), sorted, missing_id_order: None, text };
    Some((WORTH + usize::from(sorted), plan))
}

fn ranges_of_cells(count: usize) -> String {
    if count == 1 { "1 range of cells".to_owned() } else { format!("{count} ranges of cells") }
}

fn first_condition<T>(node: &FilterNode, find: &mut dyn FnMut(&Path, &GeoTest) -> Option<T>) -> Option<T> {
    match node {
        FilterNode::All(nodes) => nodes.iter().find_map(|node| first_condition(node, find)),
        FilterNode::Field(path, ValueTest::Geo(test)) => find(path, test),
        _ => None,
    }
}

/// Returns the index by which the `$near` of a filter is answered, if there is one.
pub(crate) fn near_index<'c>(
    collection: &'c Collection,
    filter: &Filter,
) -> Option<(IndexId, &'c Index, &'c GeoIndex)> {
    let (path, near) = filter.near()?;
    let usable = collection.indexes.iter().enumerate().filter(|(_, index)| is_usable(index, &filter.node));
    let serving = usable.filter_map(|(at, index)| {
        let geo = index.geo.as_deref().filter(|geo| geo.serves(near) && geo.place(path).is_some())?;
        Some((IndexId::Secondary(at), index, geo))
    });
    // the one that knows the sphere, if both would do
    serving.min_by_key(|(_, _, geo)| geo.kind != GeoIndexKind::Sphere)
}

/// Returns the plan for a filter with `$near`.
pub(super) fn near_plan(collection: &Collection, filter: &Filter, sort: &SortOrder) -> Option<AccessPlan> {
    let (path, near) = filter.near()?;
    let (at, index, _) = near_index(collection, filter)?;
    let sorted = sort.is_by_distance(near);
    let note = if sorted { "" } else { sort_note(sort.is_empty(), sort) };
    let text = format!("index {}: by distance of {path}{note}", index.spec.name);
    Some(AccessPlan { access: AccessPath::Near(at), sorted, missing_id_order: None, text })
}

/// Returns the ranges of an index in which the geometries within a distance are.
pub(crate) fn near_ranges(geo: &GeoIndex, path: &Path, near: &NearQuery, distance: f64) -> Vec<KeyRange> {
    geo.place(path).map_or(Vec::new(), |place| key_ranges(place, &geo.cells_near(near, distance)))
}

fn key_ranges(place: u8, cells: &CellRanges) -> Vec<KeyRange> {
    let range = |(low, high): &(u64, u64)| KeyRange {
        low: cell_key(place, *low).0,
        high: Some(match high.checked_add(1) {
            Some(next) => cell_key(place, next).0,
            None => KeyBuf::from_slice(&[place.saturating_add(1)]),
        }),
    };
    cells.iter().map(range).collect()
}

/// Formats the ranges of cells of a field as MongoDB does: `[low, high]`.
pub(super) fn intervals(ranges: &[KeyRange], place: u8) -> Vec<String> {
    let cell = |key: &KeyBuf| match key.split_first() {
        Some((own, rest)) if *own == place => rest.first_chunk().map(|b| u64::from_be_bytes(*b)),
        _ => None,
    };
    let of_place = ranges.iter().filter_map(|range| Some((cell(&range.low)?, range.high.as_ref())));
    of_place
        .map(|(low, high)| {
            let high = high.and_then(cell).map_or(u64::MAX, |high| high.saturating_sub(1));
            format!("[{low}, {high}]")
        })
        .collect()
}
