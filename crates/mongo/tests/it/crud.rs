//! Documents are inserted, found, changed and deleted.

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::ReturnDocument;

use crate::{TestServer, code};

fn numbers(range: std::ops::Range<i32>) -> Vec<Document> {
    range.map(|n| doc! { "_id": n, "n": n, "parity": if n % 2 == 0 { "even" } else { "odd" } }).collect()
}

#[test]
fn documents_are_inserted_found_and_counted() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    assert_eq!(things.find_one(doc! {}).run().unwrap(), None);
    assert_eq!(things.insert_many(numbers(0..1000)).run().unwrap().inserted_ids.len(), 1000);
    assert_eq!(things.estimated_document_count().run().unwrap(), 1000);
    assert_eq!(things.count_documents(doc! { "n": { "$gte": 990 } }).run().unwrap(), 10);
    assert_eq!(things.find_one(doc! { "_id": 7 }).run().unwrap(), Some(numbers(7..8).remove(0)));
    // over several batches
    let found =
        things.find(doc! { "parity": "odd" }).sort(doc! { "n": -1 }).skip(1).batch_size(7).run().unwrap();
    let found: Vec<i32> = found.map(|d| d.unwrap().get_i32("n").unwrap()).collect();
    assert_eq!(found, (0..499).map(|i| 997 - 2 * i).collect::<Vec<_>>());
    let shown = things.find_one(doc! { "_id": 7 }).projection(doc! { "_id": 0, "parity": 1 }).run().unwrap();
    assert_eq!(shown, Some(doc! { "parity": "odd" }));
    let values = things.distinct("parity", doc! {}).run().unwrap();
    assert_eq!(values, [Bson::from("even"), Bson::from("odd")]);
}

#[test]
fn ordered_insert_ends_at_the_first_duplicate_and_unordered_goes_on() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    things.insert_one(doc! { "_id": 50 }).run().unwrap();
    for (ordered, expected) in [(true, 51), (false, 100)] {
        let failed = things.insert_many(numbers(0..100)).ordered(ordered).run().unwrap_err();
        assert_eq!(code(&failed), 11000);
        let ErrorKind::InsertMany(errors) = failed.kind.as_ref() else { panic!("{failed}") };
        let first = &errors.write_errors.as_ref().unwrap()[0];
        assert_eq!(first.index, if ordered { 50 } else { 0 }, "{first:?}");
        assert_eq!(things.count_documents(doc! {}).run().unwrap(), expected);
    }
}

#[test]
fn documents_are_updated_replaced_and_deleted() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    things.insert_many(numbers(0..100)).run().unwrap();
    let updated = things.update_many(doc! { "parity": "odd" }, doc! { "$inc": { "n": 1000 } }).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (50, 50));
    let updated = things.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 1001 } }).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 0));
    let replaced = things.replace_one(doc! { "n": 1003 }, doc! { "new": true }).run().unwrap();
    assert_eq!(replaced.modified_count, 1);
    assert_eq!(things.find_one(doc! { "_id": 3 }).run().unwrap(), Some(doc! { "_id": 3, "new": true }));
    let upserted =
        things.update_one(doc! { "_id": 500 }, doc! { "$set": { "n": 1 } }).upsert(true).run().unwrap();
    assert_eq!(upserted.upserted_id, Some(Bson::Int32(500)));
    assert_eq!(things.delete_one(doc! { "_id": 500 }).run().unwrap().deleted_count, 1);
    assert_eq!(things.delete_many(doc! { "parity": "even" }).run().unwrap().deleted_count, 50);
    assert_eq!(things.count_documents(doc! {}).run().unwrap(), 50);
    // in a collection that does not exist there is nothing to change
    let missing = server.collection("missing");
    assert_eq!(missing.update_many(doc! {}, doc! { "$set": { "a": 1 } }).run().unwrap().matched_count, 0);
    assert_eq!(missing.delete_many(doc! {}).run().unwrap().deleted_count, 0);
    let wrong = things.update_one(doc! {}, doc! { "$nope": { "a": 1 } }).run().unwrap_err();
    assert_eq!(code(&wrong), 9);
}

