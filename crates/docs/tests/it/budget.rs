//! Work that has to end: at the same step each time if a replay repeats it, and with nothing half done.

use bson::{Bson, Document, RawDocumentBuf, doc};
use tidemill_docs::{
    BsonDocument, CollectionSpec, Direction, DocBytes, DocumentCommand, Filter, FindOptions, IndexSpec,
    SortOrder, Store, StoreLimits, TextIndexSpec,
};
use tidemill_types::Timestamp;
use tidemill_types::budget::{Budget, Stop};

const NOW: Timestamp = Timestamp(0);

fn bytes(doc: &Document) -> DocBytes {
    bson::serialize_to_vec(doc).unwrap().into()
}

/// A store whose documents each take some steps to change by [`expensive`].
fn store_of(documents: i32) -> Store {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("things")).unwrap();
    let things = store.require("things").unwrap();
    for n in 0..documents {
        things.insert(bytes(&doc! { "_id": n, "s": "x".repeat(200), "list": ["x".repeat(30)] })).unwrap();
    }
    store
}

fn expensive() -> Document {
    doc! { "$pipeline": [{ "$set": { "a": { "$size": { "$filter": { "input": { "$range": [0, 100] }, "cond": false } } } } }] }
}

fn command(filter: Document, update: Document) -> DocumentCommand {
    let (filter, update) = (bytes(&filter), bytes(&update));
    DocumentCommand::Update {
        collection: "things".into(),
        filter,
        update,
        multi: true,
        upsert: false,
        upsert_id: None,
    }
}

/// Returns the documents of the store.
fn all(store: &Store) -> Vec<Document> {
    let things = store.collection("things").unwrap();
    things.documents().iter().map(|d| bson::deserialize_from_slice(d).unwrap()).collect()
}

/// Indexes of text and of geometries, and a condition on geometries, take steps for what is written, but not for what is there.
#[test]
fn words_and_vertices_take_steps() {
    let text = || IndexSpec {
        name: "text".into(),
        fields: ["_fts", "_ftsx"].map(|path| (path.to_owned(), Direction::Ascending)).into(),
        text: Some(TextIndexSpec { weights: vec![("s".into(), 1.0)], ..TextIndexSpec::default() }),
        ..IndexSpec::default()
    };
    let words = (0..1000).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    let ring: Vec<[f64; 2]> = (0..=500)
        .map(|n| {
            let angle = f64::from(n % 500) / 500.0 * std::f64::consts::TAU;
            [angle.cos() * 5.0, angle.sin() * 5.0]
        })
        .collect();
    let ring = Bson::Array(ring.iter().map(|[x, y]| bson::bson!([x, y])).collect());
    let circle = doc! { "type": "Polygon", "coordinates": [ring] };
    let steps = |work: &dyn Fn(&mut Store)| {
        let mut store = store_of(0);
        let things = store.require("things").unwrap();
        things.insert(bytes(&doc! { "_id": 1, "s": &words, "p": &circle })).unwrap();
        let budget = Budget::unlimited();
        let _entered = budget.enter();
        work(&mut store);
        budget.steps_taken()
    };
    let create = |store: &mut Store| store.require("things").unwrap().create_index(text()).unwrap();
    assert_eq!(steps(&create), 0, "an index is built of what is there");
    let insert = |store: &mut Store| {
        create(store);
        store.require("things").unwrap().insert(bytes(&doc! { "_id": 2, "s": &words })).unwrap();
    };
    assert!(steps(&insert) >= 1000);
    let delete = |store: &mut Store| {
        create(store);
        let delete =
            DocumentCommand::Delete { collection: "things".into(), filter: bytes(&doc! {}), multi: false };
        store.apply(&delete, NOW).unwrap();
    };
    assert!(steps(&delete) < 10);
    let search = |store: &mut Store| {
        create(store);
        let filter = doc! { "$text": { "$search": "word7" } };
        let filter = Filter::parse(&RawDocumentBuf::try_from(&filter).unwrap()).unwrap();
        let found = store.collection("things").unwrap().find(&filter, &FindOptions::default()).unwrap();
        assert_eq!(found.len(), 1);
    };
    assert!(steps(&search) >= 1000);
    let place = |store: &mut Store| {
        let filter = doc! { "p": { "$geoIntersects": { "$geometry": &circle } } };
        let filter = Filter::parse(&RawDocumentBuf::try_from(&filter).unwrap()).unwrap();
        let budget = tidemill_types::budget::current();
        let before = budget.steps_taken();
        let found = store.collection("things").unwrap().find(&filter, &FindOptions::default()).unwrap();
        assert_eq!(found.len(), 1);
        assert!(budget.steps_taken() - before >= 500 * 500 / 16);
    };
    steps(&place);
    // too much of it ends the query
    let budget = Budget::builder().steps(100).build();
    let mut store = store_of(0);
    let things = store.require("things").unwrap();
    things.insert(bytes(&doc! { "_id": 1, "s": &words, "p": &circle })).unwrap();
    create(&mut store);
    let _entered = budget.enter();
    let filter = Filter::parse(&bson::rawdoc! { "$text": { "$search": "word7" } }).unwrap();
    let error = store.collection("things").unwrap().find(&filter, &FindOptions::default()).unwrap_err();
    assert_eq!(error.code(), 146);
}

