//! Transactions and repeated writes, as drivers send them.

use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocumentBuf, doc, rawdoc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::sync::ClientSession;
use tidemill_mongo::MongoOptions;

use crate::wire::{body, connect, message, open_server, reply};
use crate::{TestServer, code};

fn session(server: &TestServer) -> ClientSession {
    server.client().start_session().run().unwrap()
}

#[test]
fn a_transaction_is_committed_or_taken_back() {
    for partitions in [1, 3] {
        let server = TestServer::start(partitions);
        let accounts = server.collection("account");
        accounts.insert_many((0..9).map(|id| doc! { "_id": id, "n": 10 })).run().unwrap();
        let mut session = session(&server);
        let accounts_of_session = session.client().database("docs").collection::<bson::Document>("account");
        session.start_transaction().run().unwrap();
        for id in 0..9 {
            let amount = doc! { "$inc": { "n": id - 4 } };
            accounts_of_session.update_one(doc! { "_id": id }, amount).session(&mut session).run().unwrap();
        }
        accounts_of_session.insert_one(doc! { "_id": "new" }).session(&mut session).run().unwrap();
        let own = accounts_of_session.find_one(doc! { "_id": 8 }).session(&mut session).run().unwrap();
        assert_eq!(own, Some(doc! { "_id": 8, "n": 14 }), "the transaction sees its own writes");
        assert_eq!(accounts.find_one(doc! { "n": { "$ne": 10 } }).run().unwrap(), None, "nobody else does");
        let total = [doc! { "$group": { "_id": bson::Bson::Null, "n": { "$sum": "$n" } } }];
        let mut found = accounts_of_session.aggregate(total).session(&mut session).run().unwrap();
        assert_eq!(found.next(&mut session).unwrap().unwrap().get_i32("n").unwrap(), 90);
        session.commit_transaction().run().unwrap();
        session.commit_transaction().run().expect("a commit may be sent again");
        assert_eq!(accounts.count_documents(doc! { "n": { "$ne": 10 } }).run().unwrap(), 9);

        session.start_transaction().run().unwrap();
        accounts_of_session.delete_many(doc! {}).session(&mut session).run().unwrap();
        assert_eq!(accounts_of_session.count_documents(doc! {}).session(&mut session).run().unwrap(), 0);
        session.abort_transaction().run().unwrap();
        let server = server.restart();
        assert_eq!(server.collection("account").count_documents(doc! {}).run().unwrap(), 10);
    }
}

#[test]
fn the_second_writer_is_told_to_begin_again() {
    let server = TestServer::start(2);
    server.collection("account").insert_one(doc! { "_id": 1, "n": 1 }).run().unwrap();
    let (mut first, mut second) = (session(&server), session(&server));
    first.start_transaction().run().unwrap();
    second.start_transaction().run().unwrap();
    let update = |session: &mut ClientSession| {
        let accounts = session.client().database("docs").collection::<bson::Document>("account");
        accounts.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).session(session).run()
    };
    update(&mut first).unwrap();
    let error = update(&mut second).unwrap_err();
    assert_eq!(code(&error), 112);
    assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR));
    first.commit_transaction().run().unwrap();
    let error = second.commit_transaction().run().unwrap_err();
    assert_eq!(code(&error), 251, "it has been taken back");
    assert!(!error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT));
    second.start_transaction().and_run(|session| update(session).map(|_| ())).unwrap();
    assert_eq!(
        server.collection("account").find_one(doc! {}).run().unwrap().unwrap().get_i32("n").unwrap(),
        3
    );
}

#[test]
fn an_insert_creates_its_collection_in_a_transaction() {
    let server = TestServer::start(2);
    let mut session = session(&server);
    let new = session.client().database("docs").collection::<bson::Document>("new");
    session.start_transaction().run().unwrap();
    new.insert_many((0..4).map(|id| doc! { "_id": id })).session(&mut session).run().unwrap();
    assert_eq!(server.collection("new").count_documents(doc! {}).run().unwrap(), 0);
    session.commit_transaction().run().unwrap();
    assert_eq!(server.collection("new").count_documents(doc! {}).run().unwrap(), 4);
    session.start_transaction().run().unwrap();
    let error = new.insert_one(doc! { "_id": 1 }).session(&mut session).run().unwrap_err();
    assert_eq!(code(&error), 11000);
    assert_eq!(code(&session.commit_transaction().run().unwrap_err()), 251, "an error takes all back");
}

fn lsid(n: u8) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![n; 16] } }
}

