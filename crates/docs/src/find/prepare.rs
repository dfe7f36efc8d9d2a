//! What a query needs besides its filter: the index that a condition cannot do without, and the order that it gives.

use std::borrow::Cow;

use super::FindOptions;
use crate::collection::Collection;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::plan::{TextIndexFound, near_index, text_index};
use crate::sort::SortOrder;
use crate::text::{TextQuery, no_index, score_not_available};

impl Collection {
    /// Returns the options with the order that the conditions of the filter give: by distance for `$near` if the query asks for no
    /// order, and by the score of the `$text` if it asks for that.
    ///
    /// Errors: a condition lacks the index that it needs.
    pub fn prepared<'o>(&self, filter: &Filter, options: &'o FindOptions) -> Result<Cow<'o, FindOptions>> {
        if let Some(query) = filter.text() {
            self.bind_text(filter, query)?;
            if options.sort.needs_text_score() {
                return Ok(Cow::Owned(FindOptions {
                    sort: options.sort.with_text(query),
                    ..options.clone()
                }));
            }
        }
        if options.sort.needs_text_score() {
            return Err(score_not_available());
        }
        let Some((path, near)) = filter.near() else { return Ok(Cow::Borrowed(options)) };
        if near_index(self, filter).is_none() {
            return Err(DocsError::new(
                ErrorCode::NoQueryExecutionPlans,
                format!(
                    "error processing query: unable to find index for $geoNear query on `{path}` of `{}`: create a {} index",
                    self.spec.name,
                    if near.by_2dsphere { "2dsphere" } else { "2d" }
                ),
            ));
        }
        near.bind();
        if !options.sort.is_empty() {
            return Ok(Cow::Borrowed(options));
        }
        Ok(Cow::Owned(FindOptions { sort: SortOrder::by_distance(path, near), ..options.clone() }))
    }

    /// Makes the search of a filter one for the text index. Errors: the collection has no text index, or the
    /// index does not cover all documents that match.
    fn bind_text(&self, filter: &Filter, query: &TextQuery) -> Result<()> {
        match text_index(self, filter) {
            TextIndexFound::Usable(index) => query.bind(&index.fields),
            TextIndexFound::Missing => Err(no_index()),
            TextIndexFound::Unusable => Err(DocsError::new(
                ErrorCode::NoQueryExecutionPlans,
                format!(
                    "error processing query: failed to use text index to satisfy $text query on `{}`: if it has fields before the text, the query needs equality with a value for each of them; if it is partial, the query must imply its filter",
                    self.spec.name
                ),
            )),
        }
    }
}
