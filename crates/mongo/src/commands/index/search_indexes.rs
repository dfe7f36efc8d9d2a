//! Commands of Atlas Search, a service beside MongoDB's server. Drivers and tools tell by the code that it is not there.

use bson::raw::RawDocumentBuf;

use crate::error::{CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;

/// Stages of Atlas Search.
pub(in crate::commands) const STAGES: [&str; 4] =
    ["$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes"];

pub(in crate::commands) fn refuse(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    Err(unavailable(call.name))
}

/// Returns the error of a command or a stage.
pub(in crate::commands) fn unavailable(what: &str) -> CommandError {
    let message = format!(
        "`{what}` is a part of Atlas Search, a service of MongoDB Atlas that this server does not have: use an index of the collection, \
         or a filter by `$regex`"
    );
    CommandError { code: 31082, message }
}
