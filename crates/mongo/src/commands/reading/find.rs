//! `find`, `getMore`, `killCursors`.

use std::time::Duration;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, cstr};
use tidemill_docs::{
    Collation, Direction, DocBytes, Expression, Filter, FindOptions, Projection, SortOrder, Variables,
};
use tidemill_types::{ErrorKind, Value};

use crate::commands::{collation, reading::order, reading::return_key};
use crate::cursors::Unread;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::scripts;
use crate::session::Session;
use crate::shared::{MongoServerState, Shared};
use crate::tail::TailPosition;
use crate::wire::reply::{first_batch, first_query_batch, first_tailable_batch, next_batch, ok};

/// Time for which a `getMore` without `maxTimeMS` waits for new documents.
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);
/// Maximum time for which a `getMore` waits.
const AWAIT_MAX: Duration = Duration::from_secs(600);

const FIELDS: [&str; 22] = [
    "filter",
    "sort",
    "projection",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "max",
    "min",
    "returnKey",
    "showRecordId",
    "tailable",
    "oplogReplay",
    "noCursorTimeout",
    "awaitData",
    "allowPartialResults",
    "collation",
    "allowDiskUse",
    "let",
    "term",
    "runtimeConstants",
];

pub(in crate::commands) fn find(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&FIELDS)?;
    let returns_keys = call.flag("returnKey", false)?;
    // a key has no number of its record
    if !returns_keys {
        call.refuse("showRecordId")?;
    }
    let collection = call.collection()?;
    let filter = call.document("filter")?.unwrap_or_else(|| empty());
    let variables = variables(shared, call)?;
    let parsed = Filter::parse_with(filter, &variables)?.with_source(filter, variables.collation.as_ref());
    let projection = match call.document("projection")?.filter(|projection| !projection.is_empty()) {
        Some(projection) => Some(Projection::parse_for(projection, &parsed, &variables)?),
        None => None,
    };
    let mut order = order::of(shared, call, &collection, variables.collation.as_ref())?;
    if parsed.sorts_by_distance() {
        if order.natural.is_some() {
            let message = "$near and $nearSphere sort by distance: they do not go with $natural";
            return Err(CommandError::new(Code::BadValue, message));
        }
        if call.document("sort")?.is_none_or(|sort| sort.is_empty()) {
            // the order of the index of a hint is not that of the query
            order.sort = SortOrder::default();
        }
    }
    let mut options = FindOptions {
        sort: order.sort.clone(),
        projection,
        skip: call.count("skip")?.unwrap_or(0),
        limit: call.count("limit")?.filter(|limit| *limit > 0),
        bounds: order.bounds.clone(),
        natural: order.natural,
    };
    if call.flag("tailable", false)? {
        return tailable(shared, call, collection, parsed, options);
    }
    if call.flag("awaitData", false)? {
        let message = "Cannot set 'awaitData' without also setting 'tailable'";
        return Err(CommandError::new(Code::FailedToParse, message));
    }
    // each batch computes the fields of its own documents
    let projection = options.projection.take();
    let mut found = find_parsed(shared, &collection, &parsed, &options)?;
    if returns_keys {
        found = return_key::keys(shared, &collection, &parsed, &options, found)?;
    }
    let found = Unread::new(found, projection.filter(|_| !returns_keys));
    let batch_size = call.count("batchSize")?;
    match call.flag("singleBatch", false)? {
        true => first_batch(&shared.cursors, call.namespace(), found, batch_size, true),
        false => first_query_batch(&shared.cursors, call.namespace(), found, batch_size, options.limit),
    }
}

/// Fields with which a query by `_id` is more than a lookup.
const NOT_BY_ID: [&str; 10] = [
    "projection",
    "returnKey",
    "skip",
    "hint",
    "batchSize",
    "collation",
    "tailable",
    "awaitData",
    "min",
    "max",
];
/// Fields with which a query by `_id` may take time, or belongs to a moment or a transaction.
const NOT_QUICK: [&str; 6] =
    ["let", "maxTimeMS", "readConcern", "txnNumber", "autocommit", "startTransaction"];

