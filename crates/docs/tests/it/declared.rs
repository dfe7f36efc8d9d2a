//! Tests of declaring collections again when they have documents.

use bson::doc;
use tidemill_docs::{CollectionSpec, Direction, DocBytes, ErrorCode, IndexSpec, Store, StoreLimits};

fn bytes(doc: bson::Document) -> DocBytes {
    bson::serialize_to_vec(&doc).unwrap().into()
}

fn index(fields: &[&str], unique: bool) -> IndexSpec {
    IndexSpec {
        name: fields.iter().map(|f| format!("{f}_1")).collect::<Vec<_>>().join("_"),
        fields: fields.iter().map(|f| ((*f).to_owned(), Direction::Ascending)).collect(),
        unique,
        ..IndexSpec::default()
    }
}

fn declared(indexes: &[IndexSpec]) -> CollectionSpec {
    CollectionSpec { indexes: indexes.to_vec(), ..CollectionSpec::new("M") }
}

fn filled() -> Store {
    let mut store = Store::new(StoreLimits::default());
    store.declare_collection(&declared(&[index(&["site"], false)])).unwrap();
    let collection = store.collection_mut("M").unwrap();
    for (id, site, line) in [("a", "N", 1), ("b", "N", 2), ("c", "S", 1)] {
        collection.insert(bytes(doc! { "_id": id, "site": site, "line": line })).unwrap();
    }
    store
}

#[test]
fn indexes_follow_the_declaration() {
    let mut store = filled();
    let wanted = [index(&["line"], false), index(&["site", "line"], true)];
    store.declare_collection(&declared(&wanted)).unwrap();
    assert_eq!(store.collection("M").unwrap().spec(), &declared(&wanted));
    // bytes charged for the old index are released, those of the new ones are charged
    let mut fresh = Store::new(StoreLimits::default());
    fresh.create_collection(&declared(&wanted)).unwrap();
    for doc in store.collection("M").unwrap().documents() {
        fresh.collection_mut("M").unwrap().insert(doc).unwrap();
    }
    assert_eq!(store.bytes(), fresh.bytes());
    let twice = bytes(doc! { "_id": "d", "site": "N", "line": 1 });
    let refused = store.collection_mut("M").unwrap().insert(twice).unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::DuplicateKey);
    let mut turned = wanted.to_vec();
    turned.reverse();
    store.declare_collection(&declared(&turned)).unwrap();
    assert_eq!(store.collection("M").unwrap().spec().indexes, turned, "in the order of the declaration");
    store.declare_collection(&declared(&[])).unwrap();
    assert_eq!(store.collection("M").unwrap().len(), 3);
}

#[test]
fn documents_that_a_unique_index_does_not_allow_are_found() {
    let store = filled();
    let collection = store.collection("M").unwrap();
    let id = |doc: &DocBytes| {
        bson::Document::from_reader(doc.as_ref()).unwrap().get_str("_id").unwrap().to_owned()
    };
    let (first, second) = collection.violation(&index(&["site"], true)).unwrap().unwrap();
    assert_eq!((id(&first), id(&second)), ("a".to_owned(), "b".to_owned()));
    assert_eq!(collection.violation(&index(&["site"], false)).unwrap(), None);
    assert_eq!(collection.violation(&index(&["site", "line"], true)).unwrap(), None);
}

#[test]
fn documents_stay_where_they_are() {
    let mut store = filled();
    for spec in [
        CollectionSpec { replicated: true, ..declared(&[]) },
        CollectionSpec { shard_key: Some("site".into()), ..declared(&[]) },
    ] {
        let refused = store.declare_collection(&spec).unwrap_err();
        assert_eq!(refused.error_code(), ErrorCode::NamespaceExists);
        assert!(refused.to_string().contains("3 documents that are spread by `_id`"), "{refused}");
        let mut empty = Store::new(StoreLimits::default());
        empty.declare_collection(&declared(&[])).unwrap();
        empty.declare_collection(&spec).unwrap();
        assert_eq!(empty.collection("M").unwrap().spec(), &spec);
    }
    store.declare_collection(&CollectionSpec { shard_key: Some("_id".into()), ..declared(&[]) }).unwrap();
}
