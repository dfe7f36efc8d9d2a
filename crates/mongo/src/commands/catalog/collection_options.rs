//! Options of collections, as `create` and `collMod` receive them and `listCollections` returns them.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{cstr, rawdoc};
use tidemill_docs::{
    BsonDocument, CappedSize, CollectionOptions, CollectionSpec, ValidationAction, ValidationLevel, ViewSpec,
};

use crate::commands::collation;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::namespace::{split_stored_name, stored_name};

/// The size of a capped collection is a multiple of so many bytes.
const CAPPED_UNIT_BYTES: u64 = 256;

/// Reads the options of a new collection.
pub(in crate::commands) fn parse(call: &Call<'_>) -> Result<CollectionOptions> {
    Ok(CollectionOptions {
        validator: validator(call)?.filter(|validator| !validator.as_raw().is_empty()),
        validation_level: validation_level(call)?.unwrap_or_default(),
        validation_action: validation_action(call)?.unwrap_or_default(),
        capped: capped(call)?,
        view: view(call)?,
        collation: collation::in_definition(call.document("collation")?)?,
        clustered: clustered(call)?,
    })
}

/// Reads `clusteredIndex`, which can be that of `_id` only. Returns its name.
fn clustered(call: &Call<'_>) -> Result<Option<String>> {
    let invalid = |message: &str| Err(CommandError::new(Code::InvalidOptions, message));
    let Some(index) = call.document("clusteredIndex")? else { return Ok(None) };
    let mut name = "_id_".to_owned();
    let (mut is_on_id, mut is_unique) = (false, false);
    for option in index {
        match option? {
            (key, RawBsonRef::Document(fields)) if key.as_str() == "key" => {
                let mut fields = fields.into_iter();
                let is_id = |field: bson::error::Result<(&bson::raw::CStr, RawBsonRef<'_>)>| {
                    field.is_ok_and(|(path, value)| {
                        path.as_str() == "_id" && crate::fields::whole_number(value) == Some(1)
                    })
                };
                is_on_id = fields.next().is_some_and(is_id) && fields.next().is_none();
            }
            (key, RawBsonRef::String(given)) if key.as_str() == "name" => given.clone_into(&mut name),
            (key, RawBsonRef::Boolean(unique)) if key.as_str() == "unique" => is_unique = unique,
            (key, _) if key.as_str() == "v" => {}
            (key, _) => {
                let message = format!("`create.clusteredIndex.{key}` is not known or has a wrong type");
                return invalid(&message);
            }
        }
    }
    match (is_on_id, is_unique) {
        (true, true) => Ok(Some(name)),
        (false, _) => invalid("The clusteredIndex option is only supported for key: {_id: 1}"),
        (true, false) => invalid("The clusteredIndex option requires unique: true to be specified"),
    }
}

pub(in crate::commands) fn validator(call: &Call<'_>) -> Result<Option<BsonDocument>> {
    let Some(validator) = call.document("validator")? else { return Ok(None) };
    tidemill_docs::Filter::parse(validator)?;
    Ok(Some(BsonDocument::new(validator)))
}

/// Reads whether change streams keep both versions of changed documents.
pub(in crate::commands) fn change_images(call: &Call<'_>) -> Result<Option<bool>> {
    let Some(images) = call.document("changeStreamPreAndPostImages")? else { return Ok(None) };
    match images.get("enabled")? {
        Some(RawBsonRef::Boolean(enabled)) => Ok(Some(enabled)),
        _ => Err(CommandError::new(
            Code::TypeMismatch,
            "BSON field 'changeStreamPreAndPostImages.enabled' is missing or no bool",
        )),
    }
}

pub(in crate::commands) fn validation_level(call: &Call<'_>) -> Result<Option<ValidationLevel>> {
    match call.text("validationLevel")? {
        None => Ok(None),
        Some("off") => Ok(Some(ValidationLevel::Off)),
        Some("strict") => Ok(Some(ValidationLevel::Strict)),
        Some("moderate") => Ok(Some(ValidationLevel::Moderate)),
        Some(other) => Err(unknown_choice(call, "validationLevel", other, "off, strict or moderate")),
    }
}

pub(in crate::commands) fn validation_action(call: &Call<'_>) -> Result<Option<ValidationAction>> {
    match call.text("validationAction")? {
        None => Ok(None),
        Some("error") => Ok(Some(ValidationAction::Error)),
        Some("warn") => Ok(Some(ValidationAction::Warn)),
        Some(other) => Err(unknown_choice(call, "validationAction", other, "error or warn")),
    }
}

fn unknown_choice(call: &Call<'_>, field: &str, found: &str, expected: &str) -> CommandError {
    let message = format!(
        "Enumeration value '{found}' for field '{}.{field}' is not valid: expected {expected}",
        call.name
    );
    CommandError::new(Code::BadValue, message)
}

