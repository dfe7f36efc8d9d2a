//! Commands that would not end: their time, their memory, their list, and who may end them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::sync::Client;
use tidemill_mongo::MongoOptions;

use crate::{TestServer, code};

/// Pause between two looks at something that happens on another thread.
const POLL: Duration = Duration::from_millis(20);

/// Returns a pipeline of 10^9 documents, which ends with these stages.
pub fn endless(last: impl IntoIterator<Item = Document>) -> Vec<Document> {
    let mut pipeline = Vec::new();
    for name in ["a", "b", "c"] {
        pipeline.push(doc! { "$set": { name: { "$range": [0, 1000] } } });
        pipeline.push(doc! { "$unwind": format!("${name}") });
    }
    pipeline.extend(last);
    pipeline
}

/// Returns an expression of 10^9 steps, none of which makes a large value.
fn endless_expression() -> Document {
    let range = || doc! { "$range": [0, 1000] };
    let inner =
        doc! { "$reduce": { "input": range(), "initialValue": 0, "in": { "$add": ["$$this", "$$value"] } } };
    let middle = doc! { "$reduce": { "input": range(), "initialValue": 0, "in": inner } };
    doc! { "$reduce": { "input": range(), "initialValue": 0, "in": middle } }
}

/// A server whose commands may take an hour, with a document in `one` and 2000 in `many`.
fn server_with(change: impl FnOnce(&mut MongoOptions)) -> (TestServer, Client) {
    let mut options = MongoOptions { command_timeout: Duration::from_secs(3600), ..MongoOptions::default() };
    change(&mut options);
    let server = TestServer::start_with(options);
    let client = server.client_with(|options| options.credential = None);
    let docs = client.database("docs");
    docs.collection("one").insert_one(doc! { "_id": 1, "s": "x".repeat(5000) }).run().unwrap();
    let many = (0..2000).map(|n| doc! { "_id": n, "group": n % 10, "text": "x".repeat(1000) });
    docs.collection("many").insert_many(many).run().unwrap();
    (server, client)
}

/// Returns the operations of a command in the list of those that run.
fn running(client: &Client, command: &str) -> Vec<Document> {
    let listed = client.database("admin").run_command(doc! { "currentOp": 1 }).run().unwrap();
    let listed = listed.get_array("inprog").unwrap().iter().map(|one| one.as_document().unwrap().clone());
    listed.filter(|one| one.get_document("command").is_ok_and(|c| c.contains_key(command))).collect()
}

/// Waits until so many operations of a command run, and returns them.
fn wait_for(client: &Client, command: &str, count: usize) -> Vec<Document> {
    loop {
        let found = running(client, command);
        if found.len() == count {
            return found;
        }
        thread::sleep(POLL);
    }
}

#[test]
fn work_without_an_end_ends_at_its_time() {
    let (_server, client) = server_with(|_| {});
    let docs = client.database("docs");
    let aggregate = |last: Document| doc! { "aggregate": "one", "cursor": {}, "pipeline": endless([last]) };
    let push_windows = doc! { "$setWindowFields": {
        "sortBy": { "c": 1 },
        "output": { "all": { "$push": "$c", "window": { "documents": ["unbounded", "current"] } } },
    } };
    let commands = [
        aggregate(doc! { "$count": "n" }),
        aggregate(doc! { "$match": { "s": "none" } }),
        aggregate(doc! { "$group": { "_id": null, "n": { "$sum": 1 } } }),
        aggregate(doc! { "$skip": 2_000_000_000_i64 }),
        aggregate(doc! { "$redact": "$$PRUNE" }),
        aggregate(doc! { "$facet": { "x": [{ "$count": "n" }], "y": [{ "$match": { "a": -1 } }] } }),
        aggregate(doc! { "$sample": { "size": 1 } }),
        aggregate(doc! { "$sort": { "a": 1 } }),
        aggregate(push_windows),
        aggregate(doc! { "$lookup": { "from": "many", "pipeline": [], "as": "found" } }),
        doc! { "find": "one", "filter": { "$expr": { "$eq": [endless_expression(), -1] } } },
        doc! { "find": "one", "projection": { "n": endless_expression() } },
        doc! { "count": "one", "query": { "$expr": { "$eq": [endless_expression(), -1] } } },
        doc! { "distinct": "one", "key": "s", "query": { "$expr": endless_expression() } },
        doc! { "delete": "many", "deletes": vec![Bson::from(doc! { "q": { "x": 1 }, "limit": 0 }); 100_000] },
        doc! { "explain": { "find": "one", "filter": { "$expr": endless_expression() } } },
    ];
    for mut command in commands {
        let name = format!("{command:.300}");
        command.insert("maxTimeMS", 1);
        match docs.run_command(command).run() {
            Err(error) => assert_eq!(code(&error), 50, "{name}: {error}"),
            // statements of a write have their errors each
            Ok(reply) => {
                let errors = reply.get_array("writeErrors").unwrap_or_else(|_| panic!("{name}: {reply}"));
                assert_eq!(errors[0].as_document().unwrap().get_i32("code").ok(), Some(50), "{name}");
            }
        }
    }
    assert_eq!(docs.collection::<Document>("one").count_documents(doc! {}).run().unwrap(), 1);
}

