//! The versions of the API that clients declare: `apiVersion: "1"`, and `apiStrict` to be refused what is not in it.

use bson::raw::{RawArray, RawBsonRef};

use crate::error::{Code, CommandError, Result};
use crate::fields::Call;

/// The one version that there is.
const VERSION: &str = "1";

/// Commands of version 1.
const COMMANDS: [&str; 29] = [
    "abortTransaction",
    "aggregate",
    "authenticate",
    "bulkWrite",
    "collMod",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
    "refreshSessions",
    "saslContinue",
    "saslStart",
    "update",
];

/// Checks the version that a command declares.
///
/// Errors: the version is unknown, or it lacks the command and the client has set `apiStrict`.
pub(crate) fn check(call: &Call<'_>) -> Result<()> {
    match call.get("apiVersion") {
        Some(RawBsonRef::String(VERSION)) => {}
        Some(RawBsonRef::String(_)) => {
            let message = format!("API version must be \"{VERSION}\"");
            return Err(CommandError::new(Code::APIVersionError, message));
        }
        Some(other) => return Err(call.wrong_type("apiVersion", other, "a string")),
        None => {
            let alone = ["apiStrict", "apiDeprecationErrors"].into_iter().find(|f| call.get(f).is_some());
            return match alone {
                Some(field) => {
                    let message = format!("Provided {field} without passing apiVersion");
                    Err(CommandError::new(Code::InvalidOptions, message))
                }
                None => Ok(()),
            };
        }
    }
    if call.flag("apiStrict", false)? && !COMMANDS.contains(&call.name) {
        let message =
            format!("Provided apiStrict:true, but the command {} is not in API Version {VERSION}", call.name);
        return Err(CommandError::new(Code::APIStrictError, message));
    }
    Ok(())
}

/// Checks the stages of a pipeline.
///
/// Errors: one is not in the version, and the client wants nothing else.
pub(crate) fn check_pipeline(call: &Call<'_>, pipeline: &RawArray) -> Result<()> {
    const OTHERS: [&str; 5] =
        ["$collStats", "$currentOp", "$indexStats", "$listLocalSessions", "$listSessions"];
    if !call.flag("apiStrict", false)? {
        return Ok(());
    }
    for stage in pipeline {
        let name = stage?.as_document().and_then(|stage| stage.into_iter().next()).transpose()?;
        if let Some((name, _)) = name.filter(|(name, _)| OTHERS.contains(&name.as_str())) {
            let message = format!(
                "stage {} is not allowed with 'apiStrict: true' in API Version {VERSION}",
                name.as_str()
            );
            return Err(CommandError::new(Code::APIStrictError, message));
        }
    }
    Ok(())
}
