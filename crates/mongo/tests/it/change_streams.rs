//! Change streams, as the Rust driver follows them.

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use mongodb::options::{ChangeStreamPreAndPostImages, FullDocumentBeforeChangeType, FullDocumentType};
use mongodb::sync::Collection;

use crate::{TestServer, code};

type Stream = mongodb::sync::ChangeStream<ChangeStreamEvent<Document>>;

fn follow(collection: &Collection<Document>) -> Stream {
    collection.watch().max_await_time(Duration::from_millis(50)).run().unwrap()
}

/// Returns the next event; a stream that has none by now waits in the server.
fn next(stream: &mut Stream) -> ChangeStreamEvent<Document> {
    loop {
        if let Some(event) = stream.next_if_any().unwrap() {
            return event;
        }
    }
}

#[test]
fn changes_are_followed_and_resumed_after_a_restart() {
    let server = TestServer::start(3);
    let jobs = server.collection("job");
    jobs.insert_one(doc! { "_id": 0 }).run().unwrap();
    let mut stream = follow(&jobs);
    assert!(stream.next_if_any().unwrap().is_none());
    jobs.insert_one(doc! { "_id": 1, "n": 1 }).run().unwrap();
    jobs.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 2, "to": { "x": 1 } } }).run().unwrap();
    let event = next(&mut stream);
    assert_eq!(event.operation_type, OperationType::Insert);
    assert_eq!(event.full_document, Some(doc! { "_id": 1, "n": 1 }));
    assert_eq!(event.document_key, Some(doc! { "_id": 1 }));
    let namespace = event.ns.unwrap();
    assert_eq!((namespace.db.as_str(), namespace.coll.as_deref()), ("docs", Some("job")));
    let event = next(&mut stream);
    let update = event.update_description.unwrap();
    assert_eq!(update.updated_fields, doc! { "n": 2, "to": { "x": 1 } });
    assert_eq!(event.full_document, None);
    let token = event.id;
    jobs.delete_one(doc! { "_id": 1 }).run().unwrap();
    for other in 0..50 {
        server.collection("other").insert_one(doc! { "_id": other }).run().unwrap();
    }
    let server = server.restart();
    let jobs = server.collection("job");
    let mut stream =
        jobs.watch().resume_after(token).max_await_time(Duration::from_millis(50)).run().unwrap();
    assert_eq!(next(&mut stream).operation_type, OperationType::Delete);
    assert!(stream.next_if_any().unwrap().is_none());
    let quiet = stream.resume_token().unwrap();
    jobs.replace_one(doc! { "_id": 0 }, doc! { "n": 5 }).run().unwrap();
    let mut resumed = jobs.watch().start_after(quiet).run().unwrap();
    assert_eq!(resumed.next().unwrap().unwrap().full_document, Some(doc! { "_id": 0, "n": 5 }));
    jobs.drop().run().unwrap();
    assert_eq!(next(&mut stream).operation_type, OperationType::Replace);
    assert_eq!(next(&mut stream).operation_type, OperationType::Drop);
    assert_eq!(next(&mut stream).operation_type, OperationType::Invalidate);
    assert!(!stream.is_alive());
}

#[test]
fn a_waiting_stream_hears_of_a_change_at_once() {
    let server = TestServer::start(2);
    let jobs = server.collection("job");
    let mut stream = jobs.watch().max_await_time(Duration::from_secs(60)).run().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || stream.next().unwrap().unwrap().operation_type);
        // the change may come before or while the stream waits
        jobs.insert_one(doc! { "_id": 1 }).run().unwrap();
        assert_eq!(waiting.join().unwrap(), OperationType::Insert);
    });
}

