//! Documents with a field that comes twice, which earlier versions have stored: all readers mean the first one.

use bson::{Document, RawDocumentBuf, cstr, doc, rawdoc};
use tidemill_docs::{
    CollectionSpec, DocBytes, DocumentCommand, Filter, FindOptions, IndexSpec, Projection, Store,
    StoreLimits, repeated_field,
};
use tidemill_types::Timestamp;

fn twice(id: i32) -> DocBytes {
    let mut document = rawdoc! { "_id": id, "b": id };
    document.append(cstr!("c"), rawdoc! { "x": 1 });
    document.append(cstr!("b"), 100 + id);
    document.into_bytes().into()
}

fn bytes(document: Document) -> DocBytes {
    bson::serialize_to_vec(&document).unwrap().into()
}

#[test]
fn an_index_and_a_scan_find_the_same_ones() {
    let mut found = Vec::new();
    for has_index in [false, true] {
        let mut store = Store::new(StoreLimits::default());
        let mut spec = CollectionSpec::new("c");
        if has_index {
            spec.indexes.push(IndexSpec::ascending("b"));
        }
        store.create_collection(&spec).unwrap();
        let collection = store.collection_mut("c").unwrap();
        (0..10).for_each(|id| drop(collection.insert(twice(id)).unwrap()));
        assert_eq!(repeated_field(collection.iter().next().unwrap()).as_deref(), Some("b"));
        let count = |store: &Store, filter: RawDocumentBuf| {
            store.collection("c").unwrap().count(&Filter::parse(&filter).unwrap()).unwrap()
        };
        let filters =
            || [rawdoc! { "b": 3 }, rawdoc! { "b": 103 }, rawdoc! { "b": { "$gt": 50 } }, rawdoc! {}];
        found.push(filters().map(|filter| count(&store, filter)));
        // updates and deletes leave store and index in agreement
        let update = |filter: Document, update: Document| DocumentCommand::Update {
            collection: "c".into(),
            filter: bytes(filter),
            update: bytes(update),
            multi: true,
            upsert: false,
            upsert_id: None,
        };
        for command in [
            update(doc! { "b": { "$lt": 4 } }, doc! { "$inc": { "b": 1000 } }),
            update(doc! { "_id": 5 }, doc! { "$unset": { "b": 1 } }),
            update(doc! { "_id": 6 }, doc! { "$rename": { "b": "d" } }),
            update(doc! { "_id": 7 }, doc! { "$set": { "c.x": 2 } }),
            DocumentCommand::Delete { collection: "c".into(), filter: bytes(doc! { "b": 8 }), multi: true },
        ] {
            let outcome = store.apply(&command, Timestamp(0)).unwrap();
            assert_eq!(outcome.errors, [], "{command:?}");
        }
        found.push(filters().map(|filter| count(&store, filter)));
        let all = store.collection("c").unwrap();
        let projection = Projection::parse(&rawdoc! { "b": 1 }).unwrap();
        let options = FindOptions { projection: Some(projection), ..FindOptions::default() };
        assert_eq!(all.find(&Filter::all(), &options).unwrap().len(), 9);
        let mut saved = Vec::new();
        store.snapshot().write_to(&mut saved).unwrap();
        let loaded = Store::read_from(&mut saved.as_slice(), StoreLimits::default()).unwrap();
        found.push(filters().map(|filter| count(&loaded, filter)));
    }
    assert_eq!(found[0], [1, 0, 0, 10]);
    assert_eq!(found[..3], found[3..]);
    assert_eq!(found[1], found[2]);
}
