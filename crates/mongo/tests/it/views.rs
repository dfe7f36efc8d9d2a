//! Views read the pipeline of their collection, and are not written.

use mongodb::bson::{Bson, Document, doc};
use mongodb::sync::Database;

use crate::{TestServer, code};

fn run(database: &Database, command: Document) -> Result<Document, i32> {
    database.run_command(command).run().map_err(|error| code(&error))
}

fn start() -> (TestServer, Database) {
    let server = TestServer::start(2);
    let database = server.client().database("shop");
    let things = database.collection::<Document>("things");
    things.insert_many((0..200).map(|n| doc! { "_id": n, "n": n, "parity": n % 2 })).run().unwrap();
    let odd = vec![doc! { "$match": { "parity": 1 } }, doc! { "$project": { "n": 1 } }];
    run(&database, doc! { "create": "odd", "viewOn": "things", "pipeline": odd }).unwrap();
    let small = vec![doc! { "$match": { "n": { "$lt": 10 } } }];
    run(&database, doc! { "create": "small", "viewOn": "odd", "pipeline": small }).unwrap();
    (server, database)
}

#[test]
fn views_are_read_like_collections() {
    let (server, database) = start();
    let odd = database.collection::<Document>("odd");
    let found: Vec<Document> = odd
        .find(doc! { "n": { "$gt": 5 } })
        .sort(doc! { "n": -1 })
        .skip(1)
        .projection(doc! { "_id": 0 })
        .batch_size(7)
        .run()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // over several batches, whose cursor belongs to the view
    assert_eq!(found, (3..99).rev().map(|i| doc! { "n": 2 * i + 1 }).collect::<Vec<_>>());
    assert_eq!(odd.find_one(doc! { "n": 2 }).run().unwrap(), None);
    assert_eq!(odd.count_documents(doc! { "n": { "$lt": 10 } }).run().unwrap(), 5);
    assert_eq!(
        run(&database, doc! { "count": "odd", "query": { "n": { "$lt": 10 } }, "skip": 2 })
            .unwrap()
            .get_i32("n")
            .unwrap(),
        3
    );
    let small = database.collection::<Document>("small");
    let values = small.distinct("n", doc! { "n": { "$gt": 2 } }).run().unwrap();
    assert_eq!(values, [3, 5, 7, 9].map(Bson::Int32));
    let sum = vec![doc! { "$group": { "_id": null, "sum": { "$sum": "$n" } } }];
    let summed = small.aggregate(sum).run().unwrap().next().unwrap().unwrap();
    assert_eq!(summed, doc! { "_id": null, "sum": 25 });
    // the definition is there after a restart
    let server = server.restart();
    let small = server.client().database("shop").collection::<Document>("small");
    assert_eq!(small.count_documents(doc! {}).run().unwrap(), 5);
}

#[test]
fn views_are_listed_changed_and_dropped() {
    let (_server, database) = start();
    let reply = run(&database, doc! { "listCollections": 1, "filter": { "type": "view" } }).unwrap();
    let listed = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let expected = doc! {
        "name": "small",
        "type": "view",
        "options": { "viewOn": "odd", "pipeline": [{ "$match": { "n": { "$lt": 10 } } }] },
        "info": { "readOnly": true },
    };
    assert_eq!((listed.len(), listed[1].as_document().unwrap()), (2, &expected));
    run(&database, doc! { "collMod": "small", "viewOn": "things", "pipeline": [] }).unwrap();
    let small = database.collection::<Document>("small");
    assert_eq!(small.count_documents(doc! {}).run().unwrap(), 200);
    small.drop().run().unwrap();
    assert_eq!(small.count_documents(doc! {}).run().unwrap(), 0);
    assert_eq!(database.collection::<Document>("odd").count_documents(doc! {}).run().unwrap(), 100);
}

#[test]
fn views_are_not_written() {
    let (_server, database) = start();
    for command in [
        doc! { "insert": "odd", "documents": [{}] },
        doc! { "update": "odd", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
        doc! { "delete": "odd", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": "odd", "query": {}, "remove": true },
        doc! { "createIndexes": "odd", "indexes": [{ "key": { "n": 1 }, "name": "n_1" }] },
        doc! { "listIndexes": "odd" },
    ] {
        assert_eq!(run(&database, command), Err(166));
    }
    // no options of collections, and no circle
    assert_eq!(run(&database, doc! { "create": "v", "viewOn": "things", "validator": { "a": 1 } }), Err(2));
    assert_eq!(run(&database, doc! { "create": "v", "pipeline": [] }), Err(72));
    run(&database, doc! { "collMod": "odd", "viewOn": "small", "pipeline": [] }).unwrap();
    assert_eq!(run(&database, doc! { "find": "odd" }), Err(165));
}
