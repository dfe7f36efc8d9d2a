//! The element of an array that a filter has matched, for positional operators.

use super::{Filter, FilterNode, ValueTest};
use crate::values::path::{Path, PathSegment};
use crate::values::path_values::any_value_below;
use crate::values::raw::{RawValue, elements, field, tag};

impl Filter {
    /// Returns the index of the element of an array by which the document matches, of the last condition on
    /// an array; `None` without such a condition.
    pub(crate) fn matched_element(&self, doc: &[u8]) -> Option<u32> {
        let mut found = None;
        // what the filter cannot tell it has told when it found the document
        let _ = super::failure::catch(|| {
            found = matched(&self.node, doc);
            found.is_some()
        });
        found
    }
}

fn matched(node: &FilterNode, doc: &[u8]) -> Option<u32> {
    match node {
        FilterNode::All(nodes) => nodes.iter().filter_map(|node| matched(node, doc)).next_back(),
        FilterNode::Any(nodes) => {
            nodes.iter().find(|node| node.matches(doc)).and_then(|node| matched(node, doc))
        }
        FilterNode::Field(path, test) => matched_field(path, test, doc),
        FilterNode::Not(_)
        | FilterNode::Expression(_)
        | FilterNode::Schema(_)
        | FilterNode::Text(_)
        | FilterNode::Where(_) => None,
    }
}

/// Returns the element of the first array on the path for which the test holds.
fn matched_field(path: &Path, test: &ValueTest, doc: &[u8]) -> Option<u32> {
    let mut here = doc;
    for (at, part) in path.parts.iter().enumerate() {
        let value = field(here, &part.name)?.value;
        match value.tag {
            tag::DOCUMENT => here = value.bytes,
            tag::ARRAY => return element_of(value, &path.parts[at + 1..], test),
            _ => return None,
        }
    }
    None
}

fn element_of(array: RawValue<'_>, rest: &[PathSegment], test: &ValueTest) -> Option<u32> {
    let mut elements = (0_u32..).zip(elements(array.bytes));
    let found = elements.find(|(_, element)| match (test, rest.is_empty()) {
        (ValueTest::ElemMatchDocument(node), true) => {
            matches!(element.value.tag, tag::DOCUMENT | tag::ARRAY) && node.matches(element.value.bytes)
        }
        (ValueTest::ElemMatchValue(node), true) => node.matches(&element.value.in_document("")),
        (test, true) => test.holds(Some(element.value)),
        (test, false) => {
            element.value.tag == tag::DOCUMENT
                && any_value_below(element.value.bytes, rest, test.leaf(), &mut |value| test.holds(value))
        }
    });
    found.map(|(at, _)| at)
}
