//! Collections with options: created, listed, changed, renamed.

use mongodb::bson::{Bson, Document, doc};
use mongodb::sync::Database;

use crate::{TestServer, code};

fn run(database: &Database, command: Document) -> Result<Document, i32> {
    database.run_command(command).run().map_err(|error| code(&error))
}

fn listed(database: &Database, name: &str) -> Document {
    let reply = run(database, doc! { "listCollections": 1, "filter": { "name": name } }).unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch[0].as_document().unwrap().clone()
}

fn write_error(reply: &Document) -> Option<&Document> {
    reply.get_array("writeErrors").ok().and_then(|errors| errors[0].as_document())
}

/// Returns the ids of all documents in the order in which they are found.
fn ids(collection: &mongodb::sync::Collection<Document>) -> Vec<i32> {
    collection.find(doc! {}).run().unwrap().map(|d| d.unwrap().get_i32("_id").unwrap()).collect()
}

#[test]
fn a_collection_keeps_its_identity() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    database.create_collection("made").run().unwrap();
    server.collection("inserted").insert_one(doc! {}).run().unwrap();
    let uuid = |database: &Database, name: &str| {
        listed(database, name).get_document("info").unwrap().get("uuid").unwrap().clone()
    };
    let before: Vec<Bson> = ["made", "inserted"].map(|name| uuid(&database, name)).into();
    assert_ne!(before[0], before[1]);
    let server = server.restart();
    let database = server.client().database("docs");
    assert_eq!(before, ["made", "inserted"].map(|name| uuid(&database, name)));
    // a new collection of the same name is another one
    database.collection::<Document>("made").drop().run().unwrap();
    database.create_collection("made").run().unwrap();
    assert_ne!(before[0], uuid(&database, "made"));
}

#[test]
fn documents_that_are_not_valid_are_refused() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    let validator = doc! { "n": { "$gte": 0 } };
    run(&database, doc! { "create": "valid", "validator": &validator }).unwrap();
    // the same again is no error, another definition is
    run(&database, doc! { "create": "valid", "validator": &validator }).unwrap();
    assert_eq!(run(&database, doc! { "create": "valid" }), Err(48));
    let options =
        doc! { "validator": validator.clone(), "validationLevel": "strict", "validationAction": "error" };
    assert_eq!(listed(&database, "valid").get_document("options").unwrap(), &options);

    let insert = doc! { "insert": "valid", "documents": [{ "_id": 1, "n": -1 }] };
    let reply = run(&database, insert.clone()).unwrap();
    let error = write_error(&reply).unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 121);
    let info = error.get_document("errInfo").unwrap();
    assert_eq!(info.get_i32("failingDocumentId").unwrap(), 1);
    assert_eq!(info.get_document("details").unwrap().get_document("specifiedAs").unwrap(), &validator);

    let mut unchecked = insert.clone();
    unchecked.insert("bypassDocumentValidation", true);
    assert!(write_error(&run(&database, unchecked).unwrap()).is_none());
    let update = doc! { "update": "valid", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "m": 1 } } }] };
    assert_eq!(write_error(&run(&database, update.clone()).unwrap()).unwrap().get_i32("code").unwrap(), 121);
    let modify = doc! { "findAndModify": "valid", "query": { "_id": 1 }, "update": { "$set": { "m": 1 } } };
    assert_eq!(run(&database, modify), Err(121));

    // what is not valid may stay so
    run(&database, doc! { "collMod": "valid", "validationLevel": "moderate" }).unwrap();
    let server = server.restart();
    let database = server.client().database("docs");
    assert!(write_error(&run(&database, update).unwrap()).is_none());
    run(&database, doc! { "collMod": "valid", "validator": {} }).unwrap();
    assert!(
        write_error(&run(&database, doc! { "insert": "valid", "documents": [{ "n": -1 }] }).unwrap())
            .is_none()
    );
    assert_eq!(run(&database, doc! { "collMod": "valid", "validator": { "n": { "$foo": 1 } } }), Err(2));
    assert_eq!(run(&database, doc! { "collMod": "none", "validationLevel": "off" }), Err(26));
    assert_eq!(run(&database, doc! { "collMod": "valid", "validationLevel": "low" }), Err(2));
}

