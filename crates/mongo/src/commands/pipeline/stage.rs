//! The stages of a pipeline.

use bson::cstr;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{Expression, Filter, ReshapeStage, SortOrder};

use super::buckets::BucketAuto;
use super::geo_near::GeoNear;
use super::group::GroupStage;
use super::joins::{GraphLookup, Lookup, UnionWith};
use super::merge::MergeStage;
use super::outputs::Out;
use super::sequences::{Densify, Fill};
use super::unwind::Unwind;
use super::windows::SetWindowFields;
use super::{Context, Pipeline, buckets, outputs};
use crate::commands::index::search_indexes;
use crate::error::{Code, CommandError, Result};
use crate::fields::{type_name, whole_number};

/// Stages that MongoDB has and this server does not have yet.
const MISSING: &[&str] = &[
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// A stage of a pipeline.
pub(in crate::commands) enum Stage {
    Match(Filter),
    GeoNear(Box<GeoNear>),
    Reshape(ReshapeStage),
    Sort(SortOrder),
    Skip(u64),
    Limit(u64),
    Sample(usize),
    /// Each document with this probability.
    SampleRate(f64),
    Unwind(Unwind),
    Count(String),
    Group(GroupStage),
    BucketAuto(BucketAuto),
    Facet(Vec<(String, Pipeline)>),
    Lookup(Box<Lookup>),
    GraphLookup(Box<GraphLookup>),
    UnionWith(UnionWith),
    SetWindowFields(SetWindowFields),
    Densify(Densify),
    Fill(Fill),
    Redact(Expression),
    Documents(Expression),
    CollStats,
    CurrentOp,
    IndexStats,
    ListLocalSessions,
    Out(Out),
    Merge(MergeStage),
}

/// Stages of pipelines that do not follow changes.
const NAMES: &[&str] = &[
    "$bucket",
    "$bucketAuto",
    "$collStats",
    "$count",
    "$currentOp",
    "$densify",
    "$documents",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$group",
    "$indexStats",
    "$limit",
    "$listLocalSessions",
    "$lookup",
    "$merge",
    "$out",
    "$redact",
    "$sample",
    "$setWindowFields",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unionWith",
    "$unwind",
];

impl Stage {
    /// Returns whether MongoDB has a stage of that name, besides those that change single documents.
    pub fn is_known(name: &str) -> bool {
        NAMES.contains(&name) || MISSING.contains(&name) || name == "$changeStreamSplitLargeEvent"
    }

    /// Parses a stage and appends what it stands for. Errors: it is not one, or its argument is wrong.
    pub fn parse(stage: &RawDocument, context: &Context<'_>, stages: &mut Vec<Self>) -> Result<()> {
        let mut fields = stage.into_iter();
        let (Some(first), None) = (fields.next().transpose()?, fields.next()) else {
            let message = "A pipeline stage specification object must contain exactly one field.";
            return Err(CommandError { code: 40323, message: message.to_owned() });
        };
        let (name, value) = (first.0.as_str(), first.1);
        if let ("$match", RawBsonRef::Document(filter)) = (name, value)
            && let Some(rate) = filter.get("$sampleRate")?
        {
            let mut others = RawDocumentBuf::new();
            for condition in filter {
                let (path, condition) = condition?;
                if path != cstr!("$sampleRate") {
                    others.append(path, condition);
                }
            }
            let filter = Filter::parse_with(&others, context.variables)?;
            stages.push(Self::Match(filter.with_source(&others, context.variables.collation.as_ref())));
            stages.push(Self::SampleRate(sample_rate(rate)?));
            return Ok(());
        }
        if let Some(stage) = Self::alone(name, value, context)? {
            stages.push(stage);
            return Ok(());
        }
        let document = || match value {
            RawBsonRef::Document(document) => Ok(document),
            other => Err(CommandError::wrong_type("aggregate", name, type_name(other), "an object")),
        };
        let variables = context.variables;
        let stage = match name {
            "$sortByCount" => {
                stages.push(Self::Group(GroupStage::counting(value, variables)?));
                Self::Sort(SortOrder::parse(&bson::rawdoc! { "count": -1 })?)
            }
            "$bucket" => {
                stages.push(Self::Group(GroupStage::parse(
                    &buckets::grouping(document()?, variables)?,
                    variables,
                )?));
                Self::Sort(super::sort_order(&bson::rawdoc! { "_id": 1 }, variables)?)
            }
            "$bucketAuto" => Self::BucketAuto(BucketAuto::parse(document()?, variables)?),
            "$facet" => {
                let mut facets = Vec::new();
                for facet in document()? {
                    let (name, pipeline) = facet?;
                    let RawBsonRef::Array(pipeline) = pipeline else {
                        let message = format!("the facet `{}` must be an array of stages", name.as_str());
                        return Err(CommandError { code: 40170, message });
                    };
                    let inner = context.inner(context.collection, variables)?;
                    let pipeline = Pipeline::parse(pipeline, &inner)?;
                    pipeline.refuse_in_facet()?;
                    facets.push((name.as_str().to_owned(), pipeline));
                }
                Self::Facet(facets)
            }
            "$geoNear" => Self::GeoNear(Box::new(GeoNear::parse(document()?, variables)?)),
            "$lookup" => Self::Lookup(Box::new(Lookup::parse(document()?)?)),
            "$graphLookup" => Self::GraphLookup(Box::new(GraphLookup::parse(document()?, variables)?)),
            "$unionWith" => Self::UnionWith(UnionWith::parse(value)?),
            "$setWindowFields" => Self::SetWindowFields(SetWindowFields::parse(document()?, variables)?),
            "$densify" => Self::Densify(Densify::parse(document()?)?),
            "$fill" => Self::Fill(Fill::parse(document()?, variables)?),
            "$documents" => Self::Documents(Expression::parse_with(value, variables)?),
            "$collStats" => Self::CollStats,
            "$currentOp" => {
                outputs::check_current_op(context)?;
                Self::CurrentOp
            }
            "$indexStats" => Self::IndexStats,
            "$listLocalSessions" => {
                outputs::check_list_sessions(document()?, context)?;
                Self::ListLocalSessions
            }
            "$out" => Self::Out(Out::parse(value, context)?),
            "$merge" => Self::Merge(MergeStage::parse(value, context)?),
            name if search_indexes::STAGES.contains(&name) => return Err(search_indexes::unavailable(name)),
            name if MISSING.contains(&name) => {
                return Err(CommandError::not_supported(format!("the pipeline stage `{name}`")));
            }
            name => {
                let message = format!("Unrecognized pipeline stage name: '{name}'");
                return Err(CommandError::new(Code::UnrecognizedStage, message));
            }
        };
        stages.push(stage);
        Ok(())
    }

    /// Parses a stage that needs nothing but the documents; `None` if it is another one.
    fn alone(name: &str, value: RawBsonRef<'_>, context: &Context<'_>) -> Result<Option<Self>> {
        if let Some(stage) = ReshapeStage::parse(name, value, context.variables)? {
            return Ok(Some(Self::Reshape(stage)));
        }
        let document = || match value {
            RawBsonRef::Document(document) => Ok(document),
            other => Err(CommandError::wrong_type("aggregate", name, type_name(other), "an object")),
        };
        let number = |value: RawBsonRef<'_>| {
            whole_number(value).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| {
                CommandError::wrong_type("aggregate", name, type_name(value), "a whole number of 0 or more")
            })
        };
        Ok(Some(match name {
            "$match" => Self::Match(super::search::match_filter(document()?, context.variables)?),
            "$sort" => {
                let order = SortOrder::parse_query(document()?)?;
                Self::Sort(order.with_collation(context.variables.collation.clone()))
            }
            "$skip" => Self::Skip(number(value)?),
            "$limit" => match number(value)? {
                0 => {
                    let message = "the limit must be positive".to_owned();
                    return Err(CommandError { code: 15958, message });
                }
                limit => Self::Limit(limit),
            },
            "$sample" => {
                let size = number(super::option(name, document()?, "size")?)?;
                Self::Sample(usize::try_from(size).unwrap_or(usize::MAX))
            }
            "$unwind" => Self::Unwind(Unwind::parse(value)?),
            "$count" => match value {
                RawBsonRef::String(name) if !name.is_empty() && !name.contains(['$', '.', '\0']) => {
                    Self::Count(name.to_owned())
                }
                _ => {
                    let message = "the count field must be a non-empty string without `$` and `.`";
                    return Err(CommandError { code: 40156, message: message.to_owned() });
                }
            },
            "$group" => Self::Group(GroupStage::parse(document()?, context.variables)?),
            "$redact" => {
                Self::Redact(Expression::parse_with(value, &outputs::redact_variables(context.variables))?)
            }
            _ => return Ok(None),
        }))
    }

    /// Returns whether the stage writes documents.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Out(_) | Self::Merge(_))
    }

    /// Returns whether the stage makes documents of its own, and so comes first.
    pub fn reads(&self) -> bool {
        matches!(
            self,
            Self::Documents(_)
                | Self::CollStats
                | Self::CurrentOp
                | Self::IndexStats
                | Self::ListLocalSessions
        )
    }
}

/// Reads the probability of `$sampleRate`.
fn sample_rate(value: RawBsonRef<'_>) -> Result<f64> {
    let rate = match value {
        RawBsonRef::Double(rate) => Some(rate),
        other => whole_number(other).map(|rate| rate as f64),
    };
    rate.filter(|rate| (0.0..=1.0).contains(rate))
        .ok_or_else(|| CommandError::new(Code::BadValue, "`$sampleRate` expects a number from 0 to 1"))
}