#[test]
fn databases_pipelines_images_and_transactions() {
    let server = TestServer::start(2);
    let client = server.client();
    let shop = client.database("shop");
    shop.create_collection("order")
        .change_stream_pre_and_post_images(ChangeStreamPreAndPostImages::builder().enabled(true).build())
        .run()
        .unwrap();
    let orders = shop.collection::<Document>("order");
    let big =
        [doc! { "$match": { "fullDocument.amount": { "$gt": 10 } } }, doc! { "$set": { "seen": true } }];
    let mut stream = shop
        .watch()
        .pipeline(big)
        .full_document(FullDocumentType::UpdateLookup)
        .full_document_before_change(FullDocumentBeforeChangeType::WhenAvailable)
        .run()
        .unwrap();
    let mut everything = client.watch().run().unwrap();
    let mut session = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    for (id, amount) in [(1, 5), (2, 50), (3, 500)] {
        orders.insert_one(doc! { "_id": id, "amount": amount }).session(&mut session).run().unwrap();
    }
    server.collection("elsewhere").insert_one(doc! { "_id": 0, "amount": 99 }).run().unwrap();
    session.commit_transaction().run().unwrap();
    orders.update_one(doc! { "_id": 1 }, doc! { "$inc": { "amount": 20 } }).run().unwrap();
    let mut seen = |n: usize| -> Vec<_> { (0..n).map(|_| stream.next().unwrap().unwrap()).collect() };
    let mut inserted: Vec<_> =
        seen(2).into_iter().map(|e| e.full_document.unwrap().get_i32("_id").unwrap()).collect();
    inserted.sort_unstable();
    assert_eq!(inserted, [2, 3]);
    let updated = seen(1).remove(0);
    assert_eq!(updated.full_document, Some(doc! { "_id": 1, "amount": 25 }));
    assert_eq!(updated.full_document_before_change, Some(doc! { "_id": 1, "amount": 5 }));
    let all: Vec<_> = (0..5).map(|_| everything.next().unwrap().unwrap().ns.unwrap().db).collect();
    assert_eq!(all.iter().filter(|db| *db == "docs").count(), 1);
    assert_eq!(all[0], "docs", "a transaction is told when it is committed");
}

#[test]
fn bad_options_and_tokens_have_their_codes() {
    let server = TestServer::start(1);
    let jobs = server.collection("job");
    let aggregate = |stage: Document, rest: Vec<Document>| {
        let pipeline = [vec![doc! { "$changeStream": stage }], rest].concat();
        code(&jobs.aggregate(pipeline).run().map(|_| ()).unwrap_err())
    };
    assert_eq!(aggregate(doc! { "resumeAfter": { "_data": "xyz" } }, vec![]), 260);
    assert_eq!(aggregate(doc! { "resumeAfter": { "_data": "01FF" } }, vec![]), 260);
    assert_eq!(aggregate(doc! { "fullDocument": "sometimes" }, vec![]), 2);
    assert_eq!(aggregate(doc! { "allChangesForCluster": true }, vec![]), 72);
    assert_eq!(aggregate(doc! {}, vec![doc! { "$unknown": 1 }]), 40324);
    assert_eq!(aggregate(doc! {}, vec![doc! { "$sort": { "a": 1 } }]), 20);
    let early = bson::Timestamp { time: 1_000_000_000, increment: 1 };
    assert_eq!(aggregate(doc! { "startAtOperationTime": early }, vec![]), 286, "no changes were kept then");
}

#[test]
fn the_stream_of_a_database_ends_with_it() {
    let server = TestServer::start(3);
    let database = server.client().database("shop");
    let mut stream = database.watch().run().unwrap();
    for name in ["a", "b"] {
        database.collection::<Document>(name).insert_one(doc! { "_id": 1 }).run().unwrap();
    }
    database.drop().run().unwrap();
    let mut told = Vec::new();
    let last = loop {
        let event = stream.next().unwrap().unwrap();
        told.push(format!("{:?}", event.operation_type));
        if event.operation_type == OperationType::Invalidate {
            break event.id;
        }
    };
    assert_eq!(told, ["Insert", "Insert", "Drop", "Drop", "DropDatabase", "Invalidate"]);
    // the last token goes on after the end, but only if that is meant
    let resumed = database.watch().resume_after(last.clone()).run();
    assert_eq!(resumed.map(|_| ()).map_err(|error| code(&error)), Err(260));
    let mut again = database.watch().start_after(last).run().unwrap();
    database.collection::<Document>("a").insert_one(doc! { "_id": 2 }).run().unwrap();
    assert_eq!(format!("{:?}", again.next().unwrap().unwrap().operation_type), "Insert");
}

