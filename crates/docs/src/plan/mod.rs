//! Query planning: access by `_id`, by an index, or by a scan.
//!
//! A plan may return more documents than match, never fewer; each one is checked against the whole filter.
//! Conditions are used if they are at the top level of a filter or under its `$and`, and only with operands
//! for which an index finds all matches: not null (which also matches missing fields), arrays, MinKey or
//! MaxKey.

mod explain;

use std::fmt;
use std::ops::Bound;

use imbl::ordset::RangedIter;
use imbl::shared_ptr::DefaultSharedPtr;

use crate::collection::Collection;
use crate::display::display;
use crate::filter::{Comparison, Filter, FilterNode, ValueTest, is_nan};
use crate::index::{Index, WildcardFields, implies, put_field, put_hash};
use crate::key::{Key, KeyBuf, rank};
use crate::order::compare;
use crate::path::Path;
use crate::raw::{OwnedRawValue, RawValue, tag};
use crate::rows::RowIndex;
use crate::sort::SortOrder;
use crate::spec::Direction;
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

/// A half-open range of keys, from `low` up to but excluding `high`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    low: KeyBuf,
    /// `None` for the end of the index.
    high: Option<KeyBuf>,
}

/// The entries of a range of an index, in order.
pub(crate) type IndexEntries<'i> = RangedIter<'i, (Key, RowIndex), DefaultSharedPtr>;

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

