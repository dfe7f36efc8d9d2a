//! Strings compared by the rules of a language: in every command, as the default of collections and views, and in indexes.

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::Collation;
use mongodb::sync::{Collection, Database};

use crate::{TestServer, code};

fn run(database: &Database, command: Document) -> Result<Document, i32> {
    database.run_command(command).run().map_err(|error| code(&error))
}

/// Ignores case and accents.
fn letters() -> Document {
    doc! { "locale": "en", "strength": 1 }
}

fn collation() -> Collation {
    Collation::builder().locale("en").strength(mongodb::options::CollationStrength::Primary).build()
}

fn names() -> Vec<Document> {
    ["Zoë", "anna", "Ana", "Ánna", "bert", "BERT"]
        .iter()
        .zip(1..)
        .map(|(name, id)| doc! { "_id": id, "name": *name, "tags": [*name, "x"] })
        .collect()
}

fn ids(documents: impl IntoIterator<Item = mongodb::error::Result<Document>>) -> Vec<i32> {
    documents.into_iter().map(|document| document.unwrap().get_i32("_id").unwrap()).collect()
}

fn start(partitions: u32) -> (TestServer, Database, Collection<Document>) {
    let server = TestServer::start(partitions);
    let database = server.client().database("shop");
    let people = database.collection("people");
    people.insert_many(names()).run().unwrap();
    (server, database, people)
}

#[test]
fn reads_compare_by_the_collation_of_the_command() {
    let (_server, database, people) = start(4);
    let found = people.find(doc! { "name": "ANNA" }).collation(collation()).sort(doc! { "_id": 1 }).run();
    assert_eq!(ids(found.unwrap()), [2, 4]);
    assert_eq!(ids(people.find(doc! { "name": "ANNA" }).run().unwrap()), [0_i32; 0]);
    let sorted = people.find(doc! {}).sort(doc! { "name": 1, "_id": -1 }).collation(collation()).run();
    assert_eq!(ids(sorted.unwrap()), [3, 4, 2, 6, 5, 1]);
    let sorted = people.find(doc! {}).sort(doc! { "name": 1, "_id": 1 }).run().unwrap();
    assert_eq!(ids(sorted), [3, 6, 1, 2, 5, 4]);
    let first = people
        .find(doc! { "tags": { "$gte": "b" } })
        .sort(doc! { "name": -1, "_id": 1 })
        .skip(1)
        .limit(2)
        .collation(collation())
        .run();
    assert_eq!(ids(first.unwrap()), [5, 6]);
    assert_eq!(people.count_documents(doc! { "name": "bert" }).collation(collation()).run().unwrap(), 2);
    let counted = doc! { "count": "people", "query": { "name": { "$ne": "bert" } }, "collation": letters() };
    assert_eq!(run(&database, counted).unwrap().get_i32("n").unwrap(), 4);
    let distinct = doc! { "distinct": "people", "key": "name", "collation": letters() };
    assert_eq!(run(&database, distinct).unwrap().get_array("values").unwrap().len(), 4);
    let expr = doc! { "$expr": { "$in": ["$name", ["ANNA", "ZOE"]] } };
    assert_eq!(people.count_documents(expr).collation(collation()).run().unwrap(), 3);
}

#[test]
fn pipelines_compare_by_the_collation_of_the_command() {
    let (_server, database, people) = start(4);
    let aggregate = |stages: Vec<Document>| -> Vec<Document> {
        people.aggregate(stages).collation(collation()).run().unwrap().map(Result::unwrap).collect()
    };
    let sort = doc! { "$sort": { "_id": 1 } };
    let group = doc! { "$group": { "_id": "$name", "n": { "$sum": 1 }, "least": { "$min": "$name" } } };
    let grouped = aggregate(vec![sort.clone(), group, doc! { "$sort": { "_id": 1 } }]);
    let sizes: Vec<(&str, i32)> =
        grouped.iter().map(|g| (g.get_str("_id").unwrap(), g.get_i32("n").unwrap())).collect();
    assert_eq!(sizes, [("Ana", 1), ("anna", 2), ("bert", 2), ("Zoë", 1)]);
    let sets = aggregate(vec![doc! { "$group": { "_id": null, "all": { "$addToSet": "$name" } } }]);
    assert_eq!(sets[0].get_array("all").unwrap().len(), 4);
    let matched = aggregate(vec![
        doc! { "$match": { "name": { "$gt": "ANNA" } } },
        doc! { "$sort": { "name": 1, "_id": 1 } },
        doc! { "$limit": 2 },
    ]);
    assert_eq!(ids(matched.into_iter().map(Ok)), [5, 6]);
    let counted = aggregate(vec![doc! { "$sortByCount": { "$gt": ["$name", "bert"] } }]);
    assert_eq!(counted, [(false, 5), (true, 1)].map(|(of, count)| doc! { "_id": of, "count": count }));
    let boundaries = doc! { "groupBy": "$name", "boundaries": ["A", "B", "zz"] };
    let buckets = aggregate(vec![doc! { "$bucket": boundaries }]);
    assert_eq!(buckets, [doc! { "_id": "A", "count": 3 }, doc! { "_id": "B", "count": 3 }]);
    database.collection::<Document>("cities").insert_one(doc! { "_id": 1, "mayor": "ánna" }).run().unwrap();
    let lookup = doc! { "from": "cities", "localField": "name", "foreignField": "mayor", "as": "cities" };
    let joined =
        aggregate(vec![doc! { "$lookup": lookup }, doc! { "$match": { "cities": { "$ne": [] } } }, sort]);
    assert_eq!(ids(joined.into_iter().map(Ok)), [2, 4]);
    let ranked = aggregate(vec![
        doc! { "$setWindowFields": { "sortBy": { "name": 1 }, "output": { "rank": { "$denseRank": {} } } } },
        doc! { "$match": { "rank": 2 } },
        doc! { "$sort": { "_id": 1 } },
    ]);
    assert_eq!(ids(ranked.into_iter().map(Ok)), [2, 4]);
}

