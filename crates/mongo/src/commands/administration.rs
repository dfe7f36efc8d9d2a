//! Commands for administrators of a server that needs no tuning.

use bson::raw::{CString, RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{cstr, rawdoc};
use tidemill_access::{Grant, Principal, Role};
use tidemill_docs::{DocumentCommand, Filter};
use tidemill_log::Durability;

use super::catalog::collections::no_collection;
use crate::auth::{Credentials, MECHANISM};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::namespace::namespace_of;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

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

/// Lists the operations in progress, this one with them: those of all clients for an administrator, their own for others.
pub(super) fn current_op(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
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
    for operation in shared.operations.running().iter().filter(|one| session.manages(one.caller())) {
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
pub(super) fn kill_op(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
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
    if let Some(principal) = &session.principal {
        shared.operations.kill(id, principal);
    }
    Ok(ok(rawdoc! { "info": "attempting to kill op" }))
}

/// Lists the collections. Their use is not measured, so there are no times and counts.
pub(super) fn top(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    admin_only(call)?;
    let mut totals = rawdoc! { "note": "times and counts are not measured" };
    for name in shared.engine.collection_names()? {
        totals.append(CString::try_from(namespace_of(&name))?, RawDocumentBuf::new());
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
    if let Some(collection) = shared.engine.collection_names()?.into_iter().next() {
        let command = DocumentCommand::Expire { collection };
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
    indexes.push(super::index::index_spec::id_index(&spec));
    for index in &spec.indexes {
        indexes.push(super::index::index_spec::describe(index)?);
    }
    let count = spec.indexes.len() as i32 + 1;
    let mut reply = rawdoc! { "nIndexesWas": count, "nIndexes": count };
    reply.append(cstr!("indexes"), indexes);
    Ok(ok(reply))
}

/// Describes the users for which the command asks, of those that the client manages: all for an administrator, itself for others.
pub(super) fn users_info(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut users = RawArrayBuf::new();
    let known = shared.credentials.as_ref().map(Credentials::users).unwrap_or_default();
    for name in known.iter().filter(|name| session.manages(name)) {
        if asks_for(call, name)?
            && let Some(user) = user(shared, name)
        {
            users.push(user);
        }
    }
    Ok(ok(rawdoc! { "users": users }))
}

/// Returns whether `usersInfo` asks for a user. All users are in the database `admin`.
fn asks_for(call: &Call<'_>, user: &str) -> Result<bool> {
    let is_user = |name: &str, database: &str| name == user && database == "admin";
    Ok(match call.get(call.name) {
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
                        one.get("user")?.and_then(|name| name.as_str()) == Some(user)
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
    })
}

/// Describes a user, if there is a login.
pub(super) fn user(shared: &Shared, name: &str) -> Option<RawDocumentBuf> {
    let principal = shared.credentials.as_ref()?.principal(name)?;
    let mut described = rawdoc! { "_id": format!("admin.{name}"), "user": name, "db": "admin" };
    described.append(cstr!("roles"), roles_of(&principal));
    described.append(cstr!("mechanisms"), rawdoc_array(MECHANISM));
    Some(described)
}

fn rawdoc_array(text: &str) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    array.push(text);
    array
}

/// Returns the rights of a client on collections as MongoDB names them: `read` and `readWrite` on a database,
/// `readAnyDatabase` and `readWriteAnyDatabase`, and `root` for an administrator. A role is shown for a grant on some
/// collections of the database, too.
pub(super) fn roles_of(principal: &Principal) -> RawArrayBuf {
    let mut roles: Vec<(&str, &str)> = principal.grants().iter().filter_map(role_of).collect();
    roles.sort_unstable();
    roles.dedup();
    let mut array = RawArrayBuf::new();
    for (role, database) in roles {
        array.push(rawdoc! { "role": role, "db": database });
    }
    array
}

fn role_of(grant: &Grant) -> Option<(&'static str, &str)> {
    let of_all = |role: Role| match role {
        Role::Read => ("readAnyDatabase", "admin"),
        _ => ("readWriteAnyDatabase", "admin"),
    };
    if grant.pattern.is_everything() {
        return Some(if grant.role == Role::Admin { ("root", "admin") } else { of_all(grant.role) });
    }
    let (_, name) = grant.pattern.kind_and_name().filter(|(kind, _)| *kind == "collection")?;
    let database = name.split('.').next().unwrap_or(name);
    Some(match (database.contains('*'), grant.role) {
        (true, role) => of_all(role),
        (false, Role::Read) => ("read", database),
        (false, _) => ("readWrite", database),
    })
}

/// Describes the role of administrators.
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

/// Refuses to change users and roles: the command line does so.
pub(super) fn change_users(_: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let message = format!(
        "`{}`: users and their rights are changed by `tidemill users` on the machine of the server",
        call.name
    );
    Err(CommandError::new(Code::NotImplemented, message))
}