#[test]
fn a_write_that_is_sent_again_is_executed_once() {
    let server = open_server();
    let mut stream = connect(&server);
    let mut run = |command: RawDocumentBuf| {
        std::io::Write::write_all(&mut stream, &message(2013, &body(0, &command))).unwrap();
        reply(&mut stream, 5).unwrap().1
    };
    let writes = [
        rawdoc! { "insert": "w", "documents": [{ "_id": 1, "n": 0 }, { "_id": 2, "n": 0 }], "lsid": lsid(1), "txnNumber": 1_i64, "$db": "docs" },
        rawdoc! { "update": "w", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }, { "q": { "n": 0 }, "u": { "$inc": { "n": 5 } } }], "lsid": lsid(1), "txnNumber": 2_i64, "$db": "docs" },
        rawdoc! { "findAndModify": "w", "query": { "_id": 2 }, "update": { "$inc": { "n": 1 } }, "new": true, "lsid": lsid(1), "txnNumber": 3_i64, "$db": "docs" },
        rawdoc! { "delete": "w", "deletes": [{ "q": { "n": { "$gt": 5 } }, "limit": 1 }], "lsid": lsid(2), "txnNumber": 1_i64, "$db": "docs" },
    ];
    for write in &writes {
        let first = run(write.clone());
        assert_eq!(first.get_f64("ok").unwrap(), 1.0, "{first}");
        assert_eq!(run(write.clone()), first);
    }
    let left = run(rawdoc! { "find": "w", "$db": "docs" });
    assert_eq!(left.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    let old =
        run(rawdoc! { "insert": "w", "documents": [{}], "lsid": lsid(1), "txnNumber": 2_i64, "$db": "docs" });
    assert_eq!(old.get_i32("code").unwrap(), 225, "the session has gone on");
    let read = run(rawdoc! { "find": "w", "lsid": lsid(1), "txnNumber": 9_i64, "$db": "docs" });
    assert_eq!(read.get_i32("code").unwrap(), 50768);
    let nothing = run(
        rawdoc! { "commitTransaction": 1, "lsid": lsid(3), "txnNumber": 1_i64, "autocommit": false, "$db": "admin" },
    );
    assert_eq!(nothing.get_i32("code").unwrap(), 251);
    let ping = rawdoc! { "ping": 1, "lsid": lsid(4), "txnNumber": 1_i64, "startTransaction": true, "autocommit": false, "$db": "admin" };
    assert_eq!(run(ping).get_i32("code").unwrap(), 263);
}

#[test]
fn a_snapshot_session_reads_one_moment() {
    for partitions in [1, 3] {
        let server = TestServer::start(partitions);
        let things = server.collection("things");
        things.insert_many((0..9).map(|id| doc! { "_id": id })).run().unwrap();
        let client = server.client();
        let mut reads = client.start_session().snapshot(true).run().unwrap();
        let of_session = client.database("docs").collection::<bson::Document>("things");
        assert_eq!(of_session.distinct("_id", doc! {}).session(&mut reads).run().unwrap().len(), 9);
        things.delete_one(doc! { "_id": 0 }).run().unwrap();
        things.insert_one(doc! { "_id": "later" }).run().unwrap();
        assert_eq!(of_session.count_documents(doc! {}).session(&mut reads).run().unwrap(), 9);
        assert!(of_session.find_one(doc! { "_id": 0 }).session(&mut reads).run().unwrap().is_some());
        let later = of_session.find_one(doc! { "_id": "later" }).session(&mut reads).run().unwrap();
        assert_eq!(later, None);
        let mut found = of_session.find(doc! {}).batch_size(2).session(&mut reads).run().unwrap();
        let ids: Vec<_> = found.iter(&mut reads).map(|document| document.unwrap()).collect();
        assert_eq!(ids.len(), 9);
        // the next session reads another moment
        let mut next = client.start_session().snapshot(true).run().unwrap();
        let later = of_session.find_one(doc! { "_id": "later" }).session(&mut next).run().unwrap();
        assert_eq!(later, Some(doc! { "_id": "later" }));
    }
}

#[test]
fn a_moment_that_is_not_kept_is_refused() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    let time = bson::Timestamp { time: 5, increment: 1 };
    let concern = doc! { "level": "snapshot", "atClusterTime": time };
    let refused = database.run_command(doc! { "find": "things", "readConcern": concern }).run().unwrap_err();
    assert_eq!(code(&refused), 239);
    let concern = doc! { "level": "snapshot" };
    let reply = database.run_command(doc! { "find": "things", "readConcern": concern }).run().unwrap();
    let time = reply.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    assert!(time.time > 5);
}

