//! Fail points, as tests of drivers order them, and the errors that drivers then see.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::sync::Client;
use tidemill_mongo::MongoOptions;

use crate::{TestServer, code};

fn server_for_tests() -> TestServer {
    TestServer::start_with(MongoOptions { test_commands: true, ..MongoOptions::default() })
}

fn client(server: &TestServer) -> Client {
    server.client_with(|options| {
        options.credential = None;
        options.app_name = Some("under test".into());
        options.retry_writes = Some(false);
        options.retry_reads = Some(false);
    })
}

fn order(client: &Client, mode: impl Into<bson::Bson>, data: Document) -> Result<Document, Error> {
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
    client.database("admin").run_command(command).run()
}

#[test]
fn a_server_that_is_not_for_tests_has_no_fail_points() {
    let server = TestServer::start_with(MongoOptions::default());
    let client = client(&server);
    let error = order(&client, "alwaysOn", doc! { "failCommands": ["ping"], "errorCode": 2 }).unwrap_err();
    assert_eq!(code(&error), 59);
    let parameters = doc! { "getParameter": 1, "enableTestCommands": 1 };
    let told = client.database("admin").run_command(parameters).run().unwrap();
    assert!(!told.get_bool("enableTestCommands").unwrap());
    client.database("docs").run_command(doc! { "ping": 1 }).run().unwrap();
}

#[test]
fn a_command_fails_as_often_as_it_is_ordered() {
    let server = server_for_tests();
    let client = client(&server);
    let items = client.database("docs").collection::<Document>("item");
    // an error after which the driver still knows the server
    order(&client, doc! { "times": 2 }, doc! { "failCommands": ["insert"], "errorCode": 50 }).unwrap();
    for _ in 0..2 {
        assert_eq!(code(&items.insert_one(doc! { "_id": 1 }).run().unwrap_err()), 50);
    }
    items.insert_one(doc! { "_id": 1 }).run().unwrap();
    assert_eq!(items.count_documents(doc! {}).run().unwrap(), 1);
    // one that skips a command, and is taken back
    let data = doc! { "failCommands": ["find"], "errorCode": 50, "appName": "under test" };
    order(&client, doc! { "skip": 1 }, data).unwrap();
    items.find_one(doc! {}).run().unwrap();
    assert_eq!(code(&items.find_one(doc! {}).run().unwrap_err()), 50);
    order(&client, "off", doc! {}).unwrap();
    items.find_one(doc! {}).run().unwrap();
    // clients of another name are let be
    order(&client, "alwaysOn", doc! { "failCommands": ["find"], "errorCode": 50, "appName": "x" }).unwrap();
    items.find_one(doc! {}).run().unwrap();
}

#[test]
fn connections_are_closed_and_commands_wait() {
    let server = server_for_tests();
    let client = client(&server);
    let items = client.database("docs").collection::<Document>("item");
    let once = || doc! { "times": 1 };
    order(&client, once(), doc! { "failCommands": ["insert"], "closeConnection": true }).unwrap();
    let error = items.insert_one(doc! { "_id": 1 }).run().unwrap_err();
    assert!(matches!(*error.kind, mongodb::error::ErrorKind::Io(_)), "{error}");
    assert_eq!(items.count_documents(doc! {}).run().unwrap(), 0);
    let wait = doc! { "failCommands": ["insert"], "blockConnection": true, "blockTimeMS": 200 };
    order(&client, once(), wait).unwrap();
    let began = Instant::now();
    items.insert_one(doc! { "_id": 1 }).run().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    let concern = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    order(&client, once(), doc! { "failCommands": ["insert"], "writeConcernError": concern }).unwrap();
    items.insert_one(doc! { "_id": 2 }).run().unwrap_err();
    assert_eq!(items.count_documents(doc! {}).run().unwrap(), 2);
}

#[test]
fn retryable_errors_have_their_label_and_are_retried() {
    let server = server_for_tests();
    let client = server.client_with(|options| options.credential = None);
    let items = client.database("docs").collection::<Document>("item");
    let fail = |labels: Option<Vec<&str>>| {
        // an error after which the driver still knows the server
        let mut data = doc! { "failCommands": ["insert"], "errorCode": 6 };
        if let Some(labels) = labels {
            data.insert("errorLabels", labels);
        }
        order(&client, doc! { "times": 1 }, data).unwrap();
    };
    fail(None);
    items.insert_one(doc! { "_id": 1 }).run().unwrap();
    // a test that says which labels there are gets no others
    fail(Some(vec![]));
    assert_eq!(code(&items.insert_one(doc! { "_id": 2 }).run().unwrap_err()), 6);
    let data = doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "times": 1 } };
    client.database("admin").run_command(data).run().unwrap();
    items.insert_one(doc! { "_id": 3 }).run().unwrap();
    assert_eq!(items.count_documents(doc! { "_id": 3 }).run().unwrap(), 1);
}

#[test]
fn a_fail_point_must_be_one() {
    let server = server_for_tests();
    let client = client(&server);
    let admin = client.database("admin");
    let unknown = doc! { "configureFailPoint": "failEverything", "mode": "alwaysOn" };
    assert_eq!(code(&admin.run_command(unknown).run().unwrap_err()), 206);
    let mode = order(&client, "sometimes", doc! {}).unwrap_err();
    assert_eq!(code(&mode), 2);
    assert!(mode.to_string().contains("alwaysOn"), "{mode}");
}

#[test]
fn writes_count_as_their_documents_and_queries_limit_their_cursors() {
    let server = server_for_tests();
    let client = client(&server);
    let admin = client.database("admin");
    let database = client.database("docs");
    let mut number = 0;
    let lsid = doc! { "id": bson::Uuid::from_bytes([5; 16]) };
    let mut insert = |ids: std::ops::Range<i32>| {
        number += 1;
        let documents: Vec<Document> = ids.map(|id| doc! { "_id": id }).collect();
        let insert =
            doc! { "insert": "counted", "documents": documents, "lsid": &lsid, "txnNumber": number as i64 };
        database.run_command(insert).run()
    };
    let fail = doc! { "failBeforeCommitExceptionCode": 91, "closeConnection": false };
    let skip =
        doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "skip": 3 }, "data": fail };
    admin.run_command(skip).run().unwrap();
    insert(0..2).unwrap();
    assert_eq!(code(&insert(2..4).unwrap_err()), 91, "the fourth document");
    let off = |name: &str| {
        admin.run_command(doc! { "configureFailPoint": name, "mode": "off" }).run().unwrap();
    };
    off("onPrimaryTransactionalWrite");
    insert(2..4).unwrap();
    let find = |limit: Option<i32>| {
        let mut find = doc! { "find": "counted", "batchSize": 1 };
        find.extend(limit.map(|limit| ("maxTimeMS".to_owned(), limit.into())));
        let opened = database.run_command(find).run().unwrap();
        opened.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let (limited, free) = (find(Some(60_000)), find(None));
    admin
        .run_command(doc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" })
        .run()
        .unwrap();
    let more = |id: i64| database.run_command(doc! { "getMore": id, "collection": "counted" }).run();
    assert_eq!(code(&more(limited).unwrap_err()), 50);
    assert!(more(free).is_ok());
    off("maxTimeAlwaysTimeOut");
}
