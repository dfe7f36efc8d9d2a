//! Commands for administrators.

use mongodb::bson::{Document, doc};

use crate::{TestServer, code};

#[test]
fn collections_are_validated_and_compared() {
    let server = TestServer::start(3);
    let client = server.client();
    for name in ["a", "b"] {
        let things = client.database(name).collection::<Document>("things");
        things.create_index(mongodb::IndexModel::builder().keys(doc! { "tags": 1 }).build()).run().unwrap();
        things.insert_many((0..20).map(|n| doc! { "_id": n, "tags": [1, 2] })).run().unwrap();
    }
    let run = |database: &str, command: Document| client.database(database).run_command(command).run();
    let valid = run("a", doc! { "validate": "things" }).unwrap();
    assert!(valid.get_bool("valid").unwrap());
    assert_eq!(valid.get_i64("nrecords").unwrap(), 20);
    assert_eq!(valid.get_document("keysPerIndex").unwrap(), &doc! { "_id_": 20_i64, "tags_1": 40_i64 });
    assert_eq!(code(&run("a", doc! { "validate": "none" }).unwrap_err()), 26);
    let hash =
        |database: &str| run(database, doc! { "dbHash": 1 }).unwrap().get_str("md5").unwrap().to_owned();
    assert_eq!(hash("a"), hash("b"));
    client.database("b").collection::<Document>("things").delete_one(doc! { "_id": 5 }).run().unwrap();
    assert_ne!(hash("a"), hash("b"));
    assert_eq!(run("a", doc! { "reIndex": "things" }).unwrap().get_i32("nIndexes").unwrap(), 2);
}

#[test]
fn there_is_one_user_with_one_role() {
    let server = TestServer::start(1);
    let client = server.client();
    let run = |database: &str, command: Document| client.database(database).run_command(command).run();
    let users =
        |database: &str, command: Document| run(database, command).unwrap().get_array("users").unwrap().len();
    assert_eq!(users("admin", doc! { "usersInfo": "admin" }), 1);
    assert_eq!(users("docs", doc! { "usersInfo": "admin" }), 0);
    assert_eq!(users("docs", doc! { "usersInfo": { "user": "admin", "db": "admin" } }), 1);
    assert_eq!(users("docs", doc! { "usersInfo": { "user": "other", "db": "admin" } }), 0);
    assert_eq!(users("admin", doc! { "usersInfo": 1 }), 1);
    let role = run("admin", doc! { "rolesInfo": "root" }).unwrap();
    assert_eq!(role.get_array("roles").unwrap().len(), 1);
    let created = run("admin", doc! { "createUser": "x", "pwd": "y", "roles": [] }).unwrap_err();
    assert_eq!(code(&created), 238);
    assert!(created.to_string().contains("tidemill users"), "{created}");
}

#[test]
fn commands_of_the_server_answer() {
    let server = TestServer::start(2);
    let client = server.client();
    let admin = client.database("admin");
    let run = |command: Document| admin.run_command(command).run();
    server.collection("things").insert_one(doc! { "_id": 1 }).run().unwrap();
    run(doc! { "fsync": 1 }).unwrap();
    assert_eq!(run(doc! { "profile": 0 }).unwrap().get_i32("was").unwrap(), 0);
    let operations = run(doc! { "currentOp": 1 }).unwrap();
    let operation = operations.get_array("inprog").unwrap()[0].as_document().unwrap();
    assert_eq!(operation.get_document("command").unwrap().get_i32("currentOp").unwrap(), 1);
    let concerns = run(doc! { "getDefaultRWConcern": 1 }).unwrap();
    assert_eq!(concerns.get_document("defaultReadConcern").unwrap(), &doc! { "level": "local" });
    assert!(run(doc! { "top": 1 }).unwrap().get_document("totals").unwrap().contains_key("docs.things"));
    for (command, expected) in [
        (doc! { "profile": 3 }, 2),
        (doc! { "profile": 1, "filter": { "op": "query" } }, 238),
        (doc! { "fsync": 1, "lock": true }, 238),
        (doc! { "setParameter": 1, "quick": true }, 72),
        (doc! { "killOp": 1 }, 40414),
        (doc! { "atlasVersion": 1 }, 59),
    ] {
        assert_eq!(code(&run(command).unwrap_err()), expected);
    }
}

