//! A table as the queries use it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use tidemill_connect::{
    RefusedRow, RowScope, StoreExpr, StoreUpdate, StoredRow, TableStore, TypedValue, WritePosition,
    all_values, batch_of, typed_values,
};
use tidemill_docs::{Collection, CollectionSpec, DocBytes, Filter, FindOptions, Update, get_path};
use tidemill_types::{Error, Result};

use super::condition::filter_of;
use super::layout::Layout;
use super::slot::{DocumentSlot, SlotContent};

/// A table whose rows are documents of the slot.
pub struct DocumentTable {
    layout: Arc<Layout>,
    /// Definition with which the collection is created again after a client has dropped it.
    spec: CollectionSpec,
    slot: DocumentSlot,
}

impl DocumentTable {
    pub fn new(layout: Arc<Layout>, spec: CollectionSpec, slot: DocumentSlot) -> Self {
        Self { layout, spec, slot }
    }

    /// Calls `write` for each row, in order. Returns the rows for which it fails.
    fn for_each_row<T>(
        &self,
        rows: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&Layout, &mut SlotContent, T) -> Result<(), String>,
    ) -> Vec<RefusedRow> {
        self.slot.with(|content| {
            let mut refused = vec![];
            for (row, of) in rows.into_iter().enumerate() {
                if let Err(reason) = write(&self.layout, content, of) {
                    refused.push(RefusedRow { row, reason });
                }
            }
            refused
        })
    }
}

impl TableStore for DocumentTable {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        limit: Option<usize>,
    ) -> Result<RecordBatch> {
        let given = typed_values(parameters).into_iter().next().unwrap_or_default();
        let found = self.slot.with(|content| match content.collection(&self.layout.collection) {
            Some(collection) => search(collection, &self.layout, condition, &given),
            None => Ok(vec![]),
        })?;
        let mut rows: Vec<StoredRow> = found.into_iter().map(|(_, row)| row).collect();
        rows.truncate(limit.unwrap_or(usize::MAX));
        batch_of(&self.layout.schema, &rows)
    }

    fn insert(&mut self, rows: &RecordBatch, _at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        let spec = &self.spec;
        Ok(self.for_each_row(all_values(rows), |layout, content, row| insert(layout, spec, content, &row)))
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        _at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        Ok(self.for_each_row(typed_values(parameters), |layout, content, given| {
            let Some(collection) = content.store().collection_mut(&layout.collection) else { return Ok(()) };
            for (document, _) in search(collection, layout, condition, &given).map_err(text)? {
                let document = raw(&document)?;
                collection.delete_by_id(&get_path(document, "_id")).map_err(text)?;
            }
            Ok(())
        }))
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        _at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let mut inserted: Vec<Option<StoredRow>> = match insert {
            Some(rows) => all_values(rows).into_iter().map(Some).collect(),
            None => vec![None; parameters.num_rows()],
        };
        inserted.resize(parameters.num_rows(), None);
        let rows = typed_values(parameters).into_iter().zip(inserted);
        let spec = &self.spec;
        Ok(self.for_each_row(rows, |layout, content, (given, new)| {
            let found = match content.collection(&layout.collection) {
                Some(collection) => {
                    search(collection, layout, Some(&change.condition), &given).map_err(text)?
                }
                None => vec![],
            };
            match new {
                Some(new) if found.is_empty() => self::insert(layout, spec, content, &new),
                _ => found.iter().try_for_each(|(document, row)| {
                    update(layout, content, (document, row), &change.set, &given)
                }),
            }
        }))
    }
}

/// Returns the documents that satisfy a condition, with their rows.
fn search(
    collection: &Collection,
    layout: &Layout,
    condition: Option<&StoreExpr>,
    given: &[TypedValue],
) -> Result<Vec<(DocBytes, StoredRow)>> {
    let filter = condition.and_then(|condition| filter_of(condition, given, layout));
    let filter = match filter {
        Some(filter) => Filter::parse(&RawDocumentBuf::try_from(&filter).map_err(bad_bson)?)?,
        None => Filter::all(),
    };
    let mut found = vec![];
    for document in collection.find(&filter, &FindOptions::default())? {
        let row = layout.row(RawDocument::from_bytes(&document).map_err(bad_bson)?);
        let scope = RowScope { types: &layout.types, row: &row, parameters: given };
        if condition.is_none_or(|condition| scope.holds(condition)) {
            found.push((document, row));
        }
    }
    Ok(found)
}

/// Inserts the document of a row.
fn insert(
    layout: &Layout,
    spec: &CollectionSpec,
    content: &mut SlotContent,
    row: &StoredRow,
) -> Result<(), String> {
    let id = match layout.id(row)? {
        Some(id) => id,
        None => Bson::ObjectId(content.next_id(&layout.collection)),
    };
    let document = bytes(&layout.document(id, row)?)?;
    let store = content.store();
    // a client may have dropped it
    if store.collection(&layout.collection).is_none() {
        store.create_collection(spec).map_err(text)?;
    }
    store.require(&layout.collection).and_then(|of| of.insert(document)).map(drop).map_err(text)
}

/// Sets columns of a document. One whose key changes is another document: it takes all other fields along.
fn update(
    layout: &Layout,
    content: &mut SlotContent,
    (document, row): (&DocBytes, &StoredRow),
    set: &[(usize, StoreExpr)],
    given: &[TypedValue],
) -> Result<(), String> {
    let scope = RowScope { types: &layout.types, row, parameters: given };
    let mut new_row = row.clone();
    let mut change = Update::new();
    for (column, x) in set {
        let value = scope.value(x).1;
        change = change.set(layout.name(*column), layout.bson(*column, &value)?);
        if let Some(cell) = new_row.get_mut(*column) {
            *cell = value;
        }
    }
    let now = content.now();
    let collection = content.store().require(&layout.collection).map_err(text)?;
    let old = raw(document)?;
    let keeps_key = set
        .iter()
        .all(|(column, _)| !layout.key.contains(column) || same_value(&row[*column], &new_row[*column]));
    if keeps_key {
        return collection.update_one_by_id(&get_path(old, "_id"), &change, now).map(drop).map_err(text);
    }
    let id = layout.id(&new_row)?.ok_or("the table has no primary key")?;
    let mut moved = Document::try_from(old).map_err(text)?;
    for (column, _) in set {
        moved.insert(layout.name(*column), layout.bson(*column, &new_row[*column])?);
    }
    moved.insert("_id", id);
    let gone = collection.delete_by_id(&get_path(old, "_id")).map_err(text)?;
    match collection.insert(bytes(&moved)?) {
        Ok(_) => Ok(()),
        Err(refused) => {
            if let Some(gone) = gone {
                collection.insert(gone).map_err(text)?;
            }
            Err(refused.to_string())
        }
    }
}

fn same_value(old: &tidemill_types::Value<'_>, new: &tidemill_types::Value<'_>) -> bool {
    old.compare(new) == Some(std::cmp::Ordering::Equal)
}

fn raw(document: &DocBytes) -> Result<&RawDocument, String> {
    RawDocument::from_bytes(document).map_err(text)
}

fn bytes(document: &Document) -> Result<DocBytes, String> {
    Ok(RawDocumentBuf::try_from(document).map_err(text)?.into_bytes().into())
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn bad_bson(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("not a BSON document").with_source(e)
}
