//! Query planning: access by `_id`, by an index, or by a scan.
//!
//! A plan may return more documents than match, never fewer; each one is checked against the whole filter.
//! Conditions are used if they are at the top level of a filter or under its `$and`, and only with operands
//! for which an index finds all matches: not null (which also matches missing fields), arrays, MinKey or
//! MaxKey.

mod bounds;
mod candidate;
mod explain;

use std::fmt;

use crate::collection::Collection;
use crate::display::display;
use crate::filter::{Comparison, Filter, FilterNode, ValueTest};
use crate::index::{Index, implies};
use crate::key::Key;
use crate::path::Path;
use crate::raw::{OwnedRawValue, tag};
use crate::sort::SortOrder;
use bounds::FieldBounds;
pub(crate) use bounds::{IndexEntries, KeyRange};
use candidate::{candidate, one_of};
pub use explain::{ExplainQuery, Explanation};

/// Limit on the combinations of `$in` values that one plan looks up; a filter with more uses fewer fields of
/// the index.
const POINTS_MAX: usize = 1000;
/// Limit on the branches of an `$or` that are looked up one by one.
const BRANCHES_MAX: usize = 100;

/// The access path for a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) access: AccessPath,
    /// Whether documents are returned in the requested order.
    pub(crate) sorted: bool,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessPath {
    Scan,
    Ids(Vec<Key>),
    Index(IndexAccess),
    /// The documents that one of these plans finds, each once; none of them is a scan.
    Union(Vec<Plan>),
}

/// Access by an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexAccess {
    /// Number of the index in the collection.
    pub index: usize,
    pub ranges: Vec<KeyRange>,
    pub reverse: bool,
    /// How many fields, from the first, have one of some values.
    pub equal: usize,
    /// Whether the field behind them has bounds.
    pub ranged: bool,
    /// Whether the entries of the ranges are those of the documents that match, one for each.
    pub exact: bool,
}

impl fmt::Display for Plan {
    /// Writes for users the index and the conditions that it answers, or the number of documents to scan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Plan {
    /// Returns the name of the index that is used: `_id_`, one of the collection's, the first of several, or `None` for a scan.
    pub fn index<'c>(&self, collection: &'c Collection) -> Option<&'c str> {
        match &self.access {
            AccessPath::Scan => None,
            AccessPath::Ids(_) => Some("_id_"),
            AccessPath::Index(access) => collection.indexes.get(access.index).map(|i| i.spec.name.as_str()),
            AccessPath::Union(plans) => plans.first().and_then(|plan| plan.index(collection)),
        }
    }
}

/// A condition that an index can answer.
struct Condition<'f> {
    path: &'f Path,
    kind: ConditionKind<'f>,
}

