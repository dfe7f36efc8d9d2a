//! The conditions of a filter that search: they need an index, and give an order.

use std::sync::Arc;

use bson::Bson;

use super::{Filter, FilterNode, ValueTest};
use crate::error::Result;
use crate::geo::NearQuery;
use crate::text::TextQuery;
use crate::values::path::Path;

impl Filter {
    /// Returns the `$near` or `$nearSphere` with its field. It is at the top level, and there is at most one.
    pub(crate) fn near(&self) -> Option<(&Path, &Arc<NearQuery>)> {
        near(&self.node)
    }

    /// Returns the distance of a document from the point of the filter's `$near`, in the unit of its bounds, and the value that is so
    /// near; `None` without `$near`, and for a document that is not between its bounds.
    ///
    /// Errors: the work has to end.
    pub fn nearest(&self, document: &[u8]) -> Result<Option<(f64, Bson)>> {
        let Some((path, near)) = self.near() else { return Ok(None) };
        let found = near.place(path, document)?;
        Ok(found.map(|(distance, value)| (distance * near.unit, value.to_bson())))
    }

    /// Returns the `$text`, if there is one.
    pub(crate) fn text(&self) -> Option<&Arc<TextQuery>> {
        text(&self.node)
    }

    /// Returns whether there is a `$text`.
    pub fn searches_text(&self) -> bool {
        self.text().is_some()
    }

    /// Returns whether there is a `$where`, at any depth.
    pub fn runs_scripts(&self) -> bool {
        runs_scripts(&self.node)
    }

    /// Returns the score of a document that a query has found with this filter; `None` without a `$text`.
    ///
    /// Errors: the work has to end.
    pub fn text_score(&self, document: &[u8]) -> Result<Option<f64>> {
        self.text().map(|query| query.score(document)).transpose()
    }

    /// Returns the name of a condition that only queries may have, at any depth.
    pub(crate) fn search_operator(&self) -> Option<&'static str> {
        search_operator(&self.node)
    }

    /// Returns whether the documents are sorted by their distance from a point unless the query says otherwise.
    pub fn sorts_by_distance(&self) -> bool {
        self.near().is_some()
    }
}

fn near(node: &FilterNode) -> Option<(&Path, &Arc<NearQuery>)> {
    match node {
        FilterNode::All(nodes) => nodes.iter().find_map(near),
        FilterNode::Field(path, ValueTest::Near(query)) => Some((path, query)),
        _ => None,
    }
}

fn text(node: &FilterNode) -> Option<&Arc<TextQuery>> {
    match node {
        FilterNode::All(nodes) | FilterNode::Any(nodes) => nodes.iter().find_map(text),
        FilterNode::Text(query) => Some(query),
        _ => None,
    }
}

fn runs_scripts(node: &FilterNode) -> bool {
    match node {
        FilterNode::All(nodes) | FilterNode::Any(nodes) => nodes.iter().any(runs_scripts),
        FilterNode::Not(node) => runs_scripts(node),
        node => matches!(node, FilterNode::Where(_)),
    }
}

fn search_operator(node: &FilterNode) -> Option<&'static str> {
    match node {
        FilterNode::All(nodes) | FilterNode::Any(nodes) => nodes.iter().find_map(search_operator),
        FilterNode::Not(node) => search_operator(node),
        FilterNode::Field(_, ValueTest::Near(_)) => Some("$near"),
        FilterNode::Field(_, ValueTest::ElemMatchDocument(node) | ValueTest::ElemMatchValue(node)) => {
            search_operator(node)
        }
        FilterNode::Text(_) => Some("$text"),
        FilterNode::Where(_) => Some("$where"),
        FilterNode::Field(..) | FilterNode::Expression(_) | FilterNode::Schema(_) => None,
    }
}
