//! Indexes are created, listed, dropped, and refused where they could not keep their promise.

use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::options::IndexOptions;

use crate::{TestServer, code};

fn unique(path: &str) -> IndexModel {
    let options = IndexOptions::builder().unique(true).build();
    IndexModel::builder().keys(doc! { path: 1 }).options(options).build()
}

#[test]
fn indexes_are_created_listed_and_dropped() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    things.insert_one(doc! { "a": 1, "b": 2 }).run().unwrap();
    let index = IndexModel::builder().keys(doc! { "a": 1, "b": -1 }).build();
    assert_eq!(things.create_index(index.clone()).run().unwrap().index_name, "a_1_b_-1");
    // the same again is there already
    things.create_index(index).run().unwrap();
    assert_eq!(things.list_index_names().run().unwrap(), ["_id_", "a_1_b_-1"]);
    things.drop_index("a_1_b_-1").run().unwrap();
    assert_eq!(things.list_index_names().run().unwrap(), ["_id_"]);
    assert_eq!(code(&things.drop_index("a_1_b_-1").run().unwrap_err()), 27);
    assert_eq!(code(&things.drop_index("_id_").run().unwrap_err()), 72);
}

#[test]
fn unique_index_rejects_a_second_value() {
    let server = TestServer::start(1);
    let users = server.collection("users");
    users.create_index(unique("mail")).run().unwrap();
    users.insert_one(doc! { "_id": 1, "mail": "a@example.com" }).run().unwrap();
    let second = users.insert_one(doc! { "_id": 2, "mail": "a@example.com" }).run().unwrap_err();
    assert_eq!(code(&second), 11000);
}

#[test]
fn unique_index_over_several_partitions_is_refused() {
    let server = TestServer::start(2);
    let refused = server.collection("users").create_index(unique("mail")).run().unwrap_err();
    assert_eq!(code(&refused), 67);
    assert!(refused.to_string().contains("partitions = 1"), "{refused}");
}

#[test]
fn index_of_an_unsupported_kind_is_refused() {
    let server = TestServer::start(1);
    let things = server.collection("things");
    for (keys, options) in [
        (doc! { "a": "text" }, IndexOptions::default()),
        (doc! { "a": 1 }, IndexOptions::builder().sparse(true).build()),
        (doc! { "a": 1 }, IndexOptions::builder().expire_after(std::time::Duration::from_secs(1)).build()),
    ] {
        let index = IndexModel::builder().keys(keys).options(options).build();
        assert_eq!(code(&things.create_index(index).run().unwrap_err()), 67);
    }
}
