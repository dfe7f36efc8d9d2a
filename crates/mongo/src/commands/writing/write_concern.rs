//! Write concerns that one server cannot meet.

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::rawdoc;

use crate::error::{Code, CommandError, Result, code_name};
use crate::fields::{Call, whole_number};

/// The largest number of members that a client may ask for.
const MEMBERS_MAX: i64 = 50;

/// Commands that take a write concern. `aggregate` is among them for its last stage.
const COMMANDS: &[&str] = &[
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "bulkWrite",
    "aggregate",
    "create",
    "drop",
    "dropDatabase",
    "createIndexes",
    "dropIndexes",
    "renameCollection",
    "collMod",
    "convertToCapped",
    "commitTransaction",
    "abortTransaction",
];

/// Returns what the reply of a write says if fewer servers have it than the client asked for: there is one.
///
/// Errors: a write concern that no server could meet.
pub(in crate::commands) fn unmet(call: &Call<'_>) -> Result<Option<RawDocumentBuf>> {
    let Some(concern) = call.document("writeConcern")?.filter(|_| COMMANDS.contains(&call.name)) else {
        return Ok(None);
    };
    if call.name == "aggregate" && !writes(call) {
        return Ok(None);
    }
    let Some(w) = concern.get("w")? else { return Ok(None) };
    let (code, message) = match w {
        RawBsonRef::String("majority") => return Ok(None),
        RawBsonRef::String(mode) => {
            (79, format!("No write concern mode named '{mode}' found in replica set configuration"))
        }
        number => match whole_number(number) {
            Some(0 | 1) => return Ok(None),
            Some(n) if (2..=MEMBERS_MAX).contains(&n) => (100, "Not enough data-bearing nodes".to_owned()),
            Some(_) => {
                let message = format!("w has to be a non-negative number and not greater than {MEMBERS_MAX}");
                return Err(CommandError::new(Code::FailedToParse, message));
            }
            // tags, which no member has
            None => return Ok(None),
        },
    };
    Ok(Some(rawdoc! {
        "code": code, "codeName": code_name(code), "errmsg": message,
        "errInfo": { "writeConcern": concern.to_owned() },
    }))
}

/// Returns whether a pipeline ends with a stage that writes.
pub(in crate::commands) fn writes(call: &Call<'_>) -> bool {
    let Some(RawBsonRef::Array(stages)) = call.get("pipeline") else { return false };
    let last = stages.into_iter().last().and_then(|stage| stage.ok()?.as_document()?.into_iter().next());
    last.is_some_and(|stage| stage.is_ok_and(|(name, _)| matches!(name.as_str(), "$out" | "$merge")))
}
