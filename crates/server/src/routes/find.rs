//! Routes for documents by filter: find, update, delete.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bson::oid::ObjectId;
use bson::raw::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemill_docs::{DocBytes, DocumentCommand, FindOptions, Projection, SortOrder};
use tidemill_types::{Error, Result};
use utoipa::ToSchema;

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extjson::{ExtDocument, RelaxedDocument};
use crate::extract::{PathParams, QueryParams};
use crate::routes::documents::WriteParams;
use crate::routes::id::doc_bytes;
use crate::routes::write_reply::{WriteRefusal, WriteReply, into_reply};

/// Default limit of documents in a reply.
const FIND_LIMIT: u64 = 1000;
/// Maximum limit of documents in a reply.
const FIND_LIMIT_MAX: u64 = 100_000;

/// Selection of documents, their order and their fields.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindRequest {
    /// MongoDB's query operators; all documents when absent.
    #[serde(default)]
    #[schema(value_type = Option<Object>, example = json!({"origin": "EWR", "delay": {"$gt": 15}}))]
    filter: Option<ExtDocument>,
    /// Fields with 1 (ascending) or -1 (descending), the first decides first.
    #[serde(default)]
    #[schema(value_type = Option<Object>, example = json!({"delay": -1}))]
    sort: Option<ExtDocument>,
    /// Fields to give (1) or to leave out (0).
    #[serde(default)]
    #[schema(value_type = Option<Object>, example = json!({"delay": 1}))]
    projection: Option<ExtDocument>,
    /// Documents to leave out at the start.
    #[serde(default)]
    skip: u64,
    /// Documents at most: 1 to 100000, default 1000.
    #[serde(default)]
    limit: Option<u64>,
}

/// Documents that were found.
#[derive(Serialize, ToSchema)]
pub(crate) struct FindReply<'a> {
    /// In relaxed Extended JSON.
    #[schema(value_type = Vec<Object>)]
    documents: Vec<RelaxedDocument<'a>>,
    /// True if there are more than the limit, or than fit into one reply.
    more: bool,
}

/// Find documents.
#[utoipa::path(
    post, path = "/api/v1/collections/{collection}/find", tag = "documents", operation_id = "findDocuments",
    params(("collection" = String, Path, description = "Name of the collection")),
    request_body = FindRequest,
    responses(
        (status = 200, description = "What was found", body = FindReply),
        (status = 400, description = "The filter, sort or projection is wrong", body = ErrorBody),
        (status = 404, description = "No such collection", body = ErrorBody),
        (status = 429, description = "The sort needs more memory than it may have", body = ErrorBody),
    ),
)]
pub(crate) async fn find(
    call: RequestContext,
    PathParams(collection): PathParams<String>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let request: FindRequest = content.json(&call).await?;
    let limit = request.limit.unwrap_or(FIND_LIMIT);
    if limit == 0 || limit > FIND_LIMIT_MAX {
        return Err(ApiError::invalid(format!("limit {limit}: expected 1 to {FIND_LIMIT_MAX}")));
    }
    let filter = raw(request.filter)?;
    let options = FindOptions {
        bounds: None,
        natural: None,
        sort: SortOrder::parse_query(&raw(request.sort)?).map_err(Error::from)?,
        projection: request.projection.map(projection).transpose()?,
        skip: request.skip,
        // one more, to detect whether there are more
        limit: Some(limit + 1),
    };
    let bytes_max = call.app.options.reply_bytes_max;
    let json = call
        .engine(move |engine| {
            let found = engine.find_documents(&collection, &filter, &options)?;
            write_found(&found, limit as usize, bytes_max)
        })
        .await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], Bytes::from(json)).into_response())
}

fn raw(document: Option<ExtDocument>) -> Result<RawDocumentBuf, ApiError> {
    document.map_or_else(|| Ok(RawDocumentBuf::new()), ExtDocument::into_raw)
}

fn projection(document: ExtDocument) -> Result<Projection, ApiError> {
    Ok(Projection::parse(&document.into_raw()?).map_err(Error::from)?)
}