#[test]
fn open_transactions_hold_bounded_memory() {
    let options = MongoOptions { password: Some(crate::PASSWORD.into()), ..MongoOptions::default() };
    let server = TestServer::start_changed(tempfile::tempdir().unwrap(), options, |settings| {
        settings.partitions = 2;
        settings.transaction_bytes = Some(1 << 20);
        settings.transactions_bytes = Some(3 << 20);
    });
    let client = server.client();
    let things = client.database("docs").collection::<Document>("things");
    things.insert_many((0..100).map(|n| doc! { "_id": n, "x": "y".repeat(10_000) })).run().unwrap();
    let begin = || {
        let mut session = client.start_session().run().unwrap();
        session.start_transaction().run().unwrap();
        session
    };
    // one may write so much, by any command
    let mut session = begin();
    let large = (1000..1020).map(|n| doc! { "_id": n, "x": "y".repeat(100_000) });
    let error = things.insert_many(large).session(&mut session).run().unwrap_err();
    assert_eq!(code(&error), 393, "{error}");
    assert!(!error.contains_label(TRANSIENT_TRANSACTION_ERROR));
    let mut session = begin();
    let error =
        things.update_many(doc! {}, doc! { "$set": { "y": 1 } }).session(&mut session).run().unwrap_err();
    assert_eq!(code(&error), 393, "{error}");
    assert!(error.to_string().contains("transaction_bytes"), "{error}");
    // and all together so much; what is refused for the others' sake may be tried again
    let hold = |n: i32| {
        let mut session = begin();
        let inserted =
            things.insert_one(doc! { "_id": 2000 + n, "x": "y".repeat(300_000) }).session(&mut session).run();
        inserted.map(|_| session)
    };
    let mut open = Vec::new();
    let refused = loop {
        match hold(open.len() as i32) {
            Ok(session) => open.push(session),
            Err(error) => break error,
        }
    };
    assert_eq!(open.len(), 4, "{refused}");
    assert_eq!(code(&refused), 365, "{refused}");
    assert!(refused.contains_label(TRANSIENT_TRANSACTION_ERROR), "{refused}");
    open.remove(0).abort_transaction().run().unwrap();
    open.push(hold(9).unwrap());
    for mut session in open {
        session.commit_transaction().run().unwrap();
    }
    hold(10).unwrap().commit_transaction().run().unwrap();
    assert_eq!(things.count_documents(doc! {}).run().unwrap(), 105);
}

/// Others see a collection that a transaction creates when it is committed, and never after an abort.
#[test]
fn collections_and_indexes_of_a_transaction_are_its_own() {
    for partitions in [1, 3] {
        let server = TestServer::start(partitions);
        let names = || server.client().database("docs").list_collection_names().run().unwrap();
        let mut session = session(&server);
        let database = session.client().database("docs");
        let run = |session: &mut ClientSession, command| database.run_command(command).session(session).run();
        for commits in [false, true] {
            session.start_transaction().run().unwrap();
            run(&mut session, doc! { "create": "made", "validator": { "n": { "$gte": 0 } } }).unwrap();
            let index = doc! { "key": { "n": 1 }, "name": "n_1", "unique": true };
            let reply =
                run(&mut session, doc! { "createIndexes": "made", "indexes": [index.clone()] }).unwrap();
            assert_eq!(reply.get_i32("numIndexesAfter").unwrap(), 2);
            let reply =
                run(&mut session, doc! { "createIndexes": "indexed", "indexes": [index.clone()] }).unwrap();
            assert!(reply.get_bool("createdCollectionAutomatically").unwrap());
            for (name, n) in [("made", 1), ("implied", 2), ("made", 3), ("indexed", 4)] {
                let collection = database.collection::<bson::Document>(name);
                collection.insert_one(doc! { "n": n }).session(&mut session).run().unwrap();
            }
            let found = database.collection::<bson::Document>("made");
            assert_eq!(
                found.count_documents(doc! { "n": { "$gt": 0 } }).session(&mut session).run().unwrap(),
                2
            );
            assert_eq!(names(), ["Customer"], "others see none of it");
            match commits {
                true => session.commit_transaction().run().unwrap(),
                false => session.abort_transaction().run().unwrap(),
            }
        }
        let mut names = names();
        names.sort();
        assert_eq!(names, ["Customer", "implied", "indexed", "made"]);
        let made = server.collection("made");
        assert_eq!(made.count_documents(doc! {}).run().unwrap(), 2);
        assert_eq!(code(&made.insert_one(doc! { "n": 1 }).run().unwrap_err()), 11000);
        assert_eq!(code(&made.insert_one(doc! { "n": -1 }).run().unwrap_err()), 121);
        let server = server.restart();
        assert_eq!(server.collection("made").count_documents(doc! {}).run().unwrap(), 2);
        assert_eq!(server.collection("made").list_index_names().run().unwrap().len(), 2);
    }
}

#[test]
fn a_collection_that_another_client_creates_meanwhile_is_a_conflict() {
    let server = TestServer::start(3);
    let mut session = session(&server);
    let database = session.client().database("docs");
    session.start_transaction().run().unwrap();
    database.collection("made").insert_one(doc! { "_id": 1 }).session(&mut session).run().unwrap();
    server.collection("made").insert_one(doc! { "_id": 2 }).run().unwrap();
    let error = session.commit_transaction().run().unwrap_err();
    assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}");
    assert_eq!(server.collection("made").count_documents(doc! {}).run().unwrap(), 1);
    // an existing collection keeps its indexes
    session.start_transaction().run().unwrap();
    let command = |key: bson::Document| {
        doc! { "createIndexes": "made", "indexes": [{ "key": key, "name": "x" }] }
    };
    let error = database.run_command(command(doc! { "n": 1 })).session(&mut session).run().unwrap_err();
    assert_eq!(code(&error), 263);
}
