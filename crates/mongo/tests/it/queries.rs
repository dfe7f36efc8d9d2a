//! Orders and bounds of queries, cursors that are read without requests, and write concerns.

use bson::rawdoc;
use mongodb::bson::{Document, doc};
use mongodb::options::Hint;
use mongodb::sync::Collection;

use crate::wire::{body, connect, message, reply};
use crate::{TestServer, code};

fn numbers(server: &TestServer) -> Collection<Document> {
    let numbers = server.collection("numbers");
    numbers.insert_many((0..10).map(|n| doc! { "_id": n, "n": 9 - n, "m": n / 2 })).run().unwrap();
    numbers
}

/// Runs a query and returns the ids that it finds.
fn found(server: &TestServer, find: Document) -> Result<Vec<i32>, i32> {
    let database = server.client().database("docs");
    let mut command = doc! { "find": "numbers" };
    command.extend(find);
    let reply = database.run_command(command).run().map_err(|error| code(&error))?;
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    Ok(batch.iter().map(|one| one.as_document().unwrap().get_i32("_id").unwrap()).collect())
}

#[test]
fn documents_come_in_the_order_of_insertion_or_of_a_named_index() {
    let server = TestServer::start(1);
    let numbers = numbers(&server);
    server
        .client()
        .database("docs")
        .run_command(doc! { "createIndexes": "numbers", "indexes": [
            { "name": "by_n", "key": { "n": 1 } }, { "name": "by_m_n", "key": { "m": -1, "n": 1 } },
        ] })
        .run()
        .unwrap();
    assert_eq!(found(&server, doc! { "limit": 3 }), Ok(vec![0, 1, 2]));
    assert_eq!(found(&server, doc! { "sort": { "$natural": -1 }, "limit": 3 }), Ok(vec![9, 8, 7]));
    assert_eq!(found(&server, doc! { "hint": { "$natural": -1 }, "skip": 8 }), Ok(vec![1, 0]));
    assert_eq!(found(&server, doc! { "hint": "by_n", "limit": 2 }), Ok(vec![9, 8]));
    assert_eq!(found(&server, doc! { "hint": { "m": -1, "n": 1 }, "limit": 3 }), Ok(vec![9, 8, 7]));
    let bounded = |min, max| doc! { "hint": "by_n", "min": { "n": min }, "max": { "n": max } };
    assert_eq!(found(&server, bounded(2, 5)), Ok(vec![7, 6, 5]));
    let of_two = doc! { "hint": "by_m_n", "min": { "m": 4, "n": 1 }, "max": { "m": 3, "n": 3 } };
    assert_eq!(found(&server, of_two), Ok(vec![8, 7]));
    assert_eq!(found(&server, doc! { "min": { "n": 2 } }), Err(51173));
    assert_eq!(found(&server, doc! { "hint": "by_m_n", "min": { "n": 2, "m": 4 } }), Err(51174));
    assert_eq!(found(&server, doc! { "hint": "missing" }), Err(2));
    let explained = numbers.find(doc! {}).hint(Hint::Name("missing".into())).run();
    assert_eq!(explained.map(|_| ()).map_err(|error| code(&error)), Err(2));
}

#[test]
fn a_cursor_is_read_to_its_end_without_requests_if_the_client_allows_it() {
    const EXHAUST_ALLOWED: u32 = 1 << 16;
    let server = TestServer::start_with(tidemill_mongo::MongoOptions::default());
    let stream = connect(&server);
    let send = |flags: u32, command: &bson::RawDocumentBuf| {
        use std::io::Write;
        (&stream).write_all(&message(2013, &body(flags, command))).unwrap();
        stream.try_clone().unwrap()
    };
    let documents: bson::RawArrayBuf = (0..10).map(|n| rawdoc! { "_id": n }).collect();
    let mut replies = send(0, &rawdoc! { "insert": "numbers", "documents": documents, "$db": "docs" });
    assert_eq!(reply(&mut replies, 5).unwrap().1.get_i32("n").unwrap(), 10);
    let find = rawdoc! { "find": "numbers", "filter": {}, "batchSize": 4, "$db": "docs" };
    let mut replies = send(0, &find);
    let (_, first) = reply(&mut replies, 5).unwrap();
    let id = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    let rest = rawdoc! { "getMore": id, "collection": "numbers", "batchSize": 2, "$db": "docs" };
    let mut replies = send(EXHAUST_ALLOWED, &rest);
    let mut sizes = Vec::new();
    loop {
        let (_, one) = reply(&mut replies, 5).unwrap();
        let cursor = one.get_document("cursor").unwrap();
        sizes.push(cursor.get_array("nextBatch").unwrap().len());
        if cursor.get_i64("id").unwrap() == 0 {
            break;
        }
    }
    // a batch that is full may be the last one: only an empty one tells
    assert_eq!(sizes, [2, 2, 2, 0]);
}