#[test]
fn find_one_and_update_takes_each_job_once() {
    let server = TestServer::start(4);
    let jobs = server.collection("jobs");
    jobs.insert_many((0..200).map(|n| doc! { "_id": n, "state": "waiting" })).run().unwrap();
    let take = |worker: i32| {
        let mut taken = Vec::new();
        while let Some(job) = jobs
            .find_one_and_update(
                doc! { "state": "waiting" },
                doc! { "$set": { "state": "taken", "by": worker } },
            )
            .return_document(ReturnDocument::After)
            .run()
            .unwrap()
        {
            assert_eq!(job.get_i32("by").unwrap(), worker);
            taken.push(job.get_i32("_id").unwrap());
        }
        // a worker that finds nothing may go: nothing is left
        assert_eq!(jobs.count_documents(doc! { "state": "waiting" }).run().unwrap(), 0);
        taken
    };
    let mut taken: Vec<i32> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || take(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 200);
}

#[test]
fn find_and_modify_returns_the_document_before_or_after_the_change() {
    let server = TestServer::start(4);
    let counters = server.collection("counters");
    let increment = doc! { "$inc": { "n": 1 } };
    let next = || {
        let action = counters.find_one_and_update(doc! { "_id": "c" }, increment.clone()).upsert(true);
        action.return_document(ReturnDocument::After).run().unwrap().unwrap().get_i32("n").unwrap()
    };
    assert_eq!([next(), next(), next()], [1, 2, 3]);
    let before = counters.find_one_and_update(doc! { "_id": "c" }, increment.clone()).run().unwrap();
    assert_eq!(before, Some(doc! { "_id": "c", "n": 3 }));
    counters.insert_many((0..20).map(|n| doc! { "_id": n, "n": n })).run().unwrap();
    let largest = counters.find_one_and_delete(doc! {}).sort(doc! { "n": -1 }).run().unwrap();
    assert_eq!(largest, Some(doc! { "_id": 19, "n": 19 }));
    let replaced = counters.find_one_and_replace(doc! { "_id": 5 }, doc! { "x": 1 }).run().unwrap();
    assert_eq!(replaced, Some(doc! { "_id": 5, "n": 5 }));
    assert_eq!(counters.find_one_and_delete(doc! { "_id": "nobody" }).run().unwrap(), None);
    assert_eq!(counters.find_one(doc! { "_id": 5 }).run().unwrap(), Some(doc! { "_id": 5, "x": 1 }));
}

#[test]
fn documents_survive_a_restart() {
    let server = TestServer::start(2);
    let things = server.collection("things");
    things.insert_many(numbers(0..50)).run().unwrap();
    things.find_one_and_update(doc! { "_id": 7 }, doc! { "$set": { "n": -1 } }).run().unwrap();
    things.find_one_and_delete(doc! { "_id": 8 }).run().unwrap();
    drop(things);
    let server = server.restart();
    let things = server.collection("things");
    assert_eq!(things.count_documents(doc! {}).run().unwrap(), 49);
    assert_eq!(things.find_one(doc! { "_id": 7 }).run().unwrap().unwrap().get_i32("n").unwrap(), -1);
}

#[test]
fn databases_have_collections_of_their_own() {
    let server = TestServer::start(2);
    let client = server.client();
    for database in ["docs", "shop"] {
        client.database(database).collection("items").insert_one(doc! { "of": database }).run().unwrap();
    }
    let names = client.database("shop").list_collection_names().run().unwrap();
    assert_eq!(names, ["items"]);
    let databases = client.list_database_names().run().unwrap();
    assert_eq!(databases, ["admin", "config", "docs", "local", "shop"]);
    client.database("shop").drop().run().unwrap();
    let left: Vec<Document> = client
        .database("docs")
        .collection("items")
        .find(doc! {})
        .projection(doc! { "_id": 0 })
        .run()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(left, [doc! { "of": "docs" }]);
    assert!(client.database("shop").list_collection_names().run().unwrap().is_empty());
    // rules' entities are collections of `docs`
    assert!(client.database("docs").list_collection_names().run().unwrap().contains(&"Customer".to_owned()));
}