/// Writes the reply with the first of `found`: at most `limit` documents and `bytes_max` bytes, but at least
/// one document.
fn write_found(found: &[DocBytes], limit: usize, bytes_max: usize) -> Result<Vec<u8>> {
    let mut bytes = 0;
    let fitting = found
        .iter()
        .take(limit)
        .take_while(|doc| {
            let first = bytes == 0;
            bytes += doc.len();
            first || bytes <= bytes_max
        })
        .count();
    let damaged = |e| Error::corrupt("a document could not be written as JSON").with_source(e);
    let documents = found[..fitting]
        .iter()
        .map(|doc| RawDocument::from_bytes(doc).map(RelaxedDocument).map_err(|e| damaged(Box::new(e).into())))
        .collect::<Result<_>>()?;
    serde_json::to_vec(&FindReply { documents, more: fitting < found.len() })
        .map_err(|e: serde_json::Error| damaged(Box::<dyn std::error::Error + Send + Sync>::from(e)))
}

/// Documents to update, and the update.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateRequest {
    /// MongoDB's query operators.
    #[schema(value_type = Object, example = json!({"origin": "EWR"}))]
    filter: ExtDocument,
    /// MongoDB's update operators.
    #[schema(value_type = Object, example = json!({"$set": {"open": false}}))]
    update: ExtDocument,
    /// Update all that match instead of the first.
    #[serde(default)]
    multi: bool,
    /// Insert a document when none matches.
    #[serde(default)]
    upsert: bool,
}

/// Update documents by filter.
#[utoipa::path(
    post, path = "/api/v1/collections/{collection}/update", tag = "documents", operation_id = "updateDocuments",
    params(("collection" = String, Path, description = "Name of the collection"), WriteParams),
    request_body = UpdateRequest,
    responses(
        (status = 200, description = "What was done", body = WriteReply),
        (status = 207, description = "An update failed after others were done", body = WriteReply),
        (status = 400, description = "The filter or the update is wrong", body = WriteRefusal),
        (status = 404, description = "No such collection", body = ErrorBody),
        (status = 409, description = "A unique index has one of the values already", body = WriteReply),
    ),
)]
pub(crate) async fn update(
    call: RequestContext,
    PathParams(collection): PathParams<String>,
    QueryParams(params): QueryParams<WriteParams>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let UpdateRequest { filter, update, multi, upsert } = content.json(&call).await?;
    let command = DocumentCommand::Update {
        collection,
        filter: doc_bytes(&filter.0)?,
        update: doc_bytes(&update.0)?,
        multi,
        upsert,
        upsert_id: upsert.then(ObjectId::new),
    };
    let outcome = call.engine(move |engine| engine.write_documents(command, params.durability)).await?;
    let (status, reply) = into_reply(outcome)?;
    Ok((status, Json(reply)).into_response())
}

/// Documents to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteRequest {
    /// MongoDB's query operators; `{}` with `multi` empties the collection.
    #[schema(value_type = Object, example = json!({"origin": "EWR"}))]
    filter: ExtDocument,
    /// Delete all that match instead of the first.
    #[serde(default)]
    multi: bool,
}

/// Delete documents by filter.
#[utoipa::path(
    post, path = "/api/v1/collections/{collection}/delete", tag = "documents", operation_id = "deleteDocuments",
    params(("collection" = String, Path, description = "Name of the collection"), WriteParams),
    request_body = DeleteRequest,
    responses(
        (status = 200, description = "What was done", body = WriteReply),
        (status = 400, description = "The filter is wrong", body = ErrorBody),
        (status = 404, description = "No such collection", body = ErrorBody),
    ),
)]
pub(crate) async fn delete(
    call: RequestContext,
    PathParams(collection): PathParams<String>,
    QueryParams(params): QueryParams<WriteParams>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    let DeleteRequest { filter, multi } = content.json(&call).await?;
    let command = DocumentCommand::Delete { collection, filter: doc_bytes(&filter.0)?, multi };
    let outcome = call.engine(move |engine| engine.write_documents(command, params.durability)).await?;
    let (status, reply) = into_reply(outcome)?;
    Ok((status, Json(reply)).into_response())
}
