//! Views: reads run the pipeline of the view on its collection, followed by their own stages.

use bson::cstr;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{BsonDocument, Collation, DocBytes, ViewSpec};

use crate::commands::reading::distinct;
use crate::cursors::CursorSource;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::namespace::split_stored_name;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::frame::Request;
use crate::wire::reply::ok;

/// Maximum views that read one another.
const DEPTH_MAX: usize = 20;

/// Commands that need a collection with documents.
const REFUSED: &[&str] = &[
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "createIndexes",
    "dropIndexes",
    "listIndexes",
    "collStats",
    "convertToCapped",
    "reIndex",
    "validate",
];

/// Runs a command that names a view; `None` if it names a collection, or is one that treats views like collections.
pub(in crate::commands) fn run(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Option<Result<RawDocumentBuf>> {
    let reads = matches!(call.name, "find" | "aggregate" | "count" | "distinct");
    let refused = REFUSED.contains(&call.name);
    if !reads && !refused || !matches!(call.get(call.name), Some(RawBsonRef::String(_))) {
        return None;
    }
    let view = match shared.engine.view(&call.collection().ok()?) {
        Ok(view) => view?,
        Err(e) => return Some(Err(e.into())),
    };
    if refused {
        let message = format!("Namespace {} is a view, not a collection", call.namespace());
        return Some(Err(CommandError::new(Code::CommandNotSupportedOnView, message)));
    }
    Some(read(shared, session, call, view))
}

/// Returns the collection that a view reads in the end, and the stages of all views on the way.
///
/// Errors: views that read one another without end.
fn resolve(shared: &Shared, view: ViewSpec) -> Result<(String, Vec<BsonDocument>)> {
    let ViewSpec { mut on, mut pipeline } = view;
    for _ in 0..DEPTH_MAX {
        let Some(inner) = shared.engine.view(&on)? else { return Ok((on, pipeline)) };
        pipeline = [inner.pipeline, pipeline].concat();
        on = inner.on;
    }
    let message = format!("views read one another more than {DEPTH_MAX} times");
    Err(CommandError { code: 165, message })
}

fn read(shared: &Shared, session: &mut Session, call: &Call<'_>, view: ViewSpec) -> Result<RawDocumentBuf> {
    let own = shared.engine.collation(&call.collection()?)?;
    if let Some(given) = call.document("collation")?.filter(|given| !given.is_empty())
        && Collation::parse(given)? != own
    {
        return Err(CommandError::new(
            Code::OptionNotSupportedOnView,
            format!("Cannot override the default collation of the view {}", call.namespace()),
        ));
    }
    let (on, pipeline) = resolve(shared, view)?;
    let mut stages = RawArrayBuf::new();
    pipeline.iter().for_each(|stage| stages.push(stage.as_raw()));
    let collection = RawBsonRef::String(split_stored_name(&on).1);
    read_stages(shared, session, call, collection, stages, own.as_ref())
}

/// Runs the command on what these stages make of the documents of a collection, which is 1 if they make them themselves.
pub(in crate::commands) fn read_stages(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
    collection: RawBsonRef<'_>,
    mut stages: RawArrayBuf,
    own: Option<&Collation>,
) -> Result<RawDocumentBuf> {
    append_stages(call, &mut stages)?;
    let returns_cursor = matches!(call.name, "find" | "aggregate");
    let cursor = match returns_cursor {
        true => cursor_options(call)?,
        // all of them at once
        false => bson::rawdoc! { "batchSize": i32::MAX },
    };
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("aggregate"), collection);
    body.append(cstr!("pipeline"), stages);
    body.append(cstr!("cursor"), cursor);
    match own {
        Some(own) => body.append(cstr!("collation"), own.document()),
        None => body.append(cstr!("collation"), bson::rawdoc! { "locale": "simple" }),
    }
    for name in [cstr!("let"), cstr!("maxTimeMS"), cstr!("explain"), cstr!("readConcern")] {
        if let Some(value) = call.get(name.as_str()) {
            body.append(name, value);
        }
    }
    body.append(cstr!("$db"), call.database);
    let request = Request::inner(body);
    let inner = Call::of(&request)?.with_namespace(call.namespace());
    let reply = crate::commands::answer(shared, session, &inner)?;
    match call.name {
        "count" => counted(shared, call, &reply),
        "distinct" => distinct::reply(&all_documents(shared, call, &reply)?, call, own),
        _ => Ok(reply),
    }
}

