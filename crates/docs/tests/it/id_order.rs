//! The order by `_id` that queries make a collection build: it returns what a full sort does, changes no write, and gives its
//! memory up when documents need it.

use bson::raw::RawDocument;
use bson::{Bson, RawDocumentBuf, doc, rawdoc};
use proptest::prelude::*;
use tidemill_docs::{
    BsonDocument, Collection, CollectionSpec, DocBytes, DocumentCommand, Filter, FindOptions, IndexBounds,
    Modification, SortOrder, Store, StoreLimits, StoreSnapshot,
};
use tidemill_types::Timestamp;

const DOCS: i32 = 1500;

fn raw(doc: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).unwrap()
}

fn bytes(doc: &bson::Document) -> DocBytes {
    raw(doc).into_bytes().into()
}

/// An `_id` that is a number, a string or a document, in an order of its own.
fn id(n: i32) -> Bson {
    let mixed = n.wrapping_mul(7919) % 10_007;
    match n % 5 {
        0 => Bson::String(format!("user{mixed}, with a key that is too long to be inline")),
        1 => Bson::Double(f64::from(mixed) / 2.0),
        2 => Bson::Document(doc! { "n": mixed }),
        _ => Bson::Int32(mixed),
    }
}

fn store() -> Store {
    store_by(None)
}

fn store_by(collation: Option<BsonDocument>) -> Store {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("c");
    spec.options.collation = collation;
    store.create_collection(&spec).unwrap();
    let docs = (0..DOCS).map(|n| bytes(&doc! { "_id": id(n), "a": n % 7 })).collect();
    apply(&mut store, &DocumentCommand::Insert { collection: "c".into(), docs, ordered: false });
    store
}

fn apply(store: &mut Store, command: &DocumentCommand) {
    store.apply(command, Timestamp(0)).unwrap();
}

fn sorted(spec: &bson::Document) -> FindOptions {
    FindOptions { sort: SortOrder::parse(&raw(spec)).unwrap(), ..FindOptions::default() }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(i32),
    Replace(i32, i32),
    Delete(i32),
    /// Deletes those whose `_id` is a number from `.0` up to `.1`.
    DeleteRange(i32, i32),
    DeleteFirst(i32),
    TakeFirst(i32),
    SetRange(i32, i32),
    Clear,
    Read,
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..DOCS + 50).prop_map(Step::Insert),
        3 => (0..DOCS, 0..7).prop_map(|(n, a)| Step::Replace(n, a)),
        3 => (0..DOCS).prop_map(Step::Delete),
        2 => (0..10_000, 0..10_000).prop_map(|(a, b)| Step::DeleteRange(a, b)),
        1 => (0..10_000).prop_map(Step::DeleteFirst),
        1 => (0..7).prop_map(Step::TakeFirst),
        1 => (0..10_000, 0..7).prop_map(|(from, a)| Step::SetRange(from, a)),
        1 => Just(Step::Clear),
        6 => Just(Step::Read),
        1 => Just(Step::Keep),
    ]
}

fn command(step: &Step) -> Option<DocumentCommand> {
    let (collection, filter) = ("c".to_owned(), |filter: RawDocumentBuf| filter.into_bytes().into());
    let delete = |filter, multi| DocumentCommand::Delete { collection: "c".into(), filter, multi };
    Some(match step {
        Step::Insert(n) => {
            let docs = vec![bytes(&doc! { "_id": id(*n), "a": 3 })];
            DocumentCommand::Insert { collection, docs, ordered: true }
        }
        Step::Replace(n, a) => DocumentCommand::Replace {
            collection,
            filter: bytes(&doc! { "_id": id(*n) }),
            doc: bytes(&doc! { "a": *a, "replaced": true }),
            upsert: false,
            upsert_id: None,
        },
        Step::Delete(n) => delete(bytes(&doc! { "_id": id(*n) }), false),
        Step::DeleteRange(from, to) => delete(filter(rawdoc! { "_id": { "$gte": *from, "$lt": *to } }), true),
        Step::DeleteFirst(from) => delete(filter(rawdoc! { "_id": { "$gt": *from } }), false),
        Step::TakeFirst(a) => DocumentCommand::FindAndModify {
            collection,
            filter: filter(rawdoc! { "a": *a }),
            sort: Some(filter(rawdoc! { "_id": -1 })),
            change: Modification::Remove,
            upsert: false,
            upsert_id: None,
        },
        Step::SetRange(from, a) => DocumentCommand::Update {
            collection,
            filter: filter(rawdoc! { "_id": { "$lte": *from } }),
            update: filter(rawdoc! { "$set": { "a": *a } }),
            multi: true,
            upsert: false,
            upsert_id: None,
        },
        Step::Clear => delete(filter(rawdoc! {}), true),
        Step::Read | Step::Keep => return None,
    })
}

