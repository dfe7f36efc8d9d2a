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
fn a_unique_index_brings_documents_together() {
    let server = TestServer::start(4);
    let users = server.collection("users");
    users
        .insert_many((0..2000).map(|n| doc! { "_id": n, "mail": format!("{n}@example.com") }))
        .run()
        .unwrap();
    let watched = users.find_one(doc! { "_id": 77 }).run().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let running = &stop;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let users = server.collection("users");
            let mut updates = 0;
            while !running.load(std::sync::atomic::Ordering::Relaxed) {
                let id = updates % 2000;
                let found = users.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1 } }).run().unwrap();
                assert_eq!(found.matched_count, 1, "{id}");
                updates += 1;
            }
            updates
        });
        users.create_index(unique("mail")).run().unwrap();
        running.store(true, std::sync::atomic::Ordering::Relaxed);
        let updates = writer.join().unwrap();
        let total = [doc! { "$group": { "_id": null, "n": { "$sum": "$n" } } }];
        let found = users.aggregate(total).run().unwrap().next().unwrap().unwrap();
        assert_eq!(found.get_i32("n").unwrap(), updates, "no update is lost while documents move");
    });
    assert_eq!(users.count_documents(doc! {}).run().unwrap(), 2000);
    assert_eq!(
        users.find_one(doc! { "_id": 77 }).run().unwrap().map(|d| d.get("mail").cloned()),
        watched.map(|d| d.get("mail").cloned())
    );
    let server = server.restart();
    let users = server.collection("users");
    let again = users.insert_one(doc! { "_id": "new", "mail": "5@example.com" }).run().unwrap_err();
    assert_eq!(code(&again), 11000);
    users.insert_one(doc! { "_id": "new", "mail": "new@example.com" }).run().unwrap();
    let by_upsert = doc! { "$set": { "mail": "9@example.com" } };
    let upserted = users.update_one(doc! { "_id": "other" }, by_upsert).upsert(true).run().unwrap_err();
    assert_eq!(code(&upserted), 11000);
    assert_eq!(users.delete_one(doc! { "_id": "new" }).run().unwrap().deleted_count, 1);
    // an index that documents violate is refused, and all documents stay
    let twins = server.collection("twins");
    twins.insert_many((0..100).map(|n| doc! { "_id": n, "a": n / 2 })).run().unwrap();
    assert_eq!(code(&twins.create_index(unique("a")).run().unwrap_err()), 11000);
    assert_eq!(twins.count_documents(doc! {}).run().unwrap(), 100);
}

#[test]
fn a_unique_index_on_an_entity_is_left_to_the_app() {
    let server = TestServer::start(2);
    let refused = server.collection("Customer").create_index(unique("mail")).run().unwrap_err();
    assert_eq!(code(&refused), 67);
    assert!(refused.to_string().contains("is an entity of the app"), "{refused}");
}

#[test]
fn index_of_an_unsupported_kind_is_refused() {
    let server = TestServer::start(1);
    let things = server.collection("things");
    for (keys, options) in [
        (doc! { "a": "geoHaystack" }, IndexOptions::default()),
        (doc! { "a": "text" }, IndexOptions::builder().unique(true).build()),
        (doc! { "a": "2dsphere" }, IndexOptions::builder().unique(true).build()),
        (doc! { "a": "2dsphere", "b": "2d" }, IndexOptions::default()),
        (doc! { "a": "hashed", "b": "hashed" }, IndexOptions::default()),
        (doc! { "a": "hashed" }, IndexOptions::builder().unique(true).build()),
        (doc! { "a": 0 }, IndexOptions::default()),
    ] {
        let index = IndexModel::builder().keys(keys).options(options).build();
        assert_eq!(code(&things.create_index(index).run().unwrap_err()), 67);
    }
    let unknown =
        doc! { "createIndexes": "things", "indexes": [{ "key": { "a": 1 }, "name": "a", "quick": true }] };
    let refused = server.client().database("docs").run_command(unknown).run().unwrap_err();
    assert_eq!(code(&refused), 197);
}

#[test]
fn options_are_listed_as_they_were_given() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    let given = [
        doc! { "v": 2, "key": { "a": 1 }, "name": "sparse", "unique": true, "sparse": true },
        doc! { "v": 2, "key": { "a": 1, "b": "hashed" }, "name": "hashed", "hidden": true },
        doc! { "v": 2, "key": { "t": 1 }, "name": "t_1", "expireAfterSeconds": 3600 },
        doc! { "v": 2, "key": { "b": 1 }, "name": "partial", "partialFilterExpression": { "a": { "$gt": 5 } } },
        doc! { "v": 2, "key": { "$**": 1 }, "name": "all", "wildcardProjection": { "a": 1 } },
    ];
    let create = doc! { "createIndexes": "things", "indexes": given.to_vec() };
    database.run_command(create.clone()).run().unwrap();
    // the same again changes nothing
    let again = database.run_command(create).run().unwrap();
    assert_eq!(again.get_str("note").unwrap(), "all indexes already exist");
    let server = server.restart();
    let listed =
        server.client().database("docs").run_command(doc! { "listIndexes": "things" }).run().unwrap();
    let listed = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let listed: Vec<_> = listed.iter().skip(1).map(|index| index.as_document().unwrap().clone()).collect();
    assert_eq!(listed, given);
}