#[test]
fn indexes_are_changed() {
    let server = TestServer::start(2);
    let database = server.client().database("docs");
    let index = doc! { "key": { "t": 1 }, "name": "t_1", "expireAfterSeconds": 5 };
    run(&database, doc! { "createIndexes": "things", "indexes": [index] }).unwrap();
    let change = |index: Document| run(&database, doc! { "collMod": "things", "index": index });
    let reply = change(doc! { "keyPattern": { "t": 1 }, "expireAfterSeconds": 60 }).unwrap();
    assert_eq!(reply.get_i64("expireAfterSeconds_old").unwrap(), 5);
    assert_eq!(reply.get_i64("expireAfterSeconds_new").unwrap(), 60);
    change(doc! { "name": "t_1", "hidden": true }).unwrap();
    let reply = run(&database, doc! { "listIndexes": "things" }).unwrap();
    let indexes = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let expected =
        doc! { "v": 2, "key": { "t": 1 }, "name": "t_1", "hidden": true, "expireAfterSeconds": 60 };
    assert_eq!(indexes[1].as_document().unwrap(), &expected);
    assert_eq!(change(doc! { "name": "x", "hidden": true }), Err(27));
    assert_eq!(change(doc! { "name": "t_1" }), Err(72));
}

#[test]
fn collections_are_renamed_over_databases() {
    let server = TestServer::start(3);
    let client = server.client();
    let (admin, shop) = (client.database("admin"), client.database("shop"));
    let things = shop.collection::<Document>("things");
    things.insert_many((0..20).map(|n| doc! { "_id": n })).run().unwrap();
    shop.collection::<Document>("taken").insert_one(doc! { "_id": 1, "old": true }).run().unwrap();
    let rename = |from: &str, to: &str, drop: bool| {
        run(&admin, doc! { "renameCollection": from, "to": to, "dropTarget": drop }).map(|_| ())
    };
    assert_eq!(rename("shop.things", "shop.taken", false), Err(48));
    assert_eq!(rename("shop.none", "shop.taken", false), Err(26));
    assert_eq!(rename("shop.things", "shop.things", false), Err(20));
    assert_eq!(rename("shop", "shop.x", false), Err(73));
    assert_eq!(run(&shop, doc! { "renameCollection": "shop.things", "to": "shop.x" }), Err(13));
    rename("shop.things", "shop.taken", true).unwrap();
    rename("shop.taken", "docs.items", false).unwrap();
    assert_eq!(shop.list_collection_names().run().unwrap(), Vec::<String>::new());
    let server = server.restart();
    let items = server.collection("items");
    assert_eq!(items.count_documents(doc! {}).run().unwrap(), 20);
    assert_eq!(items.find_one(doc! { "_id": 1 }).run().unwrap(), Some(doc! { "_id": 1 }));
}

#[test]
fn capped_collections_keep_the_newest_documents() {
    let server = TestServer::start(1);
    let database = server.client().database("docs");
    run(&database, doc! { "create": "last", "capped": true, "size": 1000, "max": 5 }).unwrap();
    let options = doc! { "capped": true, "size": 1024_i64, "max": 5_i64 };
    assert_eq!(listed(&database, "last").get_document("options").unwrap(), &options);
    let last = server.collection("last");
    last.insert_many((0..12).map(|n| doc! { "_id": n })).run().unwrap();
    assert_eq!(ids(&last), [7, 8, 9, 10, 11]);
    let things = server.collection("things");
    things.insert_many((0..100).map(|n| doc! { "_id": n })).run().unwrap();
    run(&database, doc! { "convertToCapped": "things", "size": 256 }).unwrap();
    // 256 bytes are 18 documents of 14 bytes
    assert_eq!(ids(&things), (82..100).collect::<Vec<_>>());
    let server = server.restart();
    assert_eq!(ids(&server.collection("last")), [7, 8, 9, 10, 11]);
    for command in [doc! { "create": "x", "capped": true }, doc! { "create": "x", "size": 5 }] {
        assert_eq!(run(&server.client().database("docs"), command), Err(72));
    }
}