/// Compares all kinds of queries that the order serves with a sort of all documents.
fn check(c: &Collection) {
    let collation = c.collation();
    let sorted = |spec: &bson::Document| {
        let options = sorted(spec);
        FindOptions { sort: options.sort.with_collation(collation.cloned()), ..options }
    };
    let by_id = SortOrder::parse(&rawdoc! { "_id": 1 }).unwrap().with_collation(collation.cloned());
    let mut all: Vec<DocBytes> = c.documents();
    all.sort_by_cached_key(|doc| by_id.key(doc));
    let matching = |filter: &Filter| -> Vec<DocBytes> {
        all.iter().filter(|doc| filter.matches(RawDocument::from_bytes(doc).unwrap())).cloned().collect()
    };
    let filters = [
        doc! {},
        doc! { "_id": { "$gte": 300 } },
        doc! { "_id": { "$gt": 300, "$lte": 700.5 }, "a": { "$lt": 5 } },
        doc! { "_id": { "$lt": "user3" } },
        doc! { "_id": { "$gt": { "n": 5 } } },
        doc! { "_id": { "$gt": 700, "$lt": 300 } },
    ];
    for filter in &filters {
        let parsed = Filter::parse_by(&raw(filter), collation).unwrap();
        let mut expected = matching(&parsed);
        assert_eq!(c.find(&parsed, &sorted(&doc! { "_id": 1 })).unwrap(), expected, "{filter}");
        assert_eq!(c.count(&parsed).unwrap(), expected.len() as u64, "{filter}");
        let page = FindOptions { skip: 3, limit: Some(10), ..sorted(&doc! { "_id": 1 }) };
        let expected_page: Vec<_> = expected.iter().skip(3).take(10).cloned().collect();
        assert_eq!(c.find(&parsed, &page).unwrap(), expected_page, "{filter}");
        expected.reverse();
        assert_eq!(c.find(&parsed, &sorted(&doc! { "_id": -1 })).unwrap(), expected, "{filter}");
        let mut found = c.find(&parsed, &FindOptions::default()).unwrap();
        found.sort_by_cached_key(|doc| by_id.key(doc));
        expected.reverse();
        assert_eq!(found, expected, "{filter}");
    }
    let (low, high) =
        (by_id.key(rawdoc! { "_id": 40 }.as_bytes()), by_id.key(rawdoc! { "_id": "user2" }.as_bytes()));
    let within = |doc: &&DocBytes| (low.clone()..high.clone()).contains(&by_id.key(doc));
    let expected: Vec<_> = all.iter().filter(within).take(20).cloned().collect();
    let (low, high) = (Some(low.clone()), Some(high.clone()));
    let bounds = Some(IndexBounds { order: by_id.clone(), low, high });
    let options = FindOptions { bounds, limit: Some(20), ..sorted(&doc! { "_id": 1 }) };
    assert_eq!(c.find(&Filter::all(), &options).unwrap(), expected);
    assert_eq!(c.check_indexes(), Vec::<String>::new());
}

fn text_of(c: &Collection) -> String {
    c.explain(&Filter::all(), &sorted(&doc! { "_id": 1 }).sort).to_string()
}

fn is_used(snapshot: &StoreSnapshot) -> bool {
    text_of(snapshot.collection("c").unwrap()) == "index _id_: all of it, in the order of the index"
}

fn read(snapshot: &StoreSnapshot) {
    let first = FindOptions { limit: Some(1), ..sorted(&doc! { "_id": 1 }) };
    snapshot.collection("c").unwrap().find(&Filter::all(), &first).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_is_that_of_a_full_sort(steps in prop::collection::vec(step(), 1..40), compacts in any::<bool>(), collated in any::<bool>()) {
        let collation = collated.then(|| BsonDocument::new(&rawdoc! { "locale": "cs", "numericOrdering": true }));
        let (mut read, mut unread) = (store_by(collation.clone()), store_by(collation));
        let mut kept: Vec<(StoreSnapshot, Vec<DocBytes>)> = Vec::new();
        if compacts {
            check(read.snapshot().collection("c").unwrap());
        }
        for step in &steps {
            if let Some(command) = command(step) {
                // a write does the same, whatever readers have made the store build
                prop_assert_eq!(read.apply(&command, Timestamp(0)), unread.apply(&command, Timestamp(0)));
            }
            let snapshot = read.snapshot();
            match step {
                Step::Read => check(snapshot.collection("c").unwrap()),
                Step::Keep => kept.push((snapshot.clone(), snapshot.collection("c").unwrap().documents())),
                _ => {}
            }
        }
        if compacts {
            // most rows become empty, so that the rest moves to others
            let most = DocumentCommand::Delete { collection: "c".into(), filter: bytes(&doc! { "a": { "$ne": 2 } }), multi: true };
            apply(&mut read, &most);
            apply(&mut unread, &most);
        }
        let last = read.snapshot();
        check(last.collection("c").unwrap());
        check(last.collection("c").unwrap());
        prop_assert_eq!(last.collection("c").unwrap().documents(), unread.collection("c").unwrap().documents());
        prop_assert_eq!(last.bytes(), unread.bytes());
        for (snapshot, documents) in &kept {
            prop_assert_eq!(&snapshot.collection("c").unwrap().documents(), documents);
            check(snapshot.collection("c").unwrap());
        }
        drop((last, kept));
        read.drop_collection("c");
        prop_assert_eq!(read.derived_bytes(), 0);
    }
}