#[test]
fn a_limit_ends_a_cursor_with_its_last_batch() {
    let server = TestServer::start(1);
    numbers(&server);
    let find = |options: Document| {
        let mut command = doc! { "find": "numbers" };
        command.extend(options);
        let reply = server.client().database("docs").run_command(command).run().unwrap();
        reply.get_document("cursor").unwrap().get_i64("id").unwrap() != 0
    };
    assert!(!find(doc! { "batchSize": 4, "limit": 4 }));
    assert!(find(doc! { "batchSize": 4, "limit": 5 }));
    assert!(find(doc! { "batchSize": 10 }));
    assert!(!find(doc! { "batchSize": 11 }));
    assert!(!find(doc! { "batchSize": 2, "singleBatch": true }));
}

#[test]
fn write_concerns_of_more_servers_are_not_met() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    let insert = |concern: Document| {
        let command = doc! { "insert": "things", "documents": [{}], "writeConcern": concern };
        let reply = database.run_command(command).run();
        match reply {
            Ok(reply) => reply.get_document("writeConcernError").map_or(0, |e| e.get_i32("code").unwrap()),
            Err(error) => code(&error),
        }
    };
    assert_eq!(insert(doc! { "w": 1 }), 0);
    assert_eq!(insert(doc! { "w": "majority", "j": true }), 0);
    assert_eq!(insert(doc! { "w": 3 }), 100);
    assert_eq!(insert(doc! { "w": "backup" }), 79);
    assert_eq!(insert(doc! { "w": 51 }), 9);
    let kept = server.collection("things").count_documents(doc! {}).run().unwrap();
    assert!(kept >= 4, "what is not met is written all the same: {kept}");
}

#[test]
fn parameters_are_told() {
    let server = TestServer::start(1);
    let admin = server.client().database("admin");
    let all = admin.run_command(doc! { "getParameter": "*" }).run().unwrap();
    assert!(!all.get_bool("enableTestCommands").unwrap());
    let one = admin.run_command(doc! { "getParameter": 1, "authenticationMechanisms": 1 }).run().unwrap();
    assert_eq!(one.get_array("authenticationMechanisms").unwrap().len(), 1);
    assert!(one.get("enableTestCommands").is_none());
    let unknown = admin.run_command(doc! { "getParameter": 1, "nothing": 1 }).run().unwrap_err();
    assert_eq!(code(&unknown), 72);
}

#[test]
fn variables_of_writes_are_read_by_filters_and_pipelines() {
    let server = TestServer::start(2);
    let things = server.collection("things");
    things.insert_many((0..6).map(|n| doc! { "_id": n, "n": n })).run().unwrap();
    let database = server.client().database("docs");
    let run = |command: Document| database.run_command(command).run().map_err(|error| code(&error));
    let by =
        |name: &str| doc! { "$or": [{ "$expr": { "$eq": ["$n", format!("$${name}")] } }, { "never": 1 }] };
    let update = run(
        doc! { "update": "things", "let": { "one": 1, "text": { "$concat": ["a", "$b"] } }, "updates": [
            { "q": by("one"), "u": [{ "$set": { "text": "$$text", "sum": { "$add": ["$n", "$$one"] } } }], "multi": true },
        ] },
    );
    assert_eq!(update.unwrap().get_i32("nModified").unwrap(), 1);
    assert_eq!(
        things.find_one(doc! { "_id": 1 }).run().unwrap().unwrap(),
        doc! { "_id": 1, "n": 1, "text": null, "sum": 2 }
    );
    let changed = run(doc! { "findAndModify": "things", "let": { "two": 2 }, "query": by("two"),
    "update": [{ "$replaceWith": { "_id": "$_id", "was": "$$two" } }], "new": true });
    let changed = changed.unwrap();
    assert_eq!(changed.get_document("value").unwrap(), &doc! { "_id": 2, "was": 2 });
    let deleted =
        run(doc! { "delete": "things", "let": { "x": 3 }, "deletes": [{ "q": by("x"), "limit": 0 }] });
    assert_eq!(deleted.unwrap().get_i32("n").unwrap(), 1);
    let unbound = run(doc! { "delete": "things", "deletes": [{ "q": by("x"), "limit": 0 }] }).unwrap();
    assert_eq!(unbound.get_array("writeErrors").unwrap().len(), 1);
    assert_eq!(things.count_documents(doc! {}).run().unwrap(), 5);
}

