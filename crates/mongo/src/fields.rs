//! Fields of a command.

use bson::RawDocument;
use bson::raw::RawBsonRef;
use bytes::Bytes;

use crate::error::{Code, CommandError, Result};
use crate::namespace::stored_name;
use crate::wire::frame::Request;

/// Fields that every command may have.
const COMMON: &[&str] = &[
    "$db",
    "$clusterTime",
    "$readPreference",
    "lsid",
    "txnNumber",
    "startTransaction",
    "autocommit",
    "readConcern",
    "writeConcern",
    "maxTimeMS",
    "comment",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
];

/// A command, whose body is valid BSON.
pub(crate) struct Call<'r> {
    /// Name of the command, as sent.
    pub name: &'r str,
    /// Database that it addresses.
    pub database: &'r str,
    body: &'r RawDocument,
    request: &'r Request,
    /// Full name that replies show; `None` for that of the collection.
    namespace: Option<String>,
}

impl<'r> Call<'r> {
    /// Reads the command of a request. Errors: the body is not a command.
    pub fn of(request: &'r Request) -> Result<Self> {
        tidemill_docs::validate(request.body.clone())?;
        Self::of_valid(request)
    }

    /// Reads the command of a request whose body [`Self::of`] has checked.
    pub fn of_valid(request: &'r Request) -> Result<Self> {
        let body = RawDocument::from_bytes(&request.body)?;
        let first = body.into_iter().next().ok_or_else(|| failed("an empty command"))??;
        let name = first.0.as_str();
        // the first command of a connection may come without a database, in a form of its own
        let database = match body.get("$db")? {
            Some(RawBsonRef::String(database)) => {
                crate::namespace::check_database(database)?;
                database
            }
            None => "admin",
            Some(_) => return Err(failed("`$db` is not a string")),
        };
        Ok(Self { name, database, body, request, namespace: None })
    }

    /// Returns the command with another full name in its replies, that of a view.
    pub fn with_namespace(self, namespace: String) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// Returns whether the command says which database it addresses, or has come in a form without one.
    pub fn has_database(&self) -> bool {
        self.request.is_legacy() || self.get("$db").is_some()
    }

    /// Returns the bytes of the body.
    pub fn body(&self) -> &'r RawDocument {
        self.body
    }

    /// Returns a field; `None` if it is missing or null.
    pub fn get(&self, field: &str) -> Option<RawBsonRef<'r>> {
        self.body.get(field).ok().flatten().filter(|value| !matches!(value, RawBsonRef::Null))
    }

    /// Refuses fields that the command does not have.
    pub fn allow(&self, fields: &[&str]) -> Result<()> {
        for element in self.body.iter().skip(1) {
            let name = element?.0.as_str();
            if !fields.contains(&name) && !COMMON.contains(&name) {
                let message = format!("BSON field '{}.{name}' is an unknown field.", self.name);
                return Err(CommandError { code: 40415, message });
            }
        }
        Ok(())
    }

    /// Returns the name in the store of the collection that the command names first.
    pub fn collection(&self) -> Result<String> {
        match self.get(self.name) {
            Some(RawBsonRef::String(name)) => stored_name(self.database, name),
            Some(other) => {
                let message =
                    format!("collection name has invalid type {}: expected a string", type_name(other));
                Err(CommandError::new(Code::InvalidNamespace, message))
            }
            None => Err(CommandError::new(Code::InvalidNamespace, "the collection's name is missing")),
        }
    }

    /// Returns the full name of that collection, `database.collection`.
    pub fn namespace(&self) -> String {
        if let Some(namespace) = &self.namespace {
            return namespace.clone();
        }
        let name = self.get(self.name).and_then(|v| v.as_str()).unwrap_or_default();
        format!("{}.{name}", self.database)
    }

    pub fn document(&self, field: &str) -> Result<Option<&'r RawDocument>> {
        match self.get(field) {
            None => Ok(None),
            Some(RawBsonRef::Document(document)) => Ok(Some(document)),
            Some(other) => Err(self.wrong_type(field, other, "an object")),
        }
    }

    pub fn text(&self, field: &str) -> Result<Option<&'r str>> {
        match self.get(field) {
            None => Ok(None),
            Some(RawBsonRef::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(field, other, "a string")),
        }
    }

    pub fn flag(&self, field: &str, default: bool) -> Result<bool> {
        match self.get(field) {
            None => Ok(default),
            Some(RawBsonRef::Boolean(flag)) => Ok(flag),
            Some(other) => match whole_number(other) {
                Some(number) => Ok(number != 0),
                None => Err(self.wrong_type(field, other, "a bool")),
            },
        }
    }

    /// Returns a number that is not negative.
    pub fn count(&self, field: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = whole_number(value).ok_or_else(|| self.wrong_type(field, value, "a whole number"))?;
        u64::try_from(number).map(Some).map_err(|_| {
            let message = format!("BSON field '{}.{field}' is {number}: expected 0 or more", self.name);
            CommandError { code: 51024, message }
        })
    }

    /// Returns a list of documents, which is in the body or beside it.
    pub fn documents(&self, field: &str) -> Result<Vec<Bytes>> {
        if let Some((_, documents)) = self.request.sequences.iter().find(|(name, _)| name == field) {
            return Ok(documents.clone());
        }
        let Some(value) = self.get(field) else {
            let message = format!("BSON field '{}.{field}' is missing but a required field", self.name);
            return Err(CommandError::new(Code::MissingField, message));
        };
        let RawBsonRef::Array(array) = value else { return Err(self.wrong_type(field, value, "an array")) };
        let mut documents = Vec::new();
        for element in array {
            match element? {
                RawBsonRef::Document(document) => {
                    documents.push(self.request.body.slice_ref(document.as_bytes()))
                }
                other => return Err(self.wrong_type(field, other, "an array of objects")),
            }
        }
        Ok(documents)
    }

    /// Returns the error for a field of the wrong type.
    pub fn wrong_type(&self, field: &str, found: RawBsonRef<'_>, expected: &str) -> CommandError {
        CommandError::wrong_type(self.name, field, type_name(found), expected)
    }

    /// Refuses a field that changes the meaning of a command and is not supported. An empty document or array
    /// counts as absent.
    pub fn refuse(&self, field: &str) -> Result<()> {
        let empty = |value: RawBsonRef<'_>| match value {
            RawBsonRef::Document(document) => document.is_empty(),
            RawBsonRef::Array(array) => array.is_empty(),
            RawBsonRef::Boolean(flag) => !flag,
            _ => false,
        };
        match self.get(field).filter(|value| !empty(*value)) {
            None => Ok(()),
            Some(_) => Err(CommandError::not_supported(format!("`{}.{field}`", self.name))),
        }
    }
}

/// Returns a number of any type that is whole.
pub(crate) fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(n) => Some(n.into()),
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Double(n) if n.fract() == 0.0 && n.abs() < 9e15 => Some(n as i64),
        _ => None,
    }
}

/// Returns the name of a value's type, as MongoDB calls it.
pub(crate) fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Null => "null",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::Timestamp(_) => "timestamp",
        _ => "another type",
    }
}

fn failed(what: &str) -> CommandError {
    CommandError::new(Code::FailedToParse, what)
}