#[test]
fn a_capped_collection_is_in_one_partition() {
    let server = TestServer::start(4);
    let database = server.client().database("docs");
    run(&database, doc! { "create": "last", "capped": true, "size": 10_000, "max": 5 }).unwrap();
    let last = server.collection("last");
    for n in 0..12 {
        last.insert_one(doc! { "_id": n }).run().unwrap();
    }
    assert_eq!(ids(&last), [7, 8, 9, 10, 11]);
    let spread = server.collection("spread");
    spread.insert_many((0..50).map(|n| doc! { "_id": n })).run().unwrap();
    run(&database, doc! { "convertToCapped": "spread", "size": 1_000_000 }).unwrap();
    assert_eq!(spread.count_documents(doc! {}).run().unwrap(), 50);
    spread.insert_one(doc! { "_id": 50 }).run().unwrap();
    assert_eq!(ids(&spread).last(), Some(&50));
}

#[test]
fn a_clustered_collection_is_read_in_the_order_of_its_ids() {
    let server = TestServer::start(4);
    let database = server.client().database("shop");
    let create = doc! {
        "create": "sorted", "clusteredIndex": { "key": { "_id": 1 }, "unique": true, "name": "by id" },
    };
    database.run_command(create.clone()).run().unwrap();
    database.run_command(create).run().unwrap();
    let sorted = database.collection::<Document>("sorted");
    let ids = [7, 3, 9, 1, 8, 2, 6];
    sorted.insert_many(ids.map(|id| doc! { "_id": id, "odd": id % 2 == 1 })).run().unwrap();
    let found = |cursor: mongodb::sync::Cursor<Document>| -> Vec<i32> {
        cursor.map(|document| document.unwrap().get_i32("_id").unwrap()).collect()
    };
    assert_eq!(found(sorted.find(doc! {}).run().unwrap()), [1, 2, 3, 6, 7, 8, 9]);
    assert_eq!(found(sorted.find(doc! { "odd": true }).limit(3).run().unwrap()), [1, 3, 7]);
    let back = sorted.find(doc! {}).sort(doc! { "$natural": -1 }).limit(2).run().unwrap();
    assert_eq!(found(back), [9, 8]);
    let pipeline = vec![doc! { "$project": { "_id": 1 } }, doc! { "$limit": 2 }];
    let piped: Vec<Document> = sorted.aggregate(pipeline).run().unwrap().map(Result::unwrap).collect();
    assert_eq!(piped, [doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let listed = database.run_command(doc! { "listCollections": 1, "filter": { "name": "sorted" } });
    let listed = listed.run().unwrap();
    let listed =
        listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
    let index = doc! { "v": 2, "key": { "_id": 1 }, "name": "by id", "unique": true };
    assert_eq!(listed.get_document("options").unwrap().get_document("clusteredIndex").unwrap(), &index);
    let indexes = database.run_command(doc! { "listIndexes": "sorted" }).run().unwrap();
    let indexes = indexes.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let mut clustered = index;
    clustered.insert("clustered", true);
    assert_eq!(indexes, &[mongodb::bson::Bson::Document(clustered)]);
    let hinted = sorted.find(doc! { "odd": true }).hint(mongodb::options::Hint::Name("by id".into()));
    assert_eq!(found(hinted.run().unwrap()), [1, 3, 7, 9]);
    let gone = database.run_command(doc! { "dropIndexes": "sorted", "index": "by id" }).run();
    assert_eq!(crate::code(&gone.unwrap_err()), 72);
    for (index, code) in [
        (doc! { "key": { "a": 1 }, "unique": true }, 72),
        (doc! { "key": { "_id": 1 } }, 72),
        (doc! { "key": { "_id": 1 }, "unique": true, "sparse": true }, 72),
    ] {
        let refused = database.run_command(doc! { "create": "other", "clusteredIndex": index }).run();
        assert_eq!(crate::code(&refused.unwrap_err()), code);
    }
    drop((sorted, database));
    let server = server.restart();
    let sorted = server.client().database("shop").collection::<Document>("sorted");
    assert_eq!(found(sorted.find(doc! {}).run().unwrap()), [1, 2, 3, 6, 7, 8, 9]);
}
