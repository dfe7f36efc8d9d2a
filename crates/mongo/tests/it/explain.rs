//! Explained commands tell the plan that they use, and what it looks at.

use mongodb::bson::{Document, doc};
use mongodb::sync::Database;

use crate::{TestServer, code};

fn explained(database: &Database, command: Document, verbosity: &str) -> Document {
    database.run_command(doc! { "explain": command, "verbosity": verbosity }).run().unwrap()
}

fn plan(reply: &Document) -> &Document {
    reply.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap()
}

/// Returns the names of the stages, the outer one first.
fn stages(reply: &Document) -> Vec<String> {
    let mut names = Vec::new();
    let mut next = Some(plan(reply));
    while let Some(stage) = next {
        names.push(stage.get_str("stage").unwrap().to_owned());
        next = stage.get_document("inputStage").ok();
    }
    names
}

/// Returns documents returned, keys examined and documents examined.
fn looked_at(reply: &Document) -> [i64; 3] {
    let stats = reply.get_document("executionStats").unwrap();
    ["nReturned", "totalKeysExamined", "totalDocsExamined"].map(|name| stats.get_i64(name).unwrap())
}

#[test]
fn commands_tell_how_they_find_documents() {
    let server = TestServer::start(1);
    let things = server.collection("things");
    things.insert_many((0..50).map(|n| doc! { "_id": n, "a": n % 10, "b": n })).run().unwrap();
    let index = mongodb::IndexModel::builder().keys(doc! { "a": 1, "b": -1 }).build();
    things.create_index(index).run().unwrap();
    let database = server.client().database("docs");
    let run = |command: Document| explained(&database, command, "executionStats");

    let found = run(doc! { "find": "things", "filter": { "a": 3, "b": { "$gte": 20 } } });
    assert_eq!(stages(&found), ["FETCH", "IXSCAN"]);
    let scan = plan(&found).get_document("inputStage").unwrap();
    assert_eq!(scan.get_document("indexBounds").unwrap(), &doc! { "a": ["[3, 3]"], "b": ["[20, inf.0]"] });
    assert_eq!(looked_at(&found), [3, 3, 3]);

    assert_eq!(looked_at(&run(doc! { "find": "things", "filter": { "b": 7 } })), [1, 0, 50]);
    let sorted = run(doc! { "find": "things", "filter": {}, "sort": { "b": 1 }, "limit": 2 });
    assert_eq!(stages(&sorted), ["SORT", "COLLSCAN"]);
    assert_eq!(looked_at(&sorted)[0], 2);
    assert_eq!(stages(&run(doc! { "find": "things", "filter": { "_id": 3 } })), ["IDHACK"]);
    let counted = run(doc! { "count": "things", "query": { "a": { "$gt": 7 } } });
    assert_eq!(
        (stages(&counted), looked_at(&counted)),
        (vec!["COUNT".into(), "COUNT_SCAN".into()], [0, 10, 0])
    );
    assert_eq!(
        stages(&run(doc! { "distinct": "things", "key": "b", "query": { "a": 1 } })),
        ["FETCH", "IXSCAN"]
    );
    assert_eq!(stages(&run(doc! { "find": "none", "filter": { "a": 1 } })), ["EOF"]);

    // nothing is changed
    let update = doc! { "q": { "a": 1 }, "u": { "$set": { "c": 1 } }, "multi": true };
    assert_eq!(stages(&run(doc! { "update": "things", "updates": [update] })), ["UPDATE", "FETCH", "IXSCAN"]);
    let delete = doc! { "q": { "_id": 1 }, "limit": 1 };
    assert_eq!(stages(&run(doc! { "delete": "things", "deletes": [delete] })), ["DELETE", "IDHACK"]);
    let modify = doc! { "findAndModify": "things", "query": { "b": 1 }, "remove": true };
    assert_eq!(stages(&run(modify)), ["DELETE", "COLLSCAN"]);
    assert_eq!(things.count_documents(doc! { "c": { "$exists": false } }).run().unwrap(), 50);
}

#[test]
fn a_pipeline_tells_how_it_begins() {
    let server = TestServer::start(2);
    let things = server.collection("things");
    things.insert_many((0..9).map(|n| doc! { "_id": n })).run().unwrap();
    let database = server.client().database("docs");
    let pipeline = vec![doc! { "$match": { "_id": 1 } }, doc! { "$count": "n" }];
    let command = doc! { "aggregate": "things", "pipeline": &pipeline, "cursor": {} };
    let reply = explained(&database, command.clone(), "queryPlanner");
    let stages_of = reply.get_array("stages").unwrap();
    let cursor = stages_of[0].as_document().unwrap().get_document("$cursor").unwrap();
    assert_eq!(stages(cursor), ["IDHACK"]);
    assert!(cursor.get("executionStats").is_none());
    assert_eq!(stages_of[1].as_document().unwrap(), &pipeline[1]);
    let mut alone = command;
    alone.insert("explain", true);
    alone.insert("pipeline", vec![pipeline[0].clone()]);
    assert_eq!(stages(&database.run_command(alone).run().unwrap()), ["IDHACK"]);
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    for (command, expected) in [
        (doc! { "explain": { "ping": 1 } }, 59),
        (doc! { "explain": { "find": "x", "filter": { "a": { "$foo": 1 } } } }, 2),
        (doc! { "explain": { "find": "x" }, "verbosity": "all" }, 2),
        (doc! { "explain": { "update": "x", "updates": [] } }, 16),
        (doc! { "explain": 1 }, 14),
    ] {
        assert_eq!(code(&database.run_command(command).run().unwrap_err()), expected);
    }
}
