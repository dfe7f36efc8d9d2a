//! Commands that tools send to any server of a replica set, with what is true of this one.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{DateTime, cstr, rawdoc};

use super::administration::admin_only;
use super::catalog::collections::no_collection;
use super::diagnostics::RELEASE;
use super::hello::SET_NAME;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::namespace::stored_name;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

/// Describes the replica set, whose only member is this server.
pub(super) fn repl_set_get_status(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    let now = shared.cluster_time();
    let time = rawdoc! { "ts": now, "t": 1_i64 };
    let date = DateTime::from_millis(i64::from(now.time) * 1000);
    let member = rawdoc! {
        "_id": 0,
        "name": session.local.to_string(),
        "health": 1.0,
        "state": 1,
        "stateStr": "PRIMARY",
        "uptime": i64::try_from(shared.started.elapsed().as_secs()).unwrap_or(i64::MAX),
        "optime": time.clone(),
        "optimeDate": date,
        "configVersion": 1,
        "self": true,
    };
    Ok(ok(rawdoc! {
        "set": SET_NAME,
        "date": DateTime::now(),
        "myState": 1,
        "term": 1_i64,
        "votingMembersCount": 1,
        "writableVotingMembersCount": 1,
        "optimes": { "lastCommittedOpTime": time.clone(), "appliedOpTime": time.clone(), "durableOpTime": time },
        "members": [member],
    }))
}

pub(super) fn repl_set_get_config(
    _: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    Ok(ok(rawdoc! {
        "config": {
            "_id": SET_NAME,
            "version": 1,
            "term": 1,
            "members": [{
                "_id": 0, "host": session.local.to_string(), "arbiterOnly": false, "hidden": false, "priority": 1.0, "votes": 1,
            }],
            "writeConcernMajorityJournalDefault": true,
        },
    }))
}

/// Frees nothing: space of deleted documents is taken again without being asked.
pub(super) fn compact(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["force", "freeSpaceTargetMB", "dryRun"])?;
    shared.engine.collection_spec(&call.collection()?).map_err(|_| no_collection(call))?;
    Ok(ok(rawdoc! { "bytesFreed": 0_i64 }))
}

pub(super) fn data_size(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["estimate"])?;
    let Some(RawBsonRef::String(namespace)) = call.get(call.name) else {
        return Err(CommandError::new(
            Code::TypeMismatch,
            "`dataSize` expects the full name of a collection",
        ));
    };
    let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    let stored = stored_name(database, collection)?;
    let info = shared.engine.collections()?.into_iter().find(|info| info.name == stored);
    Ok(ok(rawdoc! {
        "estimate": false,
        "size": info.as_ref().map_or(0, |info| info.bytes.cast_signed()),
        "numObjects": info.map_or(0, |info| info.documents.cast_signed()),
        "millis": 0,
    }))
}

/// Forgets nothing: plans are made for each query.
pub(super) fn plan_cache_clear(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["query", "projection", "sort", "collation"])?;
    call.collection()?;
    Ok(ok(RawDocumentBuf::new()))
}

pub(super) fn plan_cache_list_filters(
    _: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&[])?;
    call.collection()?;
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("filters"), RawArrayBuf::new());
    Ok(ok(reply))
}

/// Accepts the version that this server has.
pub(super) fn set_feature_compatibility_version(
    _: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    call.allow(&["confirm"])?;
    match call.get(call.name) {
        Some(RawBsonRef::String(RELEASE)) => Ok(ok(RawDocumentBuf::new())),
        _ => {
            let message = format!("this server has the features of MongoDB {RELEASE} and no others");
            Err(CommandError { code: 4_926_900, message })
        }
    }
}

/// Refuses other defaults than those of this server, which meets every concern that one server can meet.
pub(super) fn set_default_rw_concern(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    Err(CommandError::not_supported("another default of read and write concerns"))
}

/// Says that the server is not locked: `fsync` does not lock it.
pub(super) fn fsync_unlock(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    Err(CommandError { code: 20, message: "fsyncUnlock called when not locked".to_owned() })
}

/// Tells that there are no connections to other servers.
pub(super) fn conn_pool_stats(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&[])?;
    Ok(ok(rawdoc! {
        "numClientConnections": 0,
        "numAScopedConnections": 0,
        "totalInUse": 0,
        "totalAvailable": 0,
        "totalLeasedConnections": 0,
        "totalCreated": 0,
        "totalRefreshing": 0,
        "hosts": {},
    }))
}
