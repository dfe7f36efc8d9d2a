//! `update`: update operators and replacements.

use bson::cstr;
use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocumentCommand, Modification};
use tidemill_log::Durability;
use tidemill_types::ErrorKind;

use crate::commands::catalog::collections::new_collection;
use crate::commands::writing::insert::{DOCUMENT_BYTES_MAX, check_fields, too_large, with_times};
use crate::commands::writing::let_variables::LetVariables;
use crate::commands::writing::write::{WriteErrors, WriteOptions};
use crate::commands::{collation, index::hint};
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, type_name};
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn update(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["updates", "ordered", "bypassDocumentValidation", "let"])?;
    let collection = call.collection()?;
    let ordered = call.flag("ordered", true)?;
    let variables = LetVariables::of(shared, call)?;
    let write = WriteOptions::of(call, &variables)?;
    let (mut matched, mut modified) = (0, 0);
    let mut upserted = RawArrayBuf::new();
    let mut errors = WriteErrors::default();
    for (index, statement) in call.documents("updates")?.iter().enumerate() {
        match run(shared, &collection, statement, write) {
            Ok(outcome) => {
                matched += outcome.matched;
                modified += outcome.modified;
                if let Some(id) = outcome.upserted_id {
                    matched += 1;
                    let mut one = RawDocumentBuf::new();
                    one.append(cstr!("index"), index as i32);
                    one.append(cstr!("_id"), RawBson::try_from(id)?);
                    upserted.push(one);
                }
                outcome.errors.into_iter().for_each(|failed| errors.push(index, failed.error));
            }
            Err(error) => errors.push(index, error),
        }
        if ordered && !errors.is_empty() {
            break;
        }
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("n"), matched as i32);
    reply.append(cstr!("nModified"), modified as i32);
    if !upserted.is_empty() {
        reply.append(cstr!("upserted"), upserted);
    }
    errors.append_to(&mut reply);
    Ok(ok(reply))
}

/// Runs one statement, `{ q, u, multi, upsert }`.
pub(in crate::commands) fn run(
    shared: &Shared,
    collection: &str,
    statement: &Bytes,
    write: WriteOptions<'_>,
) -> Result<CommandOutcome> {
    let statement_bytes = tidemill_docs::validate(statement.clone())?;
    let statement = RawDocument::from_bytes(&statement_bytes)?;
    for element in statement {
        let name = element?.0.as_str();
        if !["q", "u", "c", "multi", "upsert", "collation", "arrayFilters", "hint", "sort"].contains(&name) {
            let message = format!("BSON field 'update.updates.{name}' is an unknown field.");
            return Err(CommandError { code: 40415, message });
        }
    }
    let given = collation::of_write("update.updates", statement.get("collation")?)?;
    hint::check_statement(shared, collection, "update.updates", statement)?;
    let flag = |name: &str| -> Result<bool> { Ok(statement.get(name)? == Some(RawBsonRef::Boolean(true))) };
    let Some(RawBsonRef::Document(filter)) = statement.get("q")? else {
        return Err(CommandError::new(
            Code::MissingField,
            "BSON field 'update.updates.q' is missing but a required field",
        ));
    };
    let filter = Bytes::copy_from_slice(filter.as_bytes());
    let change = change_of("update.updates.u", statement.get("u")?, statement.get("arrayFilters")?)?;
    let change = change.with_times(shared)?;
    let (multi, upsert) = (flag("multi")?, flag("upsert")?);
    if multi && statement.get("sort")?.is_some() {
        return Err(CommandError::new(Code::FailedToParse, "Cannot specify sort with multi=true"));
    }
    let sort = match statement.get("sort")? {
        Some(RawBsonRef::Document(sort)) if !sort.is_empty() => Some(Bytes::copy_from_slice(sort.as_bytes())),
        _ => None,
    };
    if upsert {
        require_collection(shared, collection, write.durability)?;
    }
    let upsert_id = upsert.then(ObjectId::new);
    let collection = collection.to_owned();
    let command = match change {
        // an update of the first document of an order
        change if sort.is_some() => DocumentCommand::FindAndModify {
            collection,
            filter,
            sort,
            change: change.into(),
            upsert,
            upsert_id,
        },
        RequestedUpdate::Operators(update) => {
            DocumentCommand::Update { collection, filter, update, multi, upsert, upsert_id }
        }
        RequestedUpdate::Replacement(_) if multi => {
            return Err(CommandError::new(
                Code::FailedToParse,
                "multi update is not supported for replacement-style update",
            ));
        }
        RequestedUpdate::Replacement(doc) if doc.len() > DOCUMENT_BYTES_MAX => return Err(too_large(&doc)),
        RequestedUpdate::Replacement(doc) => {
            DocumentCommand::Replace { collection, filter, doc, upsert, upsert_id }
        }
    };
    let update = match &command {
        DocumentCommand::Update { update, .. } => Some(update.clone()),
        _ => None,
    };
    match shared.engine.write_documents(write.command(command, given)?, write.durability) {
        // nothing to update, but the update must be one
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(update) = update {
                tidemill_docs::Update::parse(RawDocument::from_bytes(&update)?, shared.whole_engine.now())?;
            }
            Ok(CommandOutcome::default())
        }
        outcome => Ok(outcome?),
    }
}

