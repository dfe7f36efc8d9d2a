//! Tests of encoding, decoding and applying commands.

use bson::oid::ObjectId;
use bson::{doc, rawdoc};
use bytes::Bytes;
use tidemill_docs::{
    BsonDocument, CappedSize, CollectionChange, CollectionOptions, CollectionSpec, DocBytes, DocumentCommand,
    IndexChange, IndexSpec, Modification, Sequence, Store, StoreLimits, ValidationAction, ValidationLevel,
    ViewSpec,
};
use tidemill_types::{ErrorKind, Timestamp};

fn bytes(doc: bson::Document) -> DocBytes {
    bson::serialize_to_vec(&doc).unwrap().into()
}

/// Returns a value with that many levels.
fn deep(levels: usize) -> bson::Bson {
    (0..levels).fold(bson::Bson::Int32(1), |inner, _| doc! { "d": inner }.into())
}

fn all() -> Vec<DocumentCommand> {
    let collection = "flights".to_owned();
    let mut spec = CollectionSpec::new("flights");
    spec.shard_key = Some("gate".into());
    spec.replicated = true;
    spec.indexes.push(IndexSpec { unique: true, ..IndexSpec::ascending("a.b") });
    vec![
        DocumentCommand::CreateCollection(spec),
        DocumentCommand::Insert {
            collection: collection.clone(),
            docs: vec![bytes(doc! { "_id": 1 }), bytes(doc! { "_id": 2 })],
            ordered: false,
        },
        DocumentCommand::Insert { collection: collection.clone(), docs: vec![], ordered: true },
        DocumentCommand::Update {
            collection: collection.clone(),
            filter: bytes(doc! { "_id": 1 }),
            update: bytes(doc! { "$set": { "a": 1 } }),
            multi: true,
            upsert: true,
            upsert_id: Some(ObjectId::from_bytes([7; 12])),
        },
        DocumentCommand::Replace {
            collection: collection.clone(),
            filter: bytes(doc! {}),
            doc: bytes(doc! { "x": 1 }),
            upsert: false,
            upsert_id: None,
        },
        DocumentCommand::FindAndModify {
            collection: collection.clone(),
            filter: bytes(doc! { "x": 1 }),
            sort: Some(bytes(doc! { "x": -1 })),
            change: Modification::Update(bytes(doc! { "$inc": { "x": 1 } })),
            upsert: true,
            upsert_id: Some(ObjectId::from_bytes([8; 12])),
        },
        DocumentCommand::FindAndModify {
            collection: collection.clone(),
            filter: bytes(doc! { "x": 9 }),
            sort: None,
            change: Modification::Replace(bytes(doc! { "y": 1 })),
            upsert: false,
            upsert_id: None,
        },
        DocumentCommand::FindAndModify {
            collection: collection.clone(),
            filter: bytes(doc! {}),
            sort: None,
            change: Modification::Remove,
            upsert: false,
            upsert_id: None,
        },
        DocumentCommand::Delete { collection: collection.clone(), filter: bytes(doc! {}), multi: false },
        DocumentCommand::CreateIndex { collection: collection.clone(), index: IndexSpec::ascending("x") },
        DocumentCommand::DropIndex { collection: collection.clone(), name: "x_1".into() },
        DocumentCommand::Modify {
            collection: collection.clone(),
            change: CollectionChange {
                validator: Some(BsonDocument::new(&rawdoc! { "n": { "$gt": 1 } })),
                validation_level: Some(ValidationLevel::Moderate),
                validation_action: Some(ValidationAction::Warn),
                capped: Some(CappedSize { bytes: 4096, documents: Some(5) }),
                index: Some(IndexChange {
                    name: "a.b_1".into(),
                    expire_after_seconds: Some(60),
                    hidden: Some(true),
                }),
                view: None,
                change_images: Some(true),
                gathered: true,
                put_in_order: true,
            },
        },
        DocumentCommand::Expire { collection: collection.clone() },
        DocumentCommand::Insert {
            collection: collection.clone(),
            docs: vec![bytes(doc! { "_id": 5, "deep": deep(90) })],
            ordered: true,
        }
        .without_validation(),
        DocumentCommand::Insert {
            collection: collection.clone(),
            docs: vec![bytes(doc! { "_id": 6 }), bytes(doc! { "_id": 7 })],
            ordered: false,
        }
        .with_sequences(vec![Sequence::new(Timestamp(7_000_000), 4), Sequence::new(Timestamp(7_000_000), 90)])
        .without_validation(),
        DocumentCommand::Update {
            collection: collection.clone(),
            filter: bytes(doc! { "x": "A" }),
            update: bytes(doc! { "$addToSet": { "l": "b" } }),
            multi: true,
            upsert: false,
            upsert_id: None,
        }
        .with_collation(Some(BsonDocument::new(&rawdoc! { "locale": "sv", "strength": 2 }))),
        DocumentCommand::Delete {
            collection: collection.clone(),
            filter: bytes(doc! { "x": "A" }),
            multi: true,
        }
        .without_validation()
        .with_collation(Some(BsonDocument::new(&rawdoc! { "locale": "simple" }))),
        DocumentCommand::Update {
            collection: collection.clone(),
            filter: bytes(doc! {}),
            update: bytes(doc! { "$set": { "y": 1 } }),
            multi: true,
            upsert: false,
            upsert_id: None,
        }
        .without_validation()
        .with_first(1),
        DocumentCommand::Rename { collection, to: "arrivals".into(), drop_target: true },
        DocumentCommand::CreateCollection(CollectionSpec {
            options: CollectionOptions {
                view: Some(ViewSpec {
                    on: "arrivals".into(),
                    pipeline: vec![BsonDocument::new(&rawdoc! { "$match": { "a": 1 } })],
                }),
                ..CollectionOptions::default()
            },
            uuid: Some(bson::Uuid::from_bytes([9; 16])),
            ..CollectionSpec::new("view")
        }),
        DocumentCommand::Drop { collection: "view".into() },
        DocumentCommand::EndDatabase { prefix: "shop/".into() },
        DocumentCommand::Drop { collection: "arrivals".into() },
    ]
}