#[test]
fn writes_compare_by_the_collation_of_the_statement() {
    let (server, database, people) = start(4);
    let set = doc! { "$set": { "seen": true } };
    let updated = people.update_many(doc! { "name": "ANNA" }, set.clone()).collation(collation()).run();
    assert_eq!(updated.unwrap().modified_count, 2);
    let updated = people.update_one(doc! { "name": "zoe" }, set).collation(collation()).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 1));
    let add = doc! { "$addToSet": { "tags": "ZOE" } };
    let updated = people.update_one(doc! { "_id": 1 }, add).collation(collation()).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 0));
    let replaced = people.replace_one(doc! { "name": "ana" }, doc! { "name": "Ana", "new": 1 });
    assert_eq!(replaced.collation(collation()).run().unwrap().modified_count, 1);
    let upserted = people.update_one(doc! { "name": "ANA" }, doc! { "$inc": { "new": 1 } }).upsert(true);
    assert_eq!(upserted.collation(collation()).run().unwrap().upserted_id, None);
    let taken = people
        .find_one_and_delete(doc! { "name": { "$gte": "BERT" } })
        .sort(doc! { "name": 1, "_id": 1 })
        .collation(collation())
        .run();
    assert_eq!(taken.unwrap().unwrap().get_i32("_id").unwrap(), 5);
    let delete = doc! { "q": { "name": "Bert" }, "limit": 0, "collation": letters() };
    let deleted = run(&database, doc! { "delete": "people", "deletes": [delete] }).unwrap();
    assert_eq!(deleted.get_i32("n").unwrap(), 1);
    // the log has the collations
    let server = server.restart();
    let people = server.client().database("shop").collection::<Document>("people");
    assert_eq!(people.count_documents(doc! { "seen": true }).run().unwrap(), 3);
    assert_eq!(people.count_documents(doc! {}).run().unwrap(), 4);
}

#[test]
fn a_collection_has_a_default_collation() {
    let server = TestServer::start(4);
    let database = server.client().database("shop");
    run(&database, doc! { "create": "people", "collation": letters() }).unwrap();
    let people = database.collection::<Document>("people");
    let named = |name: &str| doc! { "_id": name, "name": name };
    people.insert_many(["Zoë", "anna", "Ana", "bert"].map(named)).run().unwrap();
    assert_eq!(people.count_documents(doc! { "name": "ZOE" }).run().unwrap(), 1);
    let simple = Collation::builder().locale("simple").build();
    assert_eq!(people.count_documents(doc! { "name": "ZOE" }).collation(simple.clone()).run().unwrap(), 0);
    for _ in 0..3 {
        // by the hash of the `_id` alone none of these would be found
        assert_eq!(people.find_one(doc! { "_id": "ANNA" }).run().unwrap(), Some(named("anna")));
        assert_eq!(people.find_one(doc! { "_id": "ANNA" }).collation(simple.clone()).run().unwrap(), None);
        let sorted: Vec<String> = people
            .find(doc! {})
            .sort(doc! { "_id": 1 })
            .run()
            .unwrap()
            .map(|document| document.unwrap().get_str("_id").unwrap().to_owned())
            .collect();
        assert_eq!(sorted, ["Ana", "anna", "bert", "Zoë"]);
    }
    let updated = people.update_one(doc! { "_id": "BERT" }, doc! { "$set": { "a": 1 } }).run().unwrap();
    assert_eq!(updated.modified_count, 1);
    assert_eq!(people.delete_one(doc! { "_id": "zoe" }).run().unwrap().deleted_count, 1);
    // new indexes inherit it
    run(
        &database,
        doc! { "createIndexes": "people", "indexes": [{ "key": { "name": 1 }, "name": "name_1" }] },
    )
    .unwrap();
    let listed = run(&database, doc! { "listIndexes": "people" }).unwrap();
    let listed = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    for index in listed {
        let index = index.as_document().unwrap();
        let found = index.get_document("collation").unwrap();
        assert_eq!(
            (found.get_str("locale").unwrap(), found.get_i32("strength").unwrap()),
            ("en", 1),
            "{index}"
        );
    }
    let collections = run(&database, doc! { "listCollections": 1 }).unwrap();
    let first = &collections.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0];
    let options = first.as_document().unwrap().get_document("options").unwrap();
    assert_eq!(options.get_document("collation").unwrap().get_str("alternate").unwrap(), "non-ignorable");
    // to create it again is no error, with another collation it is
    run(&database, doc! { "create": "people", "collation": letters() }).unwrap();
    assert_eq!(run(&database, doc! { "create": "people" }), Err(48));
    let server = server.restart();
    let people = server.client().database("shop").collection::<Document>("people");
    assert_eq!(people.count_documents(doc! { "name": "ÁNNA" }).run().unwrap(), 1);
}