#[test]
fn a_time_must_be_one() {
    let (_server, client) = server_with(|_| {});
    let find = |time: Bson| {
        client.database("docs").run_command(doc! { "find": "one", "filter": {}, "maxTimeMS": time }).run()
    };
    assert_eq!(code(&find((-1).into()).unwrap_err()), 2);
    assert_eq!(code(&find(1e12.into()).unwrap_err()), 2);
    assert_eq!(code(&find("1s".into()).unwrap_err()), 14);
    for time in [Bson::from(0), 60_000.into(), 60_000_i64.into(), Bson::Null] {
        find(time).unwrap();
    }
}

#[test]
fn a_stage_that_wants_no_more_stops_those_before_it() {
    let (_server, client) = server_with(|options| options.command_memory_max = 4 << 20);
    let docs = client.database("docs");
    let run = |pipeline: Vec<Document>| -> Vec<Document> {
        let found = docs.collection::<Document>("one").aggregate(pipeline).run().unwrap();
        found.map(Result::unwrap).collect()
    };
    let shown = doc! { "$project": { "_id": 0, "s": 0 } };
    let first = run(endless([doc! { "$limit": 1 }, shown.clone()]));
    assert_eq!(first, [doc! { "a": 0, "b": 0, "c": 0 }]);
    let third = run(endless([doc! { "$skip": 1001 }, doc! { "$limit": 1 }, shown]));
    assert_eq!(third, [doc! { "a": 0, "b": 1, "c": 1 }]);
    let counted = run(endless([doc! { "$limit": 5 }, doc! { "$count": "n" }]));
    assert_eq!(counted, [doc! { "n": 5 }]);
    let facets = doc! { "$facet": {
        "one": [{ "$limit": 1 }, { "$project": { "_id": 0, "c": 1 } }], "none": [{ "$limit": 2 }, { "$count": "n" }],
    } };
    assert_eq!(run(endless([facets])), [doc! { "one": [{ "c": 0 }], "none": [{ "n": 2 }] }]);
    // of many, the first ones of an order are held, and no others
    let first = vec![
        doc! { "$set": { "a": { "$range": [0, 30] } } },
        doc! { "$unwind": "$a" },
        doc! { "$sort": { "a": -1, "_id": 1 } },
        doc! { "$limit": 2 },
        doc! { "$project": { "a": 1 } },
    ];
    let found = docs.collection::<Document>("many").aggregate(first).run().unwrap();
    let found: Vec<Document> = found.map(Result::unwrap).collect();
    assert_eq!(found, [doc! { "_id": 0, "a": 29 }, doc! { "_id": 1, "a": 29 }]);
}