enum ConditionKind<'f> {
    /// One of these values; a single one for equality.
    OneOf(Vec<&'f OwnedRawValue>),
    Range(Comparison, &'f OwnedRawValue),
}

pub(crate) fn plan(collection: &Collection, filter: &Filter, sort: &SortOrder) -> Plan {
    let best = indexed(collection, &filter.node, sort).or_else(|| union(collection, &filter.node, sort));
    best.unwrap_or_else(|| Plan {
        access: AccessPath::Scan,
        sorted: sort.is_empty(),
        text: format!("scan of {} documents{}", collection.len(), sort_note(sort.is_empty(), sort)),
    })
}

/// Returns the plan for an `$or` each of whose branches has an index.
fn union(collection: &Collection, node: &FilterNode, sort: &SortOrder) -> Option<Plan> {
    let branches = match node {
        FilterNode::Any(branches) => branches,
        FilterNode::All(nodes) => {
            return nodes.iter().find_map(|node| union(collection, node, sort));
        }
        _ => return None,
    };
    if branches.is_empty() || branches.len() > BRANCHES_MAX {
        return None;
    }
    let plans: Vec<Plan> = branches
        .iter()
        .map(|branch| indexed(collection, branch, &SortOrder::default()))
        .collect::<Option<_>>()?;
    let texts: Vec<&str> = plans.iter().map(|plan| plan.text.as_str()).collect();
    let text = format!("any of: {}{}", texts.join("; "), sort_note(sort.is_empty(), sort));
    Some(Plan { access: AccessPath::Union(plans), sorted: sort.is_empty(), text })
}

/// Returns the conditions of a filter that indexes can answer, and whether there are no others.
fn conditions(node: &FilterNode) -> (Vec<Condition<'_>>, bool) {
    let mut found = Vec::new();
    let complete = collect(node, &mut found);
    (found, complete)
}

/// Returns the plan by `_id` or by the best index, if there is one.
fn indexed(collection: &Collection, node: &FilterNode, sort: &SortOrder) -> Option<Plan> {
    let (conditions, complete) = conditions(node);
    if let Some(plan) = by_id(&conditions, sort) {
        return Some(plan);
    }
    let candidates = collection
        .indexes
        .iter()
        .enumerate()
        .filter(|(_, index)| is_usable(index, node))
        .filter_map(|(i, index)| candidate(i, index, &conditions, complete, sort));
    // the first of the best, so that the choice depends on nothing but the definitions
    let best = candidates.fold(None, |best: Option<(usize, Plan)>, c| match best {
        Some(b) if b.0 >= c.0 => Some(b),
        _ => Some(c),
    });
    best.map(|(_, plan)| plan)
}

/// Returns whether a query with this filter may use the index at all.
fn is_usable(index: &Index, node: &FilterNode) -> bool {
    !index.spec.hidden
        && index.spec.collation.is_none()
        && index.partial.as_ref().is_none_or(|partial| implies(node, &partial.node))
}

fn sort_note(sorted: bool, sort: &SortOrder) -> &'static str {
    match (sort.is_empty(), sorted) {
        (true, _) => "",
        (_, true) => ", in the order of the index",
        _ => ", then sorted in memory",
    }
}

/// Collects the conditions of a filter. Returns whether there are no others.
fn collect<'f>(node: &'f FilterNode, found: &mut Vec<Condition<'f>>) -> bool {
    match node {
        FilterNode::All(nodes) => {
            let mut complete = true;
            for node in nodes {
                complete &= collect(node, found);
            }
            complete
        }
        FilterNode::Field(path, ValueTest::Compare(op, v)) if is_indexable(v) => {
            let what = if *op == Comparison::Eq {
                ConditionKind::OneOf(vec![v])
            } else {
                ConditionKind::Range(*op, v)
            };
            found.push(Condition { path, kind: what });
            true
        }
        FilterNode::Field(path, ValueTest::In(values, patterns))
            if patterns.is_empty() && values.iter().all(is_indexable) =>
        {
            found.push(Condition { path, kind: ConditionKind::OneOf(values.iter().collect()) });
            true
        }
        _ => false,
    }
}

fn is_indexable(v: &OwnedRawValue) -> bool {
    !matches!(v.tag, tag::NULL | tag::UNDEFINED | tag::ARRAY | tag::MIN_KEY | tag::MAX_KEY | tag::REGEX)
}

fn by_id(conditions: &[Condition<'_>], sort: &SortOrder) -> Option<Plan> {
    let values = conditions.iter().find_map(|c| match &c.kind {
        ConditionKind::OneOf(values) if c.path.as_str() == "_id" => Some(values),
        _ => None,
    })?;
    let mut keys: Vec<Key> = values.iter().map(|v| Key::of_raw(v.as_raw())).collect();
    keys.sort_unstable();
    keys.dedup();
    let sorted = sort.is_empty() || keys.len() <= 1;
    let text = format!("lookup of {} by _id{}", plural(keys.len(), "document"), sort_note(sorted, sort));
    Some(Plan { access: AccessPath::Ids(keys), sorted, text })
}

fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn describe_values(path: &Path, op: &str, values: &[&OwnedRawValue]) -> String {
    match values {
        [one] => format!("{path} {op} {}", display(one.as_raw())),
        many => format!("{path} in {}", plural(many.len(), "value")),
    }
}

/// Returns whether an index can answer equality with this value.
pub(crate) fn can_answer_equality(value: &OwnedRawValue) -> bool {
    is_indexable(value)
}
