//! Snapshots: a moment stays as it was, whatever the store does afterwards.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{doc, rawdoc};
use proptest::prelude::*;
use tidemill_docs::{
    CollectionSpec, DocBytes, DocumentCommand, Filter, FindOptions, IndexSpec, SortOrder, Store, StoreLimits,
    StoreSnapshot, Update,
};
use tidemill_types::{Timestamp, Value};

/// Enough documents for several levels of pages and for segments that split.
const DOCS: i32 = 2400;

fn bytes(doc: &bson::Document) -> DocBytes {
    bson::serialize_to_vec(doc).unwrap().into()
}

fn store() -> Store {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("c");
    spec.indexes.push(IndexSpec::ascending("a"));
    store.create_collection(&spec).unwrap();
    let c = store.collection_mut("c").unwrap();
    for id in 0..DOCS {
        c.insert(bytes(&doc! { "_id": id, "a": id % 7 })).unwrap();
    }
    store
}

#[derive(Debug, Clone)]
enum Step {
    Put(i32, i32),
    SetAll { from: i32, to: i32 },
    Delete(i32),
    DeleteRange(i32),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..DOCS + 10, 0..7).prop_map(|(id, a)| Step::Put(id, a)),
        3 => (0..7, 0..7).prop_map(|(from, to)| Step::SetAll { from, to }),
        3 => (0..DOCS).prop_map(Step::Delete),
        2 => (0..DOCS).prop_map(Step::DeleteRange),
        1 => Just(Step::Clear),
    ]
}

/// By `_id` the value of `a`.
type Model = BTreeMap<i32, i32>;

fn apply(store: &mut Store, model: &mut Model, step: &Step) {
    let delete = |filter: bson::RawDocumentBuf| DocumentCommand::Delete {
        collection: "c".into(),
        filter: filter.into_bytes().into(),
        multi: true,
    };
    match step {
        Step::Put(id, a) => {
            let c = store.collection_mut("c").unwrap();
            c.upsert_by_id(&Value::Int((*id).into()), &Update::new().set("a", *a), Timestamp(0)).unwrap();
            model.insert(*id, *a);
        }
        Step::SetAll { from, to } => {
            let update = DocumentCommand::Update {
                collection: "c".into(),
                filter: rawdoc! { "a": *from }.into_bytes().into(),
                update: rawdoc! { "$set": { "a": *to } }.into_bytes().into(),
                multi: true,
                upsert: false,
                upsert_id: None,
            };
            store.apply(&update, Timestamp(0)).unwrap();
            model.values_mut().filter(|a| *a == from).for_each(|a| *a = *to);
        }
        Step::Delete(id) => {
            store.collection_mut("c").unwrap().delete_by_id(&Value::Int((*id).into())).unwrap();
            model.remove(id);
        }
        Step::DeleteRange(from) => {
            store
                .apply(&delete(rawdoc! { "_id": { "$gte": *from, "$lt": from + 1400 } }), Timestamp(0))
                .unwrap();
            model.retain(|id, _| !(*from..from + 1400).contains(id));
        }
        Step::Clear => {
            store.apply(&delete(rawdoc! {}), Timestamp(0)).unwrap();
            model.clear();
        }
    }
}

/// Checks a snapshot by a scan, by its index and by lookups.
fn check(snapshot: &StoreSnapshot, model: &Model) {
    let c = snapshot.collection("c").unwrap();
    assert_eq!(c.len(), model.len());
    let mut found: Vec<DocBytes> = c.documents();
    let mut expected: Vec<DocBytes> =
        model.iter().map(|(id, a)| bytes(&doc! { "_id": *id, "a": *a })).collect();
    found.sort();
    expected.sort();
    assert!(found == expected, "the documents are not those of the moment");
    for a in 0..7 {
        let expected = model.values().filter(|found| **found == a).count();
        assert_eq!(c.find_by("a", &Value::Int(a.into())).count(), expected);
    }
    let ordered =
        FindOptions { sort: SortOrder::parse(&rawdoc! { "a": -1 }).unwrap(), ..FindOptions::default() };
    assert_eq!(c.find(&Filter::all(), &ordered).unwrap().len(), model.len());
    for id in (0..DOCS).step_by(97) {
        let expected = model.get(&id).map(|a| bytes(&doc! { "_id": id, "a": *a }));
        assert_eq!(c.get(&Value::Int(id.into())).cloned(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8) })]

    #[test]
    fn every_snapshot_stays_as_it_was_taken(steps in prop::collection::vec(step(), 1..12)) {
        let mut store = store();
        let mut model: Model = (0..DOCS).map(|id| (id, id % 7)).collect();
        let mut taken = vec![(store.snapshot(), model.clone(), store.bytes())];
        for step in &steps {
            apply(&mut store, &mut model, step);
            taken.push((store.snapshot(), model.clone(), store.bytes()));
        }
        for (snapshot, model, charged) in &taken {
            check(snapshot, model);
            prop_assert_eq!(snapshot.bytes(), *charged);
        }
    }
}

#[test]
fn readers_see_each_record_whole_while_the_owner_writes() {
    let mut store = store();
    let published = Mutex::new(store.snapshot());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let snapshot = published.lock().unwrap().clone();
                    let c = snapshot.collection("c").unwrap();
                    let first = c.get(&Value::Int(0)).unwrap();
                    let round = bson::RawDocument::from_bytes(first).unwrap().get_i32("a").unwrap();
                    let filter = Filter::eq_value("a", &Value::Int(round.into()));
                    if round >= 7 {
                        assert_eq!(c.count(&filter).unwrap(), DOCS as u64, "a part of round {round}");
                        assert!(round >= last, "round {round} after round {last}");
                        last = round;
                    }
                }
            });
        }
        for round in 7..25 {
            let c = store.collection_mut("c").unwrap();
            for id in 0..DOCS {
                let update = Update::new().set("a", round);
                c.update_one_by_id(&Value::Int(id.into()), &update, Timestamp(0)).unwrap();
            }
            *published.lock().unwrap() = store.snapshot();
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn what_a_snapshot_alone_keeps_is_counted() {
    let mut store = store();
    let snapshot = store.snapshot();
    assert_eq!(snapshot.superseded_bytes(), 0);
    let document = store.collection("c").unwrap().get(&Value::Int(1)).unwrap().len() as u64;
    let c = store.collection_mut("c").unwrap();
    c.update_one_by_id(&Value::Int(1), &Update::new().set("a", 9), Timestamp(0)).unwrap();
    let after_update = snapshot.superseded_bytes();
    assert!((document..document + 200).contains(&after_update), "{after_update} bytes");
    c.delete_by_id(&Value::Int(2)).unwrap();
    assert_eq!(snapshot.superseded_bytes(), 2 * after_update);
    assert_eq!(store.snapshot().superseded_bytes(), 0);
    store.drop_collection("c");
    assert!(snapshot.superseded_bytes() > u64::from(DOCS as u32) * document);
    assert_eq!(snapshot.collection("c").unwrap().len(), DOCS as usize);
    assert_eq!((store.bytes(), snapshot.bytes() > 0), (0, true));
}