#[test]
fn memory_is_refused_before_it_is_taken() {
    let (_server, client) = server_with(|options| options.command_memory_max = 4 << 20);
    let many = client.database("docs").collection::<Document>("many");
    let longer = || doc! { "$set": { "text": { "$concat": ["$text", "$text", "$text", "$text"] } } };
    let repeated = || [doc! { "$set": { "a": { "$range": [0, 10] } } }, doc! { "$unwind": "$a" }];
    let with = |last: Document| -> Vec<Document> {
        [longer()].into_iter().chain(repeated()).chain([last]).collect()
    };
    let windows = doc! { "$setWindowFields": { "output": { "n": { "$sum": 1 } } } };
    let pipelines = [
        vec![longer()],
        with(doc! { "$sort": { "_id": 1 } }),
        with(doc! { "$group": { "_id": "$group", "all": { "$push": "$$ROOT" } } }),
        with(doc! { "$group": { "_id": { "a": "$a", "id": "$_id", "text": "$text" } } }),
        with(doc! { "$group": { "_id": null, "all": { "$addToSet": { "x": "$text", "y": "$_id" } } } }),
        with(doc! { "$group": { "_id": null, "all": { "$lastN": { "n": 100_000, "input": "$text" } } } }),
        with(windows),
        with(doc! { "$bucketAuto": { "groupBy": "$text", "buckets": 3 } }),
        with(doc! { "$fill": { "output": { "x": { "value": 1 } } } }),
        with(doc! { "$facet": { "x": [{ "$match": {} }] } }),
        with(doc! { "$out": "copies" }),
        vec![longer(), doc! { "$unionWith": { "coll": "many", "pipeline": [longer()] } }],
        vec![doc! { "$lookup": { "from": "many", "pipeline": [longer()], "as": "all" } }],
        vec![doc! { "$set": { "a": { "$range": [0, 100_000] } } }],
    ];
    for pipeline in pipelines {
        let name = format!("{:?}", pipeline.last());
        let error = many.aggregate(pipeline).run().unwrap_err();
        assert_eq!(code(&error), 292, "{name}: {error}");
        assert!(error.to_string().contains("needs more than 4194304 bytes"), "{name}: {error}");
    }
    assert!(!client.database("docs").list_collection_names().run().unwrap().contains(&"copies".to_owned()));
    // what was refused is given back
    let grouped = many.aggregate([doc! { "$group": { "_id": "$group" } }]).run().unwrap();
    assert_eq!(grouped.count(), 10);
    // a cursor computes the fields of a batch when it is read
    let projected = many.find(doc! {}).projection(doc! { "x": { "$concat": ["$text", "$text", "$text"] } });
    assert_eq!(projected.run().unwrap().count(), 2000);
}

#[test]
fn all_commands_share_memory() {
    let (_server, client) = server_with(|options| options.commands_memory_max = 1 << 20);
    let many = client.database("docs").collection::<Document>("many");
    let sorted = [doc! { "$set": { "x": 1 } }, doc! { "$sort": { "_id": 1 } }];
    for _ in 0..3 {
        let error = many.aggregate(sorted.clone()).run().unwrap_err();
        assert_eq!(code(&error), 146);
        assert!(error.to_string().contains("mongo.commands_bytes"), "{error}");
    }
    let grouped = many.aggregate([doc! { "$group": { "_id": "$group" } }]).run().unwrap();
    assert_eq!(grouped.count(), 10);
}

