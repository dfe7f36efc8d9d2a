//! The `_id` of a document of an entity is the value of its key, whatever command writes it.

use bson::oid::ObjectId;
use bson::{Document, doc};
use bytes::Bytes;
use tidemill_docs::{
    CollectionSpec, CommandOutcome, DocBytes, DocumentCommand, Modification, Store, StoreLimits,
};
use tidemill_types::Timestamp;

fn bytes(doc: Document) -> DocBytes {
    bson::serialize_to_vec(&doc).unwrap().into()
}

fn store() -> Store {
    let mut store = Store::new(StoreLimits::default());
    store.set_entity_keys([("Device", "id")]);
    store.create_collection(&CollectionSpec::new("Device")).unwrap();
    store
}

fn insert(doc: Document) -> DocumentCommand {
    DocumentCommand::Insert { collection: "Device".into(), docs: vec![bytes(doc)], ordered: true }
}

fn update(filter: Document, update: Document) -> DocumentCommand {
    DocumentCommand::Update {
        collection: "Device".into(),
        filter: bytes(filter),
        update: bytes(update),
        multi: false,
        upsert: true,
        upsert_id: Some(ObjectId::from_bytes([7; 12])),
    }
}

fn replace(filter: Document, doc: Document) -> DocumentCommand {
    DocumentCommand::Replace {
        collection: "Device".into(),
        filter: bytes(filter),
        doc: bytes(doc),
        upsert: true,
        upsert_id: Some(ObjectId::from_bytes([7; 12])),
    }
}

fn modify(filter: Document, change: Modification) -> DocumentCommand {
    DocumentCommand::FindAndModify {
        collection: "Device".into(),
        filter: bytes(filter),
        sort: None,
        change,
        upsert: true,
        upsert_id: Some(ObjectId::from_bytes([7; 12])),
    }
}

/// Applies a command as the log has it.
fn apply(store: &mut Store, command: &DocumentCommand) -> CommandOutcome {
    let logged = DocumentCommand::from_bytes(&command.to_bytes().unwrap()).unwrap();
    store.apply(&logged, Timestamp(1)).unwrap()
}

fn documents(store: &Store) -> Vec<Document> {
    store.collection("Device").unwrap().iter().map(|d| bson::deserialize_from_slice(d).unwrap()).collect()
}

