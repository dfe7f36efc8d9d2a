//! `hint`: the index that a client wants to be used.

use bson::raw::{RawBsonRef, RawDocument};

use crate::commands::index::index_spec;
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, type_name};
use crate::shared::Shared;

/// Checks that the index of a hint exists. The plan is chosen without it, and finds the same documents.
///
/// Errors: `BadValue` for an index that the collection does not have.
pub(in crate::commands) fn check(shared: &Shared, call: &Call<'_>) -> Result<()> {
    match call.get("hint") {
        Some(hint) => check_value(shared, &call.collection()?, call.name, hint),
        None => Ok(()),
    }
}

/// Checks the hint of a statement of a command as [`check`] does that of a command.
pub(in crate::commands) fn check_statement(
    shared: &Shared,
    collection: &str,
    command: &str,
    statement: &RawDocument,
) -> Result<()> {
    match statement.get("hint")? {
        None | Some(RawBsonRef::Null) => Ok(()),
        Some(hint) => check_value(shared, collection, command, hint),
    }
}

fn check_value(shared: &Shared, collection: &str, command: &str, hint: RawBsonRef<'_>) -> Result<()> {
    // a collection that does not exist has no documents to find
    let Ok(spec) = shared.engine.collection_spec(collection) else { return Ok(()) };
    let known = match hint {
        RawBsonRef::String(name) => {
            name == index_spec::id_index_name(&spec) || spec.indexes.iter().any(|index| index.name == name)
        }
        RawBsonRef::Document(pattern) => {
            let first = pattern.into_iter().next().transpose()?.map(|(name, _)| name.as_str());
            let key = match first {
                None | Some("$natural") => return Ok(()),
                Some(_) => index_spec::key(pattern)?,
            };
            matches!(key.fields.as_slice(), [(path, _)] if path == "_id")
                || spec.indexes.iter().any(|index| key.is_of(index))
        }
        other => {
            return Err(CommandError::wrong_type(command, "hint", type_name(other), "a string or an object"));
        }
    };
    match known {
        true => Ok(()),
        false => {
            let message = "hint provided does not correspond to an existing index";
            Err(CommandError::new(Code::BadValue, message))
        }
    }
}
