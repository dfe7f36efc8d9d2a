//! The plan over one index: which conditions it answers, and which order it provides.

use super::bounds::{FieldBounds, KeyRange, successor};
use super::{
    AccessPath, AccessPlan, ConditionKind, IndexAccess, IndexCondition, POINTS_MAX, describe_values,
    sort_note,
};
use crate::filter::is_nan;
use crate::index::{Index, IndexId, WildcardFields, put_field, put_hash};
use crate::sort::SortOrder;
use crate::values::key::KeyBuf;
use crate::values::path::Path;
use crate::values::raw::{OwnedRawValue, tag};

/// Returns the plan over one index with its score, or `None` if it helps neither the filter nor the order.
pub(super) fn candidate(
    at: IndexId,
    index: &Index,
    conditions: &[IndexCondition<'_>],
    complete: bool,
    sort: &SortOrder,
) -> Option<(usize, AccessPlan)> {
    let collation = index.collation.as_ref();
    let fitting: Vec<IndexCondition<'_>>;
    let (conditions, complete) = match conditions.iter().all(|c| c.fits(collation)) {
        true => (conditions, complete),
        // strings have another order in the index
        false => {
            fitting = conditions.iter().filter(|c| c.fits(collation)).cloned().collect();
            (fitting.as_slice(), false)
        }
    };
    if let Some(wildcard) = &index.wildcard {
        return wildcard_candidate(at, index, wildcard, conditions, sort);
    }
    if !index.spec.has_values() {
        return None;
    }
    let mut prefixes = vec![KeyBuf::new()];
    let mut notes: Vec<String> = Vec::new();
    let mut equal = 0;
    for (i, (path, direction)) in index.fields.iter().enumerate() {
        // an empty `$in` matches nothing, whatever the other fields are
        if prefixes.is_empty() || shares_array(index, i) {
            break;
        }
        let Some(values) = one_of(conditions, path, POINTS_MAX / prefixes.len()) else {
            break;
        };
        prefixes = prefixes
            .iter()
            .flat_map(|prefix| {
                values.iter().map(|v| {
                    let mut key = prefix.clone();
                    match index.hashed == Some(i) {
                        true => put_hash(&mut key, v.as_raw(), collation),
                        false => put_field(&mut key, v.as_raw(), *direction, collation),
                    }
                    key
                })
            })
            .collect();
        notes.push(describe_values(path, "=", values));
        equal += 1;
    }
    let ordered = index.hashed != Some(equal) && !shares_array(index, equal);
    let range = index.fields.get(equal).filter(|_| ordered).and_then(|(path, direction)| {
        let bounds = FieldBounds::find(conditions, path, index.multikey(), collation)?;
        notes.push(bounds.describe(path));
        Some((bounds, *direction))
    });
    let reverse = if prefixes.len() == 1 { sort_direction(index, equal, sort) } else { None };
    // a sparse index has every document only of those that have the fields
    if equal == 0 && range.is_none() && (reverse.is_none() || sort.is_empty() || index.spec.sparse) {
        return None;
    }
    let sorted = sort.is_empty() || reverse.is_some();
    let mut ranges: Vec<KeyRange> = prefixes
        .into_iter()
        .map(|prefix| match &range {
            Some((bounds, direction)) => bounds.range(prefix, *direction, collation),
            None => KeyRange { high: successor(&prefix), low: prefix },
        })
        .collect();
    ranges.sort_unstable_by(|a, b| a.low.cmp(&b.low));
    ranges.dedup();
    let worth = equal * 4 + usize::from(range.is_some()) * 2 + usize::from(sorted);
    let what = if notes.is_empty() { "all of it".to_owned() } else { notes.join(", ") };
    let text = format!("index {}: {what}{}", index.spec.name, sort_note(sorted, sort));
    let exact = complete && is_exact(index, equal, range.as_ref().map(|(bounds, _)| bounds), conditions);
    let access = IndexAccess {
        index: at,
        ranges,
        reverse: reverse == Some(true),
        equal,
        ranged: range.is_some(),
        exact,
    };
    Some((worth, AccessPlan { access: AccessPath::Index(access), sorted, missing_id_order: None, text }))
}

/// Returns whether the entries between the bounds are those of the documents that match all `conditions`.
fn is_exact(
    index: &Index,
    equal: usize,
    bounds: Option<&FieldBounds<'_>>,
    conditions: &[IndexCondition<'_>],
) -> bool {
    // hashes may be equal by chance, and a document with several entries may be found twice
    if index.hashed.is_some() || index.multikey() {
        return false;
    }
    let bounded = match bounds {
        None => 0,
        Some(bounds) => {
            let Some((path, _)) = index.fields.get(equal) else { return false };
            let ranges = conditions.iter().filter(|c| c.path == path);
            // without a lower bound, numbers begin with one that is in no range
            if bounds.low.is_none_or(|(value, _)| is_nan(value)) && bounds.is_numeric() {
                return false;
            }
            ranges.filter(|c| bounds.includes(c)).count()
        }
    };
    equal + bounded == conditions.len()
}

/// Returns whether a document may have the field with this number and an earlier one inside the elements of one array. Its
/// entries then have values of the same element, but two conditions may hold for different ones.
fn shares_array(index: &Index, at: usize) -> bool {
    let Some((path, _)) = index.fields.get(at) else { return false };
    index.multikey() && index.fields[..at].iter().any(|(earlier, _)| earlier.top() == path.top())
}

/// Returns the plan over a wildcard index, which answers the conditions on one path.
fn wildcard_candidate(
    at: IndexId,
    index: &Index,
    wildcard: &WildcardFields,
    conditions: &[IndexCondition<'_>],
    sort: &SortOrder,
) -> Option<(usize, AccessPlan)> {
    // an object has entries for its fields, but none for itself
    let has_object = |c: &IndexCondition<'_>| match &c.kind {
        ConditionKind::OneOf(values) => values.iter().any(|v| v.tag == tag::DOCUMENT),
        ConditionKind::Range(_, v) => v.tag == tag::DOCUMENT,
    };
    let usable = |c: &&IndexCondition<'_>| wildcard.covers(c.path) && !has_object(c);
    let sorted = sort.is_empty();
    let plan = |worth: usize, mut ranges: Vec<KeyRange>, note: String| {
        ranges.sort_unstable_by(|a, b| a.low.cmp(&b.low));
        ranges.dedup();
        let text = format!("index {}: {note}{}", index.spec.name, sort_note(sorted, sort));
        let access = AccessPath::Index(IndexAccess {
            index: at,
            ranges,
            reverse: false,
            equal: 0,
            ranged: true,
            exact: false,
        });
        Some((worth + usize::from(sorted), AccessPlan { access, sorted, missing_id_order: None, text }))
    };
    let equality = conditions.iter().filter(usable).find_map(|c| match &c.kind {
        ConditionKind::OneOf(values) if values.len() <= POINTS_MAX => Some((c.path, values)),
        _ => None,
    });
    if let Some((path, values)) = equality {
        let range = |value: &&OwnedRawValue| {
            let mut low = wildcard.prefix(path.as_str());
            put_field(&mut low, value.as_raw(), wildcard.direction, index.collation.as_ref());
            KeyRange { high: successor(&low), low }
        };
        return plan(4, values.iter().map(range).collect(), describe_values(path, "=", values));
    }
    let path = conditions.iter().find(usable)?.path;
    let collation = index.collation.as_ref();
    let bounds = FieldBounds::find(conditions, path, index.multikey(), collation)?;
    let range = bounds.range(wildcard.prefix(path.as_str()), wildcard.direction, collation);
    plan(2, vec![range], bounds.describe(path))
}

/// Returns the values of a condition that the path equals one of them, if there are at most `max`.
pub(super) fn one_of<'c, 'f>(
    conditions: &'c [IndexCondition<'f>],
    path: &Path,
    max: usize,
) -> Option<&'c Vec<&'f OwnedRawValue>> {
    conditions.iter().filter(|c| c.path == path).find_map(|c| match &c.kind {
        ConditionKind::OneOf(values) if values.len() <= max => Some(values),
        _ => None,
    })
}

/// Returns whether the index must be read backwards to provide the order; `None` if it cannot provide it.
fn sort_direction(index: &Index, equal: usize, sort: &SortOrder) -> Option<bool> {
    if index.multikey() {
        // a document has several positions in the index, but one in the order
        return None;
    }
    if !sort.is_by_fields() || (!sort.is_empty() && sort.collation() != index.collation.as_ref()) {
        return None;
    }
    let fixed = &index.fields[..equal];
    // hashes have no order
    let end = index.hashed.filter(|hashed| *hashed >= equal).unwrap_or(index.fields.len());
    let mut rest = index.fields[equal..end].iter();
    let mut reverse = None;
    for (path, direction) in &sort.fields {
        if fixed.iter().any(|(p, _)| p == path) {
            continue;
        }
        let (next, stored) = rest.next()?;
        if next != path || *reverse.get_or_insert(stored != direction) != (stored != direction) {
            return None;
        }
    }
    Some(reverse.unwrap_or(false))
}
