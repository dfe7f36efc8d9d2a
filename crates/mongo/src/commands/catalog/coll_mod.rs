//! `collMod` and `convertToCapped`: change the definition of a collection.

use bson::cstr;
use bson::raw::{RawDocument, RawDocumentBuf};
use tidemill_docs::{CollectionChange, CollectionSpec, DocumentCommand, IndexChange, IndexSpec};

use crate::commands::catalog::collections::no_collection;
use crate::commands::{catalog::collection_options, index::index_spec, writing::write};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn coll_mod(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&[
        "index",
        "validator",
        "validationLevel",
        "validationAction",
        "viewOn",
        "pipeline",
        "cappedSize",
        "cappedMax",
        "dryRun",
        "changeStreamPreAndPostImages",
        "expireAfterSeconds",
        "timeseries",
    ])?;
    for field in ["expireAfterSeconds", "timeseries", "dryRun"] {
        call.refuse(field)?;
    }
    let spec = shared.engine.collection_spec(&call.collection()?).map_err(|_| no_collection(call))?;
    let mut reply = RawDocumentBuf::new();
    let change = CollectionChange {
        validator: collection_options::validator(call)?,
        validation_level: collection_options::validation_level(call)?,
        validation_action: collection_options::validation_action(call)?,
        capped: capped(call, &spec)?,
        view: collection_options::view(call)?,
        index: call.document("index")?.map(|index| index_change(index, &spec, &mut reply)).transpose()?,
        change_images: collection_options::change_images(call)?,
        gathered: false,
        put_in_order: false,
    };
    if change.view.is_some() != spec.options.view.is_some() && change != CollectionChange::default() {
        let message = "'viewOn' and 'pipeline', and nothing else, are options of a view";
        return Err(CommandError::new(Code::InvalidOptions, message));
    }
    let command = DocumentCommand::Modify { collection: spec.name, change };
    shared.engine.write_documents(command, write::durability(call)?)?;
    Ok(ok(reply))
}

fn capped(call: &Call<'_>, spec: &CollectionSpec) -> Result<Option<tidemill_docs::CappedSize>> {
    let (bytes, documents) = (call.count("cappedSize")?, call.count("cappedMax")?);
    match (bytes.or(documents), spec.options.capped) {
        (None, _) => Ok(None),
        (Some(_), None) => {
            let message = format!("{} is not a capped collection", call.namespace());
            Err(CommandError::new(Code::InvalidOptions, message))
        }
        (Some(_), Some(old)) => {
            let documents = documents.map_or(old.documents, |max| Some(max).filter(|max| *max > 0));
            collection_options::capped_size(bytes.unwrap_or(old.bytes), documents).map(Some)
        }
    }
}

/// Reads the change of an index, and appends to the reply what changes.
fn index_change(
    index: &RawDocument,
    spec: &CollectionSpec,
    reply: &mut RawDocumentBuf,
) -> Result<IndexChange> {
    let invalid = |message: &str| CommandError::new(Code::InvalidOptions, message);
    let mut found: Option<&IndexSpec> = None;
    let mut named = false;
    let (mut seconds, mut hidden) = (None, None);
    for element in index {
        let (name, value) = element?;
        match name.as_str() {
            "name" | "keyPattern" if named => {
                return Err(invalid("expected `name` or `keyPattern`, found both"));
            }
            "name" => {
                named = true;
                found = spec.indexes.iter().find(|index| Some(index.name.as_str()) == value.as_str());
            }
            "keyPattern" => {
                named = true;
                let pattern = value.as_document().ok_or_else(|| invalid("`keyPattern` is not an object"))?;
                let key = index_spec::key(pattern)?;
                found = spec.indexes.iter().find(|index| key.is_of(index));
            }
            "expireAfterSeconds" => seconds = Some(index_spec::seconds(value)?),
            "hidden" => {
                hidden =
                    Some(value.as_bool().or_else(|| whole_number(value).map(|n| n != 0)).unwrap_or(false))
            }
            other => return Err(CommandError::not_supported(format!("`collMod.index.{other}`"))),
        }
    }
    if !named {
        return Err(invalid("expected `index.name` or `index.keyPattern`"));
    }
    if seconds.is_none() && hidden.is_none() {
        return Err(invalid("expected `index.expireAfterSeconds` or `index.hidden`"));
    }
    let found = found.ok_or_else(|| {
        CommandError::new(
            Code::IndexNotFound,
            format!("cannot find index {} for the collection", as_text(index)),
        )
    })?;
    if let Some(new) = seconds {
        if let Some(old) = found.expire_after_seconds {
            reply.append(cstr!("expireAfterSeconds_old"), old);
        }
        reply.append(cstr!("expireAfterSeconds_new"), new);
    }
    if let Some(new) = hidden {
        reply.append(cstr!("hidden_old"), found.hidden);
        reply.append(cstr!("hidden_new"), new);
    }
    Ok(IndexChange { name: found.name.clone(), expire_after_seconds: seconds, hidden })
}

fn as_text(index: &RawDocument) -> String {
    tidemill_docs::BsonDocument::new(index).to_string()
}

pub(in crate::commands) fn convert_to_capped(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["size"])?;
    let spec = shared.engine.collection_spec(&call.collection()?).map_err(|_| no_collection(call))?;
    let Some(size) = call.count("size")?.filter(|size| *size > 0) else {
        let message = "Capped collection size must be greater than zero";
        return Err(CommandError::new(Code::InvalidOptions, message));
    };
    let capped = Some(collection_options::capped_size(size, None)?);
    let durability = write::durability(call)?;
    // the order of its documents is that of all inserts
    shared.whole_engine.gather_collection(&spec.name, durability)?;
    let change = CollectionChange { capped, ..CollectionChange::default() };
    shared.engine.write_documents(DocumentCommand::Modify { collection: spec.name, change }, durability)?;
    Ok(ok(RawDocumentBuf::new()))
}
