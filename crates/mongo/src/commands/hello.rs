//! `hello`: what the server is and can do.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{DateTime, cstr};

use super::sasl;
use crate::auth::MECHANISM;
use crate::error::Result;
use crate::fields::Call;
use crate::frame::{Compressor, MESSAGE_BYTES_MAX};
use crate::reply::ok;
use crate::session::Session;
use crate::shared::Shared;

/// Version of the wire protocol: that of MongoDB 7.0.
const WIRE_VERSION: i32 = 21;
/// Maximum bytes of a document.
const DOCUMENT_BYTES_MAX: i32 = 16 << 20;
/// Maximum documents of a write.
const WRITE_BATCH_MAX: i32 = 100_000;

pub(super) fn hello(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    if call.flag("helloOk", false)? {
        reply.append(cstr!("helloOk"), true);
    }
    match call.name {
        "hello" => reply.append(cstr!("isWritablePrimary"), true),
        _ => reply.append(cstr!("ismaster"), true),
    }
    reply.append(cstr!("maxBsonObjectSize"), DOCUMENT_BYTES_MAX);
    reply.append(cstr!("maxMessageSizeBytes"), MESSAGE_BYTES_MAX as i32);
    reply.append(cstr!("maxWriteBatchSize"), WRITE_BATCH_MAX);
    reply.append(cstr!("localTime"), DateTime::now());
    reply.append(cstr!("logicalSessionTimeoutMinutes"), 30);
    reply.append(cstr!("connectionId"), session.connection_id);
    reply.append(cstr!("minWireVersion"), 0);
    reply.append(cstr!("maxWireVersion"), WIRE_VERSION);
    reply.append(cstr!("readOnly"), false);
    if let Some(RawBsonRef::Array(asked)) = call.get("compression") {
        let mut common = RawArrayBuf::new();
        for name in asked.into_iter().flatten().filter_map(|name| name.as_str()) {
            if Compressor::OFFERED.iter().any(|(offered, _)| *offered == name) {
                common.push(name);
            }
        }
        if !common.is_empty() {
            reply.append(cstr!("compression"), common);
        }
    }
    if call.get("saslSupportedMechs").is_some() {
        let mut mechanisms = RawArrayBuf::new();
        mechanisms.push(MECHANISM);
        reply.append(cstr!("saslSupportedMechs"), mechanisms);
    }
    if let Some(login) = call.document("speculativeAuthenticate")?
        && let Ok(answer) = sasl::speculative(shared, session, login)
    {
        reply.append(cstr!("speculativeAuthenticate"), answer);
    }
    Ok(ok(reply))
}
