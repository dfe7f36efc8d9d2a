//! `hint`: the index that a client wants to be used.

use bson::raw::RawBsonRef;

use super::index_spec::{self, ID_INDEX};
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::shared::Shared;

/// Checks that the index of a hint exists. The plan is chosen without it, and finds the same documents.
///
/// Errors: `BadValue` for an index that the collection does not have.
pub(super) fn check(shared: &Shared, call: &Call<'_>) -> Result<()> {
    let Some(hint) = call.get("hint") else { return Ok(()) };
    // a collection that does not exist has no documents to find
    let Ok(spec) = shared.engine.collection_spec(&call.collection()?) else { return Ok(()) };
    let known = match hint {
        RawBsonRef::String(name) => name == ID_INDEX || spec.indexes.iter().any(|index| index.name == name),
        RawBsonRef::Document(pattern) => {
            let first = pattern.into_iter().next().transpose()?.map(|(name, _)| name.as_str());
            let (fields, hashed) = match first {
                None | Some("$natural") => return Ok(()),
                Some(_) => index_spec::key(pattern)?,
            };
            matches!(fields.as_slice(), [(path, _)] if path == "_id")
                || spec.indexes.iter().any(|index| index.fields == fields && index.hashed == hashed)
        }
        other => return Err(call.wrong_type("hint", other, "a string or an object")),
    };
    match known {
        true => Ok(()),
        false => {
            let message = "hint provided does not correspond to an existing index";
            Err(CommandError::new(Code::BadValue, message))
        }
    }
}