#[test]
fn what_does_not_fit_the_place_is_refused() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    let run = |command: Document| database.run_command(command).run().map_err(|error| code(&error));
    let snapshot = doc! { "level": "snapshot" };
    assert_eq!(run(doc! { "listCollections": 1, "readConcern": &snapshot }), Err(72));
    assert!(run(doc! { "find": "things", "readConcern": &snapshot }).is_ok());
    let insert =
        run(doc! { "insert": "things", "documents": [{ "_id": { "$a": 1 } }, { "_id": 1 }] }).unwrap();
    assert_eq!(insert.get_i32("n").unwrap(), 0);
    // an upsert creates its collection, also in a transaction
    let mut session = server.client().start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    let new = session.client().database("docs").collection::<Document>("new");
    let one = new.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }).upsert(true);
    one.session(&mut session).run().unwrap();
    session.commit_transaction().run().unwrap();
    assert_eq!(new.count_documents(doc! {}).run().unwrap(), 1);
}

/// Documents of several partitions come in the order in which they were inserted, if their ids grow.
#[test]
fn documents_of_several_partitions_come_in_order() {
    let server = TestServer::start(4);
    let items = server.collection("item");
    items.insert_many((0..100).map(|n| doc! { "_id": n, "even": n % 2 == 0 })).run().unwrap();
    let ids = |filter: Document, skip: u64| -> Vec<i32> {
        let found = items.find(filter).skip(skip).limit(40).run().unwrap();
        found.map(|document| document.unwrap().get_i32("_id").unwrap()).collect()
    };
    assert_eq!(ids(doc! {}, 5), (5..45).collect::<Vec<_>>());
    assert_eq!(ids(doc! { "even": true }, 0), (0..40).map(|n| n * 2).collect::<Vec<_>>());
    let first = items.find_one_and_delete(doc! { "even": false }).run().unwrap().unwrap();
    assert_eq!(first.get_i32("_id").unwrap(), 1);
    items.update_one(doc! {}, doc! { "$set": { "even": 5 } }).run().unwrap();
    assert_eq!(ids(doc! { "even": 5 }, 0), [0]);
}

#[test]
fn the_keys_of_an_index_are_returned_in_place_of_documents() {
    let server = TestServer::start(3);
    let database = server.client().database("docs");
    let things = database.collection::<Document>("things");
    let index = |key: Document| doc! { "createIndexes": "things", "indexes": [{ "name": "i", "key": key }] };
    database.run_command(index(doc! { "a.b": -1, "c": 1 })).run().unwrap();
    things.insert_many((0..6).map(|n| doc! { "_id": n, "a": { "b": n }, "x": n % 2 })).run().unwrap();
    let find = |fields: Document| {
        let mut find = doc! { "find": "things", "returnKey": true };
        find.extend(fields);
        database.run_command(find).run()
    };
    let keys = |fields: Document| -> Vec<Document> {
        let found = find(fields).unwrap();
        let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        found.iter().map(|key| key.as_document().unwrap().clone()).collect()
    };
    let null = mongodb::bson::Bson::Null;
    let expected = [doc! { "a.b": 5, "c": &null }, doc! { "a.b": 4, "c": &null }];
    assert_eq!(keys(doc! { "filter": { "a.b": { "$gt": 3 } } }), expected);
    assert_eq!(
        keys(doc! { "filter": { "x": 1 }, "hint": "i", "limit": 1, "projection": { "x": 1 } }),
        expected[..1]
    );
    let by_id = doc! { "filter": { "x": 0 }, "sort": { "_id": 1 }, "limit": 2, "showRecordId": true };
    assert_eq!(keys(by_id), [doc! { "_id": 0 }, doc! { "_id": 2 }]);
    assert_eq!(keys(doc! { "filter": { "_id": 3 } }), [doc! { "_id": 3 }]);
    assert_eq!(keys(doc! { "filter": { "x": 1 }, "limit": 1 }), [Document::new()]);
    things.insert_one(doc! { "_id": 9, "a": { "b": [7, 8] } }).run().unwrap();
    let several = find(doc! { "filter": { "a.b": { "$gt": 3 } } }).unwrap_err();
    assert_eq!(crate::code(&several), 238);
}
