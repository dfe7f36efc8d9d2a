//! Sessions: drivers open one for each sequence of commands.

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, cstr};

use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::transactions;
use crate::wire::reply::ok;

pub(super) fn start(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let bytes: [u8; 16] = rand::random();
    let mut id = RawDocumentBuf::new();
    id.append(
        cstr!("id"),
        bson::RawBson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: bytes.to_vec() }),
    );
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("id"), id);
    reply.append(cstr!("timeoutMinutes"), 30);
    Ok(ok(reply))
}

/// `refreshSessions`: a session that has no transaction holds nothing, so it need not be refreshed.
pub(super) fn refresh(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    Ok(ok(RawDocumentBuf::new()))
}

/// `endSessions`, `killSessions` and `killAllSessions`: takes back their open transactions. The latter two end all sessions if they
/// name none.
///
/// Errors: a session is that of a user whom the client does not manage.
pub(super) fn end(shared: &Shared, client: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    if let Some(RawBsonRef::Array(ids)) = call.get(call.name) {
        if ids.is_empty() && call.name != "endSessions" {
            shared.sessions.close_all();
        }
        for id in ids {
            if let RawBsonRef::Document(id) = id? {
                transactions::end(shared, client.principal.as_ref(), id)?;
            }
        }
    }
    Ok(ok(RawDocumentBuf::new()))
}

/// `commitTransaction` and `abortTransaction` without a transaction. With one, [`crate::transactions`] answers them.
pub(super) fn without_transaction(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let message = format!("`{}` needs `lsid`, `txnNumber` and `autocommit: false`", call.name);
    Err(CommandError::new(Code::InvalidOptions, message))
}
