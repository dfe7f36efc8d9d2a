//! Sessions: accepted, as drivers use them for every command. They hold nothing yet.

use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use bson::{Binary, cstr};

use crate::error::Result;
use crate::fields::Call;
use crate::reply::ok;
use crate::session::Session;
use crate::shared::Shared;

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

pub(super) fn accept(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    Ok(ok(RawDocumentBuf::new()))
}
