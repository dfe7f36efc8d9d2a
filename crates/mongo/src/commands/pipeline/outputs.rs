//! Stages that read no documents or write them: `$documents`, `$collStats`, `$currentOp`, `$indexStats`, `$out`; and `$redact`. `$merge` is in
//! `merge.rs`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime, Document, cstr};
use tidemill_docs::{DocBytes, DocumentCommand, Expression, Variables, encoded};

use super::Context;
use crate::commands::writing::update::require_collection;
use crate::error::{Code, CommandError, Result};
use crate::namespace::stored_name;
use crate::sessions::ListedSession;

/// Returns the documents that `$documents` lists.
pub(super) fn listed(expression: &Expression) -> Result<Vec<DocBytes>> {
    let wrong = || CommandError { code: 5858203, message: "$documents must be an array of objects".into() };
    let Some(Bson::Array(array)) = expression.eval(crate::commands::reading::find::empty())? else {
        return Err(wrong());
    };
    array
        .iter()
        .map(|document| match document {
            Bson::Document(document) => Ok(encoded(document)?),
            _ => Err(wrong()),
        })
        .collect()
}

/// Returns the document of `$collStats`.
pub(super) fn collection_stats(context: &Context<'_>) -> Result<Vec<DocBytes>> {
    let name = context.collection.unwrap_or_default();
    let info = context.shared.engine.collections()?.into_iter().find(|info| info.name == name);
    let Some(info) = info else {
        let message = format!("Collection [{}] not found.", name);
        return Err(CommandError::new(Code::NamespaceNotFound, message));
    };
    let indexes = context.shared.engine.collection_spec(name)?.indexes.len() + 1;
    let mut storage = RawDocumentBuf::new();
    storage.append(cstr!("size"), info.bytes.cast_signed());
    storage.append(cstr!("count"), info.documents.cast_signed());
    let average = info.bytes.checked_div(info.documents).unwrap_or(0);
    storage.append(cstr!("avgObjSize"), average.cast_signed());
    storage.append(cstr!("storageSize"), info.bytes.cast_signed());
    storage.append(cstr!("nindexes"), indexes as i32);
    storage.append(cstr!("capped"), false);
    let (database, collection) = crate::namespace::split_stored_name(name);
    let mut stats = RawDocumentBuf::new();
    stats.append(cstr!("ns"), format!("{database}.{collection}"));
    stats.append(cstr!("host"), "tidemill");
    stats.append(cstr!("localTime"), DateTime::now());
    stats.append(cstr!("storageStats"), storage);
    stats.append(cstr!("count"), info.documents.cast_signed());
    Ok(vec![stats.into_bytes().into()])
}

/// Refuses `$currentOp` of anything but the whole server, and inside of another stage.
pub(super) fn check_current_op(context: &Context<'_>) -> Result<()> {
    match (context.database, context.collection, context.depth) {
        ("admin", None, 0) => Ok(()),
        _ => {
            let message = "$currentOp must be run against the 'admin' database with {aggregate: 1}, and not inside of another stage";
            Err(CommandError::new(Code::InvalidNamespace, message))
        }
    }
}

/// Returns the operations in progress: those of all clients for an administrator, their own for others.
pub(super) fn current_op(context: &Context<'_>) -> Result<Vec<DocBytes>> {
    let running = context.shared.operations.running();
    let shown = running.iter().filter(|operation| context.client.manages(operation.caller()));
    Ok(shown.map(|operation| operation.describe().into_bytes().into()).collect())
}

/// Checks where `$listLocalSessions` stands.
pub(super) fn check_list_sessions(options: &RawDocument, context: &Context<'_>) -> Result<()> {
    super::known("$listLocalSessions", options, &["allUsers", "users"])?;
    match (context.collection, context.depth) {
        (None, 0) => Ok(()),
        _ => {
            let message = "$listLocalSessions must be run against a database with {aggregate: 1}, and not inside of another stage";
            Err(CommandError::new(Code::InvalidNamespace, message))
        }
    }
}

/// Returns the client sessions that this server knows: those that have written, and that of the command. A client sees its own, an
/// administrator all.
pub(super) fn local_sessions(context: &Context<'_>) -> Result<Vec<DocBytes>> {
    use sha2::Digest;
    let client = context.client;
    let may_see = |one: &ListedSession| one.owner.as_ref().is_none_or(|owner| client.manages(owner));
    let mut sessions = context.shared.sessions.list();
    sessions.retain(may_see);
    if let Some(RawBsonRef::Binary(id)) = context.session.map(|lsid| lsid.get("id")).transpose()?.flatten()
        && !sessions.iter().any(|known| known.id == id.bytes)
    {
        let owner = client.principal.as_ref().map(|principal| principal.name().to_owned());
        sessions.push(ListedSession { id: id.bytes.to_vec().into(), owner, idle: std::time::Duration::ZERO });
    }
    let has_users = context.shared.credentials.is_some();
    let now = context.shared.whole_engine.now().0.div_euclid(1000);
    let describe = |ListedSession { id, owner, idle }| {
        let user = owner.filter(|_| has_users).map(|owner| format!("{owner}@admin")).unwrap_or_default();
        let uid = sha2::Sha256::digest(user.as_bytes()).to_vec();
        let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: id.to_vec() };
        let uid = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: uid };
        let last = DateTime::from_millis(now - i64::try_from(idle.as_millis()).unwrap_or(0));
        bson::rawdoc! { "_id": { "id": id, "uid": uid }, "lastUse": last }.into_bytes().into()
    };
    Ok(sessions.into_iter().map(describe).collect())
}

