//! Tailable cursors go on with what is inserted later.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::sync::Database;

use crate::{TestServer, code};

fn run(database: &Database, command: Document) -> Result<Document, i32> {
    database.run_command(command).run().map_err(|error| code(&error))
}

fn batch(reply: &Document, name: &str) -> (i64, Vec<i32>) {
    let cursor = reply.get_document("cursor").unwrap();
    let ids =
        cursor.get_array(name).unwrap().iter().map(|d| d.as_document().unwrap().get_i32("_id").unwrap());
    (cursor.get_i64("id").unwrap(), ids.collect())
}

#[test]
fn a_tailable_cursor_goes_on() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    run(&database, doc! { "create": "last", "capped": true, "size": 4096, "max": 20 }).unwrap();
    let last = server.collection("last");
    let find = doc! { "find": "last", "tailable": true, "filter": { "skip": { "$exists": false } } };
    // without documents there is no place to go on from
    assert_eq!(batch(&run(&database, find.clone()).unwrap(), "firstBatch"), (0, vec![]));
    last.insert_many((0..18).map(|n| doc! { "_id": n })).run().unwrap();
    let mut two = find.clone();
    two.insert("batchSize", 17);
    let (id, first) = batch(&run(&database, two).unwrap(), "firstBatch");
    assert_eq!((id != 0, first), (true, (0..17).collect()));
    let more = || run(&database, doc! { "getMore": id, "collection": "last" });
    assert_eq!(batch(&more().unwrap(), "nextBatch"), (id, vec![17]));
    assert_eq!(batch(&more().unwrap(), "nextBatch"), (id, vec![]));
    // a page of rows has 16, and the cursor stands inside the second one
    last.insert_many([doc! { "_id": 18, "skip": true }, doc! { "_id": 19 }]).run().unwrap();
    assert_eq!(batch(&more().unwrap(), "nextBatch"), (id, vec![19]));
    last.insert_many((20..40).map(|n| doc! { "_id": n })).run().unwrap();
    // the place where it stood is gone
    assert_eq!(more(), Err(136));
    assert_eq!(more(), Err(43));
}

#[test]
fn a_cursor_that_waits_is_answered_when_a_document_comes() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    run(&database, doc! { "create": "last", "capped": true, "size": 4096 }).unwrap();
    let last = server.collection("last");
    last.insert_one(doc! { "_id": 1 }).run().unwrap();
    let find = doc! { "find": "last", "tailable": true, "awaitData": true };
    let (id, _) = batch(&run(&database, find).unwrap(), "firstBatch");
    let more = |millis: i32| doc! { "getMore": id, "collection": "last", "maxTimeMS": millis };
    let started = Instant::now();
    assert_eq!(batch(&run(&database, more(200)).unwrap(), "nextBatch"), (id, vec![]));
    assert!(started.elapsed() >= Duration::from_millis(200));
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        last.insert_one(doc! { "_id": 2 }).run().unwrap();
    });
    // the reply comes with the document, not at the end of the ten minutes
    let started = Instant::now();
    assert_eq!(batch(&run(&database, more(600_000)).unwrap(), "nextBatch"), (id, vec![2]));
    assert!(started.elapsed() < Duration::from_secs(300));
    writer.join().unwrap();
}

#[test]
fn what_cannot_be_tailed_is_refused() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    server.collection("things").insert_one(doc! {}).run().unwrap();
    assert_eq!(run(&database, doc! { "find": "things", "tailable": true }), Err(2));
    assert_eq!(run(&database, doc! { "find": "things", "awaitData": true }), Err(9));
    run(&database, doc! { "create": "last", "capped": true, "size": 4096 }).unwrap();
    assert_eq!(run(&database, doc! { "find": "last", "tailable": true, "sort": { "a": 1 } }), Err(2));
}