/// Returns the plan over one index with its score, or `None` if it helps neither the filter nor the order.
fn candidate(
    at: usize,
    index: &Index,
    conditions: &[Condition<'_>],
    complete: bool,
    sort: &SortOrder,
) -> Option<(usize, Plan)> {
    if let Some(wildcard) = &index.wildcard {
        return wildcard_candidate(at, index, wildcard, conditions, sort);
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
                        true => put_hash(&mut key, v.as_raw()),
                        false => put_field(&mut key, v.as_raw(), *direction),
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
        let bounds = FieldBounds::find(conditions, path, index.multikey())?;
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
            Some((bounds, direction)) => bounds.range(prefix, *direction),
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
    Some((worth, Plan { access: AccessPath::Index(access), sorted, text }))
}

/// Returns whether the entries between the bounds are those of the documents that match all `conditions`.
fn is_exact(
    index: &Index,
    equal: usize,
    bounds: Option<&FieldBounds<'_>>,
    conditions: &[Condition<'_>],
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
    at: usize,
    index: &Index,
    wildcard: &WildcardFields,
    conditions: &[Condition<'_>],
    sort: &SortOrder,
) -> Option<(usize, Plan)> {
    // an object has entries for its fields, but none for itself
    let has_object = |c: &Condition<'_>| match &c.kind {
        ConditionKind::OneOf(values) => values.iter().any(|v| v.tag == tag::DOCUMENT),
        ConditionKind::Range(_, v) => v.tag == tag::DOCUMENT,
    };
    let usable = |c: &&Condition<'_>| wildcard.covers(c.path) && !has_object(c);
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
        Some((worth + usize::from(sorted), Plan { access, sorted, text }))
    };
    let equality = conditions.iter().filter(usable).find_map(|c| match &c.kind {
        ConditionKind::OneOf(values) if values.len() <= POINTS_MAX => Some((c.path, values)),
        _ => None,
    });
    if let Some((path, values)) = equality {
        let range = |value: &&OwnedRawValue| {
            let mut low = wildcard.prefix(path.as_str());
            put_field(&mut low, value.as_raw(), wildcard.direction);
            KeyRange { high: successor(&low), low }
        };
        return plan(4, values.iter().map(range).collect(), describe_values(path, "=", values));
    }
    let path = conditions.iter().find(usable)?.path;
    let bounds = FieldBounds::find(conditions, path, index.multikey())?;
    let range = bounds.range(wildcard.prefix(path.as_str()), wildcard.direction);
    plan(2, vec![range], bounds.describe(path))
}

/// Returns the values of which the path must equal one, if there are at most `max`.
fn one_of<'c, 'f>(
    conditions: &'c [Condition<'f>],
    path: &Path,
    max: usize,
) -> Option<&'c Vec<&'f OwnedRawValue>> {
    conditions.iter().filter(|c| c.path == path).find_map(|c| match &c.kind {
        ConditionKind::OneOf(values) if values.len() <= max => Some(values),
        _ => None,
    })
}

fn describe_values(path: &Path, op: &str, values: &[&OwnedRawValue]) -> String {
    match values {
        [one] => format!("{path} {op} {}", display(one.as_raw())),
        many => format!("{path} in {}", plural(many.len(), "value")),
    }
}

/// Returns whether the index must be read backwards to provide the order; `None` if it cannot provide it.
fn sort_direction(index: &Index, equal: usize, sort: &SortOrder) -> Option<bool> {
    if index.multikey() {
        // a document has several positions in the index, but one in the order
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

/// Range conditions on one field: bound, and whether it is inclusive.
struct FieldBounds<'f> {
    low: Option<(RawValue<'f>, bool)>,
    high: Option<(RawValue<'f>, bool)>,
}

impl<'f> FieldBounds<'f> {
    /// Returns the tightest bounds of one type. On a multikey index different elements may satisfy two
    /// bounds, so only the first one is used.
    fn find(conditions: &[Condition<'f>], path: &Path, multikey: bool) -> Option<Self> {
        let mut bounds = Self { low: None, high: None };
        for c in conditions.iter().filter(|c| c.path == path) {
            let ConditionKind::Range(op, v) = c.kind else { continue };
            let v = v.as_raw();
            if bounds.either_bound().is_some_and(|other| multikey || rank(other.tag) != rank(v.tag)) {
                continue;
            }
            match op {
                Comparison::Gt | Comparison::Gte => {
                    if bounds.low.is_none_or(|(old, _)| compare(v, old).is_gt()) {
                        bounds.low = Some((v, op == Comparison::Gte));
                    }
                }
                _ => {
                    if bounds.high.is_none_or(|(old, _)| compare(v, old).is_lt()) {
                        bounds.high = Some((v, op == Comparison::Lte));
                    }
                }
            }
        }
        bounds.either_bound().is_some().then_some(bounds)
    }

    fn is_numeric(&self) -> bool {
        self.either_bound().is_some_and(|value| rank(value.tag) == rank(tag::INT32))
    }

    /// Returns whether the condition is a range of the same type, so that the bounds imply it.
    fn includes(&self, condition: &Condition<'_>) -> bool {
        match &condition.kind {
            ConditionKind::Range(_, value) => self
                .either_bound()
                .is_some_and(|bound| rank(bound.tag) == rank(value.tag) && !is_nan(value.as_raw())),
            ConditionKind::OneOf(_) => false,
        }
    }

    fn either_bound(&self) -> Option<RawValue<'f>> {
        self.low.or(self.high).map(|(v, _)| v)
    }

    fn describe(&self, path: &Path) -> String {
        let low = self
            .low
            .map(|(v, inclusive)| format!("{path} {} {}", if inclusive { ">=" } else { ">" }, display(v)));
        let high = self
            .high
            .map(|(v, inclusive)| format!("{path} {} {}", if inclusive { "<=" } else { "<" }, display(v)));
        low.into_iter().chain(high).collect::<Vec<_>>().join(", ")
    }

    /// Returns the range of keys that continue `prefix` with a value within the bounds. A side without a
    /// bound is limited by the type of the other one.
    fn range(&self, prefix: KeyBuf, direction: Direction) -> KeyRange {
        let key = |v: RawValue<'_>| {
            let mut key = prefix.clone();
            put_field(&mut key, v, direction);
            key
        };
        let mut bracket = prefix.clone();
        let rank = self.either_bound().map_or(0, |v| rank(v.tag));
        bracket.push(if direction == Direction::Descending { !rank } else { rank });
        let (first, last) = match direction {
            Direction::Ascending => (self.low, self.high),
            Direction::Descending => (self.high, self.low),
        };
        let low = match first {
            None => Some(bracket.clone()),
            Some((v, true)) => Some(key(v)),
            Some((v, false)) => successor(&key(v)),
        };
        let high = match last {
            None => successor(&bracket),
            Some((v, true)) => successor(&key(v)),
            Some((v, false)) => Some(key(v)),
        };
        // a key has no successor only if all its bytes are 0xFF, and no type starts with that byte
        KeyRange { low: low.unwrap_or(bracket), high }
    }
}

/// Returns the smallest bytes above everything that starts with `prefix`; `None` if there are none.
fn successor(prefix: &KeyBuf) -> Option<KeyBuf> {
    let end = prefix.iter().rposition(|b| *b != 0xFF)?;
    let mut next = KeyBuf::from_slice(&prefix[..=end]);
    next[end] += 1;
    Some(next)
}

impl KeyRange {
    /// Returns the range of all keys of an index that start with the key of `value`.
    pub fn equal(value: RawValue<'_>, direction: Direction) -> Self {
        let mut low = KeyBuf::new();
        put_field(&mut low, value, direction);
        Self { high: successor(&low), low }
    }

    pub fn entries<'i>(&self, index: &'i Index) -> IndexEntries<'i> {
        let low = (Key(self.low.clone()), 0);
        let high = match &self.high {
            // bounds that exclude each other make an empty range, not an inverted one
            Some(high) => Bound::Excluded((Key(high.clone().max(self.low.clone())), 0)),
            None => Bound::Unbounded,
        };
        index.entries.range((Bound::Included(low), high))
    }
}

/// Returns whether an index can answer equality with this value.
pub(crate) fn can_answer_equality(value: &OwnedRawValue) -> bool {
    is_indexable(value)
}
