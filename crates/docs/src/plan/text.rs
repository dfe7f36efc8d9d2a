//! Plans over text indexes.

use super::bounds::{KeyRange, successor};
use super::{
    AccessPath, AccessPlan, IndexAccess, IndexCondition, POINTS_MAX, conditions, is_usable, one_of, sort_note,
};
use crate::collection::Collection;
use crate::filter::{Filter, FilterNode};
use crate::index::{Index, IndexId, TextIndex, put_field, with_term};
use crate::sort::SortOrder;
use crate::text::TextQuery;
use crate::values::key::KeyBuf;

/// Worth of a plan over a text index: more than any other, as a search is narrow and costly to test.
const WORTH: usize = 1000;

/// Returns the plan over a text index with its score, or `None` if it does not help the filter.
pub(super) fn text_candidate(
    at: IndexId,
    index: &Index,
    node: &FilterNode,
    found: &[IndexCondition<'_>],
    sort: &SortOrder,
) -> Option<(usize, AccessPlan)> {
    let text = index.text.as_deref()?;
    let query = top_text(node)?;
    let prefixes = prefixes(text, found)?;
    let mut ranges: Vec<KeyRange> = Vec::new();
    for prefix in &prefixes {
        ranges.extend(query.terms().iter().map(|term| {
            let low = with_term(prefix.clone(), term);
            KeyRange { high: successor(&low), low }
        }));
    }
    ranges.sort_unstable_by(|a, b| a.low.cmp(&b.low));
    ranges.dedup();
    let sorted = sort.is_empty();
    let terms = query.terms().join(", ");
    let text = format!("index {}: text with one of {terms}{}", index.spec.name, sort_note(sorted, sort));
    let access = IndexAccess { index: at, ranges, reverse: false, equal: 0, ranged: true, exact: false };
    Some((WORTH, AccessPlan { access: AccessPath::Index(access), sorted, missing_id_order: None, text }))
}

/// Returns the keys of the fields before the text that conditions ask for; `None` if they do not say all of them.
fn prefixes(text: &TextIndex, found: &[IndexCondition<'_>]) -> Option<Vec<KeyBuf>> {
    let mut prefixes = vec![KeyBuf::new()];
    let by_bytes: Vec<IndexCondition<'_>> = found.iter().filter(|c| c.is_by_bytes()).cloned().collect();
    for (path, direction) in &text.prefix {
        let values = one_of(&by_bytes, path, POINTS_MAX / prefixes.len().max(1))?;
        prefixes = prefixes
            .iter()
            .flat_map(|prefix| {
                values.iter().map(|value| {
                    let mut key = prefix.clone();
                    put_field(&mut key, value.as_raw(), *direction, None);
                    key
                })
            })
            .collect();
    }
    Some(prefixes)
}

fn top_text(node: &FilterNode) -> Option<&TextQuery> {
    match node {
        FilterNode::All(nodes) => nodes.iter().find_map(top_text),
        FilterNode::Text(query) => Some(query),
        _ => None,
    }
}

/// The index of a search.
pub(crate) enum TextIndexFound<'c> {
    /// The one that serves.
    Usable(&'c TextIndex),
    /// One that has other documents, or that needs values of other fields.
    Unusable,
    Missing,
}

/// Returns the index by which the `$text` of a filter is answered.
pub(crate) fn text_index<'c>(collection: &'c Collection, filter: &Filter) -> TextIndexFound<'c> {
    let of_text = collection.indexes.iter().find_map(|index| Some((index, index.text.as_deref()?)));
    let Some((index, text)) = of_text.filter(|(index, _)| !index.spec.hidden) else {
        return TextIndexFound::Missing;
    };
    let (found, _) = conditions(&filter.node);
    // a search in a branch of an `$or` is evaluated on the documents
    let at_top = top_text(&filter.node).is_some();
    let serves = is_usable(index, &filter.node) && prefixes(text, &found).is_some();
    if !at_top && text.prefix.is_empty() && index.partial.is_none() || serves {
        TextIndexFound::Usable(text)
    } else {
        TextIndexFound::Unusable
    }
}