#[test]
fn changed_definitions_are_told_to_those_who_ask() {
    let server = TestServer::start(3);
    let database = server.client().database("docs");
    let jobs = server.collection("job");
    jobs.insert_one(doc! { "_id": 0, "a": { "1": 1 } }).run().unwrap();
    let wait = Duration::from_millis(50);
    let mut stream = database.watch().show_expanded_events(true).max_await_time(wait).run().unwrap();
    let mut plain = follow(&jobs);
    jobs.update_one(doc! { "_id": 0 }, doc! { "$set": { "a.1": 2 } }).run().unwrap();
    jobs.create_index(mongodb::IndexModel::builder().keys(doc! { "b": 1 }).build()).run().unwrap();
    jobs.drop_index("b_1").run().unwrap();
    database.run_command(doc! { "collMod": "job", "validator": { "b": null } }).run().unwrap();
    database.create_collection("other").run().unwrap();
    let rename = doc! { "renameCollection": "docs.job", "to": "docs.task" };
    server.client().database("admin").run_command(rename).run().unwrap();
    let event = next(&mut stream);
    let paths = event.update_description.unwrap().disambiguated_paths.unwrap();
    assert_eq!(paths, doc! { "a.1": ["a", "1"] });
    let kinds: Vec<_> = (0..5).map(|_| format!("{:?}", next(&mut stream).operation_type)).collect();
    assert_eq!(
        kinds,
        [
            r#"Other("createIndexes")"#,
            r#"Other("dropIndexes")"#,
            r#"Other("modify")"#,
            r#"Other("create")"#,
            "Rename"
        ]
    );
    // the stream of the collection tells nothing but the changes of documents, and ends with the new name
    let event = next(&mut plain);
    assert_eq!(event.update_description.unwrap().disambiguated_paths, None);
    let event = next(&mut plain);
    assert_eq!(event.operation_type, OperationType::Rename);
    assert_eq!(event.to.unwrap().coll.as_deref(), Some("task"));
    assert_eq!(next(&mut plain).operation_type, OperationType::Invalidate);
}

/// Reads events until there are `count`, and returns their ids with the tokens after them.
fn ids(stream: &mut Stream, count: usize) -> (Vec<i32>, Vec<mongodb::change_stream::event::ResumeToken>) {
    let events = (0..count).map(|_| next(stream));
    events.map(|event| (event.document_key.unwrap().get_i32("_id").unwrap(), event.id)).unzip()
}

/// Documents of one statement belong to several partitions, and are told in the order in which they were written.
#[test]
fn changes_of_one_statement_or_transaction_come_in_its_order() {
    let server = TestServer::start(4);
    let client = server.client();
    let jobs = client.database("docs").collection::<Document>("job");
    jobs.insert_one(doc! { "_id": -1 }).run().unwrap();
    let mut stream = follow(&jobs);
    jobs.insert_many((0..40).rev().map(|id| doc! { "_id": id })).run().unwrap();
    let (told, tokens) = ids(&mut stream, 40);
    assert_eq!(told, (0..40).rev().collect::<Vec<_>>());

    // from within the statement, too, and behind a part of it that failed
    let token = tokens[17].clone();
    let failed = jobs.insert_many((30..50).rev().map(|id| doc! { "_id": id })).run().unwrap_err();
    assert_eq!(code(&failed), 11000);
    let mut resumed =
        jobs.watch().resume_after(token).max_await_time(Duration::from_millis(50)).run().unwrap();
    let expected: Vec<i32> = (0..22).rev().chain((40..50).rev()).collect();
    assert_eq!(ids(&mut resumed, 32).0, expected);

    let mut session = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    for id in [64, 3, 61, 5, 60, 2, 66] {
        let update = doc! { "$set": { "n": 1 } };
        jobs.update_one(doc! { "_id": id }, update).upsert(true).session(&mut session).run().unwrap();
    }
    jobs.delete_one(doc! { "_id": 0 }).session(&mut session).run().unwrap();
    jobs.insert_many([doc! { "_id": 71 }, doc! { "_id": 70 }]).session(&mut session).run().unwrap();
    session.commit_transaction().run().unwrap();
    assert_eq!(ids(&mut stream, 10).0, (40..50).rev().collect::<Vec<_>>());
    let expected = [64, 3, 61, 5, 60, 2, 66, 0, 71, 70];
    let (told, tokens) = ids(&mut stream, 10);
    assert_eq!(told, expected);

    let server = server.restart();
    let jobs = server.collection("job");
    for from in [0, 4, 8] {
        let token = tokens[from].clone();
        let mut resumed =
            jobs.watch().resume_after(token).max_await_time(Duration::from_millis(50)).run().unwrap();
        assert_eq!(ids(&mut resumed, 9 - from).0, expected[from + 1..]);
    }
}

