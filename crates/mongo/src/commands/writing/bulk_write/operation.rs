//! The operations of a `bulkWrite`.

use bson::cstr;
use bson::raw::{CStr, RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;

use crate::error::{Code, CommandError, Result};
use crate::fields::{type_name, whole_number};

/// An operation on one collection, by its name in the store.
pub(super) enum Operation<'o> {
    Insert(&'o str, Bytes),
    Update(&'o str, Bytes),
    Delete(&'o str, Bytes),
}

impl<'o> Operation<'o> {
    /// Reads an operation. `at` is its position in the command.
    pub fn parse(at: usize, op: &Bytes, collections: &'o [String]) -> Result<Self> {
        let op = RawDocument::from_bytes(op)?;
        let wrong =
            |message: String| CommandError::new(Code::BadValue, format!("bulkWrite.ops[{at}]: {message}"));
        let first = op.into_iter().next().ok_or_else(|| wrong("an empty operation".to_owned()))??;
        let number = whole_number(first.1).and_then(|number| usize::try_from(number).ok());
        let collection = number.and_then(|number| collections.get(number)).ok_or_else(|| {
            wrong("expected the number of an element of `nsInfo` behind the name of the operation".to_owned())
        })?;
        match first.0.as_str() {
            "insert" => match op.get("document")? {
                Some(RawBsonRef::Document(document)) => {
                    allow(at, op, &["document"])?;
                    Ok(Self::Insert(collection, Bytes::copy_from_slice(document.as_bytes())))
                }
                found => Err(wrong(format!(
                    "`document` is {}: expected an object",
                    found.map_or("missing", type_name)
                ))),
            },
            "update" => {
                const FIELDS: [(&str, &CStr); 8] = [
                    ("filter", cstr!("q")),
                    ("updateMods", cstr!("u")),
                    ("multi", cstr!("multi")),
                    ("upsert", cstr!("upsert")),
                    ("arrayFilters", cstr!("arrayFilters")),
                    ("collation", cstr!("collation")),
                    ("hint", cstr!("hint")),
                    ("sort", cstr!("sort")),
                ];
                Ok(Self::Update(collection, statement(at, op, &FIELDS)?.into_bytes().into()))
            }
            "delete" => {
                const FIELDS: [(&str, &CStr); 4] = [
                    ("filter", cstr!("q")),
                    ("multi", cstr!("multi")),
                    ("collation", cstr!("collation")),
                    ("hint", cstr!("hint")),
                ];
                let mut statement = statement(at, op, &FIELDS)?;
                let many = op.get("multi")? == Some(RawBsonRef::Boolean(true));
                statement.append(cstr!("limit"), i32::from(!many));
                Ok(Self::Delete(collection, statement.into_bytes().into()))
            }
            other => Err(wrong(format!("unknown operation `{other}`: expected insert, update or delete"))),
        }
    }
}

fn allow(at: usize, op: &RawDocument, known: &[&str]) -> Result<()> {
    for element in op.into_iter().skip(1) {
        let name = element?.0.as_str();
        if !known.contains(&name) {
            let message = format!("BSON field 'bulkWrite.ops.{at}.{name}' is an unknown field.");
            return Err(CommandError { code: 40415, message });
        }
    }
    Ok(())
}

/// Returns an operation as the statement of `update` or `delete`.
fn statement(at: usize, op: &RawDocument, fields: &[(&str, &CStr)]) -> Result<RawDocumentBuf> {
    let known: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    allow(at, op, &known)?;
    let mut statement = RawDocumentBuf::new();
    for (name, renamed) in fields {
        if let Some(value) = op.get(name)? {
            statement.append(*renamed, value);
        }
    }
    Ok(statement)
}