/// Appends what the command does with the documents of the view.
fn append_stages(call: &Call<'_>, stages: &mut RawArrayBuf) -> Result<()> {
    if call.name == "aggregate" {
        let Some(RawBsonRef::Array(given)) = call.get("pipeline") else {
            return Err(CommandError::new(
                Code::TypeMismatch,
                "'pipeline' option must be specified as an array",
            ));
        };
        for stage in given {
            stages.push(stage?);
        }
        return Ok(());
    }
    for field in ["tailable", "awaitData", "min", "max"] {
        call.refuse(field)?;
    }
    let filter = if call.name == "find" { "filter" } else { "query" };
    let mut push = |name: &bson::raw::CStr, value: RawBsonRef<'_>| {
        let mut stage = RawDocumentBuf::new();
        stage.append(name, value);
        stages.push(stage);
    };
    if let Some(filter) = call.document(filter)?.filter(|filter| !filter.is_empty()) {
        push(cstr!("$match"), RawBsonRef::Document(filter));
    }
    if let Some(sort) = call.document("sort")?.filter(|sort| !sort.is_empty()) {
        push(cstr!("$sort"), RawBsonRef::Document(sort));
    }
    for (name, field) in [(cstr!("$skip"), "skip"), (cstr!("$limit"), "limit")] {
        if let Some(count) = call.count(field)?.filter(|count| *count > 0) {
            push(name, RawBsonRef::Int64(i64::try_from(count).unwrap_or(i64::MAX)));
        }
    }
    if let Some(projection) = call.document("projection")?.filter(|projection| !projection.is_empty()) {
        push(cstr!("$project"), RawBsonRef::Document(projection));
    }
    if call.name == "count" {
        push(cstr!("$count"), RawBsonRef::String("n"));
    }
    Ok(())
}

fn cursor_options(call: &Call<'_>) -> Result<RawDocumentBuf> {
    if call.name == "aggregate" {
        return Ok(call.document("cursor")?.map(RawDocument::to_owned).unwrap_or_default());
    }
    let mut cursor = RawDocumentBuf::new();
    if let Some(size) = call.count("batchSize")? {
        cursor.append(cstr!("batchSize"), i64::try_from(size).unwrap_or(i64::MAX));
    }
    Ok(cursor)
}

fn counted(shared: &Shared, call: &Call<'_>, reply: &RawDocument) -> Result<RawDocumentBuf> {
    let documents = all_documents(shared, call, reply)?;
    let counted = documents.first().map(|one| RawDocument::from_bytes(one)).transpose()?;
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("n"), counted.and_then(|one| one.get_i32("n").ok()).unwrap_or(0));
    Ok(ok(reply))
}

/// Returns all documents of a cursor, and closes it.
fn all_documents(shared: &Shared, call: &Call<'_>, reply: &RawDocument) -> Result<Vec<DocBytes>> {
    let cursor = reply.get_document("cursor")?;
    let mut documents = Vec::new();
    for document in cursor.get_array("firstBatch")? {
        if let RawBsonRef::Document(document) = document? {
            documents.push(DocBytes::copy_from_slice(document.as_bytes()));
        }
    }
    let id = cursor.get_i64("id")?;
    if id != 0
        && let CursorSource::Documents(others) = shared.cursors.take(id, &call.namespace())?.source
    {
        documents.extend(others.into_documents()?);
    }
    Ok(documents)
}
