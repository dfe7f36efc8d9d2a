//! Pipelines: stages through which documents pass.

mod buckets;
mod group;
mod joins;
mod merge;
mod outputs;
mod sequences;
mod stage;
mod unwind;
mod windows;

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use tidemill_docs::{Collation, DocBytes, Filter, FindOptions, SortOrder, Variables};

use super::find;
use crate::error::{Code, CommandError, Result};
use crate::shared::Shared;
pub(super) use stage::Stage;

/// Bytes of the documents that a stage may make, which are held in memory.
const STAGE_BYTES_MAX: usize = 256 << 20;
/// Stages of one pipeline, as in MongoDB.
const STAGES_MAX: usize = 1000;
/// Pipelines inside pipelines.
const DEPTH_MAX: usize = 20;

/// What the stages of a pipeline work with.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    pub shared: &'c Shared,
    /// Database of the collections that stages name.
    pub database: &'c str,
    /// Name in the store of the collection that the pipeline reads.
    pub collection: Option<&'c str>,
    pub variables: &'c Variables,
    /// The client session of the command, `lsid`.
    pub session: Option<&'c RawDocument>,
    pub depth: usize,
}

impl<'c> Context<'c> {
    /// Returns the context of a pipeline inside this one, on another collection and with other variables.
    pub fn inner<'i>(&self, collection: Option<&'i str>, variables: &'i Variables) -> Result<Context<'i>>
    where
        'c: 'i,
    {
        if self.depth >= DEPTH_MAX {
            let message = format!("pipelines are nested deeper than {DEPTH_MAX} levels");
            return Err(CommandError::new(Code::FailedToParse, message));
        }
        Ok(Context { collection, variables, depth: self.depth + 1, ..*self })
    }

    /// Returns the order and equality of strings; those of their bytes if `None`.
    pub fn collation(&self) -> Option<&'c Collation> {
        self.variables.collation.as_ref()
    }

    /// Returns the documents of a collection by its name in the database; none if it does not exist.
    pub fn documents_of(&self, collection: &str) -> Result<Vec<DocBytes>> {
        let stored = crate::namespace::stored_name(self.database, collection)?;
        find::find_documents(self.shared, &stored, find::empty(), &FindOptions::default())
    }
}

/// A parsed pipeline.
pub(super) struct Pipeline(Vec<Stage>);

impl Pipeline {
    /// Parses the stages.
    ///
    /// Errors: a stage that is none, or whose argument is wrong.
    pub fn parse(pipeline: &RawArray, context: &Context<'_>) -> Result<Self> {
        let mut stages = Vec::new();
        for stage in pipeline {
            let RawBsonRef::Document(stage) = stage? else {
                let message = "Each element of the 'pipeline' array must be an object";
                return Err(CommandError::new(Code::TypeMismatch, message));
            };
            Stage::parse(stage, context, &mut stages)?;
            if stages.len() > STAGES_MAX {
                let message = format!("a pipeline has more than {STAGES_MAX} stages");
                return Err(CommandError { code: 7_749_501, message });
            }
        }
        let writes = stages.iter().position(Stage::writes);
        if writes.is_some_and(|at| at + 1 < stages.len() || context.depth > 0) {
            let message = "$out and $merge can only be the final stage of a pipeline";
            return Err(CommandError { code: 40601, message: message.to_owned() });
        }
        let reads = stages.iter().skip(1).position(Stage::reads);
        if reads.is_some() {
            let message = "$documents, $collStats, $currentOp, $indexStats and $listLocalSessions are only valid as the first stage in a pipeline";
            return Err(CommandError { code: 40602, message: message.to_owned() });
        }
        Ok(Self(stages))
    }

    /// Runs the pipeline on the documents of the context's collection.
    pub fn run(&self, context: &Context<'_>) -> Result<Vec<DocBytes>> {
        let mut stages = self.0.as_slice();
        let documents = match (stages, context.collection) {
            ([first, ..], _) if first.reads() => Vec::new(),
            (_, Some(collection)) => {
                // indexes answer a leading $match, and the first documents of an order
                let mut filter = None;
                if let [Stage::Match(leading), rest @ ..] = stages {
                    (filter, stages) = (Some(leading.clone()), rest);
                }
                let mut options = FindOptions::default();
                if let [Stage::Sort(order), Stage::Limit(limit), rest @ ..] = stages {
                    options = FindOptions { sort: order.clone(), limit: Some(*limit), ..options };
                    stages = rest;
                }
                let filter = filter.unwrap_or_else(Filter::all);
                find::find_parsed(context.shared, collection, &filter, &options)?
            }
            (_, None) => {
                let message = "{aggregate: 1} is not valid for a pipeline that does not begin with $documents, $currentOp, $listLocalSessions or $changeStream";
                return Err(CommandError::new(Code::InvalidNamespace, message));
            }
        };
        Self::pass(stages, context, documents)
    }

    /// Runs the pipeline on these documents.
    pub fn run_on(&self, context: &Context<'_>, documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        Self::pass(&self.0, context, documents)
    }

    fn pass(stages: &[Stage], context: &Context<'_>, mut documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        for stage in stages {
            documents = stage.apply(context, documents)?;
            if stage.multiplies() {
                check_bytes(&documents)?;
            }
        }
        Ok(documents)
    }
}

/// Reads an order, with strings in that of the collation.
fn sort_order(order: &RawDocument, variables: &Variables) -> Result<SortOrder> {
    Ok(SortOrder::parse(order)?.with_collation(variables.collation.clone()))
}

/// Refuses more documents than memory is meant for.
fn check_bytes(documents: &[DocBytes]) -> Result<()> {
    let bytes: usize = documents.iter().map(|document| document.len()).sum();
    match bytes > STAGE_BYTES_MAX {
        true => Err(CommandError {
            code: 292,
            message: format!(
                "a stage makes {bytes} bytes of documents: limit of {STAGE_BYTES_MAX}; filter or limit them before"
            ),
        }),
        false => Ok(()),
    }
}

/// Returns an option of a stage that must be there.
fn option<'d>(stage: &str, options: &'d RawDocument, name: &str) -> Result<RawBsonRef<'d>> {
    options
        .get(name)?
        .ok_or_else(|| CommandError::new(Code::FailedToParse, format!("{stage} needs the option `{name}`")))
}

/// Returns an option of a stage that must be a string.
fn text<'d>(stage: &str, options: &'d RawDocument, name: &str) -> Result<&'d str> {
    match option(stage, options, name)? {
        RawBsonRef::String(text) => Ok(text),
        other => Err(CommandError::wrong_type(
            "aggregate",
            &format!("{stage}.{name}"),
            crate::fields::type_name(other),
            "a string",
        )),
    }
}

/// Refuses options that a stage does not have.
fn known(stage: &str, options: &RawDocument, names: &[&str]) -> Result<()> {
    for option in options {
        let name = option?.0.as_str();
        if !names.contains(&name) {
            let message = format!("{stage} has no option `{name}`: expected {}", names.join(", "));
            return Err(CommandError::new(Code::FailedToParse, message));
        }
    }
    Ok(())
}
