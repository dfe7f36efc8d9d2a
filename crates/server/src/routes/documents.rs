//! Documents by `_id`: insert, read, replace, update, delete.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bson::oid::ObjectId;
use bson::{Bson, Document};
use bytes::Bytes;
use serde::Deserialize;
use tidemill_access::{Action, Resource};
use tidemill_docs::{DocBytes, DocumentCommand};
use tidemill_engine::Durability;
use tidemill_types::{Error, Result};
use utoipa::IntoParams;

use crate::Engine;
use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extjson::{ExtDocument, ExtValue, RelaxedDocument};
use crate::extract::{PathParams, QueryParams};
use crate::model::{Collection, OneOrMany};
use crate::routes::events::{DurabilityName, durability};
use crate::routes::id::{IdType, by_id, candidates, doc_bytes, existing, missing, new_id};
use crate::routes::write_reply::{WriteRefusal, WriteReply, into_reply, json_of};

/// Maximum documents in one insert.
const INSERT_DOCUMENTS_MAX: usize = 100_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadParams {
    /// Type of the id in the path. Default: the first of string, int and objectid that finds a document.
    #[serde(default, rename = "type")]
    #[param(inline)]
    id_type: Option<IdType>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteByIdParams {
    /// Type of the id in the path. Default: the first of string, int and objectid that finds a document.
    #[serde(default, rename = "type")]
    #[param(inline)]
    id_type: Option<IdType>,
    /// Durability that the write needs before the reply. Default: the engine's setting.
    #[serde(default, deserialize_with = "durability")]
    #[param(value_type = Option<DurabilityName>)]
    durability: Option<Durability>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParams {
    /// Durability that the write needs before the reply. Default: the engine's setting.
    #[serde(default, deserialize_with = "durability")]
    #[param(value_type = Option<DurabilityName>)]
    pub durability: Option<Durability>,
}

/// List the collections.
#[utoipa::path(
    get, path = "/api/v1/collections", tag = "documents", operation_id = "listCollections",
    responses((status = 200, description = "The collections that the caller may read", body = Vec<Collection>)),
)]
pub(crate) async fn collections(call: RequestContext) -> Result<Json<Vec<Collection>>, ApiError> {
    let collections = call.engine(tidemill_engine::Engine::collections).await?;
    let collections = collections
        .into_iter()
        .filter(|one| call.principal.can(Action::Read, &Resource::collection(&one.name)));
    Ok(Json(collections.map(Collection::from).collect()))
}

/// Insert documents.
///
/// The body is one document or an array of them. A document without `_id` takes the value of the entity's key field,
/// where one is declared, else a new ObjectId. Good documents are inserted even when others are refused.
#[utoipa::path(
    post, path = "/api/v1/collections/{collection}/documents", tag = "documents", operation_id = "insertDocuments",
    params(("collection" = String, Path, description = "Name of the collection; made when it does not exist"), WriteParams),
    request_body(content = OneOrMany, description = "One document or an array, in Extended JSON"),
    responses(
        (status = 200, description = "All were inserted", body = WriteReply),
        (status = 207, description = "Some were refused", body = WriteReply),
        (status = 400, description = "The body is wrong, or all were refused", body = WriteRefusal),
        (status = 409, description = "All were refused, the first because its `_id` is taken", body = WriteReply),
    ),
)]
pub(crate) async fn insert(
    call: RequestContext,
    PathParams(collection): PathParams<String>,
    QueryParams(params): QueryParams<WriteParams>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let documents = match content.json::<ExtValue>(&call).await?.0 {
        Bson::Document(document) => vec![document],
        Bson::Array(values) => values.into_iter().enumerate().map(only_document).collect::<Result<_, _>>()?,
        _ => return Err(ApiError::invalid("expected a document or an array of documents")),
    };
    if documents.is_empty() || documents.len() > INSERT_DOCUMENTS_MAX {
        return Err(ApiError::invalid(format!(
            "{} documents: expected 1 to {INSERT_DOCUMENTS_MAX}",
            documents.len()
        )));
    }
    let work = move |engine: &Engine| {
        let (docs, ids) = with_ids(engine, &collection, documents)?;
        let command = DocumentCommand::Insert { collection, docs, ordered: false };
        Ok((engine.write_documents(command, params.durability)?, ids))
    };
    let (outcome, ids) = call.engine(work).await?;
    let ids = ids.into_iter().map(|id| json_of(&id)).collect::<Result<_, _>>()?;
    let (status, mut reply) = into_reply(outcome)?;
    reply.ids = Some(ids);
    Ok((status, Json(reply)).into_response())
}

