//! Query planning: access by `_id`, by an index, or by a scan.
//!
//! A plan may return more documents than match, never fewer; each one is checked against the whole filter.
//! Conditions are used if they are at the top level of a filter or under its `$and`, and only with operands
//! for which an index finds all matches: not null (which also matches missing fields), arrays, MinKey or
//! MaxKey.

mod bounds;
mod candidate;
mod explain;
mod geo;
mod text;

use std::fmt;

use crate::collation::Collation;
use crate::collection::Collection;
use crate::direction::Direction;
use crate::filter::{Comparison, Filter, FilterNode, ValueTest};
use crate::found::FoundOrder;
use crate::index::{Index, IndexId, implies};
use crate::sort::SortOrder;
use crate::values::display::display;
use crate::values::key::{Key, has_strings};
use crate::values::path::Path;
use crate::values::raw::{OwnedRawValue, tag};
use bounds::FieldBounds;
pub(crate) use bounds::{IndexEntries, KeyRange};
use candidate::{candidate, one_of};
pub use explain::{ExplainQuery, Explanation};
use geo::{geo_candidate, near_plan};
pub(crate) use geo::{near_index, near_ranges};
use text::text_candidate;
pub(crate) use text::{TextIndexFound, text_index};

/// Limit on the combinations of `$in` values that one plan looks up; a filter with more uses fewer fields of
/// the index.
const POINTS_MAX: usize = 1000;
/// Limit on the branches of an `$or` that are looked up one by one.
const BRANCHES_MAX: usize = 100;

/// The access path for a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPlan {
    pub(crate) access: AccessPath,
    /// True if documents are returned in the requested order.
    pub(crate) sorted: bool,
    /// Why the index of `_id` in order is not used though it would serve.
    missing_id_order: Option<&'static str>,
    text: String,
}

/// Purpose of a plan, which decides about the index of `_id` in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A read. The index is used, and built if it is missing.
    Read,
    /// An explanation. The index is used if it is there.
    Explain,
    /// A write of some documents, or of all. The index may be there or not when the log is applied again, so it is used only
    /// where that makes no difference.
    Write { all: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessPath {
    Scan,
    /// From the last document to the first.
    ScanBackward,
    Ids(Vec<Key>),
    Index(IndexAccess),
    /// An index of geometries, in the order of distances from the point of the filter's `$near`.
    Near(IndexId),
    /// The documents that one of these plans finds, each once; none of them is a scan.
    Union(Vec<AccessPlan>),
}

/// Access by an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexAccess {
    pub index: IndexId,
    pub ranges: Vec<KeyRange>,
    pub reverse: bool,
    /// Number of leading fields that are compared with one or several values.
    pub equal: usize,
    /// True if the field behind them has bounds.
    pub ranged: bool,
    /// True if the entries of the ranges are those of the documents that match, one for each.
    pub exact: bool,
}

impl fmt::Display for AccessPlan {
    /// Writes for users the index and the conditions that it answers, or the number of documents to scan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl AccessPlan {
    /// Returns the plan that reads all documents in the order of insertion, or in its reverse.
    pub(crate) fn scan(collection: &Collection, direction: Direction) -> Self {
        let (access, from) = match direction {
            Direction::Ascending => (AccessPath::Scan, ""),
            Direction::Descending => (AccessPath::ScanBackward, " from the last"),
        };
        let text = format!("scan of {} documents{from}", collection.len());
        Self { access, sorted: true, missing_id_order: None, text }
    }

    /// Returns the order in which the plan finds documents for a query with this sort.
    pub(crate) fn order(&self, collection: &Collection, sort: &SortOrder) -> FoundOrder {
        if !sort.is_empty() {
            return FoundOrder::By(sort.clone());
        }
        let by_id = || SortOrder::default().then("_id", Direction::Ascending);
        match &self.access {
            AccessPath::Scan | AccessPath::Near(_) | AccessPath::Union(_) => {
                FoundOrder::Natural(Direction::Ascending)
            }
            AccessPath::ScanBackward => FoundOrder::Natural(Direction::Descending),
            AccessPath::Ids(_) => FoundOrder::By(by_id()),
            AccessPath::Index(access) if access.index == IndexId::OfId => {
                FoundOrder::By(by_id().with_collation(collection.collation().cloned()))
            }
            AccessPath::Index(access) => match collection.index(access.index).and_then(order_of) {
                Some(order) => FoundOrder::By(order),
                None => FoundOrder::Natural(Direction::Ascending),
            },
        }
    }

    /// Returns the name of the index that is used: `_id_`, one of the collection's, the first of several, or `None` for a scan.
    pub fn index<'c>(&self, collection: &'c Collection) -> Option<&'c str> {
        match &self.access {
            AccessPath::Scan | AccessPath::ScanBackward => None,
            AccessPath::Ids(_) => Some("_id_"),
            AccessPath::Index(IndexAccess { index, .. }) | AccessPath::Near(index) => {
                collection.index(*index).map(|i| i.spec.name.as_str())
            }
            AccessPath::Union(plans) => plans.first().and_then(|plan| plan.index(collection)),
        }
    }

    /// Returns whether the plan reads this index.
    pub(crate) fn uses(&self, index: IndexId) -> bool {
        match &self.access {
            AccessPath::Scan | AccessPath::ScanBackward | AccessPath::Ids(_) => false,
            AccessPath::Index(IndexAccess { index: own, .. }) | AccessPath::Near(own) => *own == index,
            AccessPath::Union(plans) => plans.iter().any(|plan| plan.uses(index)),
        }
    }
}

