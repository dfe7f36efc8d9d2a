//! The documents by function calls: the same tests as over the wire, and what is so in one process only.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use tidemill_mongo::embedded::{self, OperationType};

use crate::TestServer;

/// The tests, as a program that uses the driver has them.
mod wire {
    use std::time::Duration;

    use bson::{Bson, Document, RawDocumentBuf, doc};
    use mongodb::IndexModel;
    use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
    use mongodb::error::{Error, ErrorKind};
    use mongodb::options::{FullDocumentType, Hint, IndexOptions, ReturnDocument};
    use mongodb::sync::{ChangeStream, Client, ClientSession};
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

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
    use std::time::Duration;

    use bson::{Bson, Document, RawDocumentBuf, doc};
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};
    use tidemill_mongo::embedded::{
        ChangeStream, ChangeStreamEvent, Client, ClientSession, Error, FullDocumentType, Hint, IndexModel,
        IndexOptions, OperationType, ReturnDocument,
    };

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