#[test]
fn commands_survive_the_log() {
    for command in all() {
        let bytes = command.to_bytes().unwrap();
        assert_eq!(DocumentCommand::from_bytes(&bytes).unwrap(), command);
        for end in 0..bytes.len() {
            assert!(DocumentCommand::from_bytes(&bytes.slice(..end)).is_err());
        }
    }
}

#[test]
fn all_commands_apply_in_turn() {
    let mut store = Store::new(StoreLimits::default());
    for command in all() {
        store.apply(&command, Timestamp(0)).unwrap_or_else(|e| panic!("{command:?}: {e}"));
    }
    assert_eq!(store.bytes(), 0);
}

#[test]
fn what_is_no_command_is_refused_with_the_field() {
    let raw = |d: bson::RawDocumentBuf| Bytes::from(d.into_bytes());
    for (command, expected) in [
        (rawdoc! {}, "field `op` is missing"),
        (rawdoc! { "op": "insert" }, "field `c` is missing"),
        (rawdoc! { "op": 1, "c": "x" }, "field `op`: expected string, found int"),
        (rawdoc! { "op": "merge", "c": "x" }, "unknown operation \"merge\""),
        (rawdoc! { "op": "drop", "c": "x", "later": 1 }, "unknown field \"later\""),
        (rawdoc! { "op": "insert", "c": "x", "ordered": true, "docs": [1] }, "expected documents, found int"),
        (rawdoc! { "op": "create_index", "c": "x", "index": { "name": "i" } }, "field `index`"),
    ] {
        let e = DocumentCommand::from_bytes(&raw(command)).unwrap_err();
        assert!(e.message().contains(expected), "{e}");
    }
    let torn = DocumentCommand::Delete {
        collection: "c".into(),
        filter: Bytes::from_static(b"\x09\0\0\0"),
        multi: true,
    };
    assert!(torn.to_bytes().is_err());
}

#[test]
fn unknown_collections_are_named_with_what_was_meant() {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("flights")).unwrap();
    let command = DocumentCommand::Drop { collection: "flight".into() };
    let e = store.apply(&command, Timestamp(0)).unwrap_err();
    assert_eq!(
        (e.kind(), e.message()),
        (ErrorKind::NotFound, "no collection `flight`. Did you mean `flights`?")
    );
    let error: tidemill_types::Error = e.into();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for name in ["", "system.x", "a$b"] {
        assert!(store.create_collection(&CollectionSpec::new(name)).is_err());
    }
    let mut other = CollectionSpec::new("flights");
    store.create_collection(&other).unwrap();
    other.replicated = true;
    assert_eq!(store.create_collection(&other).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_renamed_collection_keeps_documents_indexes_and_identity() {
    let mut store = Store::new(StoreLimits::default());
    let old = CollectionSpec {
        indexes: vec![IndexSpec::ascending("a")],
        uuid: Some(bson::Uuid::from_bytes([1; 16])),
        ..CollectionSpec::new("old")
    };
    for spec in [&old, &CollectionSpec::new("taken")] {
        store.create_collection(spec).unwrap();
        store.collection_mut(&spec.name).unwrap().insert(bytes(doc! { "_id": 1, "in": &spec.name })).unwrap();
    }
    let before = store.bytes();
    let mut rename = |to: &str, drop_target| {
        let command = DocumentCommand::Rename { collection: "old".into(), to: to.into(), drop_target };
        store.apply(&command, Timestamp(0)).map_err(|e| e.code())
    };
    assert_eq!(rename("taken", false), Err(48));
    assert_eq!(rename("old", true), Err(20));
    assert_eq!(rename("a$b", true), Err(2));
    rename("taken", true).unwrap();
    assert_eq!(rename("other", false), Err(26));
    assert_eq!(store.collection_names().collect::<Vec<_>>(), ["taken"]);
    let renamed = store.collection("taken").unwrap();
    assert_eq!(renamed.spec(), &CollectionSpec { name: "taken".into(), ..old });
    assert_eq!(renamed.documents(), [bytes(doc! { "_id": 1, "in": "old" })]);
    assert!(store.bytes() < before, "what was dropped is released");
}