#[test]
fn an_index_like_another_one_is_refused() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    let create = |index: mongodb::bson::Document| {
        database.run_command(doc! { "createIndexes": "things", "indexes": [index] }).run()
    };
    create(doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    // the same keys with another name, or with another option
    assert_eq!(code(&create(doc! { "key": { "a": 1 }, "name": "other" }).unwrap_err()), 85);
    let expiring = doc! { "key": { "a": 1 }, "name": "a_1", "expireAfterSeconds": 5 };
    assert_eq!(code(&create(expiring).unwrap_err()), 85);
    // the same name with other keys, or other documents
    assert_eq!(code(&create(doc! { "key": { "b": 1 }, "name": "a_1" }).unwrap_err()), 86);
    assert_eq!(code(&create(doc! { "key": { "a": 1 }, "name": "a_1", "sparse": true }).unwrap_err()), 86);
    // another collation, and other documents, are another index
    create(doc! { "key": { "a": 1 }, "name": "en", "collation": { "locale": "en" } }).unwrap();
    create(doc! { "key": { "a": 1 }, "name": "some", "partialFilterExpression": { "a": { "$gt": 0 } } })
        .unwrap();
    create(doc! { "key": { "a": 1 }, "name": "a_1", "collation": { "locale": "simple" } }).unwrap();
}

#[test]
fn duplicate_key_errors_tell_index_and_value() {
    let server = TestServer::start(1);
    let database = server.client().database("shop");
    let users = database.collection::<mongodb::bson::Document>("users");
    users.create_index(unique("mail")).run().unwrap();
    users.insert_one(doc! { "_id": 1, "mail": "a" }).run().unwrap();
    users.insert_one(doc! { "_id": 2, "mail": "b" }).run().unwrap();
    let message = "E11000 duplicate key error collection: shop.users index: mail_1 dup key: { mail: \"a\" }";
    let update = doc! { "q": { "_id": 2 }, "u": { "$set": { "mail": "a" } } };
    for command in [
        doc! { "insert": "users", "documents": [{ "_id": 3, "mail": "a" }] },
        doc! { "update": "users", "updates": [update] },
    ] {
        let reply = database.run_command(command).run().unwrap();
        let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
        assert_eq!(error.get_i32("code").unwrap(), 11000);
        assert_eq!(error.get_document("keyPattern").unwrap(), &doc! { "mail": 1 });
        assert_eq!(error.get_document("keyValue").unwrap(), &doc! { "mail": "a" });
        assert_eq!(error.get_str("errmsg").unwrap(), message);
    }
    let found = users.find_one_and_update(doc! { "_id": 2 }, doc! { "$set": { "mail": "a" } }).run();
    let found = found.unwrap_err();
    assert_eq!(code(&found), 11000);
    assert!(found.to_string().contains(message), "{found}");
    // as it is when the index is created
    let again = database.collection::<mongodb::bson::Document>("again");
    again.insert_many([doc! { "mail": 1 }, doc! { "mail": 1 }]).run().unwrap();
    let refused = again.create_index(unique("mail")).run().unwrap_err();
    assert!(refused.to_string().contains("collection: shop.again index"), "{refused}");
    // the `_id` of an ordered insert is found before it is written
    let reply = database.run_command(doc! { "insert": "users", "documents": [{ "_id": 1 }] }).run().unwrap();
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_document("keyValue").unwrap(), &doc! { "_id": 1 });
}

#[test]
fn a_hint_names_an_index_that_exists() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    server.collection("things").insert_one(doc! { "_id": 1, "a": 1 }).run().unwrap();
    let index = IndexModel::builder().keys(doc! { "a": 1 }).build();
    server.collection("things").create_index(index).run().unwrap();
    let find = |hint: mongodb::bson::Bson| {
        let found = database.run_command(doc! { "find": "things", "hint": hint }).run();
        found.map(|_| ()).map_err(|error| code(&error))
    };
    for known in ["a_1".into(), "_id_".into(), doc! { "a": 1 }.into(), doc! { "$natural": -1 }.into()] {
        assert_eq!(find(known), Ok(()));
    }
    for unknown in ["a_2".into(), doc! { "a": -1 }.into(), doc! { "a": "hashed" }.into()] {
        assert_eq!(find(unknown), Err(2));
    }
    assert_eq!(find(5.into()), Err(14));
}

#[test]
fn the_option_background_is_kept_as_it_was_given() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    let indexes = [
        doc! { "key": { "a": 1 }, "name": "a" },
        doc! { "key": { "b": 1 }, "name": "b", "background": false },
        doc! { "key": { "c": 1 }, "name": "c", "background": true },
    ];
    database.run_command(doc! { "createIndexes": "things", "indexes": indexes.to_vec() }).run().unwrap();
    drop(database);
    let server = server.restart();
    let database = server.client().database("docs");
    let listed = database.run_command(doc! { "listIndexes": "things" }).run().unwrap();
    let listed = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let background = listed.iter().map(|index| index.as_document().unwrap().get_bool("background").ok());
    assert_eq!(background.collect::<Vec<_>>(), [None, None, Some(false), Some(true)]);
}
