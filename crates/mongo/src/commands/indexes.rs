//! `createIndexes`, `listIndexes`, `dropIndexes`.

use bson::cstr;
use bson::raw::{CString, RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{CollectionSpec, Command, Direction, DocBytes, IndexSpec};

use super::collections::{batch_size, no_collection};
use super::update::require_collection;
use super::write;
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, type_name, whole_number};
use crate::reply::{first_batch, ok};
use crate::session::Session;
use crate::shared::Shared;

/// Name of the index that every collection has.
const ID_INDEX: &str = "_id_";

pub(super) fn create(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["indexes", "commitQuorum"])?;
    let collection = call.collection()?;
    let durability = write::durability(call)?;
    let indexes: Vec<IndexSpec> = call
        .documents("indexes")?
        .iter()
        .map(|index| parse(RawDocument::from_bytes(index)?))
        .collect::<Result<_>>()?;
    let created = shared.engine.collection_spec(&collection).is_err();
    let partitions = shared.engine.partitions();
    if let Some(index) =
        indexes.iter().find(|index| index.unique && partitions > 1 && index.fields[0].0 != "_id")
    {
        let message = format!(
            "cannot create the unique index `{}`: documents are spread over {partitions} partitions by `_id`, and each keeps its \
             own indexes. Set `partitions = 1` for a new data directory, or put the values into `_id`",
            index.name
        );
        return Err(CommandError::new(Code::CannotCreateIndex, message));
    }
    require_collection(shared, &collection, durability)?;
    let before = shared.engine.collection_spec(&collection)?;
    for index in indexes {
        before
            .indexes
            .iter()
            .filter(|other| **other != index)
            .try_for_each(|other| check_conflict(other, &index))?;
        // the index on _id is there; one that is the same is, too
        let is_id = index.fields.len() == 1 && index.fields[0].0 == "_id";
        if !is_id && !before.indexes.contains(&index) {
            let collection = collection.clone();
            shared.engine.write_documents(Command::CreateIndex { collection, index }, durability)?;
        }
    }
    let after = shared.engine.collection_spec(&collection)?;
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("numIndexesBefore"), before.indexes.len() as i32 + 1);
    reply.append(cstr!("numIndexesAfter"), after.indexes.len() as i32 + 1);
    reply.append(cstr!("createdCollectionAutomatically"), created);
    if before.indexes.len() == after.indexes.len() {
        reply.append(cstr!("note"), "all indexes already exist");
    }
    Ok(ok(reply))
}

/// Refuses an index with the name or with the keys of another one.
fn check_conflict(other: &IndexSpec, index: &IndexSpec) -> Result<()> {
    if other.name == index.name {
        let message = format!("An existing index has the same name as the requested index: `{}`", index.name);
        return Err(CommandError::new(Code::IndexKeySpecsConflict, message));
    }
    if other.fields == index.fields {
        let message = format!("Index already exists with a different name: {}", other.name);
        return Err(CommandError::new(Code::IndexOptionsConflict, message));
    }
    Ok(())
}

fn parse(index: &RawDocument) -> Result<IndexSpec> {
    let (mut fields, mut name, mut unique) = (Vec::new(), None, false);
    for element in index {
        let (option, value) = element?;
        match (option.as_str(), value) {
            ("key", RawBsonRef::Document(key)) => {
                for field in key {
                    let (path, direction) = field?;
                    fields.push((path.as_str().to_owned(), self::direction(path.as_str(), direction)?));
                }
            }
            ("name", RawBsonRef::String(text)) => name = Some(text.to_owned()),
            ("unique", value) => {
                unique = value == RawBsonRef::Boolean(true) || whole_number(value) == Some(1)
            }
            // have no effect here
            ("v" | "background" | "ns", _) => {}
            ("sparse" | "hidden", RawBsonRef::Boolean(false)) => {}
            ("key" | "name", other) => {
                return Err(CommandError::wrong_type(
                    "createIndexes",
                    option.as_str(),
                    type_name(other),
                    "another type",
                ));
            }
            (option, _) => {
                let message = format!("the index option `{option}` is not supported yet");
                return Err(CommandError::new(Code::CannotCreateIndex, message));
            }
        }
    }
    if fields.is_empty() {
        return Err(CommandError::new(Code::CannotCreateIndex, "Index keys cannot be an empty object"));
    }
    let pattern =
        || fields.iter().map(|(path, direction)| format!("{path}_{}", direction.sign())).collect::<Vec<_>>();
    let name = name.unwrap_or_else(|| pattern().join("_"));
    Ok(IndexSpec { name, fields, unique })
}

