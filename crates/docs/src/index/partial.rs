//! Partial indexes: which filters may select the documents of an index, and which queries find only such documents.

use crate::filter::{Comparison, Filter, FilterNode, ValueTest, is_nan};
use crate::values::key::rank;
use crate::values::order::{compare, equal};
use crate::values::raw::{OwnedRawValue, tag};

impl Filter {
    /// Returns whether an index may be limited to the documents that match. Other conditions would not tell from a query
    /// whether the index has all of its results.
    pub(crate) fn can_select_for_index(&self) -> bool {
        can_select(&self.node)
    }
}

fn can_select(node: &FilterNode) -> bool {
    match node {
        FilterNode::All(nodes) | FilterNode::Any(nodes) => nodes.iter().all(can_select),
        FilterNode::Field(_, test) => match test {
            ValueTest::Compare(..) | ValueTest::Exists | ValueTest::Type(_) => true,
            ValueTest::In(_, patterns) => patterns.is_empty(),
            ValueTest::Collated(test) => test.patterns.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether every document that matches `query` also matches `wanted`. May return `false` if it cannot tell.
pub(crate) fn implies(query: &FilterNode, wanted: &FilterNode) -> bool {
    match (query, wanted) {
        (_, FilterNode::All(all)) => all.iter().all(|one| implies(query, one)),
        (FilterNode::Any(any), _) if !any.is_empty() => any.iter().all(|one| implies(one, wanted)),
        (_, FilterNode::Any(any)) if any.iter().any(|one| implies(query, one)) => true,
        (FilterNode::All(all), _) => all.iter().any(|one| implies(one, wanted)),
        (FilterNode::Field(path, test), FilterNode::Field(other, wanted)) => {
            path == other && test_implies(test, wanted)
        }
        _ => false,
    }
}

/// Returns whether a value that passes `query` passes `wanted`, both at the same path.
fn test_implies(query: &ValueTest, wanted: &ValueTest) -> bool {
    match (query, wanted) {
        (ValueTest::In(values, patterns), _) if patterns.is_empty() => {
            values.iter().all(|value| comparison_implies(Comparison::Eq, value, wanted))
        }
        (ValueTest::Compare(op, value), _) => comparison_implies(*op, value, wanted),
        (ValueTest::Collated(query), ValueTest::Collated(wanted)) => query.is_same(wanted),
        // null also finds documents without the field
        (ValueTest::Collated(query), ValueTest::Exists) => !query.holds_for_missing(),
        (ValueTest::Exists | ValueTest::Pattern(_) | ValueTest::Size(_), ValueTest::Exists) => true,
        (ValueTest::Type(types), ValueTest::Type(wanted)) => types.iter().all(|one| wanted.contains(one)),
        (ValueTest::Type(_), ValueTest::Exists) => true,
        _ => false,
    }
}

fn comparison_implies(op: Comparison, value: &OwnedRawValue, wanted: &ValueTest) -> bool {
    match wanted {
        // null also finds documents without the field
        ValueTest::Exists => !matches!(value.tag, tag::NULL | tag::UNDEFINED),
        ValueTest::In(values, patterns) => {
            op == Comparison::Eq
                && patterns.is_empty()
                && values.iter().any(|one| equal(one.as_raw(), value.as_raw()))
        }
        ValueTest::Compare(wanted_op, bound) => range_implies(op, value, *wanted_op, bound),
        _ => false,
    }
}

/// Returns whether `op value` is as narrow as `wanted bound`.
fn range_implies(op: Comparison, value: &OwnedRawValue, wanted: Comparison, bound: &OwnedRawValue) -> bool {
    let (value, bound) = (value.as_raw(), bound.as_raw());
    if rank(value.tag) != rank(bound.tag) {
        return false;
    }
    if op == Comparison::Eq {
        // a document that equals null or an array may have other values at the path
        return match value.tag {
            tag::ARRAY | tag::NULL | tag::UNDEFINED => wanted == Comparison::Eq && equal(value, bound),
            _ => wanted.finds(Some(value), bound),
        };
    }
    // not a number is in no range but those that it bounds itself
    if is_nan(value) || is_nan(bound) {
        return false;
    }
    let order = compare(value, bound);
    match (op, wanted) {
        (Comparison::Gt, Comparison::Gt | Comparison::Gte) => order.is_ge(),
        (Comparison::Gte, Comparison::Gte) => order.is_ge(),
        (Comparison::Gte, Comparison::Gt) => order.is_gt(),
        (Comparison::Lt, Comparison::Lt | Comparison::Lte) => order.is_le(),
        (Comparison::Lte, Comparison::Lte) => order.is_le(),
        (Comparison::Lte, Comparison::Lt) => order.is_lt(),
        _ => false,
    }
}
