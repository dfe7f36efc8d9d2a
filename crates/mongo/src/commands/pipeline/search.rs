//! Searches in pipelines: conditions and stages that need an index of the collection, and so come first.

use bson::raw::{RawArray, RawDocument};
use tidemill_docs::{Filter, Variables, mentions_meta, score_not_available};

use super::{Context, Pipeline, Stage, scored};
use crate::error::{Code, CommandError, Result};
use tidemill_types::ErrorKind;

/// Code of `$near` where nothing is sorted by it.
const NEAR_NOT_ALLOWED: i32 = 5_626_500;
/// Code of a stage that must be the first.
const NOT_FIRST: i32 = 40602;
/// Code of a search for text that is not the first stage.
const TEXT_NOT_FIRST: i32 = 17313;
const TEXT_FIRST: &str = "$match with $text is only allowed as the first pipeline stage";

/// Reads the filter of a `$match`. Errors: it sorts.
pub(in crate::commands) fn match_filter(filter: &RawDocument, variables: &Variables) -> Result<Filter> {
    let filter = Filter::parse_with(filter, variables)?.with_source(filter, variables.collation.as_ref());
    if filter.sorts_by_distance() {
        let message = "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting geospatial data. If you do not need sort, consider using $geoWithin instead";
        return Err(CommandError { code: NEAR_NOT_ALLOWED, message: message.to_owned() });
    }
    if filter.runs_scripts() {
        let message =
            "$where is not allowed in this context: use $expr, with $function if it needs JavaScript";
        return Err(CommandError::new(Code::BadValue, message));
    }
    Ok(filter)
}

/// Refuses a search that does not come first.
pub(super) fn check_places(stages: &[Stage]) -> Result<()> {
    for stage in stages.iter().skip(1) {
        let (code, message) = match stage {
            Stage::GeoNear(_) => (NOT_FIRST, "$geoNear is only valid as the first stage in a pipeline"),
            Stage::Match(filter) if filter.searches_text() => (TEXT_NOT_FIRST, TEXT_FIRST),
            _ => continue,
        };
        return Err(CommandError { code, message: message.to_owned() });
    }
    Ok(())
}

/// Returns whether a pipeline asks for the score of the search that it begins with.
///
/// Errors: an order by a score that documents do not have any more, or never had.
pub(super) fn is_scored(pipeline: &RawArray, stages: &[Stage]) -> Result<bool> {
    let searches = matches!(stages.first(), Some(Stage::Match(filter)) if filter.searches_text());
    let last = stages.iter().position(|stage| !scored::keeps_score(stage)).unwrap_or(stages.len());
    let wrong = |(at, stage): (usize, &Stage)| match stage {
        Stage::Sort(order) => order.needs_text_score() && (!searches || at >= last),
        _ => false,
    };
    if stages.iter().enumerate().any(wrong) {
        return Err(score_not_available().into());
    }
    if !searches {
        return Ok(false);
    }
    for stage in pipeline {
        if stage?.as_document().is_some_and(mentions_meta) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Pipeline {
    /// Returns whether the pipeline begins with a search, and so reads a collection by itself.
    pub(super) fn searches(&self) -> bool {
        match self.stages.first() {
            Some(Stage::GeoNear(_)) => true,
            Some(Stage::Match(filter)) => filter.searches_text(),
            _ => false,
        }
    }

    /// Returns the error for a search inside of a `$facet`.
    pub(super) fn refuse_in_facet(&self) -> Result<()> {
        let (code, message) = match self.stages.first() {
            Some(Stage::GeoNear(_)) => (40600, "$geoNear is not allowed to be used within a $facet stage"),
            _ if self.searches() => (TEXT_NOT_FIRST, TEXT_FIRST),
            _ => return Ok(()),
        };
        Err(CommandError { code, message: message.to_owned() })
    }

    /// Refuses to run a pipeline that begins with a search on documents that were found before.
    pub(super) fn check_on_documents(&self) -> Result<()> {
        match self.searches() {
            true => Err(CommandError::new(
                Code::IllegalOperation,
                "$geoNear and $text search a collection: they cannot begin a pipeline on documents that a $lookup has found by fields",
            )),
            false => Ok(()),
        }
    }

    /// Returns the filter with which the pipeline reads its collection; `None` for one that does not exist.
    pub(super) fn reading_filter(&self, context: &Context<'_>, collection: &str) -> Result<Option<Filter>> {
        Ok(Some(match self.stages.first() {
            Some(Stage::Match(filter)) => filter.clone(),
            Some(Stage::GeoNear(near)) => match context.shared.engine.collection_spec(collection) {
                Ok(spec) => near.filter(&spec)?,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            },
            _ => Filter::all(),
        }))
    }
}
