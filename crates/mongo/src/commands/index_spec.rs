//! Definitions of indexes, as `createIndexes` receives them and `listIndexes` returns them.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use tidemill_docs::{BsonDocument, CollectionSpec, Direction, IndexSpec};

use super::collation;
use crate::error::{Code, CommandError, Result};
use crate::fields::{type_name, whole_number};

/// Name of the index that every collection has.
pub(super) const ID_INDEX: &str = "_id_";

/// Options of kinds of indexes that are not there yet.
const MISSING: [&str; 10] = [
    "weights",
    "default_language",
    "language_override",
    "textIndexVersion",
    "2dsphereIndexVersion",
    "bits",
    "min",
    "max",
    "storageEngine",
    "clustered",
];

/// Reads a definition. `default` is the collation of an index that names none, that of the collection.
pub(super) fn parse(index: &RawDocument, default: Option<&BsonDocument>) -> Result<IndexSpec> {
    let mut spec = IndexSpec::default();
    let (mut has_name, mut has_collation) = (false, false);
    for element in index {
        let (option, value) = element?;
        match option.as_str() {
            "key" => {
                let (fields, hashed) = key(document("key", value)?)?;
                (spec.fields, spec.hashed) = (fields, hashed);
            }
            "name" => match value {
                RawBsonRef::String(name) => (spec.name, has_name) = (name.to_owned(), true),
                other => return Err(wrong_type("name", other, "a string")),
            },
            "unique" => spec.unique = flag("unique", value)?,
            "sparse" => spec.sparse = flag("sparse", value)?,
            "hidden" => spec.hidden = flag("hidden", value)?,
            "expireAfterSeconds" => spec.expire_after_seconds = Some(seconds(value)?),
            "partialFilterExpression" => {
                spec.partial_filter = Some(BsonDocument::new(document("partialFilterExpression", value)?));
            }
            "wildcardProjection" => {
                spec.wildcard_projection = Some(BsonDocument::new(document("wildcardProjection", value)?));
            }
            "collation" => {
                has_collation = true;
                spec.collation = collation::in_definition(Some(document("collation", value)?))?;
            }
            // have no effect here
            "v" | "ns" | "dropDups" => {}
            "background" => spec.background = Some(flag("background", value)?),
            option if MISSING.contains(&option) => {
                let message = format!("the index option `{option}` is not supported yet");
                return Err(CommandError::new(Code::CannotCreateIndex, message));
            }
            option => {
                let message = format!("The field '{option}' is not valid for an index specification");
                return Err(CommandError::new(Code::InvalidIndexSpecificationOption, message));
            }
        }
    }
    if spec.fields.is_empty() {
        return Err(CommandError::new(Code::CannotCreateIndex, "Index keys cannot be an empty object"));
    }
    if !has_collation {
        spec.collation = default.cloned();
    }
    if !has_name {
        spec.name = default_name(&spec);
    }
    Ok(spec)
}

fn default_name(spec: &IndexSpec) -> String {
    let field = |(path, direction): &(String, Direction)| match spec.is_hashed(path) {
        true => format!("{path}_hashed"),
        false => format!("{path}_{}", direction.sign()),
    };
    spec.fields.iter().map(field).collect::<Vec<_>>().join("_")
}

/// The fields of an index with their directions, and the one of them of which it has hashes.
type IndexKey = (Vec<(String, Direction)>, Option<String>);

/// Reads a key pattern, `{ a: 1, b: "hashed" }`.
pub(super) fn key(pattern: &RawDocument) -> Result<IndexKey> {
    let refuse = |message: String| Err(CommandError::new(Code::CannotCreateIndex, message));
    let (mut fields, mut hashed) = (Vec::new(), None);
    for field in pattern {
        let (path, value) = field?;
        let path = path.as_str().to_owned();
        let direction = match value {
            RawBsonRef::String("hashed") if hashed.is_some() => {
                return refuse("an index has at most one hashed field".to_owned());
            }
            RawBsonRef::String("hashed") => {
                hashed = Some(path.clone());
                Direction::Ascending
            }
            RawBsonRef::String(kind) => {
                return refuse(format!(
                    "an index of kind `{kind}` on `{path}` is not supported yet: expected 1, -1 or \"hashed\""
                ));
            }
            value => match number(value) {
                Some(n) if n > 0.0 => Direction::Ascending,
                Some(n) if n < 0.0 => Direction::Descending,
                _ => {
                    return refuse(format!(
                        "the direction of `{path}` is {}: expected 1, -1 or \"hashed\"",
                        type_name(value)
                    ));
                }
            },
        };
        fields.push((path, direction));
    }
    Ok((fields, hashed))
}

fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Double(n) => Some(n),
        other => whole_number(other).map(|n| n as f64),
    }
}

fn flag(option: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match (value, number(value)) {
        (RawBsonRef::Boolean(flag), _) => Ok(flag),
        (_, Some(number)) => Ok(number != 0.0),
        _ => Err(wrong_type(option, value, "a bool")),
    }
}

/// Reads the seconds after which documents expire, without a fraction.
pub(super) fn seconds(value: RawBsonRef<'_>) -> Result<i64> {
    match number(value) {
        Some(n) if n.is_finite() => Ok(n as i64),
        _ => Err(wrong_type("expireAfterSeconds", value, "a number")),
    }
}

fn document<'d>(option: &str, value: RawBsonRef<'d>) -> Result<&'d RawDocument> {
    match value {
        RawBsonRef::Document(document) => Ok(document),
        other => Err(wrong_type(option, other, "an object")),
    }
}

fn wrong_type(option: &str, found: RawBsonRef<'_>, expected: &str) -> CommandError {
    CommandError::wrong_type("createIndexes.indexes", option, type_name(found), expected)
}

/// Returns the name of the index that every collection has.
pub(super) fn id_index_name(spec: &CollectionSpec) -> &str {
    spec.options.clustered.as_deref().unwrap_or(ID_INDEX)
}

/// Returns the description of the index that every collection has.
pub(super) fn id_index(spec: &CollectionSpec) -> RawDocumentBuf {
    let mut index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": id_index_name(spec) };
    if spec.options.clustered.is_some() {
        index.append(cstr!("unique"), true);
        index.append(cstr!("clustered"), true);
    }
    if let Some(collation) = &spec.options.collation {
        index.append(cstr!("collation"), collation.as_raw());
    }
    index
}

/// Returns the description of an index.
pub(super) fn describe(index: &IndexSpec) -> Result<RawDocumentBuf> {
    let mut one = RawDocumentBuf::new();
    one.append(cstr!("v"), 2);
    one.append(cstr!("key"), RawDocument::from_bytes(&index.key_pattern())?);
    one.append(cstr!("name"), index.name.as_str());
    for (name, set) in
        [(cstr!("unique"), index.unique), (cstr!("sparse"), index.sparse), (cstr!("hidden"), index.hidden)]
    {
        if set {
            one.append(name, true);
        }
    }
    if let Some(background) = index.background {
        one.append(cstr!("background"), background);
    }
    if let Some(seconds) = index.expire_after_seconds {
        one.append(cstr!("expireAfterSeconds"), i32::try_from(seconds).unwrap_or(i32::MAX));
    }
    for (name, document) in [
        (cstr!("partialFilterExpression"), &index.partial_filter),
        (cstr!("wildcardProjection"), &index.wildcard_projection),
        (cstr!("collation"), &index.collation),
    ] {
        if let Some(document) = document {
            one.append(name, document.as_raw());
        }
    }
    Ok(one)
}

/// Refuses an index with the name of another one, or with the keys of another one and the same documents.
pub(super) fn check_conflict(other: &IndexSpec, index: &IndexSpec) -> Result<()> {
    let same_entries = other.fields == index.fields
        && other.hashed == index.hashed
        && other.partial_filter == index.partial_filter
        && other.collation == index.collation
        && (other.unique, other.sparse) == (index.unique, index.sparse);
    if other.name == index.name && !same_entries {
        let message = format!("An existing index has the same name as the requested index: `{}`", index.name);
        return Err(CommandError::new(Code::IndexKeySpecsConflict, message));
    }
    if same_entries && other.name != index.name {
        let message = format!("Index already exists with a different name: {}", other.name);
        return Err(CommandError::new(Code::IndexOptionsConflict, message));
    }
    if same_entries && !is_same(other, index) {
        let message = format!("An index `{}` with other options already exists", index.name);
        return Err(CommandError::new(Code::IndexOptionsConflict, message));
    }
    Ok(())
}

/// Returns whether the index is there already. Whether it is hidden, or was made in the background, is not compared.
pub(super) fn is_same(other: &IndexSpec, index: &IndexSpec) -> bool {
    IndexSpec { hidden: index.hidden, background: index.background, ..other.clone() } == *index
}