#[test]
fn operations_in_progress_are_listed_by_a_pipeline() {
    let server = TestServer::start(1);
    let run = |database: &str, of: mongodb::bson::Bson| {
        let pipeline = [doc! { "$currentOp": { "allUsers": true } }, doc! { "$project": { "op": 1 } }];
        let command = doc! { "aggregate": of, "pipeline": pipeline.to_vec(), "cursor": {} };
        server.client().database(database).run_command(command).run()
    };
    let reply = run("admin", 1.into()).unwrap();
    let listed = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(listed, &[doc! { "op": "command" }.into()]);
    assert_eq!(code(&run("docs", 1.into()).unwrap_err()), 73);
    assert_eq!(code(&run("admin", "things".into()).unwrap_err()), 73);
}

#[test]
fn collections_of_the_system_can_be_read() {
    let server = TestServer::start(2);
    let client = server.client();
    let docs = client.database("docs");
    docs.collection("things").insert_one(doc! { "_id": 1 }).run().unwrap();
    docs.create_collection("few")
        .view_on("things".to_owned())
        .pipeline([doc! { "$limit": 1 }])
        .run()
        .unwrap();
    let read = |database: &str, name: &str| -> Vec<Document> {
        let found = client.database(database).collection::<Document>(name).find(doc! {}).run().unwrap();
        found.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(read("docs", "system.profile"), []);
    assert_eq!(read("docs", "system.js"), []);
    assert_eq!(read("other", "system.views"), []);
    let view = doc! { "_id": "docs.few", "viewOn": "things", "pipeline": [{ "$limit": 1 }] };
    assert_eq!(read("docs", "system.views"), [view]);
    assert_eq!(read("admin", "system.users")[0].get_str("user").unwrap(), "admin");
    let version = client.database("admin").collection::<Document>("system.version");
    let version = version.find_one(doc! { "_id": "featureCompatibilityVersion" }).run().unwrap().unwrap();
    assert_eq!(version.get_str("version").unwrap(), "8.0");
    assert_eq!(docs.collection::<Document>("system.views").count_documents(doc! {}).run().unwrap(), 1);
    let error = docs.collection("system.views").insert_one(doc! {}).run().unwrap_err();
    assert_eq!(code(&error), 73);
}

#[test]
fn what_tools_ask_is_answered() {
    let server = TestServer::start(2);
    let client = server.client();
    let run = |database: &str, command| client.database(database).run_command(command).run();
    run("docs", doc! { "insert": "things", "documents": [{ "_id": 1 }] }).unwrap();
    let status = run("admin", doc! { "replSetGetStatus": 1 }).unwrap();
    assert_eq!((status.get_str("set").unwrap(), status.get_i32("myState").unwrap()), ("tidemill", 1));
    let config = run("admin", doc! { "replSetGetConfig": 1 }).unwrap();
    assert_eq!(config.get_document("config").unwrap().get_str("_id").unwrap(), "tidemill");
    assert_eq!(run("docs", doc! { "compact": "things" }).unwrap().get_i64("bytesFreed").unwrap(), 0);
    assert_eq!(code(&run("docs", doc! { "compact": "none" }).unwrap_err()), 26);
    let size = run("docs", doc! { "dataSize": "docs.things" }).unwrap();
    assert_eq!(size.get_i64("numObjects").unwrap(), 1);
    run("docs", doc! { "planCacheClear": "things" }).unwrap();
    assert!(
        run("docs", doc! { "planCacheListFilters": "things" })
            .unwrap()
            .get_array("filters")
            .unwrap()
            .is_empty()
    );
    run("admin", doc! { "setFeatureCompatibilityVersion": "8.0", "confirm": true }).unwrap();
    let error = run("admin", doc! { "setFeatureCompatibilityVersion": "4.4", "confirm": true }).unwrap_err();
    assert_eq!(code(&error), 4_926_900);
    // what is not there says so, with the name of the service that has it
    for command in [
        doc! { "createSearchIndexes": "things", "indexes": [{ "definition": {} }] },
        doc! { "dropSearchIndex": "things", "name": "x" },
        doc! { "aggregate": "things", "pipeline": [{ "$listSearchIndexes": {} }], "cursor": {} },
        doc! { "aggregate": "things", "pipeline": [{ "$search": {} }], "cursor": {} },
    ] {
        let error = run("docs", command.clone()).unwrap_err();
        assert_eq!(code(&error), 31082, "{command}");
        assert!(error.to_string().contains("Atlas"), "{error}");
    }
    for command in ["mapReduce", "applyOps", "analyze"] {
        assert_eq!(code(&run("docs", doc! { command: 1 }).unwrap_err()), 59);
    }
    // an index keeps the option, which has no effect; names are as long as in MongoDB
    let index = doc! { "key": { "a": 1 }, "name": "a_1", "background": true };
    run("docs", doc! { "createIndexes": "things", "indexes": [index] }).unwrap();
    let listed = run("docs", doc! { "listIndexes": "things" }).unwrap();
    let batch = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert!(batch[1].as_document().unwrap().get_bool("background").unwrap());
    run("docs", doc! { "create": "n".repeat(250) }).unwrap();
    assert!(run("docs", doc! { "create": "n".repeat(256) }).is_err());
    // the write concern is told beside an error
    let create = doc! { "create": "things", "capped": true, "size": 4096, "writeConcern": { "w": 2 } };
    let error = run("docs", create).unwrap_err();
    assert_eq!(code(&error), 48);
}

#[test]
fn a_database_is_profiled() {
    let server = TestServer::start(2);
    let database = server.client().database("profiled");
    let profile = |level: i32| {
        let reply = database.run_command(doc! { "profile": level }).run().unwrap();
        reply.get_i32("was").unwrap()
    };
    let things = database.collection::<Document>("things");
    things.insert_one(doc! { "_id": 1 }).run().unwrap();
    assert_eq!((profile(-1), profile(2), profile(-1)), (0, 0, 2));
    assert_eq!(things.find(doc! { "a": 1 }).comment("seen").run().unwrap().count(), 0);
    things.find(doc! { "_id": { "$gt": 0 } }).run().unwrap().for_each(|found| drop(found.unwrap()));
    let failing = database.run_command(doc! { "aggregate": "things", "pipeline": 1, "cursor": {} });
    assert!(failing.run().is_err());
    let notes = database.collection::<Document>("system.profile");
    let of = |filter: Document| notes.find(filter).run().unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let found = of(doc! { "ns": "profiled.things", "op": "query", "command.comment": "seen" });
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].get_i32("nreturned").unwrap(), 0);
    assert!(found[0].get_i32("millis").unwrap() >= 0);
    assert_eq!(of(doc! { "errCode": 14 }).len(), 1);
    let dropped = database.run_command(doc! { "drop": "system.profile" }).run();
    assert_eq!(crate::code(&dropped.unwrap_err()), 20);
    // other databases are not noted, and nothing is after the end
    server.collection("others").find(doc! {}).run().unwrap().for_each(drop);
    assert_eq!(profile(0), 2);
    let before = of(doc! {}).len();
    assert_eq!(of(doc! { "ns": "docs.others" }).len(), 0);
    assert_eq!(of(doc! {}).len(), before);
    database.run_command(doc! { "drop": "system.profile" }).run().unwrap();
    assert_eq!(of(doc! {}), []);
}
