//! `aggregate`: pipelines of the stages that counting, paging and grouping need.

mod group;
mod reshape;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, cstr};
use tidemill_docs::{DocBytes, Expression, Filter, FindOptions, Projection, SortOrder};

use super::collections::batch_size;
use super::{change_stream, find};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, type_name, whole_number};
use crate::reply::first_batch;
use crate::session::Session;
use crate::shared::Shared;

/// Stages that MongoDB has and this server does not have yet.
const MISSING: &[&str] = &[
    "$bucket",
    "$bucketAuto",
    "$collStats",
    "$currentOp",
    "$densify",
    "$documents",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$indexStats",
    "$listSessions",
    "$lookup",
    "$merge",
    "$out",
    "$redact",
    "$sample",
    "$search",
    "$setWindowFields",
    "$unionWith",
];

pub(super) fn aggregate(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&[
        "pipeline",
        "explain",
        "allowDiskUse",
        "cursor",
        "bypassDocumentValidation",
        "collation",
        "hint",
        "let",
    ])?;
    for field in ["explain", "let"] {
        call.refuse(field)?;
    }
    call.refuse_collation()?;
    if let Some(RawBsonRef::Array(pipeline)) = call.get("pipeline")
        && change_stream::is_change_stream(pipeline)
    {
        return change_stream::open(shared, call, pipeline);
    }
    if call.get(call.name).and_then(whole_number) == Some(1) {
        return Err(CommandError::not_supported("a pipeline on a database"));
    }
    let collection = call.collection()?;
    let stages = stages(call)?;
    if call.document("cursor")?.is_none() {
        let message = "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(Code::FailedToParse, message));
    }
    let batch_size = batch_size(call)?;
    let mut rest = stages.as_slice();
    // a leading $match is answered by indexes
    let filter = match rest {
        [Stage::Match(filter), others @ ..] => {
            rest = others;
            *filter
        }
        _ => find::empty(),
    };
    let mut documents = find::find_documents(shared, &collection, filter, &FindOptions::default())?;
    for stage in rest {
        documents = stage.apply(documents)?;
    }
    first_batch(&shared.cursors, call.namespace(), documents, batch_size, false)
}

/// A stage of a pipeline.
pub(super) enum Stage<'p> {
    Match(&'p RawDocument),
    Sort(SortOrder),
    Skip(u64),
    Limit(u64),
    Project(Projection),
    Compute(reshape::ComputedProjection),
    AddFields(reshape::ComputedFields),
    ReplaceRoot(Expression),
    Unwind(reshape::Unwind),
    Count(&'p str),
    Group(group::Group),
}

fn stages<'r>(call: &Call<'r>) -> Result<Vec<Stage<'r>>> {
    let Some(RawBsonRef::Array(pipeline)) = call.get("pipeline") else {
        return Err(CommandError::new(Code::TypeMismatch, "'pipeline' option must be specified as an array"));
    };
    let mut stages = Vec::new();
    for stage in pipeline {
        let RawBsonRef::Document(stage) = stage? else {
            let message = "Each element of the 'pipeline' array must be an object";
            return Err(CommandError::new(Code::TypeMismatch, message));
        };
        match stage.get("$sortByCount")? {
            Some(by) => {
                stages.push(Stage::Group(group::Group::counting(by)?));
                stages.push(Stage::Sort(SortOrder::parse(&bson::rawdoc! { "count": -1 })?));
            }
            None => stages.push(Stage::parse(stage)?),
        }
    }
    Ok(stages)
}