#[test]
fn a_view_has_a_collation_of_its_own() {
    let (_server, database, _) = start(2);
    let view = doc! { "create": "view", "viewOn": "people", "pipeline": [], "collation": letters() };
    run(&database, view).unwrap();
    let view = database.collection::<Document>("view");
    assert_eq!(view.count_documents(doc! { "name": "zoe" }).run().unwrap(), 1);
    assert_eq!(view.count_documents(doc! { "name": "zoe" }).collation(collation()).run().unwrap(), 1);
    assert_eq!(view.distinct("name", doc! {}).run().unwrap().len(), 4);
    let other = Collation::builder().locale("fr").build();
    let refused = view.find(doc! {}).collation(other).run().map(|_| ()).unwrap_err();
    assert_eq!(code(&refused), 167);
    let nested = doc! { "create": "nested", "viewOn": "view", "pipeline": [] };
    assert_eq!(run(&database, nested), Err(167));
}

#[test]
fn indexes_have_collations() {
    let (server, database, people) = start(4);
    let index = doc! { "key": { "name": 1 }, "name": "letters", "collation": letters() };
    run(&database, doc! { "createIndexes": "people", "indexes": [index] }).unwrap();
    let plan = |collation: Document| {
        let find = doc! { "find": "people", "filter": { "name": "anna" }, "collation": collation };
        let explained = run(&database, doc! { "explain": find, "verbosity": "queryPlanner" }).unwrap();
        let plan =
            explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().clone();
        let input = plan.get_document("inputStage").cloned().unwrap_or(plan);
        input.get_str("stage").unwrap().to_owned()
    };
    assert_eq!(plan(letters()), "IXSCAN");
    assert_eq!(plan(doc! { "locale": "en" }), "COLLSCAN");
    assert_eq!(plan(doc! { "locale": "simple" }), "COLLSCAN");
    let hinted = people.find(doc! {}).hint(mongodb::options::Hint::Name("letters".into())).run().unwrap();
    assert_eq!(ids(hinted)[0], 3);
    // unique by the collation, over all partitions
    let unique = doc! { "key": { "name": 1 }, "name": "u", "unique": true, "collation": letters() };
    let unique = doc! { "createIndexes": "people", "indexes": [unique] };
    assert_eq!(run(&database, unique.clone()), Err(11000));
    people.delete_many(doc! { "_id": { "$in": [4, 6] } }).run().unwrap();
    run(&database, unique).unwrap();
    let refused = people.insert_one(doc! { "_id": 7, "name": "ZOE" }).run().unwrap_err();
    assert_eq!(code(&refused), 11000);
    let server = server.restart();
    let people = server.client().database("shop").collection::<Document>("people");
    let refused = people.insert_one(doc! { "_id": 7, "name": "zoé" }).run().unwrap_err();
    assert_eq!(code(&refused), 11000);
}

#[test]
fn what_is_no_collation_is_refused() {
    let (_server, database, _) = start(1);
    let find = |collation: Document| {
        run(&database, doc! { "find": "people", "collation": collation }).map(|_| ()).unwrap_err()
    };
    assert_eq!(find(doc! { "locale": "xx" }), 2);
    assert_eq!(find(doc! { "strength": 1 }), 40414);
    assert_eq!(find(doc! { "locale": "en", "more": 1 }), 40415);
    assert_eq!(find(doc! { "locale": "en", "backwards": true }), 238);
    let update = doc! { "q": {}, "u": { "$set": { "a": 1 } }, "collation": { "locale": "xx" } };
    let failed = run(&database, doc! { "update": "people", "updates": [update] }).unwrap();
    let error = failed.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code");
    assert_eq!(error.unwrap(), 2);
    assert_eq!(run(&database, doc! { "create": "c", "collation": { "locale": "xx" } }), Err(2));
    let index = doc! { "key": { "a": 1 }, "name": "a", "collation": { "locale": 1 } };
    assert_eq!(run(&database, doc! { "createIndexes": "people", "indexes": [index] }), Err(14));
    let transaction = doc! { "find": "people", "filter": { "name": Bson::Null }, "collation": {} };
    assert!(run(&database, transaction).is_ok());
}
