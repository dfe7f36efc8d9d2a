//! `hello`: what the server is and can do.

use std::time::Duration;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{DateTime, cstr};

use super::sasl;
use crate::auth::MECHANISM;
use crate::error::Result;
use crate::fields::Call;
use crate::session::Session;
use crate::shared::{MongoServerState, Shared};
use crate::wire::frame::{Compressor, MESSAGE_BYTES_MAX};
use crate::wire::reply::ok;

/// Version of the wire protocol: that of MongoDB 8.0, from which on drivers send `bulkWrite`.
const WIRE_VERSION: i32 = 25;
/// Name of the replica set.
pub(super) const SET_NAME: &str = "tidemill";
/// Maximum time for which a reply waits.
const AWAIT_TIME_MAX: Duration = Duration::from_secs(600);
/// Maximum bytes of a document.
const DOCUMENT_BYTES_MAX: i32 = 16 << 20;
/// Maximum documents of a write.
const WRITE_BATCH_MAX: i32 = 100_000;

/// Appends what the primary of a replica set of one member says: drivers offer transactions and change streams with a replica set
/// only. The member's address is the one that the client has reached, so that it need not know another.
fn append_replica_set(reply: &mut RawDocumentBuf, shared: &Shared, session: &Session) {
    let me = session.local.to_string();
    let mut topology = RawDocumentBuf::new();
    topology.append(cstr!("processId"), shared.process);
    topology.append(cstr!("counter"), 0_i64);
    reply.append(cstr!("topologyVersion"), topology);
    let mut hosts = RawArrayBuf::new();
    hosts.push(me.as_str());
    reply.append(cstr!("hosts"), hosts);
    reply.append(cstr!("setName"), SET_NAME);
    reply.append(cstr!("setVersion"), 1);
    reply.append(cstr!("secondary"), false);
    reply.append(cstr!("primary"), me.as_str());
    reply.append(cstr!("me"), me.as_str());
    reply.append(cstr!("electionId"), shared.process);
    let now = shared.cluster_time();
    let mut time = RawDocumentBuf::new();
    time.append(cstr!("ts"), now);
    time.append(cstr!("t"), 1_i64);
    let date = DateTime::from_millis(i64::from(now.time) * 1000);
    let mut last = RawDocumentBuf::new();
    last.append(cstr!("opTime"), time.clone());
    last.append(cstr!("lastWriteDate"), date);
    last.append(cstr!("majorityOpTime"), time);
    last.append(cstr!("majorityWriteDate"), date);
    reply.append(cstr!("lastWrite"), last);
}

/// Returns how long the reply waits for a change of the topology, which does not come: the client has said what it knows.
pub(crate) fn await_time(shared: &MongoServerState, call: &Call<'_>) -> Option<Duration> {
    if !matches!(call.name, "hello" | "isMaster" | "ismaster") {
        return None;
    }
    let known = call.document("topologyVersion").ok()??.get_object_id("processId").ok()?;
    let wait = call.count("maxAwaitTimeMS").ok()??;
    (known == shared.process).then(|| Duration::from_millis(wait).min(AWAIT_TIME_MAX))
}

pub(super) fn hello(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    if let Some(client) = call.document("client")?
        && let Some(RawBsonRef::Document(application)) = client.get("application")?
        && let Some(RawBsonRef::String(name)) = application.get("name")?
    {
        session.application = Some(name.to_owned());
    }
    if call.flag("helloOk", false)? {
        reply.append(cstr!("helloOk"), true);
    }
    match call.name {
        "hello" => reply.append(cstr!("isWritablePrimary"), true),
        _ => reply.append(cstr!("ismaster"), true),
    }
    append_replica_set(&mut reply, shared, session);
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