fn direction(path: &str, value: RawBsonRef<'_>) -> Result<Direction> {
    match (value, whole_number(value)) {
        (_, Some(n)) if n > 0 => Ok(Direction::Ascending),
        (_, Some(n)) if n < 0 => Ok(Direction::Descending),
        (RawBsonRef::String(kind), _) => {
            let message =
                format!("an index of kind `{kind}` on `{path}` is not supported yet: expected 1 or -1");
            Err(CommandError::new(Code::CannotCreateIndex, message))
        }
        (other, _) => {
            let message = format!("the direction of `{path}` is {}: expected 1 or -1", type_name(other));
            Err(CommandError::new(Code::CannotCreateIndex, message))
        }
    }
}

/// Returns the description of the index that every collection has.
pub(super) fn id_index() -> RawDocumentBuf {
    let mut key = RawDocumentBuf::new();
    key.append(cstr!("_id"), 1);
    let mut index = RawDocumentBuf::new();
    index.append(cstr!("v"), 2);
    index.append(cstr!("key"), key);
    index.append(cstr!("name"), ID_INDEX);
    index
}

pub(super) fn list(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["cursor"])?;
    let spec = spec(shared, call)?;
    let mut listed: Vec<DocBytes> = vec![id_index().into_bytes().into()];
    for index in &spec.indexes {
        let mut key = RawDocumentBuf::new();
        for (path, direction) in &index.fields {
            key.append(CString::try_from(path.clone())?, direction.sign());
        }
        let mut one = RawDocumentBuf::new();
        one.append(cstr!("v"), 2);
        one.append(cstr!("key"), key);
        one.append(cstr!("name"), index.name.as_str());
        if index.unique {
            one.append(cstr!("unique"), true);
        }
        listed.push(one.into_bytes().into());
    }
    first_batch(&shared.cursors, call.namespace(), listed, batch_size(call)?, false)
}

pub(super) fn drop(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["index"])?;
    let spec = spec(shared, call)?;
    let not_found = |what: String| CommandError::new(Code::IndexNotFound, what);
    let by_name = |name: &str| -> Result<String> {
        if name == ID_INDEX {
            return Err(CommandError::new(Code::InvalidOptions, "cannot drop _id index"));
        }
        let known = spec.indexes.iter().any(|index| index.name == name);
        if known {
            Ok(name.to_owned())
        } else {
            Err(not_found(format!("index not found with name [{name}]")))
        }
    };
    let names: Vec<String> = match call.get("index") {
        Some(RawBsonRef::String("*")) => spec.indexes.iter().map(|index| index.name.clone()).collect(),
        Some(RawBsonRef::String(name)) => vec![by_name(name)?],
        Some(RawBsonRef::Array(names)) => {
            let mut all = Vec::new();
            for name in names {
                all.push(by_name(name?.as_str().unwrap_or_default())?);
            }
            all
        }
        Some(RawBsonRef::Document(key)) => {
            let mut fields = Vec::new();
            for field in key {
                let (path, direction) = field?;
                fields.push((path.as_str().to_owned(), self::direction(path.as_str(), direction)?));
            }
            let found = spec.indexes.iter().find(|index| index.fields == fields);
            vec![found.ok_or_else(|| not_found("can't find index with this key".to_owned()))?.name.clone()]
        }
        _ => {
            return Err(CommandError::new(
                Code::MissingField,
                "BSON field 'dropIndexes.index' is missing but a required field",
            ));
        }
    };
    for name in names {
        let command = Command::DropIndex { collection: spec.name.clone(), name };
        shared.engine.write_documents(command, write::durability(call)?)?;
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("nIndexesWas"), spec.indexes.len() as i32 + 1);
    Ok(ok(reply))
}

fn spec(shared: &Shared, call: &Call<'_>) -> Result<CollectionSpec> {
    shared.engine.collection_spec(&call.collection()?).map_err(|_| no_collection(call))
}
