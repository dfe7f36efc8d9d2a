//! Collections `system.*`, which tools look at: they have what this server knows, and most of them nothing.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{cstr, rawdoc};

use crate::auth::Credentials;
use crate::commands::diagnostics::RELEASE;
use crate::commands::{administration, catalog::collections, catalog::views};
use crate::error::Result;
use crate::fields::Call;
use crate::namespace::split_stored_name;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

/// Runs a command that reads a collection `system.*`; `None` for others.
pub(in crate::commands) fn run(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Option<Result<RawDocumentBuf>> {
    if call.name == "drop" && call.get("drop") == Some(RawBsonRef::String("system.profile")) {
        return Some(shared.profiler.clear(call.database).map(|()| ok(RawDocumentBuf::new())));
    }
    if !matches!(call.name, "find" | "aggregate" | "count" | "distinct") {
        return None;
    }
    let Some(RawBsonRef::String(name)) = call.get(call.name) else { return None };
    name.starts_with("system.").then(|| read(shared, session, call, name))
}

fn read(shared: &Shared, session: &mut Session, call: &Call<'_>, name: &str) -> Result<RawDocumentBuf> {
    let mut documents = RawArrayBuf::new();
    for document in documents_of(shared, session, call.database, name)? {
        documents.push(rawdoc! { "$literal": document });
    }
    let mut stages = RawArrayBuf::new();
    stages.push(rawdoc! { "$documents": documents });
    views::read_stages(shared, session, call, RawBsonRef::Int32(1), stages, None)
}

/// Returns the documents of a collection `system.*`. Of the users, a client sees those that `usersInfo` shows it.
fn documents_of(
    shared: &Shared,
    session: &Session,
    database: &str,
    name: &str,
) -> Result<Vec<RawDocumentBuf>> {
    match (database, name) {
        ("admin", "system.users") => {
            let names = shared.credentials.as_ref().map(Credentials::users).unwrap_or_default();
            let shown = names.iter().filter(|name| session.manages(name));
            Ok(shown.filter_map(|name| administration::user(shared, name)).collect())
        }
        ("admin", "system.version") => Ok(vec![
            rawdoc! { "_id": "featureCompatibilityVersion", "version": RELEASE },
            rawdoc! { "_id": "authSchema", "currentVersion": 5 },
        ]),
        (_, "system.profile") => Ok(shared.profiler.notes(database)),
        (_, "system.views") => {
            let mut views = Vec::new();
            for info in collections::of_database(shared, database)? {
                let Some(view) = shared.engine.view(&info.name)? else { continue };
                let on = split_stored_name(&view.on).1;
                let namespace = format!("{database}.{}", split_stored_name(&info.name).1);
                let mut pipeline = RawArrayBuf::new();
                view.pipeline.iter().for_each(|stage| pipeline.push(stage.as_raw()));
                let mut one = rawdoc! { "_id": namespace, "viewOn": on };
                one.append(cstr!("pipeline"), pipeline);
                views.push(one);
            }
            Ok(views)
        }
        _ => Ok(Vec::new()),
    }
}