#[test]
fn what_has_one_of_both_gets_the_other() {
    let id = ObjectId::from_bytes([7; 12]);
    let cases = [
        (insert(doc! { "id": "a", "n": 1 }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (insert(doc! { "_id": "a", "n": 1 }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (insert(doc! { "_id": 3, "id": 3.0 }), doc! { "_id": 3, "id": 3.0 }),
        (update(doc! { "_id": "a" }, doc! { "$set": { "n": 1 } }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (update(doc! { "id": "a" }, doc! { "$set": { "n": 1 } }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (update(doc! { "n": 1 }, doc! { "$set": { "id": "a" } }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (update(doc! { "n": 1 }, doc! { "$inc": { "n": 1 } }), doc! { "_id": id, "id": id, "n": 2 }),
        (
            update(doc! { "n": 1 }, doc! { "$pipeline": [{ "$set": { "id": "a" } }] }),
            doc! { "_id": "a", "id": "a", "n": 1 },
        ),
        (
            update(doc! { "n": 1 }, doc! { "$pipeline": [{ "$set": { "m": 2 } }] }),
            doc! { "_id": id, "id": id, "n": 1, "m": 2 },
        ),
        (replace(doc! { "_id": "a" }, doc! { "n": 1 }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (replace(doc! { "id": "a" }, doc! { "n": 1 }), doc! { "_id": "a", "id": "a", "n": 1 }),
        (replace(doc! { "n": 1 }, doc! { "id": "a" }), doc! { "_id": "a", "id": "a" }),
        (
            modify(doc! { "id": "a" }, Modification::Update(bytes(doc! { "$set": { "n": 1 } }))),
            doc! { "_id": "a", "id": "a", "n": 1 },
        ),
        (
            modify(doc! { "n": 1 }, Modification::Replace(bytes(doc! { "id": "a" }))),
            doc! { "_id": "a", "id": "a" },
        ),
    ];
    for (command, expected) in cases {
        let mut store = store();
        let outcome = apply(&mut store, &command);
        assert_eq!(outcome.errors, [], "{command:?}");
        assert_eq!(documents(&store), [expected], "{command:?}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let commands = [
        insert(doc! { "_id": ObjectId::from_bytes([1; 12]), "id": "zz" }),
        insert(doc! { "_id": "zz", "id": bson::Bson::Null }),
        insert(doc! { "_id": "b", "id": "c" }).without_validation(),
        update(doc! { "_id": "a" }, doc! { "$set": { "id": "b" } }),
        update(doc! { "_id": "a" }, doc! { "$unset": { "id": 1 } }),
        update(doc! { "_id": "a" }, doc! { "$rename": { "id": "name" } }),
        update(doc! { "_id": "a" }, doc! { "$rename": { "n": "id" } }).without_validation(),
        update(doc! { "_id": "a" }, doc! { "$pipeline": [{ "$set": { "id": "b" } }] }),
        update(doc! { "_id": "b" }, doc! { "$set": { "id": "c" } }),
        update(doc! { "_id": "b", "id": "c" }, doc! { "$set": { "n": 1 } }),
        replace(doc! { "_id": "a" }, doc! { "id": "b" }),
        replace(doc! { "_id": "b" }, doc! { "id": "c" }),
        modify(doc! { "_id": "a" }, Modification::Update(bytes(doc! { "$set": { "id": 1 } }))),
        modify(doc! { "_id": "a" }, Modification::Replace(bytes(doc! { "id": 1 }))),
    ];
    for command in commands {
        let mut store = store();
        apply(&mut store, &insert(doc! { "_id": "a", "n": "old" }));
        let before = documents(&store);
        let outcome = apply(&mut store, &command);
        assert_eq!(outcome.errors.len(), 1, "{command:?}");
        let error = &outcome.errors[0].error;
        assert_eq!(error.code(), 121, "{command:?}: {error}");
        assert!(error.to_string().contains("entity Device"), "{error}");
        assert!(error.details().is_some());
        assert_eq!(documents(&store), before, "{command:?}");
    }
}

#[test]
fn the_key_stays_where_a_document_is_replaced() {
    let whole = doc! { "_id": "a", "id": "a", "m": 2 };
    for command in [
        replace(doc! { "_id": "a" }, doc! { "m": 2 }),
        replace(doc! { "id": "a" }, doc! { "m": 2, "id": "a" }),
        update(doc! { "_id": "a" }, doc! { "$pipeline": [{ "$replaceWith": { "m": 2 } }] }),
        update(
            doc! { "_id": "a" },
            doc! { "$pipeline": [{ "$unset": ["id", "n"] }, { "$set": { "m": 2 } }] },
        ),
        update(doc! { "_id": "a" }, doc! { "$set": { "id": "a", "m": 2 }, "$unset": { "n": 1 } }),
    ] {
        let mut store = store();
        apply(&mut store, &insert(doc! { "_id": "a", "n": 1 }));
        let outcome = apply(&mut store, &command);
        assert_eq!(outcome.errors, [], "{command:?}");
        // fields may have another order
        let mut found: Vec<_> = documents(&store).remove(0).into_iter().collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        assert_eq!(found.into_iter().collect::<Document>(), whole, "{command:?}");
    }
}

/// A log of a version that did not compare `_id` and key makes the same documents again. They are counted, keep their key,
/// and can be corrected.
#[test]
fn a_document_of_an_earlier_log_stays_and_is_counted() {
    let written = bson::rawdoc! {
        "op": "insert", "c": "Device", "ordered": true,
        "docs": [{ "_id": 1, "id": "zz" }, { "_id": 2, "status": "ok" }, { "_id": 3, "id": 3 }],
    };
    let command = DocumentCommand::from_bytes(&Bytes::from(written.into_bytes())).unwrap();
    let mut store = store();
    assert_eq!(store.apply(&command, Timestamp(1)).unwrap().inserted, 3);
    assert_eq!(documents(&store)[0], doc! { "_id": 1, "id": "zz" });
    let contradictions = |store: &Store| store.collection("Device").unwrap().contradictions();
    assert_eq!(contradictions(&store), 2);

    for (number, (filter, change, errors, left)) in [
        (doc! { "_id": 1 }, doc! { "$set": { "status": "new" } }, 0, 2),
        (doc! { "_id": 1 }, doc! { "$set": { "id": "yy" } }, 1, 2),
        (doc! { "_id": 1 }, doc! { "$set": { "id": 1 } }, 0, 1),
        (doc! { "_id": 2 }, doc! { "$set": { "id": 1 } }, 1, 1),
        (doc! { "_id": 2 }, doc! { "$pipeline": [{ "$set": { "n": 1 } }] }, 0, 0),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(apply(&mut store, &update(filter, change)).errors.len(), errors, "{number}");
        assert_eq!(contradictions(&store), left, "{number}");
    }

    // the same over a checkpoint, and where an entity is declared over a collection
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("Device")).unwrap();
    store.apply(&command, Timestamp(1)).unwrap();
    assert_eq!(contradictions(&store), 0, "it is no entity");
    let mut checkpoint = Vec::new();
    store.snapshot().write_to(&mut checkpoint).unwrap();
    let mut store = Store::read_from(&mut checkpoint.as_slice(), StoreLimits::default()).unwrap();
    store.set_entity_keys([("Device", "id")]);
    assert_eq!(contradictions(&store), 2);
    let gone = DocumentCommand::Delete {
        collection: "Device".into(),
        filter: bytes(doc! { "_id": 1 }),
        multi: false,
    };
    apply(&mut store, &gone);
    assert_eq!(contradictions(&store), 1);
    store.set_entity_keys([]);
    assert_eq!(contradictions(&store), 0);
}

#[test]
fn a_collection_that_is_created_again_is_the_entity_again() {
    let mut store = store();
    store.drop_collection("Device");
    store.create_collection(&CollectionSpec::new("Device")).unwrap();
    assert_eq!(apply(&mut store, &insert(doc! { "_id": 1, "id": 2 })).errors[0].error.code(), 121);
    let mut fork = Store::fork(&store.snapshot());
    assert_eq!(apply(&mut fork, &insert(doc! { "_id": 1, "id": 2 })).errors[0].error.code(), 121);
    store.create_collection(&CollectionSpec::new("other")).unwrap();
    store.rename_collection("Device", "gone", false).unwrap();
    store.rename_collection("other", "Device", false).unwrap();
    assert_eq!(apply(&mut store, &insert(doc! { "_id": 1, "id": 2 })).errors[0].error.code(), 121);
}
