//! Collections and databases: create, drop, list, sizes.

use std::collections::BTreeMap;

use bson::cstr;
use bson::raw::RawDocumentBuf;
use tidemill_docs::{BsonDocument, CollectionSpec, DocBytes, DocumentCommand, Filter};
use tidemill_engine::CollectionInfo;
use tidemill_types::ErrorKind;

use crate::commands::{catalog::collection_options, writing::write};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::namespace::{
    DEFAULT_DATABASE, SYSTEM_DATABASES, check_database, database_prefix, split_stored_name,
};
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::{first_batch, ok};

pub(in crate::commands) fn create(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    const REFUSED: [&str; 3] = ["timeseries", "expireAfterSeconds", "encryptedFields"];
    const OPTIONS: [&str; 14] = [
        "changeStreamPreAndPostImages",
        "capped",
        "size",
        "max",
        "validator",
        "validationLevel",
        "validationAction",
        "viewOn",
        "pipeline",
        "collation",
        "clusteredIndex",
        // have no effect here
        "autoIndexId",
        "idIndex",
        "indexOptionDefaults",
    ];
    call.allow(&[REFUSED.as_slice(), &OPTIONS, &["storageEngine"]].concat())?;
    for option in REFUSED {
        call.refuse(option)?;
    }
    call.refuse("storageEngine")?;
    let change_images = collection_options::change_images(call)?.unwrap_or(false);
    let options = collection_options::parse(call)?;
    let collection = call.collection()?;
    if let Ok(old) = shared.engine.collection_spec(&collection) {
        // as MongoDB: creating a collection that exists with the same options succeeds
        if call.get("txnNumber").is_none() && old.options == options && old.change_images == change_images {
            return Ok(ok(RawDocumentBuf::new()));
        }
        let message = format!("Collection {} already exists with other options.", call.namespace());
        return Err(CommandError::new(Code::NamespaceExists, message));
    }
    if let Some(view) = &options.view
        && shared.engine.view(&view.on)?.is_some()
    {
        let read =
            shared.engine.collation(&view.on)?.map(|collation| BsonDocument::new(collation.document()));
        if read != options.collation {
            let message =
                format!("the view {} has another collation than the view that it reads", call.namespace());
            return Err(CommandError::new(Code::OptionNotSupportedOnView, message));
        }
    }
    // the order of a capped collection is that of all inserts
    let gathered = options.capped.is_some();
    let spec = CollectionSpec { options, change_images, gathered, ..new_collection(collection) };
    shared.engine.write_documents(DocumentCommand::CreateCollection(spec), write::durability(call)?)?;
    Ok(ok(RawDocumentBuf::new()))
}

/// Returns the definition of a new collection without options.
pub(in crate::commands) fn new_collection(name: impl Into<String>) -> CollectionSpec {
    CollectionSpec { uuid: Some(bson::Uuid::new()), ..CollectionSpec::new(name) }
}

pub(in crate::commands) fn drop(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&[])?;
    let command = DocumentCommand::Drop { collection: call.collection()? };
    match shared.engine.write_documents(command, write::durability(call)?) {
        // as MongoDB since 7.0: dropping a collection that does not exist succeeds
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("ns"), call.namespace());
    Ok(ok(reply))
}

/// Drops the collections of a database, except those of the server if the client may not write them.
pub(in crate::commands) fn drop_database(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&[])?;
    let durability = write::durability(call)?;
    let mut dropped = false;
    for info in of_database(shared, call.database)? {
        if !session.can_write(&info.name) {
            continue;
        }
        dropped = true;
        shared.engine.write_documents(DocumentCommand::Drop { collection: info.name }, durability)?;
    }
    if dropped {
        let prefix = database_prefix(call.database);
        shared.engine.write_documents(DocumentCommand::EndDatabase { prefix }, durability)?;
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("dropped"), call.database);
    Ok(ok(reply))
}

/// Returns the collections and views of a database.
pub(in crate::commands) fn of_database(shared: &Shared, database: &str) -> Result<Vec<CollectionInfo>> {
    check_database(database)?;
    let mut collections = shared.engine.collections()?;
    collections.retain(|info| split_stored_name(&info.name).0 == database);
    Ok(collections)
}

pub(in crate::commands) fn list_collections(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["filter", "nameOnly", "authorizedCollections", "cursor"])?;
    let names_only = call.flag("nameOnly", false)?;
    let filter = call.document("filter")?.map(Filter::parse).transpose()?;
    let mut listed: Vec<DocBytes> = Vec::new();
    for info in of_database(shared, call.database)? {
        if !session.can_read(&info.name) {
            continue;
        }
        // dropped since the names were read
        let Ok(spec) = shared.engine.collection_spec(&info.name) else { continue };
        let is_view = spec.options.view.is_some();
        let mut one = RawDocumentBuf::new();
        one.append(cstr!("name"), split_stored_name(&info.name).1);
        one.append(cstr!("type"), if is_view { "view" } else { "collection" });
        if !names_only {
            one.append(cstr!("options"), collection_options::describe(&spec));
            one.append(cstr!("info"), collection_options::info(&spec));
            if !is_view && spec.options.clustered.is_none() {
                one.append(cstr!("idIndex"), crate::commands::index::index_spec::id_index(&spec));
            }
        }
        if filter.as_ref().is_none_or(|filter| filter.matches(&one)) {
            listed.push(one.into_bytes().into());
        }
    }
    let namespace = format!("{}.$cmd.listCollections", call.database);
    first_batch(&shared.cursors, namespace, listed, batch_size(call)?, false)
}