#[test]
fn a_large_event_comes_in_fragments() {
    let server = TestServer::start(2);
    let client = server.client();
    let database = client.database("shop");
    let create = doc! { "create": "large", "changeStreamPreAndPostImages": { "enabled": true } };
    database.run_command(create).run().unwrap();
    let large = database.collection::<Document>("large");
    large.insert_one(doc! { "_id": 1, "value": "q".repeat(10 << 20) }).run().unwrap();
    let open = |resume: Option<Bson>, splits: bool| {
        let mut options = doc! { "fullDocumentBeforeChange": "required" };
        options.extend(resume.map(|token| ("resumeAfter".to_owned(), token)));
        let mut pipeline =
            vec![doc! { "$changeStream": options }, doc! { "$match": { "operationType": "update" } }];
        if splits {
            pipeline.push(doc! { "$changeStreamSplitLargeEvent": {} });
        }
        database.run_command(doc! { "aggregate": "large", "pipeline": pipeline, "cursor": {} }).run()
    };
    let batch = |reply: &Document, name: &str| -> Vec<Document> {
        let batch = reply.get_document("cursor").unwrap().get_array(name).unwrap();
        batch.iter().map(|event| event.as_document().unwrap().clone()).collect()
    };
    let next = |opened: &Document| -> Vec<Document> {
        let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
        let mut found = batch(opened, "firstBatch");
        let is_last = |event: &Document| {
            event
                .get_document("splitEvent")
                .is_ok_and(|split| split.get_i32("fragment").ok() == split.get_i32("of").ok())
        };
        while !found.last().is_some_and(is_last) {
            let more = doc! { "getMore": id, "collection": "large", "maxTimeMS": 2000 };
            found.extend(batch(&database.run_command(more).run().unwrap(), "nextBatch"));
        }
        found
    };
    let opened = open(None, true).unwrap();
    let change = doc! { "$set": { "value": "z".repeat(10 << 20) } };
    large.update_one(doc! { "_id": 1 }, change).run().unwrap();
    let fragments = next(&opened);
    let numbers: Vec<&Document> =
        fragments.iter().map(|fragment| fragment.get_document("splitEvent").unwrap()).collect();
    assert_eq!(numbers, [&doc! { "fragment": 1, "of": 2 }, &doc! { "fragment": 2, "of": 2 }]);
    assert!(
        fragments[0].contains_key("operationType") && fragments[1].contains_key("fullDocumentBeforeChange")
    );
    // behind the first fragment comes the second one, and behind that what follows
    let token = |at: usize| fragments[at].get("_id").cloned();
    let resumed = next(&open(token(0), true).unwrap());
    assert_eq!(resumed, fragments[1..]);
    large.update_one(doc! { "_id": 1 }, doc! { "$set": { "value": "small" } }).run().unwrap();
    let refused = open(token(0), false).unwrap_err();
    assert_eq!(crate::code(&refused), 7_182_800);
    let misplaced = vec![
        doc! { "$changeStream": {} },
        doc! { "$changeStreamSplitLargeEvent": {} },
        doc! { "$match": {} },
    ];
    let misplaced = database.run_command(doc! { "aggregate": "large", "pipeline": misplaced, "cursor": {} });
    assert_eq!(crate::code(&misplaced.run().unwrap_err()), 7_182_802);
}