fn only_document((index, value): (usize, Bson)) -> Result<Document, ApiError> {
    match value {
        Bson::Document(document) => Ok(document),
        _ => Err(ApiError::invalid(format!("element {index}: expected a document"))),
    }
}

/// Encodes the documents and returns them with the `_id` that each has or will have.
fn with_ids(
    engine: &Engine,
    collection: &str,
    documents: Vec<Document>,
) -> Result<(Vec<DocBytes>, Vec<Bson>)> {
    let key = engine.entity_key(collection);
    let mut ids = Vec::with_capacity(documents.len());
    let mut docs = Vec::with_capacity(documents.len());
    for mut document in documents {
        let own = document.get("_id").or_else(|| key.and_then(|key| document.get(key))).cloned();
        let id = match own {
            Some(id) => id,
            None => {
                let id = Bson::ObjectId(ObjectId::new());
                let mut with_id = Document::new();
                with_id.insert("_id", id.clone());
                with_id.extend(document);
                document = with_id;
                id
            }
        };
        ids.push(id);
        docs.push(doc_bytes(&document)?);
    }
    Ok((docs, ids))
}

/// Read a document.
#[utoipa::path(
    get, path = "/api/v1/collections/{collection}/documents/{id}", tag = "documents", operation_id = "getDocument",
    params(
        ("collection" = String, Path, description = "Name of the collection"),
        ("id" = String, Path, description = "Its `_id` as text"),
        ReadParams,
    ),
    responses(
        (status = 200, description = "The document, in relaxed Extended JSON", body = Object),
        (status = 404, description = "No such collection or document", body = ErrorBody),
    ),
)]
pub(crate) async fn get(
    call: RequestContext,
    PathParams((collection, id)): PathParams<(String, String)>,
    QueryParams(params): QueryParams<ReadParams>,
) -> Result<Response, ApiError> {
    let ids = candidates(&id, params.id_type)?;
    let json = call
        .engine(move |engine| {
            let Some((_, doc)) = existing(engine, &collection, ids)? else {
                return Err(missing(&collection, &id));
            };
            let raw = bson::RawDocument::from_bytes(&doc)
                .map_err(|e| Error::corrupt(format!("document `{id}` of `{collection}`")).with_source(e))?;
            serde_json::to_vec(&RelaxedDocument(raw))
                .map_err(|e| Error::corrupt(format!("document `{id}` of `{collection}`")).with_source(e))
        })
        .await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], Bytes::from(json)).into_response())
}

