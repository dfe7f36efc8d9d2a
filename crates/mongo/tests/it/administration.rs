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
    assert!(created.to_string().contains("one user"), "{created}");
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
        (doc! { "profile": 2 }, 238),
        (doc! { "fsync": 1, "lock": true }, 238),
        (doc! { "setParameter": 1, "quick": true }, 72),
        (doc! { "replSetGetStatus": 1 }, 76),
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