#[test]
fn an_operation_is_listed_and_killed() {
    let (_server, client) = server_with(|_| {});
    let admin = client.database("admin");
    let worker = thread::spawn({
        let one = client.database("docs").collection::<Document>("one");
        move || code(&one.aggregate(endless([doc! { "$count": "n" }])).run().unwrap_err())
    });
    let listed = wait_for(&client, "aggregate", 1).remove(0);
    assert_eq!(listed.get_str("ns").ok(), Some("docs.one"));
    assert_eq!(listed.get_str("op").ok(), Some("command"));
    assert!(listed.get_i64("secs_running").unwrap() >= 0);
    assert!(listed.get_str("client").unwrap().starts_with("127.0.0.1:"));
    let id = listed.get_i32("opid").unwrap();
    // a pipeline lists them, too, and itself; conditions select
    let pipeline =
        [doc! { "$currentOp": {} }, doc! { "$match": { "opid": id } }, doc! { "$project": { "ns": 1 } }];
    let found = admin.run_command(doc! { "aggregate": 1, "cursor": {}, "pipeline": pipeline.to_vec() }).run();
    let found = found.unwrap();
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch, &[doc! { "ns": "docs.one" }.into()]);
    let others =
        admin.run_command(doc! { "currentOp": 1, "opid": { "$ne": id }, "ns": "docs.one" }).run().unwrap();
    assert!(others.get_array("inprog").unwrap().is_empty());
    // the documents are served meanwhile
    let many = client.database("docs").collection::<Document>("many");
    let found = many.find_one(doc! { "_id": 7 }).run().unwrap().unwrap();
    assert_eq!(found.get_i32("group").ok(), Some(7));
    admin.run_command(doc! { "killOp": 1, "op": id }).run().unwrap();
    assert_eq!(worker.join().unwrap(), 11601);
    wait_for(&client, "aggregate", 0);
    // one that is over is not missed
    admin.run_command(doc! { "killOp": 1, "op": id }).run().unwrap();
    assert_eq!(code(&admin.run_command(doc! { "killOp": 1, "op": "x" }).run().unwrap_err()), 14);
    let elsewhere = client.database("docs").run_command(doc! { "killOp": 1, "op": id }).run();
    assert_eq!(code(&elsewhere.unwrap_err()), 13);
}

#[test]
fn a_command_ends_when_its_client_has_gone() {
    let (server, client) = server_with(|_| {});
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let pipeline = endless([doc! { "$count": "n" }]);
    let command = doc! { "aggregate": "one", "cursor": {}, "pipeline": pipeline, "$db": "docs" };
    let body = mongodb::bson::serialize_to_vec(&command).unwrap();
    let mut message = Vec::new();
    for number in [21 + body.len() as i32, 1, 0, 2013, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(&body);
    socket.write_all(&message).unwrap();
    wait_for(&client, "aggregate", 1);
    // also one that has sent a part of its next message
    socket.write_all(&[1, 2, 3]).unwrap();
    drop(socket);
    wait_for(&client, "aggregate", 0);
}

#[test]
fn a_server_that_stops_ends_what_runs() {
    let (mut server, client) = server_with(|_| {});
    let worker = thread::spawn({
        let one = client.database("docs").collection::<Document>("one");
        move || one.aggregate(endless([doc! { "$count": "n" }])).run().map(|_| ()).unwrap_err()
    });
    wait_for(&client, "aggregate", 1);
    server.stop();
    let error = worker.join().unwrap();
    // the reply, or that of the next attempt of the driver
    if let mongodb::error::ErrorKind::Command(error) = error.kind.as_ref() {
        assert_eq!(error.code, 11600);
    }
}

#[test]
fn a_message_must_name_a_database() {
    let (server, _client) = server_with(|_| {});
    let answer = |command: Document| -> Document {
        let body = mongodb::bson::serialize_to_vec(&command).unwrap();
        let mut message = Vec::new();
        for number in [21 + body.len() as i32, 1, 0, 2013, 0] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(&body);
        let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        socket.write_all(&message).unwrap();
        let mut head = [0; 21];
        socket.read_exact(&mut head).unwrap();
        let length = i32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 21];
        socket.read_exact(&mut body).unwrap();
        mongodb::bson::deserialize_from_slice(&body).unwrap()
    };
    assert_eq!(answer(doc! { "ping": 1 }).get_i32("code").ok(), Some(40571));
    assert_eq!(answer(doc! { "ping": 1, "$db": "a.b c" }).get_i32("code").ok(), Some(73));
    assert_eq!(answer(doc! { "ping": 1, "$db": "docs" }).get_f64("ok").ok(), Some(1.0));
    assert_eq!(answer(doc! { "hello": 1 }).get_f64("ok").ok(), Some(1.0));
}