#[test]
fn readers_of_a_collection_that_nobody_writes_get_the_order() {
    let mut store = store();
    let snapshot = store.snapshot();
    read(&snapshot);
    assert!(!is_used(&snapshot), "one query pays for its own sort only");
    assert_eq!(store.derived_bytes(), 0);
    read(&snapshot);
    assert!(is_used(&snapshot));
    let charged = store.derived_bytes();
    assert!(charged >= 48 * DOCS as u64, "{charged}");
    // the owner takes it over
    apply(&mut store, &command(&Step::Insert(DOCS + 1)).unwrap());
    assert!(is_used(&store.snapshot()));
    drop(snapshot);
    assert!((48..200).contains(&(store.derived_bytes() - charged)));
}

#[test]
fn the_owner_builds_the_order_at_the_next_write() {
    let mut store = store();
    read(&store.snapshot());
    apply(&mut store, &command(&Step::Insert(DOCS + 1)).unwrap());
    assert!(is_used(&store.snapshot()));
    assert_eq!(store.snapshot().collection("c").unwrap().check_indexes(), Vec::<String>::new());
}

#[test]
fn a_transaction_has_its_own_order() {
    let mut store = store();
    read(&store.snapshot());
    read(&store.snapshot());
    let snapshot = store.snapshot();
    let mut fork = Store::fork(&snapshot);
    let charged = store.derived_bytes();
    let savepoint = fork.statement_savepoint();
    for n in 0..100 {
        apply(&mut fork, &command(&Step::Insert(DOCS + n)).unwrap());
    }
    check(fork.snapshot().collection("c").unwrap());
    fork.roll_back_statement(&savepoint);
    check(fork.snapshot().collection("c").unwrap());
    assert_eq!((fork.derived_bytes(), store.derived_bytes()), (0, charged));
    check(store.collection_mut("c").unwrap());
}

#[test]
fn documents_take_the_memory_of_the_order() {
    let docs = |n: i32| vec![bytes(&doc! { "_id": n, "text": "x".repeat(200) })];
    let insert = |n: i32| DocumentCommand::Insert { collection: "c".into(), docs: docs(n), ordered: true };
    let limits = || StoreLimits { store_bytes_max: 200_000, ..StoreLimits::default() };
    let (mut read_store, mut unread) = (Store::new(limits()), Store::new(limits()));
    for store in [&mut read_store, &mut unread] {
        store.create_collection(&CollectionSpec::new("c")).unwrap();
    }
    let mut was_used = false;
    for n in 0..1000 {
        // as many documents fit as without readers
        assert_eq!(read_store.apply(&insert(n), Timestamp(0)), unread.apply(&insert(n), Timestamp(0)));
        read(&read_store.snapshot());
        was_used |= is_used(&read_store.snapshot());
    }
    assert!(was_used);
    assert!(read_store.collection("c").unwrap().len() < 1000, "the limit is never met");
    assert_eq!(
        text_of(read_store.collection("c").unwrap()),
        format!(
            "scan of {} documents, then sorted in memory (store_bytes_max leaves no room for an index of _id in order)",
            unread.collection("c").unwrap().len()
        )
    );
    assert_eq!(read_store.derived_bytes(), 0);
    // and it comes back when documents go
    apply(
        &mut read_store,
        &DocumentCommand::Delete {
            collection: "c".into(),
            filter: bytes(&doc! { "_id": { "$gt": 100 } }),
            multi: true,
        },
    );
    read(&read_store.snapshot());
    apply(&mut read_store, &insert(2000));
    assert!(is_used(&read_store.snapshot()));
    assert_eq!(read_store.collection("c").unwrap().check_indexes(), Vec::<String>::new());
}
