//! Versions of the API that clients declare, and concerns that there are not.

use bson::doc;

use crate::{TestServer, code};

#[test]
fn version_1_is_the_only_one() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    let run = |command| database.run_command(command).run();
    run(doc! { "ping": 1, "apiVersion": "1", "apiStrict": true }).unwrap();
    assert_eq!(code(&run(doc! { "ping": 1, "apiVersion": "2" }).unwrap_err()), 322);
    assert_eq!(code(&run(doc! { "ping": 1, "apiStrict": true }).unwrap_err()), 72);
    let distinct = doc! { "distinct": "item", "key": "a", "apiVersion": "1" };
    run(distinct.clone()).unwrap();
    let mut strict = distinct;
    strict.insert("apiStrict", true);
    assert_eq!(code(&run(strict).unwrap_err()), 323);
    let sessions = doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} };
    let found = run(sessions.clone()).unwrap();
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    let mut strict = sessions;
    strict.extend(doc! { "apiVersion": "1", "apiStrict": true });
    assert_eq!(code(&run(strict).unwrap_err()), 323);
}

#[test]
fn a_read_concern_must_be_one() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    let find = doc! { "find": "item", "readConcern": { "level": "unknown" } };
    assert_eq!(code(&database.run_command(find).run().unwrap_err()), 2);
}
