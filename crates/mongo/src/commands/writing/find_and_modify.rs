//! `findAndModify`: changes one document and returns it, in one step.

use bson::cstr;
use bson::oid::ObjectId;
use bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocBytes, DocumentCommand, Modification};
use tidemill_types::ErrorKind;

use crate::commands::writing::let_variables::LetVariables;
use crate::commands::writing::update::{change_of, require_collection};
use crate::commands::writing::write::WriteOptions;
use crate::commands::{collation, reading::find};
use crate::error::{Code, CommandError, Result, WriteError};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

const FIELDS: [&str; 14] = [
    "query",
    "sort",
    "remove",
    "update",
    "new",
    "fields",
    "upsert",
    "bypassDocumentValidation",
    "collation",
    "arrayFilters",
    "hint",
    "let",
    "projection",
    "returnDocument",
];

pub(in crate::commands) fn find_and_modify(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&FIELDS)?;
    let given = collation::of_write(call.name, call.get("collation"))?;
    let collection = call.collection()?;
    let variables = LetVariables::of(shared, call)?;
    let write = WriteOptions::of(call, &variables)?;
    let (remove, upsert, new) =
        (call.flag("remove", false)?, call.flag("upsert", false)?, call.flag("new", false)?);
    let update = call.get("update");
    let change = match (remove, update) {
        (true, None) if upsert || new => {
            let message = "Cannot specify both remove=true and upsert=true or new=true";
            return Err(CommandError::new(Code::FailedToParse, message));
        }
        (true, None) => Modification::Remove,
        (false, Some(_)) => {
            let change = change_of("findAndModify.update", update, call.get("arrayFilters"))?;
            change.with_times(shared)?.into()
        }
        (true, Some(_)) => {
            return Err(CommandError::new(
                Code::FailedToParse,
                "Cannot specify both an update and remove=true",
            ));
        }
        (false, None) => {
            let message = "Either an update or remove=true must be specified";
            return Err(CommandError::new(Code::FailedToParse, message));
        }
    };
    let fields = find::projection(call, "fields")?;
    if upsert {
        require_collection(shared, &collection, write.durability)?;
    }
    let bytes = |document: &RawDocument| Bytes::copy_from_slice(document.as_bytes());
    let command = DocumentCommand::FindAndModify {
        collection,
        filter: bytes(call.document("query")?.unwrap_or_else(|| find::empty())),
        sort: call.document("sort")?.filter(|sort| !sort.is_empty()).map(bytes),
        change,
        upsert,
        upsert_id: upsert.then(ObjectId::new),
    };
    let outcome = match shared.engine.write_documents(write.command(command, given)?, write.durability) {
        Err(error) if error.kind() == ErrorKind::NotFound => CommandOutcome::default(),
        outcome => outcome?,
    };
    if let Some(failed) = outcome.errors.into_iter().next() {
        return WriteError::from(failed.error).reply();
    }
    let shown: Option<&DocBytes> = if new { outcome.after.as_ref() } else { outcome.before.as_ref() };
    let mut last = RawDocumentBuf::new();
    let found = outcome.before.is_some();
    last.append(cstr!("n"), i32::from(found || outcome.upserted_id.is_some()));
    if !remove {
        last.append(cstr!("updatedExisting"), found);
    }
    if let Some(id) = outcome.upserted_id.clone() {
        last.append(cstr!("upserted"), RawBson::try_from(id)?);
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("lastErrorObject"), last);
    match shown {
        None => reply.append(cstr!("value"), RawBson::Null),
        Some(document) => {
            let raw = RawDocument::from_bytes(document)?;
            match fields {
                None => reply.append(cstr!("value"), raw),
                Some(fields) => reply.append(cstr!("value"), fields.apply(raw)?),
            }
        }
    }
    Ok(ok(reply))
}
