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

/// Returns how many documents were inserted, and the places and codes of the errors.
fn inserted(reply: &Document) -> (i32, Vec<(i32, i32)>) {
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let errors = errors.map(|error| {
        let error = error.as_document().unwrap();
        (error.get_i32("index").unwrap(), error.get_i32("code").unwrap())
    });
    (reply.get_i32("n").unwrap(), errors.collect())
}

/// Also where the error is found when the documents are applied, and the documents belong to several partitions.
#[test]
fn ordered_inserts_end_at_the_first_error_of_any_kind() {
    let server = TestServer::start(4);
    let client = server.client();
    let database = client.database("docs");
    let valid = doc! { "x": { "$ne": 1 } };
    database.create_collection("v").validator(valid).run().unwrap();
    database
        .run_command(doc! { "createIndexes": "p", "indexes": [{ "key": { "a": 1, "b": 1 }, "name": "ab" }] })
        .run()
        .unwrap();
    let bad_at = |bad: &[i32], count: i32, bad_one: Document| -> Vec<Document> {
        let one = |n| {
            if bad.contains(&n) {
                bad_one.clone()
            } else {
                doc! { "x": 0 }
            }
        };
        (0..count)
            .map(|n| {
                let mut one = one(n);
                one.insert("_id", n);
                one
            })
            .collect()
    };
    let (invalid, parallel) = (doc! { "x": 1 }, doc! { "a": [1], "b": [2] });
    for (name, bad, error) in [("v", &invalid, 121), ("p", &parallel, 171)] {
        let things = database.collection::<Document>(name);
        for (at, count, expected) in [(&[4, 50][..], 100, 4), (&[0], 50, 0), (&[1], 3, 1), (&[], 40, 40)] {
            let documents = bad_at(at, count, bad.clone());
            let reply =
                database.run_command(doc! { "insert": name, "documents": documents.clone() }).run().unwrap();
            let errors: Vec<_> = at.first().map(|at| (*at, error)).into_iter().collect();
            assert_eq!(inserted(&reply), (expected, errors.clone()), "{name} {at:?}");
            assert_eq!(things.count_documents(doc! {}).run().unwrap(), expected as u64);
            things.delete_many(doc! {}).run().unwrap();

            let bulk = doc! {
                "bulkWrite": 1, "nsInfo": [{ "ns": format!("docs.{name}") }],
                "ops": documents.iter().map(|d| doc! { "insert": 0, "document": d }).collect::<Vec<_>>(),
            };
            let reply = client.database("admin").run_command(bulk).run().unwrap();
            assert_eq!(reply.get_i32("nInserted").unwrap(), expected);
            assert_eq!(reply.get_i32("nErrors").unwrap(), errors.len() as i32);
            assert_eq!(things.count_documents(doc! {}).run().unwrap(), expected as u64);
            things.delete_many(doc! {}).run().unwrap();

            // in a transaction
            let mut session = client.start_session().run().unwrap();
            session.start_transaction().run().unwrap();
            let reply = database
                .run_command(doc! { "insert": name, "documents": documents.clone() })
                .session(&mut session)
                .run()
                .unwrap();
            assert_eq!(inserted(&reply), (expected, errors.clone()));
            let _ = session.abort_transaction().run();
            assert_eq!(things.count_documents(doc! {}).run().unwrap(), 0);

            // unordered
            let command = doc! { "insert": name, "documents": documents, "ordered": false };
            let reply = database.run_command(command).run().unwrap();
            assert_eq!(inserted(&reply).0, count - at.len() as i32);
            assert_eq!(inserted(&reply).1.len(), at.len());
            things.delete_many(doc! {}).run().unwrap();
        }
    }
    // of two kinds of errors the first counts, and what a client may bypass is no error
    let documents =
        vec![doc! { "_id": 1, "x": 0 }, doc! { "_id": 2, "x": 1 }, doc! { "_id": 1 }, doc! { "_id": 9 }];
    let command = doc! { "insert": "v", "documents": documents };
    let reply = database.run_command(command.clone()).run().unwrap();
    assert_eq!(inserted(&reply), (1, vec![(1, 121)]));
    database.collection::<Document>("v").delete_many(doc! {}).run().unwrap();
    let mut command = command;
    command.insert("bypassDocumentValidation", true);
    let reply = database.run_command(command).run().unwrap();
    assert_eq!(inserted(&reply), (2, vec![(2, 11000)]));
}

/// Two clients that insert the same ids at the same time: each has a prefix of its own documents.
#[test]
fn ordered_inserts_of_the_same_ids_at_once_each_end_at_the_first_duplicate() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    for round in 0..10 {
        let insert = |by: &'static str, ids: Vec<i32>| {
            let things = server.collection("things");
            let documents: Vec<_> =
                ids.iter().map(|id| doc! { "_id": 1000 * round + id, "by": by }).collect();
            std::thread::spawn(move || things.insert_many(documents).run().map(drop))
        };
        let up: Vec<i32> = (0..100).collect();
        let down: Vec<i32> = (0..100).rev().collect();
        let (one, two) = (insert("one", up.clone()), insert("two", down.clone()));
        for result in [one.join().unwrap(), two.join().unwrap()] {
            assert!(result.is_ok() || code(&result.unwrap_err()) == 11000);
        }
        for (by, order) in [("one", up), ("two", down)] {
            let there = |id: &i32| {
                let filter = doc! { "_id": 1000 * round + id, "by": by };
                things.count_documents(filter).run().unwrap() == 1
            };
            let there: Vec<bool> = order.iter().map(there).collect();
            assert!(there.is_sorted_by(|a, b| a >= b), "{round} {by} {there:?}");
        }
    }
}