/// Returns whether a query is a lookup of one document, which takes neither time nor memory.
pub(in crate::commands) fn is_quick(call: &Call<'_>) -> bool {
    call.document("filter").ok().flatten().is_some_and(is_by_id)
        && !NOT_BY_ID.iter().chain(&NOT_QUICK).any(|field| call.get(field).is_some())
}

/// Answers a query for one document by its `_id`, which needs neither a filter nor a plan; `None` for another query, and if there is no
/// such document.
pub(in crate::commands) fn find_by_id(shared: &Shared, call: &Call<'_>) -> Result<Option<RawDocumentBuf>> {
    let Some(RawBsonRef::Document(filter)) = call.get("filter") else { return Ok(None) };
    if !is_by_id(filter) || NOT_BY_ID.iter().any(|field| call.get(field).is_some()) {
        return Ok(None);
    }
    let Some(id) = filter.get("_id")?.filter(|id| !matches!(id, RawBsonRef::Array(_) | RawBsonRef::Null))
    else {
        return Ok(None);
    };
    call.allow(&FIELDS)?;
    let Some(found) = shared.engine.find_one(&call.collection()?, &Value::from_bson(id))? else {
        return Ok(None);
    };
    Ok(Some(first_batch(&shared.cursors, call.namespace(), vec![found], None, true)?))
}

/// Returns the variables of a command's expressions: those of `let`, the present time, and the collation.
pub(in crate::commands) fn variables(shared: &Shared, call: &Call<'_>) -> Result<Variables> {
    let now = bson::DateTime::from_millis(shared.whole_engine.now().0.div_euclid(1000));
    let collation = collation::of(shared, call)?;
    let mut variables =
        Variables { now: Some(now), values: Vec::new(), collation, scripts: Some(scripts::engine()) };
    if let Some(bound) = call.document("let")? {
        for variable in bound {
            let (name, value) = variable?;
            let value = match is_random(value)? {
                true => Some(Bson::Double(rand::random())),
                false => Expression::parse_with(value, &variables)?.eval(empty())?,
            };
            variables.values.push((name.as_str().to_owned(), value));
        }
    }
    Ok(variables)
}

/// Reads the filter of a read, which may have a `$where`.
pub(in crate::commands) fn read_filter(
    filter: &RawDocument,
    collation: Option<&Collation>,
) -> Result<Filter> {
    let variables =
        Variables { collation: collation.cloned(), scripts: Some(scripts::engine()), ..Variables::default() };
    Ok(Filter::parse_with(filter, &variables)?.with_source(filter, collation))
}

/// Returns whether the value of a variable is `{$rand: {}}`, which has one value for the whole command. Other expressions cannot be random,
/// as a write must do the same again when the log is read.
fn is_random(value: RawBsonRef<'_>) -> Result<bool> {
    let RawBsonRef::Document(expression) = value else { return Ok(false) };
    let arguments = expression.get("$rand")?;
    Ok(arguments.is_some_and(|arguments| match arguments {
        RawBsonRef::Document(arguments) => arguments.is_empty(),
        RawBsonRef::Array(arguments) => arguments.is_empty(),
        _ => false,
    }))
}

/// Returns the documents that match; none if the collection does not exist.
pub(in crate::commands) fn find_parsed(
    shared: &Shared,
    collection: &str,
    filter: &Filter,
    options: &FindOptions,
) -> Result<Vec<DocBytes>> {
    match shared.engine.find_parsed(collection, filter, options) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        found => Ok(found?),
    }
}

/// Opens a cursor that continues with documents inserted later.
fn tailable(
    shared: &Shared,
    call: &Call<'_>,
    collection: String,
    filter: Filter,
    options: FindOptions,
) -> Result<RawDocumentBuf> {
    if !options.sort.is_empty() || options.natural == Some(Direction::Descending) {
        let message =
            "a tailable cursor returns documents as they were inserted: expected no sort but {$natural: 1}";
        return Err(CommandError::new(Code::BadValue, message));
    }
    // a part of the documents that are there; it does not go on
    if options.skip > 0 || options.limit.is_some() || call.flag("singleBatch", false)? {
        let found = find_parsed(shared, &collection, &filter, &options)?;
        return first_batch(&shared.cursors, call.namespace(), found, call.count("batchSize")?, true);
    }
    let waits = call.flag("awaitData", false)?;
    let (documents, tail) =
        TailPosition::begin(&shared.engine, collection, filter, options.projection, waits)?;
    first_tailable_batch(&shared.cursors, call.namespace(), documents, tail, call.count("batchSize")?)
}

