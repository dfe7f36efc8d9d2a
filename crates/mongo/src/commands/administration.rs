//! Commands for administrators of a server that has one user and needs no tuning.

use bson::raw::{CString, RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{cstr, rawdoc};
use tidemill_docs::{Command, Filter};
use tidemill_log::Durability;

use super::collections::no_collection;
use crate::auth::{MECHANISM, USER};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::namespace::namespace_of;
use crate::reply::ok;
use crate::session::Session;
use crate::shared::Shared;

/// Fields of `currentOp` that are no conditions on operations.
const FIELDS_OF_CURRENT_OP: [&str; 8] = [
    "lsid",
    "maxTimeMS",
    "comment",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "readConcern",
    "txnNumber",
];

/// Lists the operations in progress, this one with them.
pub(super) fn current_op(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    // the fields beside those of every command are conditions
    let mut filter = RawDocumentBuf::new();
    for element in call.body().into_iter().skip(1) {
        let (name, value) = element?;
        if !name.as_str().starts_with('$') && !FIELDS_OF_CURRENT_OP.contains(&name.as_str()) {
            filter.append(name, value);
        }
    }
    let filter = Filter::parse(&filter)?;
    let mut operations = RawArrayBuf::new();
    for operation in shared.operations.running() {
        let described = operation.describe();
        if filter.matches(&described) {
            operations.push(described);
        }
    }
    filter.check()?;
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("inprog"), operations);
    Ok(ok(reply))
}

/// Ends the operation of a number that `currentOp` tells. One that is over is not missed.
pub(super) fn kill_op(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    let Some(value) = call.get("op") else {
        return Err(CommandError::new(
            Code::MissingField,
            "BSON field 'killOp.op' is missing but a required field",
        ));
    };
    let Some(id) = whole_number(value).and_then(|id| i32::try_from(id).ok()) else {
        return Err(call.wrong_type("op", value, "the `opid` of an operation"));
    };
    shared.operations.kill(id);
    Ok(ok(rawdoc! { "info": "attempting to kill op" }))
}

/// Lists the collections. Their use is not measured, so there are no times and counts.
pub(super) fn top(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    let mut totals = rawdoc! { "note": "times and counts are not measured" };
    for info in shared.engine.collections() {
        totals.append(CString::try_from(namespace_of(&info.name))?, RawDocumentBuf::new());
    }
    Ok(ok(rawdoc! { "totals": totals }))
}

pub(super) fn admin_only(call: &Call<'_>) -> Result<()> {
    match call.database {
        "admin" => Ok(()),
        _ => {
            let message = format!("{} may only be run against the admin database.", call.name);
            Err(CommandError::new(Code::Unauthorized, message))
        }
    }
}

/// Waits until everything that was written before is on the disk.
pub(super) fn fsync(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    call.allow(&["lock", "fsyncLockAcquisitionTimeoutMillis"])?;
    call.refuse("lock")?;
    // the log of a partition is in one order: a durable record at its end makes all before it durable. Without a collection
    // there are no documents
    if let Some(info) = shared.engine.collections().into_iter().next() {
        let command = Command::Expire { collection: info.name };
        shared.engine.write_documents(command, Some(Durability::Fsync))?;
    }
    Ok(ok(rawdoc! { "numFiles": 1 }))
}

/// Tells and sets the level of the profiler.
pub(super) fn profile(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    shared.profiler.configure(call).map(ok)
}

pub(super) fn get_default_rw_concern(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    call.allow(&["inMemory"])?;
    Ok(ok(rawdoc! {
        "defaultReadConcern": { "level": "local" },
        "defaultWriteConcern": { "w": "majority", "wtimeout": 0 },
        "defaultWriteConcernSource": "implicit",
        "defaultReadConcernSource": "implicit",
    }))
}

/// Refuses every parameter: settings of the server are those of its app.
pub(super) fn set_parameter(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    let name = call.body().into_iter().nth(1).transpose()?.map_or("", |(name, _)| name.as_str());
    let message = format!("attempted to set unrecognized parameter [{name}], use help:true to see options");
    Err(CommandError::new(Code::InvalidOptions, message))
}

/// Says that the indexes are right: they are made anew at every start, and never apart from their documents.
pub(super) fn re_index(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let spec = shared.engine.collection_spec(&call.collection()?).map_err(|_| no_collection(call))?;
    let mut indexes = RawArrayBuf::new();
    indexes.push(super::index_spec::id_index(&spec));
    for index in &spec.indexes {
        indexes.push(super::index_spec::describe(index)?);
    }
    let count = spec.indexes.len() as i32 + 1;
    let mut reply = rawdoc! { "nIndexesWas": count, "nIndexes": count };
    reply.append(cstr!("indexes"), indexes);
    Ok(ok(reply))
}

/// Describes the one user, if there is a login and the command asks for it.
pub(super) fn users_info(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let is_user = |name: &str, database: &str| name == USER && database == "admin";
    let asked = match call.get(call.name) {
        Some(RawBsonRef::String(name)) => is_user(name, call.database),
        Some(RawBsonRef::Document(one)) if one.get("user")?.is_some() => {
            let text =
                |field: &str| one.get(field).ok().flatten().and_then(|v| v.as_str()).unwrap_or_default();
            is_user(text("user"), text("db"))
        }
        Some(RawBsonRef::Array(several)) => {
            let mut found = false;
            for one in several {
                found |= match one? {
                    RawBsonRef::String(name) => is_user(name, call.database),
                    RawBsonRef::Document(one) => {
                        one.get("user")?.and_then(|user| user.as_str()) == Some(USER)
                            && one.get("db")?.and_then(|db| db.as_str()) == Some("admin")
                    }
                    _ => false,
                };
            }
            found
        }
        // all of the database, or of every database
        Some(RawBsonRef::Document(_)) => true,
        _ => call.database == "admin",
    };
    let mut users = RawArrayBuf::new();
    if let Some(user) = user(shared).filter(|_| asked) {
        users.push(user);
    }
    Ok(ok(rawdoc! { "users": users }))
}

/// Describes the one user, if there is a login.
pub(super) fn user(shared: &Shared) -> Option<RawDocumentBuf> {
    shared.credentials.as_ref().map(|_| {
        rawdoc! {
            "_id": format!("admin.{USER}"),
            "user": USER,
            "db": "admin",
            "roles": [{ "role": "root", "db": "admin" }],
            "mechanisms": [MECHANISM],
        }
    })
}

/// Describes the one role.
pub(super) fn roles_info(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let asked = match call.get(call.name) {
        Some(RawBsonRef::String(name)) => name == "root" && call.database == "admin",
        Some(RawBsonRef::Document(one)) => one.get("role")?.and_then(|role| role.as_str()) == Some("root"),
        _ => call.database == "admin" && call.flag("showBuiltinRoles", false)?,
    };
    let mut roles = RawArrayBuf::new();
    if asked {
        roles.push(rawdoc! {
            "_id": "admin.root", "role": "root", "db": "admin", "isBuiltin": true, "roles": [], "inheritedRoles": [],
        });
    }
    Ok(ok(rawdoc! { "roles": roles }))
}

/// Refuses to change users and roles: there is one user, whose password is the token of the data directory.
pub(super) fn change_users(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let message = format!(
        "`{}`: there is one user, `{USER}`, with all rights; its password is the token of the data directory",
        call.name
    );
    Err(CommandError::new(Code::NotImplemented, message))
}