#[test]
fn a_write_ends_at_the_same_step_each_time_and_changes_nothing() {
    let steps_of = |command: &DocumentCommand| {
        let mut store = store_of(50);
        let budget = Budget::unlimited();
        let _entered = budget.enter();
        store.apply(command, NOW).unwrap();
        budget.steps_taken()
    };
    let lookbehind = doc! { "s": { "$regex": "(?<=y)x" } };
    let reduced = doc! { "$expr": { "$gt": [{ "$size": { "$range": [0, 100] } }, 1] } };
    let many = doc! { "s": { "$in": (0..1000).map(|n| format!("{n}")).collect::<Vec<_>>() } };
    let commands = [
        command(doc! {}, expensive()),
        command(reduced.clone(), doc! { "$set": { "a": 1 } }),
        command(lookbehind.clone(), doc! { "$set": { "a": 1 } }),
        command(many, doc! { "$set": { "a": 1 } }),
        command(doc! {}, doc! { "$pull": { "list": { "$regex": "(?<=y)x" } } }),
        DocumentCommand::Delete { collection: "things".into(), filter: bytes(&reduced), multi: true },
    ];
    for command in commands {
        let steps = steps_of(&command);
        assert_eq!(steps_of(&command), steps, "{command:?}");
        assert!(steps >= 50, "{steps} steps for {command:?}");
        let apply = |limit: u64| {
            let mut store = store_of(50);
            store.collect_changes(true);
            let before = (all(&store), store.bytes());
            let budget = Budget::deterministic(limit, u64::MAX);
            let _entered = budget.enter();
            let outcome = store.apply(&command, NOW);
            if let Err(error) = &outcome {
                assert_eq!(error.code(), 146, "{error}");
                assert!(error.message().contains("steps"), "{error}");
                assert_eq!((all(&store), store.bytes()), before, "{command:?} with {limit} steps");
                assert!(store.take_changes().is_empty());
            }
            outcome.is_ok()
        };
        assert!(apply(steps), "{command:?}");
        for limit in [1, steps / 2, steps - 1] {
            assert!(!apply(limit), "{limit} of {steps} steps for {command:?}");
        }
    }
}

#[test]
fn a_validator_is_as_good_as_before_after_work_that_had_to_end() {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("things");
    let range = doc! { "$size": { "$range": [0, "$n"] } };
    let validator = doc! { "$expr": { "$gte": [range, 1] } };
    spec.options.validator = Some(BsonDocument::new(&RawDocumentBuf::try_from(&validator).unwrap()));
    store.create_collection(&spec).unwrap();
    let insert = |store: &mut Store, docs: &[Document], steps: u64| {
        let budget = Budget::deterministic(steps, u64::MAX);
        let _entered = budget.enter();
        let docs = docs.iter().map(bytes).collect();
        store.apply(&DocumentCommand::Insert { collection: "things".into(), docs, ordered: false }, NOW)
    };
    let (large, small) = (doc! { "_id": 1, "n": 100_000 }, doc! { "_id": 2, "n": 1 });
    let refused = insert(&mut store, &[small.clone(), large.clone()], 1000).unwrap_err();
    assert_eq!(refused.code(), 146);
    assert!(all(&store).is_empty());
    // an expression without a value refuses its own document only
    let outcome = insert(&mut store, &[doc! { "_id": 3, "n": "x" }, small, large], 1_000_000).unwrap();
    assert_eq!((outcome.inserted, outcome.errors.len()), (2, 1));
    assert_eq!(outcome.errors[0].error.code(), 121);
}

#[test]
fn queries_end_at_their_budget() {
    let store = store_of(2000);
    let things = store.collection("things").unwrap();
    let stopped = |budget: Budget, filter: Document, options: &FindOptions| {
        let _entered = budget.enter();
        let filter = RawDocumentBuf::try_from(&filter).unwrap();
        let filter = Filter::parse(&filter).unwrap();
        (things.find(&filter, options).unwrap_err().code(), things.count(&filter).err().map(|e| e.code()))
    };
    let over = || Budget::builder().time(std::time::Duration::ZERO).build();
    let cancelled = || {
        let budget = Budget::unlimited();
        budget.stop(Stop::Cancelled("killOp".into()));
        budget
    };
    let options = FindOptions::default();
    let nothing = doc! { "s": "none" };
    let nested = doc! { "list": { "$elemMatch": { "$regex": "(?<=y)x" } } };
    for filter in [nothing.clone(), doc! { "$expr": "$none" }, nested] {
        assert_eq!(stopped(over(), filter.clone(), &options), (50, Some(50)), "{filter}");
        assert_eq!(stopped(cancelled(), filter.clone(), &options), (11601, Some(11601)), "{filter}");
    }
    let few = || Budget::builder().bytes(1000).build();
    assert_eq!(stopped(few(), doc! { "_id": { "$gte": 0 } }, &options), (292, None));
    let by_s = RawDocumentBuf::try_from(&doc! { "s": 1 }).unwrap();
    let sorted = FindOptions { sort: SortOrder::parse(&by_s).unwrap(), ..options };
    assert_eq!(stopped(few(), doc! { "_id": { "$gte": 0 } }, &sorted).0, 292);
}
