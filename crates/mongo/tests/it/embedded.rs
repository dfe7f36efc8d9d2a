//! The documents by function calls: the same tests as over the wire, and what is so in one process only.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use tidemill_mongo::embedded::{self, Acknowledgment, OperationType, WriteConcern};

use crate::TestServer;

/// The tests, as a program that uses the driver has them.
mod wire {
    use ::mongodb;
    use mongodb::error::{Error, ErrorKind};
    use mongodb::sync::Client;

    use crate::{TestServer, code};

    fn start(partitions: u32) -> (TestServer, Client) {
        let server = TestServer::start(partitions);
        let client = server.client();
        (server, client)
    }

    fn refused_documents(error: &Error) -> Vec<(usize, i32)> {
        let ErrorKind::InsertMany(error) = error.kind.as_ref() else { panic!("{error}") };
        error.write_errors.iter().flatten().map(|error| (error.index, error.code)).collect()
    }

    include!("embedded_same.rs");
}

/// The tests, as a program that has the engine in itself has them.
mod in_process {
    use tidemill_mongo::embedded as mongodb;

    use self::mongodb::error::Error;
    use self::mongodb::sync::Client;
    use crate::TestServer;

    fn start(partitions: u32) -> (TestServer, Client) {
        let server = TestServer::start(partitions);
        let client = Client::new(server.engine.clone());
        (server, client)
    }

    fn code(error: &Error) -> i32 {
        error.code()
    }

    fn refused_documents(error: &Error) -> Vec<(usize, i32)> {
        error.write_errors().iter().map(|error| (error.index, error.code)).collect()
    }

    include!("embedded_same.rs");
}

fn things(server: &TestServer) -> embedded::Collection<Document> {
    embedded::Client::new(server.engine.clone()).database("docs").collection("thing")
}

#[test]
fn both_doors_see_the_same_documents_at_once() {
    let server = TestServer::start(2);
    let (inside, outside) = (things(&server), server.collection("thing"));
    for id in 0..20 {
        inside.insert_one(doc! { "_id": id, "n": 0 }).run().unwrap();
        assert!(outside.find_one(doc! { "_id": id }).run().unwrap().is_some());
        outside.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1 } }).run().unwrap();
        assert_eq!(inside.find_one(doc! { "_id": id }).run().unwrap(), Some(doc! { "_id": id, "n": 1 }));
        inside.replace_one(doc! { "_id": id }, doc! { "n": 2 }).run().unwrap();
        assert_eq!(outside.find_one(doc! { "_id": id }).run().unwrap(), Some(doc! { "_id": id, "n": 2 }));
    }
    // transactions of both meet, too
    let client = inside.client().clone();
    let mut session = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    let update = doc! { "$inc": { "n": 1 } };
    inside.update_one(doc! { "_id": 1 }, update.clone()).session(&mut session).run().unwrap();
    outside.update_one(doc! { "_id": 1 }, update).run().unwrap();
    let error = session.commit_transaction().run().unwrap_err();
    assert_eq!((error.code(), error.code_name().as_str()), (112, "WriteConflict"));
}

/// Operations by an `_id` alone call the engine directly, and become commands by an option. Both ways do the same.
#[test]
fn direct_calls_and_commands_do_the_same() {
    let server = TestServer::start(3);
    let things = things(&server);
    let date = bson::DateTime::from_millis(1_700_000_000_000);
    let ids = [
        Bson::Int32(1),
        Bson::Int64(1 << 40),
        Bson::Double(2.5),
        Bson::Double(-0.0),
        Bson::from("text"),
        Bson::ObjectId(bson::oid::ObjectId::new()),
        Bson::DateTime(date),
        Bson::Boolean(true),
        Bson::Null,
        Bson::from(bson::Uuid::new()),
        Bson::from(doc! { "a": 1 }),
        Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }),
    ];
    for id in ids {
        let by_id = || doc! { "_id": id.clone() };
        let document = |n: i32| doc! { "_id": id.clone(), "n": n };
        let update = || doc! { "$inc": { "n": 1 } };
        let text = |result: embedded::Result<String>| result.unwrap_or_else(|error| error.to_string());
        let run = |commands: bool| -> Vec<String> {
            let mut told = Vec::new();
            // twice, so that the second one finds something else
            for n in [1, 1] {
                let (insert, replace) =
                    (things.insert_one(document(n)), things.replace_one(by_id(), doc! { "n": n }));
                let (change, wrong) =
                    (things.update_one(by_id(), update()), things.update_one(by_id(), doc! { "$x": {} }));
                let (find, other) =
                    (things.find_one(by_id()), things.replace_one(by_id(), doc! { "_id": 0 }));
                let ways = match commands {
                    false => (insert, replace, change, wrong, find, other),
                    true => (
                        insert.comment("c"),
                        replace.comment("c"),
                        change.comment("c"),
                        wrong.comment("c"),
                        find.comment("c"),
                        other.comment("c"),
                    ),
                };
                told.push(text(ways.0.run().map(|done| format!("{done:?}"))));
                told.push(text(ways.2.run().map(|done| format!("{done:?}"))));
                told.push(text(ways.3.run().map(|done| format!("{done:?}"))));
                told.push(text(ways.4.run().map(|found| format!("{found:?}"))));
                told.push(text(ways.1.run().map(|done| format!("{done:?}"))));
                told.push(text(ways.5.run().map(|done| format!("{done:?}"))));
            }
            for _ in 0..2 {
                let delete = things.delete_one(by_id());
                let delete = if commands { delete.comment("c") } else { delete };
                told.push(text(delete.run().map(|done| format!("{done:?}"))));
                told.push(format!("{:?}", things.find_one(by_id()).run().unwrap()));
            }
            told
        };
        assert_eq!(run(false), run(true), "{id}");
    }
}

