//! `count`.

use bson::cstr;
use bson::raw::RawDocumentBuf;
use tidemill_types::ErrorKind;

use crate::commands::{collation, reading::find};
use crate::error::Result;
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn count(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["query", "limit", "skip", "hint", "collation", "fields"])?;
    let collection = call.collection()?;
    let filter = call.document("query")?.unwrap_or_else(|| find::empty());
    let skip = call.count("skip")?.unwrap_or(0);
    let limit = call.count("limit")?.filter(|limit| *limit > 0);
    let filter = find::read_filter(filter, collation::of(shared, call)?.as_ref())?;
    let found = match shared.engine.count_parsed(&collection, &filter) {
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        found => found?,
    };
    let counted = found.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
    let mut reply = RawDocumentBuf::new();
    match i32::try_from(counted) {
        Ok(counted) => reply.append(cstr!("n"), counted),
        Err(_) => reply.append(cstr!("n"), counted.cast_signed()),
    }
    Ok(ok(reply))
}