/// Returns the order of the entries of an index; `None` if it is not one of values, or a document may have several entries.
fn order_of(index: &Index) -> Option<SortOrder> {
    let by_value =
        index.hashed.is_none() && index.wildcard.is_none() && index.spec.has_values() && !index.multikey();
    by_value.then(|| SortOrder::by_fields(index.fields.to_vec(), index.collation.clone()))
}

/// A condition that an index can answer.
#[derive(Clone)]
struct IndexCondition<'f> {
    path: &'f Path,
    kind: ConditionKind<'f>,
    strings: Strings<'f>,
}

/// Comparison of the strings among the operands of a condition.
#[derive(Clone, Copy)]
enum Strings<'f> {
    None,
    ByBytes,
    By(&'f Collation),
}

impl IndexCondition<'_> {
    /// Returns whether an index with this collation has the documents for which the condition holds in a range.
    fn fits(&self, collation: Option<&Collation>) -> bool {
        match self.strings {
            Strings::None => true,
            Strings::ByBytes => collation.is_none(),
            Strings::By(own) => collation == Some(own),
        }
    }

    fn is_by_bytes(&self) -> bool {
        self.fits(None)
    }
}

#[derive(Clone)]
enum ConditionKind<'f> {
    /// One of these values; a single one for equality.
    OneOf(Vec<&'f OwnedRawValue>),
    Range(Comparison, &'f OwnedRawValue),
}

pub(crate) fn plan(
    collection: &Collection,
    filter: &Filter,
    sort: &SortOrder,
    purpose: Purpose,
) -> AccessPlan {
    if let Some(plan) = near_plan(collection, filter, sort) {
        return plan;
    }
    let is_heavy = filter.cost().is_heavy();
    let mut planner = FilterPlanner { collection, purpose, is_heavy, missing_id_order: None };
    let best = planner.indexed(&filter.node, sort).or_else(|| planner.union(&filter.node, sort));
    let mut plan = best.unwrap_or_else(|| AccessPlan {
        access: AccessPath::Scan,
        sorted: sort.is_empty(),
        missing_id_order: None,
        text: format!("scan of {} documents{}", collection.len(), sort_note(sort.is_empty(), sort)),
    });
    if let Some(why) = planner.missing_id_order {
        plan.missing_id_order = Some(why);
        plan.text = format!("{} ({why})", plan.text);
    }
    plan
}

struct FilterPlanner<'c> {
    collection: &'c Collection,
    purpose: Purpose,
    /// True if tests of documents count steps.
    is_heavy: bool,
    missing_id_order: Option<&'static str>,
}