/// Modification by an update.
pub(in crate::commands) enum RequestedUpdate {
    Operators(Bytes),
    Replacement(Bytes),
}

impl RequestedUpdate {
    /// Returns the change with the present time in the place of empty timestamps of a new document.
    pub fn with_times(self, shared: &Shared) -> Result<Self> {
        match self {
            Self::Replacement(document) => {
                Ok(Self::Replacement(with_times(document, || shared.cluster_time())?))
            }
            operators => Ok(operators),
        }
    }
}

impl From<RequestedUpdate> for Modification {
    fn from(change: RequestedUpdate) -> Self {
        match change {
            RequestedUpdate::Operators(update) => Self::Update(update),
            RequestedUpdate::Replacement(document) => Self::Replace(document),
        }
    }
}

/// Reads an update: a document whose first field is an operator, a new document, or an array of stages.
pub(in crate::commands) fn change_of(
    field: &str,
    update: Option<RawBsonRef<'_>>,
    array_filters: Option<RawBsonRef<'_>>,
) -> Result<RequestedUpdate> {
    let array_filters = match array_filters {
        None | Some(RawBsonRef::Null) => None,
        Some(RawBsonRef::Array(filters)) if filters.is_empty() => None,
        Some(RawBsonRef::Array(filters)) => Some(filters),
        Some(other) => {
            return Err(CommandError::wrong_type("update", "arrayFilters", type_name(other), "an array"));
        }
    };
    match update {
        Some(RawBsonRef::Document(document)) => {
            check_fields(document.as_bytes())?;
            let bytes = Bytes::copy_from_slice(document.as_bytes());
            let first = document.into_iter().next().transpose()?;
            match (first.is_some_and(|(name, _)| name.as_str().starts_with('$')), array_filters) {
                (true, None) => Ok(RequestedUpdate::Operators(bytes)),
                (true, Some(filters)) => {
                    let mut update = document.to_owned();
                    update.append(cstr!("$arrayFilters"), filters);
                    Ok(RequestedUpdate::Operators(update.into_bytes().into()))
                }
                (false, None) => Ok(RequestedUpdate::Replacement(bytes)),
                (false, Some(_)) => {
                    let message = "arrayFilters are for updates by operators";
                    Err(CommandError::new(Code::FailedToParse, message))
                }
            }
        }
        Some(RawBsonRef::Array(_)) if array_filters.is_some() => {
            let message = "arrayFilters may not be specified for pipeline-style updates";
            Err(CommandError::new(Code::FailedToParse, message))
        }
        Some(RawBsonRef::Array(stages)) => {
            check_fields(stages.as_bytes())?;
            let mut update = RawDocumentBuf::new();
            update.append(cstr!("$pipeline"), stages);
            Ok(RequestedUpdate::Operators(update.into_bytes().into()))
        }
        Some(other) => Err(CommandError::new(
            Code::FailedToParse,
            format!("`{field}` is {}: expected an object", type_name(other)),
        )),
        None => Err(CommandError::new(
            Code::MissingField,
            format!("BSON field '{field}' is missing but a required field"),
        )),
    }
}

/// Creates the collection if it does not exist.
pub(in crate::commands) fn require_collection(
    shared: &Shared,
    collection: &str,
    durability: Option<Durability>,
) -> Result<()> {
    if shared.engine.collection_spec(collection).is_ok() {
        return Ok(());
    }
    let command = DocumentCommand::CreateCollection(new_collection(collection));
    match shared.engine.write_documents(command, durability) {
        // another connection was faster
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        outcome => outcome.map(|_| ()).map_err(Into::into),
    }
}