/// Returns the documents of `$indexStats`: uses of indexes are not counted, and so not told.
pub(super) fn index_stats(context: &Context<'_>) -> Result<Vec<DocBytes>> {
    let spec = context.shared.engine.collection_spec(context.collection.unwrap_or_default())?;
    let mut stats = Vec::new();
    let mut add = |name: &str, key: RawDocumentBuf| {
        let mut one = RawDocumentBuf::new();
        one.append(cstr!("name"), name);
        one.append(cstr!("key"), key);
        one.append(cstr!("host"), "tidemill");
        stats.push(one.into_bytes().into());
    };
    add("_id_", bson::rawdoc! { "_id": 1 });
    for index in &spec.indexes {
        let mut key = RawDocumentBuf::new();
        for (path, direction) in &index.fields {
            key.append(bson::raw::CString::try_from(path.clone())?, direction.sign());
        }
        add(&index.name, key);
    }
    Ok(stats)
}

/// Returns the variables of `$redact`.
pub(super) fn redact_variables(outer: &Variables) -> Variables {
    let mut variables = outer.clone();
    for name in ["DESCEND", "PRUNE", "KEEP"] {
        variables.values.push((name.to_owned(), Some(Bson::String(format!("$${name}")))));
    }
    variables
}

/// Returns what `$redact` leaves of a document; `None` if nothing.
pub(super) fn redacted(expression: &Expression, document: &DocBytes) -> Result<Option<DocBytes>> {
    let document: Document = RawDocument::from_bytes(document)?.try_into()?;
    Ok(redact(expression, document)?.map(|document| encoded(&document)).transpose()?)
}

fn redact(expression: &Expression, document: Document) -> Result<Option<Document>> {
    let raw = RawDocumentBuf::try_from(&document)?;
    match expression.eval(&raw)? {
        Some(Bson::String(decision)) if decision == "$$KEEP" => Ok(Some(document)),
        Some(Bson::String(decision)) if decision == "$$PRUNE" => Ok(None),
        Some(Bson::String(decision)) if decision == "$$DESCEND" => {
            let mut kept = Document::new();
            for (name, value) in document {
                if let Some(value) = redact_value(expression, value)? {
                    kept.insert(name, value);
                }
            }
            Ok(Some(kept))
        }
        _ => Err(CommandError {
            code: 17053,
            message: "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE".into(),
        }),
    }
}

fn redact_value(expression: &Expression, value: Bson) -> Result<Option<Bson>> {
    Ok(match value {
        Bson::Document(inner) => redact(expression, inner)?.map(Bson::Document),
        Bson::Array(elements) => {
            let mut kept = Vec::new();
            for element in elements {
                kept.extend(redact_value(expression, element)?);
            }
            Some(Bson::Array(kept))
        }
        other => Some(other),
    })
}

/// Returns the collection that `$out` or `$merge` names, by its name in the store.
pub(super) fn target(stage: &str, value: RawBsonRef<'_>, context: &Context<'_>) -> Result<String> {
    match value {
        RawBsonRef::String(collection) => stored_name(context.database, collection),
        RawBsonRef::Document(options) => {
            let database = options.get("db")?.and_then(|db| db.as_str()).unwrap_or(context.database);
            stored_name(database, super::text(stage, options, "coll")?)
        }
        _ => Err(CommandError::new(Code::FailedToParse, format!("{stage} expects the name of a collection"))),
    }
}

/// `$out`
pub(in crate::commands) struct Out {
    collection: String,
}

impl Out {
    pub fn parse(value: RawBsonRef<'_>, context: &Context<'_>) -> Result<Self> {
        Ok(Self { collection: target("$out", value, context)? })
    }

    /// Replaces the documents of the collection.
    pub fn apply(&self, context: &Context<'_>, documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        let engine = &context.shared.engine;
        require_collection(context.shared, &self.collection, None)?;
        let collection = || self.collection.clone();
        let filter = DocBytes::from_static(&[5, 0, 0, 0, 0]);
        engine.write_documents(
            DocumentCommand::Delete { collection: collection(), filter, multi: true },
            None,
        )?;
        if !documents.is_empty() {
            let command =
                DocumentCommand::Insert { collection: collection(), docs: documents, ordered: true };
            if let Some(failed) = engine.write_documents(command, None)?.errors.into_iter().next() {
                return Err(failed.error.into());
            }
        }
        Ok(Vec::new())
    }
}