/// Returns the documents that match; none if the collection does not exist.
pub(in crate::commands) fn find_documents(
    shared: &Shared,
    collection: &str,
    filter: &RawDocument,
    options: &FindOptions,
) -> Result<Vec<DocBytes>> {
    find_parsed(shared, collection, &Filter::parse(filter)?.with_source(filter, None), options)
}

/// Returns whether a filter asks for one document by its `_id`.
pub(in crate::commands) fn is_by_id(filter: &RawDocument) -> bool {
    let mut elements = filter.into_iter();
    let by_id = elements.next().is_some_and(|element| {
        element.is_ok_and(|(name, value)| {
            name.as_str() == "_id"
                && !matches!(value, RawBsonRef::Document(_) | RawBsonRef::RegularExpression(_))
        })
    });
    by_id && elements.next().is_none()
}

pub(in crate::commands) fn projection(call: &Call<'_>, field: &str) -> Result<Option<Projection>> {
    Ok(call.document(field)?.filter(|p| !p.is_empty()).map(Projection::parse).transpose()?)
}

/// Returns a document without fields.
pub(in crate::commands) fn empty() -> &'static RawDocument {
    RawDocument::from_bytes(&[5, 0, 0, 0, 0]).unwrap_or_else(|_| unreachable!("a document without fields"))
}

pub(in crate::commands) fn get_more(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["collection", "batchSize", "term", "lastKnownCommittedOpTime"])?;
    let Some(RawBsonRef::Int64(id)) = call.get(call.name) else {
        return Err(CommandError::new(
            Code::TypeMismatch,
            "`getMore` expects the number of a cursor, a long",
        ));
    };
    let Some(collection) = call.text("collection")? else {
        return Err(CommandError::new(
            Code::MissingField,
            "BSON field 'getMore.collection' is missing but a required field",
        ));
    };
    let namespace = format!("{}.{collection}", call.database);
    next_batch(shared, id, &namespace, call.count("batchSize")?)
}

/// Returns the cursor that a `getMore` reads if it is one that waits for something new, and how long it waits.
pub(crate) fn awaited_cursor(shared: &MongoServerState, call: &Call<'_>) -> Option<(i64, Duration)> {
    if call.name != "getMore" {
        return None;
    }
    let id = call.get("getMore")?.as_i64()?;
    shared.cursors.awaits_more(id)?;
    let wait = call.count("maxTimeMS").ok()?.map_or(AWAIT_DEFAULT, Duration::from_millis);
    Some((id, wait.min(AWAIT_MAX)))
}

pub(in crate::commands) fn kill_cursors(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["cursors"])?;
    let Some(RawBsonRef::Array(cursors)) = call.get("cursors") else {
        return Err(CommandError::new(
            Code::MissingField,
            "BSON field 'killCursors.cursors' is missing but a required field",
        ));
    };
    let (mut killed, mut missing) = (RawArrayBuf::new(), RawArrayBuf::new());
    for id in cursors {
        let RawBsonRef::Int64(id) = id? else {
            return Err(CommandError::new(
                Code::TypeMismatch,
                "`killCursors.cursors` expects numbers of cursors, longs",
            ));
        };
        if shared.cursors.close(id) { killed.push(id) } else { missing.push(id) }
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursorsKilled"), killed);
    reply.append(cstr!("cursorsNotFound"), missing);
    reply.append(cstr!("cursorsAlive"), RawArrayBuf::new());
    reply.append(cstr!("cursorsUnknown"), RawArrayBuf::new());
    Ok(ok(reply))
}
