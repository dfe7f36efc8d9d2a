//! Rights that commands need, found out from the command alone, before it looks for what it names: the answer does not say
//! whether that exists.
//!
//! `{ aggregate: "orders", pipeline: [{ $lookup: { from: "items", … } }, { $out: "joined" }] }` on the database `shop` needs
//! `read` on `collection:shop.orders` and `collection:shop.items`, and `write` on `collection:shop.joined`. A view needs the right
//! on its own name when it is read, and the rights on what it reads when it is made.

use bson::RawDocument;
use bson::raw::RawBsonRef;
use tidemill_access::{Action, Principal, Resource};

use super::{Access, command_of};
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::need::Need;
use crate::shared::MongoServerState;
use crate::wire::frame::Request;

/// Stages that show the state of the server.
const SERVER_STAGES: [&str; 3] = ["$currentOp", "$listLocalSessions", "$listSessions"];

/// Refuses a command of a client that lacks a right.
///
/// Errors: `Unauthorized` with the right that is missing, and the command that grants it.
pub(super) fn check(server: &MongoServerState, principal: &Principal, call: &Call<'_>) -> Result<()> {
    check_cursors(server, principal, call)?;
    if principal.can_everywhere(Action::Administer) {
        return Ok(());
    }
    let mut needs = needs(call)?;
    // the rights of the client may have changed since it has opened the cursor
    if let ("getMore", Some(RawBsonRef::Int64(id))) = (call.name, call.get(call.name)) {
        needs.extend(server.cursors.needs(id).iter().cloned());
    }
    for (action, resource) in needs {
        if !principal.can(action, &resource) {
            let target =
                call.get(call.name).and_then(|value| value.as_str()).map(|name| format!("\"{name}\""));
            let message = format!(
                "not authorized on {} to execute command {{ {}: {} }}: {}",
                call.database,
                call.name,
                target.unwrap_or_else(|| "…".to_owned()),
                principal.refusal(action, &resource)
            );
            return Err(CommandError::new(Code::Unauthorized, message));
        }
    }
    Ok(())
}

