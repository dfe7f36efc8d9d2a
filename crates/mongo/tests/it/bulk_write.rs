//! `bulkWrite` writes to several collections in one command.

use mongodb::bson::{Document, doc};

use crate::{TestServer, code};

fn counts(reply: &Document) -> [i32; 6] {
    ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"]
        .map(|name| reply.get_i32(name).unwrap())
}

fn results(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|result| result.as_document().unwrap().clone()).collect()
}

#[test]
fn operations_of_several_collections_run_in_turn() {
    let server = TestServer::start(2);
    let client = server.client();
    let command = doc! {
        "bulkWrite": 1,
        "ops": [
            { "insert": 0, "document": { "_id": 1, "n": 1 } },
            { "insert": 0, "document": { "_id": 2, "n": 2 } },
            { "insert": 1, "document": { "_id": 1 } },
            { "update": 0, "filter": {}, "updateMods": { "$inc": { "n": 1 } }, "multi": true },
            { "update": 1, "filter": { "_id": 9 }, "updateMods": { "$set": { "a": 1 } }, "upsert": true },
            { "update": 1, "filter": { "_id": 1 }, "updateMods": { "new": true } },
            { "delete": 0, "filter": { "n": 2 } },
            { "delete": 0, "filter": {}, "multi": true },
        ],
        "nsInfo": [{ "ns": "docs.things" }, { "ns": "shop.items" }],
    };
    let reply = client.database("admin").run_command(command).run().unwrap();
    assert_eq!(counts(&reply), [0, 3, 3, 3, 1, 2]);
    let results = results(&reply);
    assert_eq!(results.len(), 8);
    assert_eq!(results[2], doc! { "ok": 1.0, "idx": 2, "n": 1 });
    assert_eq!(results[3], doc! { "ok": 1.0, "idx": 3, "n": 2, "nModified": 2 });
    assert_eq!(results[4], doc! { "ok": 1.0, "idx": 4, "n": 1, "nModified": 0, "upserted": { "_id": 9 } });
    let items = client.database("shop").collection::<Document>("items");
    assert_eq!(items.find_one(doc! { "_id": 1 }).run().unwrap(), Some(doc! { "_id": 1, "new": true }));
}

#[test]
fn an_ordered_command_ends_at_the_first_error() {
    let server = TestServer::start(2);
    let admin = server.client().database("admin");
    let command = |ordered: bool, errors_only: bool, name: &str| {
        doc! {
            "bulkWrite": 1,
            "ops": [
                { "insert": 0, "document": { "_id": 1 } },
                { "insert": 0, "document": { "_id": 1 } },
                { "insert": 0, "document": { "_id": 2 } },
                { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$set": { "_id": 5 } } },
                { "delete": 0, "filter": { "_id": 2 } },
            ],
            "nsInfo": [{ "ns": format!("docs.{name}") }],
            "ordered": ordered,
            "errorsOnly": errors_only,
        }
    };
    let ordered = admin.run_command(command(true, false, "a")).run().unwrap();
    assert_eq!(counts(&ordered), [1, 1, 0, 0, 0, 0]);
    let error = &results(&ordered)[1];
    assert_eq!((error.get_i32("idx").unwrap(), error.get_i32("code").unwrap()), (1, 11000));
    assert_eq!(error.get_document("keyValue").unwrap(), &doc! { "_id": 1 });
    let unordered = admin.run_command(command(false, true, "b")).run().unwrap();
    assert_eq!(counts(&unordered), [2, 2, 1, 0, 0, 1]);
    let codes: Vec<i32> = results(&unordered).iter().map(|error| error.get_i32("code").unwrap()).collect();
    assert_eq!(codes, [11000, 66]);
}

#[test]
fn malformed_commands_are_refused_before_anything_is_written() {
    let server = TestServer::start(1);
    let client = server.client();
    let first = doc! { "insert": 0, "document": { "_id": 1 } };
    for (operation, expected) in [
        (doc! { "insert": 1, "document": {} }, 2),
        (doc! { "insert": 0 }, 2),
        (doc! { "merge": 0, "document": {} }, 2),
        (doc! { "insert": 0, "document": {}, "multi": true }, 40415),
        (doc! {}, 2),
    ] {
        let ops = vec![first.clone(), operation];
        let command = doc! { "bulkWrite": 1, "ops": ops, "nsInfo": [{ "ns": "docs.things" }] };
        assert_eq!(code(&client.database("admin").run_command(command).run().unwrap_err()), expected);
    }
    let none = doc! { "bulkWrite": 1, "ops": [], "nsInfo": [] };
    assert_eq!(code(&client.database("admin").run_command(none.clone()).run().unwrap_err()), 16);
    assert_eq!(code(&client.database("docs").run_command(none).run().unwrap_err()), 13);
    assert_eq!(server.collection("things").count_documents(doc! {}).run().unwrap(), 0);
}
