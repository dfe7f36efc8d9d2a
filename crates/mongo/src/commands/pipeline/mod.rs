//! Pipelines: stages through which documents pass.

mod accumulator;
mod buckets;
mod facet;
mod flow;
mod geo_near;
mod group;
mod joins;
mod merge;
mod outputs;
mod run;
mod scored;
mod script;
mod search;
mod sequences;
mod sort;
mod stage;
mod unwind;
mod windows;

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use tidemill_docs::{
    Collation, Direction, DocBytes, FindOptions, HeldMemory, SortOrder, StoreLimits, Variables,
};
use tidemill_types::ErrorKind;

use super::reading::find;
use crate::error::{Code, CommandError, Result};
use crate::session::Session;
use crate::shared::Shared;
use flow::{Flow, Receiver, Results};
pub(super) use geo_near::GeoNear;
pub(super) use search::match_filter;
pub(super) use stage::Stage;

/// Stages of one pipeline, as in MongoDB.
const STAGES_MAX: usize = 1000;
/// Pipelines inside pipelines.
const DEPTH_MAX: usize = 20;

/// Environment of the stages of a pipeline.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    pub shared: &'c Shared,
    /// Database of the collections that stages name.
    pub database: &'c str,
    /// Name in the store of the collection that the pipeline reads.
    pub collection: Option<&'c str>,
    pub variables: &'c Variables,
    /// The client that has sent the command.
    pub client: &'c Session,
    /// The client session of the command, `lsid`.
    pub session: Option<&'c RawDocument>,
    /// The order of insertion, or its reverse, in which the collection is read by the hint of the client.
    pub natural: Option<Direction>,
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
        Ok(Context { collection, variables, natural: None, depth: self.depth + 1, ..*self })
    }

    /// Returns the order and equality of strings; those of their bytes if `None`.
    pub fn collation(&self) -> Option<&'c Collation> {
        self.variables.collation.as_ref()
    }

    /// Returns the documents of a collection by its name in the database, with the memory of their handles; none if it does not
    /// exist.
    pub fn documents_of(&self, collection: &str) -> Result<(Vec<DocBytes>, HeldMemory)> {
        let stored = crate::namespace::stored_name(self.database, collection)?;
        let found = find::find_documents(self.shared, &stored, find::empty(), &FindOptions::default())?;
        let mut held = HeldMemory::default();
        held.add(size_of_val(found.as_slice()))?;
        Ok((found, held))
    }
}

/// A parsed pipeline.
pub(super) struct Pipeline {
    stages: Vec<Stage>,
    /// True if a stage uses the score of a search.
    is_scored: bool,
}

impl Pipeline {
    /// Parses the stages.
    ///
    /// Errors: a stage is unknown, or its argument is invalid.
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
        search::check_places(&stages)?;
        let reads = stages.iter().skip(1).position(Stage::reads);
        if reads.is_some() {
            let message = "$documents, $collStats, $currentOp, $indexStats and $listLocalSessions are only valid as the first stage in a pipeline";
            return Err(CommandError { code: 40602, message: message.to_owned() });
        }
        let is_scored = search::is_scored(pipeline, &stages)?;
        Ok(Self { stages, is_scored })
    }

    /// Runs the pipeline on the documents of the context's collection.
    ///
    /// Errors: those of the stages, and code 292 if the documents need more memory than a command has.
    pub fn run(&self, context: &Context<'_>) -> Result<Vec<DocBytes>> {
        Ok(self.run_held(context)?.documents)
    }

    /// Runs the pipeline as [`Self::run`] does. Returns the documents with their memory.
    fn run_held(&self, context: &Context<'_>) -> Result<flow::HeldDocuments> {
        let results = Results::default();
        self.run_into(context, &mut results.clone())?;
        Ok(results.take())
    }

    /// Runs the pipeline on the documents of the context's collection, and passes its results on.
    fn run_into(&self, context: &Context<'_>, last: &mut dyn Receiver) -> Result<()> {
        let mut stages = self.stages.as_slice();
        if stages.first().is_some_and(Stage::reads) {
            return run::chain(stages, context, Box::new(flow::Forward(last))).finish();
        }
        let Some(collection) = context.collection else {
            let message = "{aggregate: 1} is not valid for a pipeline that does not begin with $documents, $currentOp, $listLocalSessions or $changeStream";
            return Err(CommandError::new(Code::InvalidNamespace, message));
        };
        // indexes answer a leading $match, and the first documents of an order
        let filter = self.reading_filter(context, collection)?;
        if let [Stage::Match(_), rest @ ..] = stages {
            stages = rest;
        }
        let natural = context.natural;
        let mut options = FindOptions { limit: leading_limit(stages), natural, ..FindOptions::default() };
        if let [Stage::Sort(order), Stage::Limit(limit), rest @ ..] = stages {
            options = FindOptions { sort: order.clone(), limit: Some(*limit), ..options };
            stages = rest;
        }
        let last = Box::new(flow::Forward(last));
        let Some(filter) = filter else { return run::chain(stages, context, last).finish() };
        let mut chain = match self.is_scored {
            true => scored::chain(filter.clone(), stages, context, last),
            false => run::chain(stages, context, last),
        };
        let mut failed = Ok(());
        let read =
            context.shared.engine.find_each(collection, &filter, &options, &mut |document| match chain
                .push(document.clone())
            {
                Ok(flow) => flow,
                Err(error) => {
                    failed = Err(error);
                    Flow::Break(())
                }
            });
        failed?;
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => read?,
        }
        chain.finish()
    }

    /// Runs the pipeline on these documents. Returns the results with their memory.
    fn run_on(&self, context: &Context<'_>, documents: Vec<DocBytes>) -> Result<flow::HeldDocuments> {
        self.check_on_documents()?;
        let results = Results::default();
        let mut chain = run::chain(&self.stages, context, Box::new(results.clone()));
        let _ = flow::push_all(documents, &mut *chain)?;
        chain.finish()?;
        drop(chain);
        Ok(results.take())
    }
}

/// Returns the number of documents that the stages want at most, if a `$limit` comes before any stage that makes more or fewer.
fn leading_limit(stages: &[Stage]) -> Option<u64> {
    stages.iter().find(|stage| !matches!(stage, Stage::Reshape(_) | Stage::GeoNear(_))).and_then(|stage| {
        match stage {
            Stage::Limit(limit) => Some(*limit),
            _ => None,
        }
    })
}

/// Refuses a document with this number of bytes before it is made.
fn check_size(bytes: usize) -> Result<()> {
    match bytes > StoreLimits::default().document_bytes_max {
        true => Err(CommandError {
            code: 10334,
            message: format!(
                "a stage makes a document of {bytes} bytes: limit of 16 MiB; take fewer or smaller ones"
            ),
        }),
        false => Ok(()),
    }
}

/// Reads an order, with strings in that of the collation.
fn sort_order(order: &RawDocument, variables: &Variables) -> Result<SortOrder> {
    Ok(SortOrder::parse(order)?.with_collation(variables.collation.clone()))
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
