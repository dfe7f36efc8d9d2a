//! Descriptions of changed definitions, as change streams tell them.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};

use crate::spec::{CollectionChange, CollectionSpec, IndexSpec};

/// Describes a new collection: its index of `_id`, or what the view reads.
pub(crate) fn of_collection(spec: &CollectionSpec) -> RawDocumentBuf {
    match &spec.options.view {
        None => rawdoc! { "idIndex": { "v": 2, "key": { "_id": 1 }, "name": "_id_" } },
        Some(view) => {
            let mut pipeline = RawArrayBuf::new();
            view.pipeline.iter().for_each(|stage| pipeline.push(stage.as_raw()));
            rawdoc! { "viewOn": view.on.as_str(), "pipeline": pipeline }
        }
    }
}

/// Describes an index that was created or dropped.
pub(crate) fn of_index(index: &IndexSpec) -> RawDocumentBuf {
    let mut one = rawdoc! { "v": 2 };
    if let Ok(pattern) = RawDocument::from_bytes(&index.key_pattern()) {
        one.append(cstr!("key"), pattern);
    }
    one.append(cstr!("name"), index.name.as_str());
    if index.unique {
        one.append(cstr!("unique"), true);
    }
    rawdoc! { "indexes": [one] }
}

/// Describes changed options: the name of an index, and the new validator.
pub(super) fn of_change(change: &CollectionChange) -> RawDocumentBuf {
    let mut description = RawDocumentBuf::new();
    if let Some(index) = &change.index {
        description.append(cstr!("index"), rawdoc! { "name": index.name.as_str() });
    }
    if let Some(validator) = &change.validator {
        description.append(cstr!("validator"), validator.as_raw());
    }
    description
}