/// An empty timestamp among the fields of a new document is the time of the server; elsewhere it stays.
#[test]
fn empty_timestamps_become_the_time_of_the_server() {
    let server = TestServer::start(2);
    let things = server.collection("things");
    let empty = mongodb::bson::Timestamp { time: 0, increment: 0 };
    things.insert_one(doc! { "_id": 1, "at": empty, "in": { "at": empty }, "l": [empty] }).run().unwrap();
    things.insert_one(doc! { "_id": 2 }).run().unwrap();
    things.replace_one(doc! { "_id": 2 }, doc! { "at": empty }).run().unwrap();
    things.find_one_and_replace(doc! { "_id": 3 }, doc! { "at": empty }).upsert(true).run().unwrap();
    things.update_one(doc! { "_id": 1 }, doc! { "$set": { "set": empty } }).run().unwrap();
    for id in 1..=3 {
        let found = things.find_one(doc! { "_id": id }).run().unwrap().unwrap();
        assert!(found.get_timestamp("at").unwrap().time > 1_600_000_000, "{found}");
    }
    let found = things.find_one(doc! { "_id": 1 }).run().unwrap().unwrap();
    assert_eq!(found.get_document("in").unwrap().get_timestamp("at").unwrap(), empty);
    assert_eq!(found.get_array("l").unwrap(), &[Bson::Timestamp(empty)]);
    assert_eq!(found.get_timestamp("set").unwrap(), empty);
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

/// MongoDB stores such documents. Here every reader would have to mean the same one of the two, so none is stored.
#[test]
fn a_field_that_comes_twice_is_refused() {
    use mongodb::bson::{RawDocumentBuf, cstr, rawdoc};
    let server = TestServer::start(2);
    let things = server.collection("things").clone_with_type::<RawDocumentBuf>();
    let twice = || {
        let mut document = rawdoc! { "b": 1 };
        document.append(cstr!("c"), 2);
        document.append(cstr!("b"), 3);
        document
    };
    let with_id = |inner: RawDocumentBuf| rawdoc! { "_id": 1, "list": [{ "n": 1 }, { "a": inner }] };
    let message = |error: mongodb::error::Error| {
        assert_eq!(crate::code(&error), 2, "{error}");
        error.to_string()
    };
    let refused = message(things.insert_one(twice()).run().unwrap_err());
    assert!(refused.contains("the field `b` comes twice"), "{refused}");
    let refused = message(things.insert_many([with_id(twice())]).run().unwrap_err());
    assert!(refused.contains("`list.1.a.b`"), "{refused}");
    let mut wide = RawDocumentBuf::new();
    for n in (0..40).chain([33]) {
        wide.append(mongodb::bson::raw::CString::try_from(format!("f{n}")).unwrap(), n);
    }
    let refused = message(things.insert_one(wide).run().unwrap_err());
    assert!(refused.contains("`f33`"), "{refused}");
    things.insert_one(rawdoc! { "_id": 1, "b": 0 }).run().unwrap();
    let database = server.client().database("docs");
    for change in [
        twice(),
        rawdoc! { "$set": { "a": twice() } },
        rawdoc! { "$push": { "list": twice() } },
        rawdoc! { "$set": { "a": { "deep": [twice()] } } },
    ] {
        let update = rawdoc! { "update": "things", "updates": [{ "q": { "_id": 1 }, "u": change.clone() }] };
        let reply = database.run_raw_command(update).run().unwrap();
        assert_eq!(
            reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(),
            2
        );
        let modify = rawdoc! { "findAndModify": "things", "query": { "_id": 1 }, "update": change };
        message(database.run_raw_command(modify).run().unwrap_err());
    }
    let stages = rawdoc! { "update": "things", "updates": [{ "q": {}, "u": [{ "$set": { "a": { "$literal": twice() } } }] }] };
    let reply = database.run_raw_command(stages).run().unwrap();
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1);
    let mut stage = RawDocumentBuf::new();
    stage.append(cstr!("$documents"), mongodb::bson::rawbson!([{ "$literal": with_id(twice()) }]));
    let merge = rawdoc! { "aggregate": 1, "pipeline": [stage, { "$merge": "merged" }], "cursor": {} };
    // a pipeline that computes a document keeps the last one
    database.run_raw_command(merge).run().unwrap();
    let merged = server.collection("merged").clone_with_type::<RawDocumentBuf>();
    let merged = merged.find_one(doc! {}).run().unwrap().unwrap();
    assert_eq!(tidemill_docs::repeated_field(merged.as_bytes()), None);
    let list = merged.get_array("list").unwrap().into_iter().nth(1).unwrap().unwrap();
    let list: Document = bson::deserialize_from_slice(list.as_document().unwrap().as_bytes()).unwrap();
    assert_eq!(list, doc! { "a": { "b": 3, "c": 2 } });
    assert_eq!(
        server.collection("things").find_one(doc! {}).run().unwrap().unwrap(),
        doc! { "_id": 1, "b": 0 }
    );
    // a condition may name a field twice: both hold
    let mut filter = rawdoc! { "b": { "$gte": 0 } };
    filter.append(cstr!("b"), rawdoc! { "$lt": 1 });
    let find = rawdoc! { "find": "things", "filter": filter };
    let reply = database.run_raw_command(find).run().unwrap();
    assert_eq!(reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
}