#[test]
fn a_write_waits_as_its_concern_says() {
    let server = TestServer::start(1);
    let things = things(&server);
    let on_disk = || WriteConcern::builder().journal(true).w(Acknowledgment::Nodes(1)).build();
    things.insert_one(doc! { "_id": 1 }).write_concern(on_disk()).run().unwrap();
    let updated =
        things.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }).write_concern(on_disk()).run();
    assert_eq!(updated.unwrap().modified_count, 1);
    let taken = things.find_one_and_delete(doc! {}).write_concern(WriteConcern::majority()).run().unwrap();
    assert_eq!(taken, Some(doc! { "_id": 1, "a": 1 }));
}

#[test]
fn threads_read_and_write_side_by_side() {
    let server = TestServer::start(2);
    let things = things(&server);
    things.insert_one(doc! { "_id": 0, "a": 0, "b": 0 }).run().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=200 {
                things.update_one(doc! { "_id": 0 }, doc! { "$set": { "a": n, "b": -n } }).run().unwrap();
                things.insert_one(doc! { "_id": n }).run().unwrap();
            }
        });
        let mut last = 0;
        while !writer.is_finished() {
            let found = things.find_one(doc! { "_id": 0 }).run().unwrap().unwrap();
            let (a, b) = (found.get_i32("a").unwrap(), found.get_i32("b").unwrap());
            assert_eq!(a, -b, "one document is written as a whole");
            assert!(a >= last, "and is never older than before");
            last = a;
            let before = things.count_documents(doc! {}).run().unwrap();
            assert!(things.find(doc! {}).run().unwrap().count() as u64 >= before);
        }
    });
    assert_eq!(things.estimated_document_count().run().unwrap(), 201);
}

#[test]
fn a_dropped_session_takes_its_transaction_back() {
    let server = TestServer::start(1);
    let things = things(&server);
    let client = things.client();
    let mut session = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    things.insert_one(doc! { "_id": 1 }).session(&mut session).run().unwrap();
    drop(session);
    assert_eq!(things.find_one(doc! { "_id": 1 }).run().unwrap(), None);
    things.insert_one(doc! { "_id": 1 }).run().expect("it holds nothing");
    let error = things.insert_one(doc! { "_id": 1 }).run().unwrap_err();
    assert_eq!(error.code_name(), "DuplicateKey");
    assert!(error.write_errors().is_empty() && error.labels().is_empty());
    assert!(error.to_string().contains("docs.thing"), "{error}");
}

#[test]
fn a_stream_waits_as_long_as_it_is_told_and_ends_with_the_engine() {
    let mut server = TestServer::start(2);
    let things = things(&server);
    let mut quick = things.watch().run().unwrap();
    let begun = Instant::now();
    assert!(quick.next_if_any().unwrap().is_none());
    let mut slow = things.watch().max_await_time(Duration::from_millis(200)).run().unwrap();
    assert!(slow.next_if_any().unwrap().is_none());
    assert!(begun.elapsed() >= Duration::from_millis(200));
    // its token goes on although nothing happens in the collection
    let before = quick.resume_token();
    things.client().database("docs").collection::<Document>("other").insert_one(doc! {}).run().unwrap();
    assert!(quick.next_if_any().unwrap().is_none());
    assert_ne!(quick.resume_token(), before);
    // one token fits both doors
    things.insert_one(doc! { "_id": 1 }).run().unwrap();
    let token: mongodb::change_stream::event::ResumeToken =
        bson::deserialize_from_bson(bson::serialize_to_bson(&before.unwrap()).unwrap()).unwrap();
    let mut outside = server.collection("thing").watch().resume_after(token).run().unwrap();
    assert_eq!(outside.next().unwrap().unwrap().document_key, Some(doc! { "_id": 1 }));
    drop(outside);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            assert_eq!(slow.next().unwrap().unwrap().operation_type, OperationType::Insert);
            let error = slow.next().unwrap().unwrap_err();
            assert_eq!(error.code(), 6);
            assert!(!slow.is_alive() && slow.next().is_none());
        });
        server.stop();
        waiting.join().unwrap();
    });
}

#[test]
fn errors_have_the_names_of_their_codes() {
    let server = TestServer::start(1);
    let docs = embedded::Client::new(server.engine.clone()).database("docs");
    let lsid = doc! { "id": bson::Uuid::new() };
    let commit = doc! { "commitTransaction": 1, "lsid": lsid, "txnNumber": 1_i64, "autocommit": false };
    let error = docs.run_command(commit).run().unwrap_err();
    assert_eq!((error.code(), error.code_name().as_str()), (251, "NoSuchTransaction"));
    assert!(error.contains_label(embedded::TRANSIENT_TRANSACTION_ERROR));
    let watch = doc! { "$changeStream": { "resumeAfter": { "_data": "xyz" } } };
    let thing = docs.collection::<Document>("thing");
    let error = thing.aggregate([watch]).run().unwrap_err();
    assert_eq!((error.code(), error.code_name().as_str()), (260, "InvalidResumeToken"));
    let error = thing.aggregate([doc! { "$changeStream": {} }]).run().unwrap_err();
    assert!(error.message().contains("watch"), "{error}");
}