/// Returns the batch size of a `cursor` field.
pub(in crate::commands) fn batch_size(call: &Call<'_>) -> Result<Option<u64>> {
    let Some(cursor) = call.document("cursor")? else { return Ok(None) };
    Ok(cursor.get("batchSize")?.and_then(whole_number).and_then(|n| u64::try_from(n).ok()))
}

pub(in crate::commands) fn list_databases(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["filter", "nameOnly", "authorizedDatabases"])?;
    let names_only = call.flag("nameOnly", false)?;
    let filter = call.document("filter")?.map(Filter::parse).transpose()?;
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    // databases that are there although nothing is in them
    let always = SYSTEM_DATABASES.into_iter().chain([DEFAULT_DATABASE]);
    sizes.extend(always.filter(|name| session.can_read_database(name)).map(|name| (name.to_owned(), 0)));
    for info in shared.engine.collections()?.into_iter().filter(|info| session.can_read(&info.name)) {
        *sizes.entry(split_stored_name(&info.name).0.to_owned()).or_default() += info.bytes;
    }
    let mut databases = bson::raw::RawArrayBuf::new();
    let mut total = 0;
    for (name, bytes) in sizes {
        let mut one = RawDocumentBuf::new();
        one.append(cstr!("name"), name);
        if !names_only {
            one.append(cstr!("sizeOnDisk"), bytes.cast_signed());
            one.append(cstr!("empty"), bytes == 0);
        }
        if filter.as_ref().is_none_or(|filter| filter.matches(&one)) {
            total += bytes;
            databases.push(one);
        }
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("databases"), databases);
    if !names_only {
        reply.append(cstr!("totalSize"), total.cast_signed());
    }
    Ok(ok(reply))
}

pub(in crate::commands) fn coll_stats(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["scale"])?;
    let collection = call.collection()?;
    let scale = call.count("scale")?.filter(|scale| *scale > 0).unwrap_or(1);
    let info = shared.engine.collections()?.into_iter().find(|info| info.name == collection);
    let spec = shared.engine.collection_spec(&collection).ok();
    let indexes = spec.as_ref().map_or(0, |spec| spec.indexes.len() + 1);
    let capped = spec.and_then(|spec| spec.options.capped);
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("ns"), call.namespace());
    append_sizes(
        &mut reply,
        info.as_ref().map_or(0, |i| i.documents),
        info.as_ref().map_or(0, |i| i.bytes),
        scale,
    );
    reply.append(cstr!("nindexes"), indexes as i32);
    reply.append(cstr!("capped"), capped.is_some());
    if let Some(size) = capped {
        reply.append(cstr!("maxSize"), (size.bytes / scale).cast_signed());
        reply.append(cstr!("max"), size.documents.map_or(0, u64::cast_signed));
    }
    Ok(ok(reply))
}

pub(in crate::commands) fn db_stats(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["scale", "freeStorage"])?;
    let scale = call.count("scale")?.filter(|scale| *scale > 0).unwrap_or(1);
    let mut collections = of_database(shared, call.database)?;
    collections.retain(|info| session.can_read(&info.name));
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("db"), call.database);
    reply.append(cstr!("collections"), collections.len() as i64);
    let documents = collections.iter().map(|info| info.documents).sum();
    append_sizes(&mut reply, documents, collections.iter().map(|info| info.bytes).sum(), scale);
    Ok(ok(reply))
}

fn append_sizes(reply: &mut RawDocumentBuf, documents: u64, bytes: u64, scale: u64) {
    reply.append(cstr!("objects"), documents.cast_signed());
    reply.append(cstr!("count"), documents.cast_signed());
    reply.append(cstr!("avgObjSize"), bytes as f64 / documents.max(1) as f64);
    reply.append(cstr!("size"), (bytes / scale).cast_signed());
    reply.append(cstr!("dataSize"), (bytes / scale).cast_signed());
    reply.append(cstr!("storageSize"), (bytes / scale).cast_signed());
    reply.append(cstr!("scaleFactor"), scale.cast_signed());
}

/// Returns the error for a collection that does not exist.
pub(in crate::commands) fn no_collection(call: &Call<'_>) -> CommandError {
    CommandError::new(Code::NamespaceNotFound, format!("ns does not exist: {}", call.namespace()))
}