impl FilterPlanner<'_> {
    /// Returns the plan for an `$or` each of whose branches has an index.
    fn union(&mut self, node: &FilterNode, sort: &SortOrder) -> Option<AccessPlan> {
        let branches = match node {
            FilterNode::Any(branches) => branches,
            FilterNode::All(nodes) => {
                return nodes.iter().find_map(|node| self.union(node, sort));
            }
            _ => return None,
        };
        if branches.is_empty() || branches.len() > BRANCHES_MAX {
            return None;
        }
        let plans: Vec<AccessPlan> = branches
            .iter()
            .map(|branch| self.indexed(branch, &SortOrder::default()))
            .collect::<Option<_>>()?;
        let texts: Vec<&str> = plans.iter().map(|plan| plan.text.as_str()).collect();
        let text = format!("any of: {}{}", texts.join("; "), sort_note(sort.is_empty(), sort));
        let sorted = sort.is_empty();
        Some(AccessPlan { access: AccessPath::Union(plans), sorted, missing_id_order: None, text })
    }

    /// Returns the plan by `_id` or by the best index, if there is one.
    fn indexed(&mut self, node: &FilterNode, sort: &SortOrder) -> Option<AccessPlan> {
        let (conditions, complete) = conditions(node);
        if let Some(plan) = by_id(&conditions, sort) {
            return Some(plan);
        }
        let candidates = self
            .collection
            .indexes
            .iter()
            .enumerate()
            .filter(|(_, index)| is_usable(index, node))
            .filter_map(|(i, index)| {
                let at = IndexId::Secondary(i);
                text_candidate(at, index, node, &conditions, sort)
                    .or_else(|| geo_candidate(at, index, node, sort))
                    .or_else(|| candidate(at, index, &conditions, complete, sort))
            });
        // the first of the best, so that the choice depends on nothing but the definitions
        let best = candidates.fold(None, |best: Option<(usize, AccessPlan)>, c| match best {
            Some(b) if b.0 >= c.0 => Some(b),
            _ => Some(c),
        });
        if let Some((worth, plan)) = self.by_id_order(&conditions, complete, sort)
            && best.as_ref().is_none_or(|best| worth > best.0)
            && self.has_id_order()
        {
            return Some(plan);
        }
        best.map(|(_, plan)| plan)
    }

    /// Returns the plan over the index of `_id` in order, which may be missing, with its score.
    fn by_id_order(
        &self,
        conditions: &[IndexCondition<'_>],
        complete: bool,
        sort: &SortOrder,
    ) -> Option<(usize, AccessPlan)> {
        let is_id = |path: &Path| path.as_str() == "_id";
        let serves =
            conditions.iter().any(|c| is_id(c.path)) || sort.fields.first().is_some_and(|f| is_id(&f.0));
        let allowed = match self.purpose {
            Purpose::Read | Purpose::Explain => true,
            // without other conditions none can fail, or count steps, on a document that the index leaves out
            Purpose::Write { .. } => complete && !self.is_heavy,
        };
        if !serves || !allowed {
            return None;
        }
        let definition = self.collection.id_order_definition();
        let (worth, plan) = candidate(IndexId::OfId, &definition, conditions, complete, sort)?;
        // one document of many is found in the order of insertion, for which a scan is better
        let one_of_many = self.purpose == Purpose::Write { all: false }
            && sort.is_empty()
            && matches!(&plan.access, AccessPath::Index(access) if access.equal == 0);
        (!one_of_many).then_some((worth, plan))
    }

    fn has_id_order(&mut self) -> bool {
        let index = match self.purpose {
            Purpose::Read => self.collection.want_id_order(true),
            Purpose::Write { .. } => self.collection.want_id_order(false),
            Purpose::Explain => self.collection.id_order.index(),
        };
        if index.is_none() {
            self.missing_id_order = Some(self.collection.id_order.why_missing());
        }
        index.is_some()
    }
}

/// Returns the conditions of a filter that indexes can answer, and whether there are no others.
fn conditions(node: &FilterNode) -> (Vec<IndexCondition<'_>>, bool) {
    let mut found = Vec::new();
    let complete = collect(node, &mut found);
    (found, complete)
}

/// Returns whether a query with this filter may use the index at all.
fn is_usable(index: &Index, node: &FilterNode) -> bool {
    !index.spec.hidden && index.partial.as_ref().is_none_or(|partial| implies(node, &partial.node))
}

fn sort_note(sorted: bool, sort: &SortOrder) -> &'static str {
    match (sort.is_empty(), sorted) {
        (true, _) => "",
        (_, true) => ", in the order of the index",
        _ => ", then sorted in memory",
    }
}

/// Collects the conditions of a filter. Returns whether there are no others.
fn collect<'f>(node: &'f FilterNode, found: &mut Vec<IndexCondition<'f>>) -> bool {
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
            let strings = if has_strings(v.as_raw()) { Strings::ByBytes } else { Strings::None };
            found.push(IndexCondition { path, kind: what, strings });
            true
        }
        FilterNode::Field(path, ValueTest::In(values, patterns))
            if patterns.is_empty() && values.iter().all(is_indexable) =>
        {
            let by_bytes = values.iter().any(|value| has_strings(value.as_raw()));
            let strings = if by_bytes { Strings::ByBytes } else { Strings::None };
            found.push(IndexCondition { path, kind: ConditionKind::OneOf(values.iter().collect()), strings });
            true
        }
        FilterNode::Field(path, ValueTest::Collated(test))
            if test.patterns.is_empty() && test.values.iter().all(is_indexable) =>
        {
            let kind = match (test.comparison, test.values.as_slice()) {
                (Comparison::Eq, values) => ConditionKind::OneOf(values.iter().collect()),
                (comparison, [value]) => ConditionKind::Range(comparison, value),
                _ => return false,
            };
            found.push(IndexCondition { path, kind, strings: Strings::By(&test.collation) });
            true
        }
        _ => false,
    }
}

fn is_indexable(v: &OwnedRawValue) -> bool {
    !matches!(v.tag, tag::NULL | tag::UNDEFINED | tag::ARRAY | tag::MIN_KEY | tag::MAX_KEY | tag::REGEX)
}

fn by_id(conditions: &[IndexCondition<'_>], sort: &SortOrder) -> Option<AccessPlan> {
    let values = conditions.iter().find_map(|c| match &c.kind {
        ConditionKind::OneOf(values) if c.path.as_str() == "_id" && c.is_by_bytes() => Some(values),
        _ => None,
    })?;
    let mut keys: Vec<Key> = values.iter().map(|v| Key::of_raw(v.as_raw())).collect();
    keys.sort_unstable();
    keys.dedup();
    let sorted = sort.is_empty() || keys.len() <= 1;
    let text = format!("lookup of {} by _id{}", plural(keys.len(), "document"), sort_note(sorted, sort));
    Some(AccessPlan { access: AccessPath::Ids(keys), sorted, missing_id_order: None, text })
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
