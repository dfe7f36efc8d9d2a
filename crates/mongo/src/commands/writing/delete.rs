//! `delete`.

use bson::cstr;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::DocumentCommand;
use tidemill_types::ErrorKind;

use crate::commands::writing::let_variables::LetVariables;
use crate::commands::writing::write::{WriteErrors, WriteOptions};
use crate::commands::{collation, index::hint};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn delete(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["deletes", "ordered", "let"])?;
    let collection = call.collection()?;
    let ordered = call.flag("ordered", true)?;
    let variables = LetVariables::of(shared, call)?;
    let write = WriteOptions::of(call, &variables)?;
    let mut deleted = 0;
    let mut errors = WriteErrors::default();
    for (index, statement) in call.documents("deletes")?.iter().enumerate() {
        match run(shared, &collection, statement, write) {
            Ok(count) => deleted += count,
            Err(error) => errors.push(index, error),
        }
        if ordered && !errors.is_empty() {
            break;
        }
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("n"), deleted as i32);
    errors.append_to(&mut reply);
    Ok(ok(reply))
}

/// Runs one statement, `{ q, limit }`. Returns the number of deleted documents.
pub(in crate::commands) fn run(
    shared: &Shared,
    collection: &str,
    statement: &Bytes,
    write: WriteOptions<'_>,
) -> Result<u64> {
    let bytes = tidemill_docs::validate(statement.clone())?;
    let statement = RawDocument::from_bytes(&bytes)?;
    let Some(RawBsonRef::Document(filter)) = statement.get("q")? else {
        return Err(CommandError::new(
            Code::MissingField,
            "BSON field 'delete.deletes.q' is missing but a required field",
        ));
    };
    let given = collation::of_write("delete.deletes", statement.get("collation")?)?;
    hint::check_statement(shared, collection, "delete.deletes", statement)?;
    let multi = match statement.get("limit")?.and_then(whole_number) {
        Some(0) => true,
        Some(1) => false,
        _ => {
            let message = "The limit field in delete objects must be 0 or 1.";
            return Err(CommandError::new(Code::FailedToParse, message));
        }
    };
    let filter = Bytes::copy_from_slice(filter.as_bytes());
    let command = DocumentCommand::Delete { collection: collection.to_owned(), filter, multi };
    match shared.engine.write_documents(write.command(command, given)?, write.durability) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        outcome => Ok(outcome?.deleted),
    }
}
