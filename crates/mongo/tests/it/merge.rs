//! `$merge` into collections that are kept by it.

use mongodb::bson::{Document, doc};
use mongodb::sync::Database;

use crate::{TestServer, code};

fn merge(database: &Database, from: Vec<Document>, stage: Document) -> mongodb::error::Result<Document> {
    let mut pipeline = vec![doc! { "$documents": from }];
    pipeline.push(doc! { "$merge": stage });
    database.run_command(doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} }).run()
}

fn all(database: &Database, name: &str) -> Vec<Document> {
    let found = database.collection::<Document>(name).find(doc! {}).sort(doc! { "_id": 1 }).run().unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_pipeline_reads_the_new_document_and_variables() {
    let server = TestServer::start(3);
    let database = server.client().database("docs");
    let stage = |more: Document| {
        let mut stage = doc! {
            "into": "totals",
            "whenMatched": [{ "$set": { "n": { "$add": ["$n", "$$new.n"] }, "last": "$$new.at" } }],
        };
        stage.extend(more);
        stage
    };
    merge(&database, vec![doc! { "_id": "a", "n": 1, "at": 1 }], stage(doc! {})).unwrap();
    assert_eq!(all(&database, "totals"), [doc! { "_id": "a", "n": 1, "at": 1 }], "inserted as it is");
    let more = vec![doc! { "_id": "a", "n": 5, "at": 2 }, doc! { "_id": "b", "n": 7 }];
    merge(&database, more, stage(doc! {})).unwrap();
    let expected = [doc! { "_id": "a", "n": 6, "at": 1, "last": 2 }, doc! { "_id": "b", "n": 7 }];
    assert_eq!(all(&database, "totals"), expected);

    let given = doc! {
        "let": { "factor": { "$multiply": ["$n", 10] }, "new": "$$ROOT" },
        "whenMatched": [{ "$project": { "n": { "$add": ["$n", "$$factor", "$$new.n"] } } }],
    };
    merge(&database, vec![doc! { "_id": "a", "n": 2 }], stage(given)).unwrap();
    assert_eq!(all(&database, "totals")[0], doc! { "_id": "a", "n": 28 });

    // variables of the command
    let command = doc! {
        "aggregate": 1, "cursor": {}, "let": { "by": 100 },
        "pipeline": [
            { "$documents": [{ "_id": "b" }] },
            { "$merge": { "into": "totals", "whenMatched": [{ "$set": { "n": { "$add": ["$n", "$$by"] } } }] } },
        ],
    };
    database.run_command(command).run().unwrap();
    assert_eq!(all(&database, "totals")[1], doc! { "_id": "b", "n": 107 });

    for (more, expected) in [
        (doc! { "let": { "new": "$n" } }, 51273),
        (doc! { "let": { "x": 1 }, "whenMatched": "merge" }, 51199),
        (doc! { "let": { "X": 1 } }, 9),
        (doc! { "whenMatched": [{ "$set": { "n": "$$unknown" } }] }, 17276),
    ] {
        let error = merge(&database, vec![doc! { "_id": "a" }], stage(more.clone())).unwrap_err();
        assert_eq!(code(&error), expected, "{more}: {error}");
    }
}

#[test]
fn a_document_without_an_id_gets_one() {
    let server = TestServer::start(3);
    let database = server.client().database("docs");
    merge(&database, vec![doc! { "n": 1 }, doc! { "n": 2 }], doc! { "into": "made" }).unwrap();
    let made = all(&database, "made");
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|one| one.get_object_id("_id").is_ok()), "{made:?}");
}

#[test]
fn fields_need_a_unique_index() {
    let server = TestServer::start(3);
    let database = server.client().database("docs");
    let on = |mode: &str| doc! { "into": "books", "on": ["title", "year"], "whenMatched": mode };
    let book = |year: i32, n: i32| doc! { "title": "t", "year": year, "n": n };
    let error = merge(&database, vec![book(1, 1)], on("merge")).unwrap_err();
    assert_eq!(code(&error), 51183, "{error}");
    let index = |unique: bool| {
        let key = doc! { "year": 1, "title": 1 };
        doc! { "createIndexes": "books", "indexes": [{ "key": key, "name": "by", "unique": unique }] }
    };
    database.run_command(index(false)).run().unwrap();
    assert_eq!(code(&merge(&database, vec![book(1, 1)], on("merge")).unwrap_err()), 51183);
    database.run_command(doc! { "dropIndexes": "books", "index": "by" }).run().unwrap();
    database.run_command(index(true)).run().unwrap();
    merge(&database, vec![book(1, 1), book(2, 2)], on("merge")).unwrap();
    merge(&database, vec![book(1, 5)], on("merge")).unwrap();
    let numbers: Vec<i32> = all(&database, "books").iter().map(|b| b.get_i32("n").unwrap()).collect();
    assert_eq!(numbers.iter().sum::<i32>(), 7);

    let error = merge(&database, vec![book(2, 9)], on("fail")).unwrap_err();
    assert_eq!(code(&error), 11000);
    let response = error.server_response().unwrap();
    let details: Document = response.clone().try_into().unwrap();
    assert_eq!(details.get_document("keyPattern").unwrap(), &doc! { "year": 1, "title": 1 });
    assert_eq!(details.get_document("keyValue").unwrap(), &doc! { "title": "t", "year": 2 });
    for (value, expected) in [(doc! { "title": "t" }, 51132), (doc! { "title": "t", "year": [1] }, 51185)] {
        assert_eq!(code(&merge(&database, vec![value], on("merge")).unwrap_err()), expected);
    }
}