fn capped(call: &Call<'_>) -> Result<Option<CappedSize>> {
    let invalid = |message: &str| Err(CommandError::new(Code::InvalidOptions, message));
    let (size, max) = (call.count("size")?, call.count("max")?);
    if !call.flag("capped", false)? {
        return match (size, max) {
            (None, None) => Ok(None),
            _ => invalid(
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
            ),
        };
    }
    match size {
        None => invalid("the 'size' field is required when 'capped' is true"),
        Some(0) => invalid("'create.size' must be greater than or equal to 1"),
        Some(size) => {
            let documents = max.filter(|max| *max > 0);
            capped_size(size, documents).map(Some)
        }
    }
}

/// Returns the size that a capped collection gets. Errors: it is too large.
pub(in crate::commands) fn capped_size(bytes: u64, documents: Option<u64>) -> Result<CappedSize> {
    let bytes =
        bytes.checked_next_multiple_of(CAPPED_UNIT_BYTES).filter(|bytes| i64::try_from(*bytes).is_ok());
    match bytes {
        Some(bytes) => Ok(CappedSize { bytes, documents }),
        None => Err(CommandError::new(Code::InvalidOptions, "the size of a capped collection is too large")),
    }
}

/// Reads `viewOn` and `pipeline`.
pub(in crate::commands) fn view(call: &Call<'_>) -> Result<Option<ViewSpec>> {
    let Some(on) = call.text("viewOn")? else {
        return match call.get("pipeline") {
            None => Ok(None),
            Some(_) => {
                let message = "'pipeline' requires 'viewOn' to also be specified";
                Err(CommandError::new(Code::InvalidOptions, message))
            }
        };
    };
    let mut pipeline = Vec::new();
    match call.get("pipeline") {
        None => {}
        Some(RawBsonRef::Array(stages)) => {
            for stage in stages {
                match stage? {
                    RawBsonRef::Document(stage) => pipeline.push(BsonDocument::new(stage)),
                    other => return Err(call.wrong_type("pipeline", other, "an array of objects")),
                }
            }
        }
        Some(other) => return Err(call.wrong_type("pipeline", other, "an array")),
    }
    Ok(Some(ViewSpec { on: stored_name(call.database, on)?, pipeline }))
}

/// Returns the options of a collection as `listCollections` shows them.
pub(in crate::commands) fn describe(spec: &CollectionSpec) -> RawDocumentBuf {
    let options = &spec.options;
    let mut shown = RawDocumentBuf::new();
    if let Some(size) = options.capped {
        shown.append(cstr!("capped"), true);
        shown.append(cstr!("size"), size.bytes.cast_signed());
        if let Some(documents) = size.documents {
            shown.append(cstr!("max"), documents.cast_signed());
        }
    }
    if let Some(validator) = &options.validator {
        shown.append(cstr!("validator"), validator.as_raw());
    }
    if options.validator.is_some() || options.validation_level != ValidationLevel::default() {
        let level = match options.validation_level {
            ValidationLevel::Off => "off",
            ValidationLevel::Strict => "strict",
            ValidationLevel::Moderate => "moderate",
        };
        shown.append(cstr!("validationLevel"), level);
    }
    if options.validator.is_some() || options.validation_action != ValidationAction::default() {
        let action = match options.validation_action {
            ValidationAction::Error => "error",
            ValidationAction::Warn => "warn",
        };
        shown.append(cstr!("validationAction"), action);
    }
    if let Some(name) = &options.clustered {
        let index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": name.as_str(), "unique": true };
        shown.append(cstr!("clusteredIndex"), index);
    }
    if let Some(collation) = &options.collation {
        shown.append(cstr!("collation"), collation.as_raw());
    }
    if let Some(view) = &options.view {
        shown.append(cstr!("viewOn"), split_stored_name(&view.on).1);
        let mut pipeline = RawArrayBuf::new();
        view.pipeline.iter().for_each(|stage| pipeline.push(stage.as_raw()));
        shown.append(cstr!("pipeline"), pipeline);
    }
    shown
}

/// Returns what `listCollections` says about a collection, without its name.
pub(in crate::commands) fn info(spec: &CollectionSpec) -> RawDocumentBuf {
    match spec.options.view {
        Some(_) => rawdoc! { "readOnly": true },
        None => {
            rawdoc! { "readOnly": false, "uuid": bson::Binary::from(uuid(spec)) }
        }
    }
}

/// Returns the identity of a collection.
pub(in crate::commands) fn uuid(spec: &CollectionSpec) -> bson::Uuid {
    spec.uuid.unwrap_or_else(|| uuid_of_name(&spec.name))
}

/// Returns the identity of a collection that was created without one, by a rule or an earlier version: always the same.
fn uuid_of_name(name: &str) -> bson::Uuid {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, hash)| *byte = hash);
    // version 8: made from other data; variant of RFC 9562
    bytes[6] = (bytes[6] & 0x0F) | 0x80;
    bytes[8] = (bytes[8] & 0x3F) | 0x80;
    bson::Uuid::from_bytes(bytes)
}