/// Refuses to read or close a cursor that another user has opened.
fn check_cursors(server: &MongoServerState, principal: &Principal, call: &Call<'_>) -> Result<()> {
    let check = |id: i64| match server.cursors.is_owned_by(id, principal.name()) {
        true => Ok(()),
        false => {
            let message = format!("cursor id {id} was not created by the authenticated user");
            Err(CommandError::new(Code::Unauthorized, message))
        }
    };
    match (call.name, call.get("getMore"), call.get("cursors")) {
        ("getMore", Some(RawBsonRef::Int64(id)), _) => check(id),
        ("killCursors", _, Some(RawBsonRef::Array(ids))) => {
            for id in ids {
                id?.as_i64().map_or(Ok(()), check)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the rights that a command needs.
pub(super) fn needs(call: &Call<'_>) -> Result<Vec<Need>> {
    let mut needs = match command_of(call)?.access {
        Access::Anyone | Access::Authenticated => vec![],
        Access::Read => vec![(Action::Read, collection(call, call.name))],
        Access::Write => vec![(Action::Write, collection(call, call.name))],
        Access::ReadDatabase => vec![(Action::Read, Resource::database(call.database))],
        Access::WriteDatabase => vec![(Action::Write, Resource::database(call.database))],
        Access::ReadServer => vec![(Action::Read, Resource::SERVER)],
        Access::Administer => vec![(Action::Administer, Resource::SERVER)],
        Access::Special => special(call)?,
    };
    // pipelines of queries, of views, and of updates, which have none of these stages
    for field in ["pipeline", "viewOn"] {
        match call.get(field) {
            Some(RawBsonRef::String(on)) => needs.push((Action::Read, named(call.database, on))),
            Some(pipeline) => of_stages(pipeline, call.database, &mut needs)?,
            None => {}
        }
    }
    Ok(needs)
}

/// Returns the rights of commands that name their collections in a way of their own.
fn special(call: &Call<'_>) -> Result<Vec<Need>> {
    let both = |field: &str| (Action::Write, full_name(call.get(field)));
    Ok(match call.name {
        "aggregate" => match call.get(call.name) {
            Some(RawBsonRef::String(_)) => vec![(Action::Read, collection(call, call.name))],
            _ => of_database(call)?,
        },
        "explain" => match call.document(call.name)? {
            Some(command) => {
                let mut body = command.to_owned();
                if command.get("$db")?.is_none() {
                    body.append(bson::cstr!("$db"), call.database);
                }
                let request = Request::inner(body);
                let inner = Call::of(&request)?;
                match inner.name {
                    // it refuses itself
                    "explain" => vec![],
                    _ => needs(&inner)?,
                }
            }
            None => vec![],
        },
        "bulkWrite" => {
            let mut needs = vec![];
            for info in call.documents("nsInfo")? {
                needs.push((Action::Write, full_name(RawDocument::from_bytes(&info)?.get("ns")?)));
            }
            needs
        }
        "renameCollection" => vec![both("renameCollection"), both("to")],
        "dataSize" | "datasize" => vec![(Action::Read, full_name(call.get(call.name)))],
        // and what the command needed that has opened the cursor
        "getMore" => match call.get("collection") {
            Some(RawBsonRef::String(name)) if !name.starts_with("$cmd.") => {
                vec![(Action::Read, named(call.database, name))]
            }
            _ => vec![],
        },
        // without ids, the sessions of all clients end
        "killSessions" => match call.get(call.name) {
            Some(RawBsonRef::Array(ids)) if !ids.is_empty() => vec![],
            _ => vec![(Action::Administer, Resource::SERVER)],
        },
        _ => vec![(Action::Administer, Resource::SERVER)],
    })
}

/// Returns the rights of a pipeline on no collection, by every field of its first stage; only a stage with one field is run.
fn of_database(call: &Call<'_>) -> Result<Vec<Need>> {
    let Some(RawBsonRef::Array(stages)) = call.get("pipeline") else { return Ok(vec![]) };
    let first = stages.into_iter().next().transpose()?;
    let Some(first) = first.and_then(|stage| stage.as_document()).filter(|stage| !stage.is_empty()) else {
        return Ok(vec![(Action::Read, Resource::SERVER)]);
    };
    let mut needs = vec![];
    for field in first {
        match field?.0.as_str() {
            "$documents" => {}
            // that of all databases needs more, as it does on a collection
            "$changeStream" if follows_everything(first)? => {}
            "$changeStream" => needs.push((Action::Read, Resource::database(call.database))),
            _ => needs.push((Action::Read, Resource::SERVER)),
        }
    }
    Ok(needs)
}

/// Returns whether a stage follows the changes of all databases.
fn follows_everything(stage: &RawDocument) -> Result<bool> {
    let Some(RawBsonRef::Document(options)) = stage.get("$changeStream")? else { return Ok(false) };
    Ok(options.get("allChangesForCluster")? == Some(RawBsonRef::Boolean(true)))
}

/// Adds what stages read and write beside the collection of their pipeline. A stage is found wherever it stands, also in what is
/// no pipeline, so that none is missed.
fn of_stages(value: RawBsonRef<'_>, database: &str, needs: &mut Vec<Need>) -> Result<()> {
    match value {
        RawBsonRef::Array(values) => {
            values.into_iter().try_for_each(|value| of_stages(value?, database, needs))
        }
        RawBsonRef::Document(document) => document.into_iter().try_for_each(|element| {
            let (name, value) = element?;
            if SERVER_STAGES.contains(&name.as_str()) {
                needs.push((Action::Read, Resource::SERVER));
            }
            match (name.as_str(), value) {
                ("$lookup" | "$graphLookup", RawBsonRef::Document(options)) => {
                    needs.extend(options.get("from")?.map(|from| (Action::Read, target(from, database))));
                }
                ("$unionWith", RawBsonRef::Document(options)) => {
                    needs.extend(options.get("coll")?.map(|from| (Action::Read, target(from, database))));
                }
                ("$unionWith", from) => needs.push((Action::Read, target(from, database))),
                ("$out", to) => needs.push((Action::Write, target(to, database))),
                ("$merge", RawBsonRef::Document(options)) => {
                    needs.extend(options.get("into")?.map(|to| (Action::Write, target(to, database))));
                }
                ("$merge", to) => needs.push((Action::Write, target(to, database))),
                ("$changeStream", _) if follows_everything(document)? => {
                    needs.push((Action::Read, Resource::namespace("*.*")));
                }
                _ => {}
            }
            of_stages(value, database, needs)
        }),
        _ => Ok(()),
    }
}

/// Returns the collection of a stage: its name, or a document with `db` and `coll`.
fn target(value: RawBsonRef<'_>, database: &str) -> Resource<'static> {
    let text = |document: &RawDocument, field: &str| {
        document.get(field).ok().flatten().and_then(|value| value.as_str()).map(str::to_owned)
    };
    match value {
        RawBsonRef::String(name) => named(database, name),
        RawBsonRef::Document(place) => {
            let database = text(place, "db").unwrap_or_else(|| database.to_owned());
            text(place, "coll").map_or_else(|| Resource::database(&database), |name| named(&database, &name))
        }
        // the command refuses it, which clients see that may read all of them
        _ => Resource::database(database),
    }
}

/// Returns the collection that a field of the command names.
fn collection(call: &Call<'_>, field: &str) -> Resource<'static> {
    match call.get(field) {
        Some(RawBsonRef::String(name)) => named(call.database, name),
        _ => Resource::database(call.database),
    }
}

/// Returns the collection of a database. Collections of the system say something about all of them.
fn named(database: &str, name: &str) -> Resource<'static> {
    match name.starts_with("system.") {
        true => Resource::database(database),
        false => Resource::namespace(format!("{database}.{name}")),
    }
}

/// Returns the collection of a full name, `database.collection`.
fn full_name(value: Option<RawBsonRef<'_>>) -> Resource<'static> {
    match value.and_then(|value| value.as_str()).and_then(|name| name.split_once('.')) {
        Some((database, name)) => named(database, name),
        None => Resource::namespace("*.*"),
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn needs_of(mut body: bson::RawDocumentBuf) -> Vec<String> {
        body.append(bson::cstr!("$db"), "shop");
        let request = Request::inner(body);
        let needs = needs(&Call::of(&request).unwrap()).unwrap();
        needs.into_iter().map(|(action, resource)| format!("{} {resource}", action.verb())).collect()
    }

    #[test]
    fn commands_need_rights_on_what_they_name() {
        for (body, expected) in [
            (rawdoc! { "find": "orders" }, &["read collection:shop.orders"][..]),
            (rawdoc! { "insert": "orders" }, &["write collection:shop.orders"]),
            (rawdoc! { "find": "system.views" }, &["read collection:shop.*"]),
            (rawdoc! { "find": 1 }, &["read collection:shop.*"]),
            (rawdoc! { "dropDatabase": 1 }, &["write collection:shop.*"]),
            (rawdoc! { "explain": { "count": "orders" } }, &["read collection:shop.orders"]),
            (rawdoc! { "explain": { "explain": { "count": "orders" } } }, &[]),
            (
                rawdoc! { "renameCollection": "a.b", "to": "c.d" },
                &["write collection:a.b", "write collection:c.d"],
            ),
            (
                rawdoc! { "renameCollection": "a", "to": "c.d" },
                &["write collection:*.*", "write collection:c.d"],
            ),
            (
                rawdoc! { "create": "v", "viewOn": "orders", "pipeline": [{ "$unionWith": "items" }] },
                &["write collection:shop.v", "read collection:shop.items", "read collection:shop.orders"],
            ),
            (rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "a.b" }], "ops": [] }, &["write collection:a.b"]),
            (rawdoc! { "getMore": 7_i64, "collection": "orders" }, &["read collection:shop.orders"]),
            (rawdoc! { "getMore": 7_i64, "collection": "$cmd.aggregate" }, &[]),
            (rawdoc! { "killSessions": [] }, &["administer server"]),
            (rawdoc! { "currentOp": 1 }, &[]),
            (rawdoc! { "fsync": 1 }, &["administer server"]),
            (rawdoc! { "hello": 1 }, &[]),
        ] {
            assert_eq!(needs_of(body.clone()), expected, "{body:?}");
        }
    }

    #[test]
    fn pipelines_need_rights_on_what_their_stages_name() {
        for (stage, expected) in [
            (
                rawdoc! { "$lookup": { "from": "b", "pipeline": [{ "$unionWith": { "coll": "c" } }] } },
                &["read b", "read c"][..],
            ),
            (rawdoc! { "$facet": { "x": [{ "$graphLookup": { "from": "b" } }] } }, &["read b"]),
            (rawdoc! { "$out": "b" }, &["write b"]),
            (rawdoc! { "$out": { "coll": "b" } }, &["write b"]),
            (rawdoc! { "$merge": { "into": "b" } }, &["write b"]),
            (rawdoc! { "$merge": "b" }, &["write b"]),
            (rawdoc! { "$unionWith": 7 }, &["read *"]),
            (rawdoc! { "$match": { "a": 1 } }, &[]),
            (rawdoc! { "$changeStream": {} }, &[]),
            (rawdoc! { "$changeStream": { "allChangesForCluster": true } }, &["read collection:*.*"]),
            (rawdoc! { "$lookup": { "pipeline": [{ "$currentOp": {} }] } }, &["read server"]),
            (rawdoc! { "$unionWith": { "pipeline": [{ "$listSessions": {} }] } }, &["read server"]),
            (rawdoc! { "$facet": { "x": [{ "$listLocalSessions": {} }] } }, &["read server"]),
        ] {
            let mut pipeline = bson::raw::RawArrayBuf::new();
            pipeline.push(stage.clone());
            let found = needs_of(rawdoc! { "aggregate": "a", "pipeline": pipeline });
            let found: Vec<String> = found.iter().map(|need| need.replace("collection:shop.", "")).collect();
            assert_eq!(found[0], "read a");
            assert_eq!(found[1..], *expected, "{stage:?}");
        }
        let other =
            rawdoc! { "aggregate": "a", "pipeline": [{ "$merge": { "into": { "db": "x", "coll": "y" } } }] };
        assert_eq!(needs_of(other)[1], "write collection:x.y");
    }

    #[test]
    fn pipelines_on_no_collection_need_rights_by_their_first_stage() {
        for (stage, expected) in [
            (rawdoc! { "$documents": [] }, &[][..]),
            (rawdoc! { "$changeStream": {} }, &["read collection:shop.*"]),
            (rawdoc! { "$changeStream": { "allChangesForCluster": true } }, &["read collection:*.*"]),
            (rawdoc! { "$currentOp": {} }, &["read server", "read server"]),
            (rawdoc! { "$documents": [], "$changeStream": {} }, &["read collection:shop.*"]),
            (
                rawdoc! { "$documents": [], "$changeStream": { "allChangesForCluster": true } },
                &["read collection:*.*"],
            ),
            (rawdoc! {}, &["read server"]),
        ] {
            let mut pipeline = bson::raw::RawArrayBuf::new();
            pipeline.push(stage.clone());
            assert_eq!(needs_of(rawdoc! { "aggregate": 1, "pipeline": pipeline }), expected, "{stage:?}");
        }
    }
}
