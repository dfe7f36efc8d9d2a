//! The order of a query's documents, when it is not only that of `sort`: `$natural`, an index that the client names, and bounds in
//! the order of that index.

use bson::raw::{RawBsonRef, RawDocument};
use tidemill_docs::{Collation, CollectionSpec, Direction, IndexBounds, SortOrder};

use crate::commands::index::index_spec;
use crate::error::{CommandError, Result};
use crate::fields::Call;
use crate::shared::Shared;

/// The order of a query's documents.
#[derive(Default)]
pub(in crate::commands) struct Order {
    /// By fields; empty for that of the index which finds the documents, or of insertion.
    pub sort: SortOrder,
    /// The order of insertion, or the reverse of it, if the client asks for one of them.
    pub natural: Option<Direction>,
    /// Keys of the first document, and of the one after the last, in the order of the index.
    pub bounds: Option<IndexBounds>,
}

/// Reads `sort`, `hint`, `min` and `max`.
///
/// Errors: bounds without an index, or with other fields than those of the index.
pub(in crate::commands) fn of(
    shared: &Shared,
    call: &Call<'_>,
    collection: &str,
    collation: Option<&Collation>,
) -> Result<Order> {
    let mut order = Order::default();
    let sort = call.document("sort")?.filter(|sort| !sort.is_empty());
    let hinted = match call.get("hint") {
        Some(hint) => shared
            .engine
            .collection_spec(collection)
            .ok()
            .map(|spec| index_of(&spec, hint))
            .transpose()?
            .flatten(),
        None => None,
    };
    order.natural = natural(sort, call.get("hint"));
    match (sort, &hinted) {
        _ if order.natural.is_some() => {}
        (Some(sort), _) => order.sort = SortOrder::parse_query(sort)?.with_collation(collation.cloned()),
        (None, Some(index)) => order.sort = index.clone(),
        (None, None) => {}
    }
    let (low, high) = (bound(call, "min")?, bound(call, "max")?);
    if low.is_none() && high.is_none() {
        return Ok(order);
    }
    let Some(index) = hinted else {
        let message = "When using min()/max() a hint of which index to use must be provided";
        return Err(CommandError { code: 51173, message: message.to_owned() });
    };
    for bound in [low, high].into_iter().flatten() {
        if !index.has_fields(bound.into_iter().filter_map(|e| e.ok()).map(|(name, _)| name.as_str())) {
            let message = "the fields of min() and max() must be those of the index, in their order";
            return Err(CommandError { code: 51174, message: message.to_owned() });
        }
    }
    let key = |bound: &RawDocument| index.key(bound.as_bytes());
    order.bounds = Some(IndexBounds { low: low.map(key), high: high.map(key), order: index });
    Ok(order)
}

/// Returns the direction of a sort by `$natural`, or without a sort that of such a hint.
pub(in crate::commands) fn natural(
    sort: Option<&RawDocument>,
    hint: Option<RawBsonRef<'_>>,
) -> Option<Direction> {
    let of = |document: &RawDocument| document.get("$natural").ok().flatten().and_then(direction);
    match sort {
        Some(sort) => of(sort),
        None => hint.and_then(|hint| hint.as_document()).and_then(of),
    }
}

fn bound<'r>(call: &Call<'r>, field: &str) -> Result<Option<&'r RawDocument>> {
    Ok(call.document(field)?.filter(|bound| !bound.is_empty()))
}

fn direction(value: RawBsonRef<'_>) -> Option<Direction> {
    match crate::fields::whole_number(value)? {
        1 => Some(Direction::Ascending),
        -1 => Some(Direction::Descending),
        _ => None,
    }
}

/// Returns the order of the index that a hint names; `None` if it has none.
fn index_of(spec: &CollectionSpec, hint: RawBsonRef<'_>) -> Result<Option<SortOrder>> {
    let by_id = || vec![("_id".to_owned(), Direction::Ascending)];
    let (fields, collation) = match hint {
        RawBsonRef::String(name) if name == index_spec::id_index_name(spec) => {
            (by_id(), &spec.options.collation)
        }
        RawBsonRef::String(name) => match spec.indexes.iter().find(|index| index.name == name) {
            Some(index) if !index.has_values() => return Ok(None),
            Some(index) => (index.fields.clone(), &index.collation),
            None => return Ok(None),
        },
        RawBsonRef::Document(pattern) => match index_spec::key(pattern) {
            Ok(key) if !key.has_values() => return Ok(None),
            Ok(key) if key.fields == by_id() => (key.fields, &spec.options.collation),
            Ok(key) => {
                let index = spec.indexes.iter().find(|index| key.is_of(index));
                (key.fields, index.map_or(&None, |index| &index.collation))
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    if fields.iter().any(|(path, _)| path.contains('$')) {
        return Ok(None);
    }
    let collation = match collation {
        Some(collation) => Collation::parse(collation.as_raw())?,
        None => None,
    };
    let order = SortOrder::default().with_collation(collation);
    Ok(Some(fields.iter().fold(order, |order, (path, direction)| order.then(path, *direction))))
}
