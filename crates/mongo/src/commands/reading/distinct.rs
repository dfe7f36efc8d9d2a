//! `distinct`.

use std::collections::BTreeMap;

use bson::cstr;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{Collation, DocBytes, FindOptions, HeldMemory, Key};
use tidemill_types::{Value, budget};

use crate::commands::{collation, reading::find};
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

/// Bytes of one distinct value with its key. Most values are small.
const ENTRY_BYTES: usize = 128;

pub(in crate::commands) fn distinct(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["key", "query", "collation", "hint"])?;
    let collection = call.collection()?;
    let filter = call.document("query")?.unwrap_or_else(|| find::empty());
    let by = collation::of(shared, call)?;
    let filter = find::read_filter(filter, by.as_ref())?;
    let found = find::find_parsed(shared, &collection, &filter, &FindOptions::default())?;
    reply(&found, call, by.as_ref())
}

/// Returns the reply with the distinct values of the documents; of those that a collation calls equal the first.
pub(in crate::commands) fn reply(
    found: &[DocBytes],
    call: &Call<'_>,
    collation: Option<&Collation>,
) -> Result<RawDocumentBuf> {
    let Some(key) = call.text("key")? else {
        return Err(CommandError::new(
            Code::MissingField,
            "BSON field 'distinct.key' is missing but a required field",
        ));
    };
    let mut values = BTreeMap::new();
    let mut held = HeldMemory::default();
    for document in found {
        let before = values.len();
        visit(RawBsonRef::Document(RawDocument::from_bytes(document)?), key, &mut |value| {
            values.entry(Key::of_by(&Value::from_bson(value), collation)).or_insert(value);
        })?;
        budget::step()?;
        held.add((values.len() - before) * ENTRY_BYTES)?;
    }
    let mut array = RawArrayBuf::new();
    values.into_values().for_each(|value| array.push(value));
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("values"), array);
    Ok(ok(reply))
}

/// Visits the values at a dotted path: in documents of arrays, too, and the elements of an array at its end.
fn visit<'d>(value: RawBsonRef<'d>, path: &str, found: &mut dyn FnMut(RawBsonRef<'d>)) -> Result<()> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match value {
        RawBsonRef::Document(document) => {
            let Some(inner) = document.get(name)? else { return Ok(()) };
            match (rest, inner) {
                (Some(rest), inner) => visit(inner, rest, found)?,
                (None, RawBsonRef::Array(array)) => {
                    for element in array {
                        found(element?);
                    }
                }
                (None, inner) => found(inner),
            }
        }
        RawBsonRef::Array(array) => {
            for (index, element) in array.into_iter().enumerate() {
                let element = element?;
                if name.parse() == Ok(index) {
                    match rest {
                        Some(rest) => visit(element, rest, found)?,
                        None => found(element),
                    }
                } else if matches!(element, RawBsonRef::Document(_)) {
                    visit(element, path, found)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
