//! Parser of the conditions that need an index or a script, and so do not stand everywhere.

use std::sync::Arc;

use super::parse::{FilterParser, as_bson};
use super::{FilterNode, ValueTest};
use crate::error::{DocsError, Result};
use crate::expression::script_source;
use crate::geo::NearQuery;
use crate::scripts::{CompiledScript, ScriptKind};
use crate::text::TextQuery;
use crate::values::path::Path;
use crate::values::raw::{RawElement, RawValue};

impl FilterParser<'_> {
    /// Parses what is not at the top level.
    pub(super) fn inside<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.inside += 1;
        let parsed = parse(self);
        self.inside -= 1;
        parsed
    }

    /// Parses what is negated, or about parts of documents, so that it cannot search.
    pub(super) fn negated<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.without_search += 1;
        let parsed = self.inside(parse);
        self.without_search -= 1;
        parsed
    }

    /// Parses a condition in JavaScript, for whole documents.
    pub(super) fn script(&mut self, filter: &[u8], e: &RawElement<'_>) -> Result<FilterNode> {
        if self.in_elements > 0 {
            return Err(DocsError::bad_value("$where can only be applied to the top-level document"));
        }
        let source = script_source("$where", "the condition", as_bson(filter, e)?)?;
        let scripts = self.variables.scripts.as_ref();
        Ok(FilterNode::Where(CompiledScript::new(scripts, "$where", source, ScriptKind::Condition)?))
    }

    /// Parses a search of whole documents. A filter has at most one.
    pub(super) fn text(&mut self, v: RawValue<'_>) -> Result<FilterNode> {
        if self.without_search > 0 {
            return Err(DocsError::bad_value(
                "$text can only be applied to the top-level document, and not inside of $nor, $not or $elemMatch",
            ));
        }
        if std::mem::replace(&mut self.has_text, true) {
            return Err(DocsError::bad_value("Too many text expressions"));
        }
        self.text_alone()?;
        Ok(FilterNode::Text(Arc::new(TextQuery::parse(v)?)))
    }

    fn text_alone(&self) -> Result<()> {
        match self.has_text && self.has_near {
            true => Err(DocsError::bad_value("text and geoNear not allowed in same query")),
            false => Ok(()),
        }
    }

    /// Parses a condition that sorts, so it stands at the top level once.
    pub(super) fn near(
        &mut self,
        path: &Path,
        op: &str,
        v: RawValue<'_>,
        beside: &[u8],
    ) -> Result<FilterNode> {
        if self.inside > 0 {
            return Err(DocsError::bad_value(format!("geo {op} must be top-level expr")));
        }
        if std::mem::replace(&mut self.has_near, true) {
            return Err(DocsError::bad_value("Too many geoNear expressions"));
        }
        self.text_alone()?;
        let near = NearQuery::parse(op, v, beside)?;
        Ok(FilterNode::Field(path.clone(), ValueTest::Near(Arc::new(near))))
    }
}