impl<'p> Stage<'p> {
    /// Parses a stage. Errors: it is not one, or its argument is wrong.
    pub fn parse(stage: &'p RawDocument) -> Result<Self> {
        let mut fields = stage.into_iter();
        let (Some(first), None) = (fields.next().transpose()?, fields.next()) else {
            let message = "A pipeline stage specification object must contain exactly one field.";
            return Err(CommandError { code: 40323, message: message.to_owned() });
        };
        let (name, value) = (first.0.as_str(), first.1);
        let document = || match value {
            RawBsonRef::Document(document) => Ok(document),
            other => Err(CommandError::wrong_type("aggregate", name, type_name(other), "an object")),
        };
        let number = || {
            whole_number(value).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| {
                CommandError::wrong_type("aggregate", name, type_name(value), "a whole number of 0 or more")
            })
        };
        Ok(match name {
            "$match" => Self::Match(document()?),
            "$sort" => Self::Sort(SortOrder::parse(document()?)?),
            "$skip" => Self::Skip(number()?),
            "$limit" => match number()? {
                0 => {
                    return Err(CommandError {
                        code: 15958,
                        message: "the limit must be positive".to_owned(),
                    });
                }
                limit => Self::Limit(limit),
            },
            "$project" if reshape::has_expressions(document()?) => {
                Self::Compute(reshape::ComputedProjection::parse(document()?)?)
            }
            "$project" => Self::Project(Projection::parse(document()?)?),
            "$addFields" | "$set" => Self::AddFields(reshape::ComputedFields::parse(document()?)?),
            "$replaceWith" => Self::ReplaceRoot(Expression::parse(value)?),
            "$replaceRoot" => match document()?.get("newRoot")? {
                Some(root) => Self::ReplaceRoot(Expression::parse(root)?),
                None => {
                    return Err(CommandError {
                        code: 40231,
                        message: "no newRoot specified for the $replaceRoot stage".into(),
                    });
                }
            },
            "$unwind" => Self::Unwind(reshape::Unwind::parse(value)?),
            "$unset" => Self::Project(Projection::parse(&excluded(value)?)?),
            "$count" => match value {
                RawBsonRef::String(name) if !name.is_empty() && !name.contains(['$', '.', '\0']) => {
                    Self::Count(name)
                }
                _ => {
                    let message = "the count field must be a non-empty string without `$` and `.`";
                    return Err(CommandError { code: 40156, message: message.to_owned() });
                }
            },
            "$group" => Self::Group(group::Group::parse(document()?)?),
            name if MISSING.contains(&name) => {
                return Err(CommandError::not_supported(format!("the pipeline stage `{name}`")));
            }
            name => {
                let message = format!("Unrecognized pipeline stage name: '{name}'");
                return Err(CommandError::new(Code::UnrecognizedStage, message));
            }
        })
    }

    /// Applies the stage to documents.
    pub fn apply(&self, mut documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        match self {
            Self::Match(filter) => {
                let filter = Filter::parse(filter)?;
                let matches = |document: &DocBytes| {
                    RawDocument::from_bytes(document).is_ok_and(|raw| filter.matches(raw))
                };
                documents.retain(matches);
            }
            Self::Sort(order) => documents.sort_by_cached_key(|document| order.key(document)),
            Self::Skip(n) => drop(documents.drain(..count(*n).min(documents.len()))),
            Self::Limit(n) => documents.truncate(count(*n)),
            Self::Project(projection) => {
                for document in &mut documents {
                    let projected = projection.apply(RawDocument::from_bytes(document)?)?;
                    *document = projected.into_bytes().into();
                }
            }
            Self::Compute(projection) => {
                for document in &mut documents {
                    *document = projection.apply(document)?;
                }
            }
            Self::AddFields(fields) => {
                for document in &mut documents {
                    *document = fields.add_to(document)?;
                }
            }
            Self::ReplaceRoot(root) => {
                for document in &mut documents {
                    *document = reshape::replaced(root, document)?;
                }
            }
            Self::Unwind(unwind) => {
                let mut unwound = Vec::new();
                documents.iter().try_for_each(|document| unwind.apply(document, &mut unwound))?;
                documents = unwound;
            }
            Self::Count(name) => {
                let counted = documents.len();
                documents.clear();
                if counted > 0 {
                    let mut one = RawDocumentBuf::new();
                    one.append(bson::raw::CString::try_from((*name).to_owned())?, counted as i32);
                    documents.push(one.into_bytes().into());
                }
            }
            Self::Group(group) => documents = group.apply(&documents)?,
        }
        Ok(documents)
    }
}

/// Returns the projection that `$unset` stands for.
fn excluded(value: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut projection = RawDocumentBuf::new();
    let mut exclude = |value: RawBsonRef<'_>| match value {
        RawBsonRef::String(name) => {
            projection.append(bson::raw::CString::try_from(name.to_owned())?, 0);
            Ok(())
        }
        other => Err(CommandError::wrong_type(
            "aggregate",
            "$unset",
            type_name(other),
            "a string or an array of strings",
        )),
    };
    match value {
        RawBsonRef::Array(array) => {
            for element in array {
                exclude(element?)?;
            }
        }
        other => exclude(other)?,
    }
    Ok(projection)
}

/// Returns a document `{_id: id}`, to which fields are appended.
fn with_id(id: &Bson) -> Result<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), bson::RawBson::try_from(id.clone())?);
    Ok(document)
}