/// Replace a document, or insert it.
#[utoipa::path(
    put, path = "/api/v1/collections/{collection}/documents/{id}", tag = "documents", operation_id = "replaceDocument",
    params(
        ("collection" = String, Path, description = "Name of the collection"),
        ("id" = String, Path, description = "Its `_id` as text"),
        WriteByIdParams,
    ),
    request_body(content = Object, description = "The new document, in Extended JSON"),
    responses(
        (status = 200, description = "It is stored", body = WriteReply),
        (status = 400, description = "The document is wrong, or has another `_id`", body = WriteRefusal),
        (status = 409, description = "A unique index has one of its values already", body = WriteReply),
    ),
)]
pub(crate) async fn replace(
    call: RequestContext,
    PathParams((collection, id)): PathParams<(String, String)>,
    QueryParams(params): QueryParams<WriteByIdParams>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let ids = candidates(&id, params.id_type)?;
    let ExtDocument(document) = content.json(&call).await?;
    if let Some(operator) = document.keys().find(|name| name.starts_with('$')) {
        return Err(ApiError::invalid(format!(
            "field `{operator}`: expected a document to store; PATCH takes update operators"
        )));
    }
    let outcome = call
        .engine(move |engine| {
            let id = match existing(engine, &collection, ids.clone())? {
                Some((id, _)) => id,
                None => new_id(engine, &collection, &document, &ids)?,
            };
            let filter = by_id(id)?;
            let command = DocumentCommand::Replace {
                collection,
                filter,
                doc: doc_bytes(&document)?,
                upsert: true,
                upsert_id: Some(ObjectId::new()),
            };
            engine.write_documents(command, params.durability)
        })
        .await?;
    let (status, reply) = into_reply(outcome)?;
    Ok((status, Json(reply)).into_response())
}

/// Update a document by operators.
#[utoipa::path(
    patch, path = "/api/v1/collections/{collection}/documents/{id}", tag = "documents", operation_id = "updateDocument",
    params(
        ("collection" = String, Path, description = "Name of the collection"),
        ("id" = String, Path, description = "Its `_id` as text"),
        WriteByIdParams,
    ),
    request_body(content = Object, description = "MongoDB update operators, for example {\"$set\": {\"gate\": \"B4\"}}"),
    responses(
        (status = 200, description = "It is updated; `modified` is 0 when nothing changed", body = WriteReply),
        (status = 400, description = "Not update operators, or they cannot be applied", body = WriteRefusal),
        (status = 404, description = "No such collection or document", body = ErrorBody),
        (status = 409, description = "A unique index has one of the values already", body = WriteReply),
    ),
)]
pub(crate) async fn update(
    call: RequestContext,
    PathParams((collection, id)): PathParams<(String, String)>,
    QueryParams(params): QueryParams<WriteByIdParams>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let ids = candidates(&id, params.id_type)?;
    let ExtDocument(update) = content.json(&call).await?;
    let outcome = call
        .engine(move |engine| {
            let Some((found, _)) = existing(engine, &collection, ids)? else {
                return Err(missing(&collection, &id));
            };
            let command = DocumentCommand::Update {
                collection,
                filter: by_id(found)?,
                update: doc_bytes(&update)?,
                multi: false,
                upsert: false,
                upsert_id: None,
            };
            engine.write_documents(command, params.durability)
        })
        .await?;
    let (status, reply) = into_reply(outcome)?;
    Ok((status, Json(reply)).into_response())
}

/// Delete a document.
#[utoipa::path(
    delete, path = "/api/v1/collections/{collection}/documents/{id}", tag = "documents",
    operation_id = "deleteDocument",
    params(
        ("collection" = String, Path, description = "Name of the collection"),
        ("id" = String, Path, description = "Its `_id` as text"),
        WriteByIdParams,
    ),
    responses(
        (status = 200, description = "It is gone", body = WriteReply),
        (status = 404, description = "No such collection or document", body = ErrorBody),
    ),
)]
pub(crate) async fn delete(
    call: RequestContext,
    PathParams((collection, id)): PathParams<(String, String)>,
    QueryParams(params): QueryParams<WriteByIdParams>,
) -> Result<Response, ApiError> {
    let ids = candidates(&id, params.id_type)?;
    let outcome = call
        .engine(move |engine| {
            let Some((found, _)) = existing(engine, &collection, ids)? else {
                return Err(missing(&collection, &id));
            };
            let command = DocumentCommand::Delete { collection, filter: by_id(found)?, multi: false };
            engine.write_documents(command, params.durability)
        })
        .await?;
    let (status, reply) = into_reply(outcome)?;
    Ok((status, Json(reply)).into_response())
}
