//! `aggregate`: runs a pipeline.

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::catalog::collections::batch_size;
use super::change_stream;
use super::pipeline::{Context, Pipeline};
use super::reading::{find, order};
use super::writing::write_concern::writes;
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::first_query_batch;

pub(super) fn aggregate(shared: &Shared, client: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
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
    call.refuse("explain")?;
    let Some(RawBsonRef::Array(pipeline)) = call.get("pipeline") else {
        return Err(CommandError::new(Code::TypeMismatch, "'pipeline' option must be specified as an array"));
    };
    crate::wire::api_version::check_pipeline(call, pipeline)?;
    let variables = find::variables(shared, call)?;
    let level = call.document("readConcern")?.and_then(|concern| concern.get_str("level").ok());
    if change_stream::is_change_stream(pipeline) {
        if level.is_some_and(|level| level != "majority") {
            let message = "$changeStream is only supported with the read concern `majority`";
            return Err(CommandError::new(Code::InvalidOptions, message));
        }
        return change_stream::open(shared, call, pipeline, &variables);
    }
    if level == Some("linearizable") && writes(call) {
        let message = "$out and $merge cannot be used with the read concern `linearizable`";
        return Err(CommandError::new(Code::InvalidOptions, message));
    }
    let of_database = call.get(call.name).and_then(whole_number) == Some(1);
    let collection = if of_database { None } else { Some(call.collection()?) };
    let context = Context {
        shared,
        database: call.database,
        collection: collection.as_deref(),
        variables: &variables,
        client,
        session: call.document("lsid")?,
        natural: order::natural(None, call.get("hint")),
        depth: 0,
    };
    let pipeline = Pipeline::parse(pipeline, &context)?;
    if call.document("cursor")?.is_none() {
        let message = "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(Code::FailedToParse, message));
    }
    let batch_size = batch_size(call)?;
    let documents = pipeline.run(&context)?;
    let namespace = match of_database {
        true => format!("{}.$cmd.aggregate", call.database),
        false => call.namespace(),
    };
    first_query_batch(&shared.cursors, namespace, documents, batch_size, None)
}
