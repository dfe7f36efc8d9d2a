//! `collation`: the order and equality of strings in a command.

use bson::raw::{RawBsonRef, RawDocument};
use tidemill_docs::{BsonDocument, Collation};

use crate::error::{CommandError, Result};
use crate::fields::{Call, type_name};
use crate::shared::Shared;

/// Returns the collation of a command: its own, or that of its collection; `None` for the order of bytes.
///
/// Errors: the given collation is invalid.
pub(super) fn of(shared: &Shared, call: &Call<'_>) -> Result<Option<Collation>> {
    of_statement(shared, call, call.document("collation")?)
}

/// Returns the collation of a statement of a command, as [`of`] returns that of a command.
pub(super) fn of_statement(
    shared: &Shared,
    call: &Call<'_>,
    given: Option<&RawDocument>,
) -> Result<Option<Collation>> {
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        return Ok(Collation::parse(given)?);
    }
    match call.get(call.name) {
        Some(RawBsonRef::String(_)) => shared.engine.collation(&call.collection()?).map_err(Into::into),
        _ => Ok(None),
    }
}

/// Returns the collation that a write gives instead of that of its collection.
///
/// Errors: the given collation is invalid.
pub(super) fn of_write(command: &str, given: Option<RawBsonRef<'_>>) -> Result<Option<BsonDocument>> {
    match given {
        None | Some(RawBsonRef::Null) => Ok(None),
        Some(RawBsonRef::Document(given)) if given.is_empty() => Ok(None),
        Some(RawBsonRef::Document(given)) => {
            Collation::parse(given)?;
            Ok(Some(BsonDocument::new(given)))
        }
        Some(other) => Err(CommandError::wrong_type(command, "collation", type_name(other), "an object")),
    }
}

/// Returns a collation with all of its options, as it is kept in definitions; `None` for the simple one.
pub(super) fn in_definition(given: Option<&RawDocument>) -> Result<Option<BsonDocument>> {
    match given.filter(|given| !given.is_empty()) {
        None => Ok(None),
        Some(given) => Ok(Collation::parse(given)?.map(|collation| BsonDocument::new(collation.document()))),
    }
}
