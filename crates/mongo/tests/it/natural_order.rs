//! The order of insertion, which reads without an order, `$natural` and commands on one document follow over all partitions.

use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Hint, IndexOptions, UpdateModifications};
use mongodb::sync::Collection;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::TestServer;

/// Ids that do not grow: strings, and numbers in both directions.
fn new_id(rng: &mut StdRng, n: i32) -> Bson {
    match rng.random_range(0..3) {
        0 => Bson::String(format!("{:08x}-{n}", rng.random::<u32>())),
        1 => Bson::Int32(1_000_000 - n),
        _ => Bson::Int64(i64::from(n) * 7919 % 10_007 + 2_000_000),
    }
}

fn ids(found: impl Iterator<Item = mongodb::error::Result<Document>>) -> Vec<Bson> {
    found.map(|document| document.unwrap().get("_id").unwrap().clone()).collect()
}

/// Compares what a collection returns with the ids that it has had inserted, in their order.
fn check(things: &Collection<Document>, model: &[(Bson, i32)], what: &str) {
    let all: Vec<Bson> = model.iter().map(|(id, _)| id.clone()).collect();
    let reverse: Vec<Bson> = all.iter().rev().cloned().collect();
    let natural = |direction: i32| doc! { "$natural": direction };
    assert_eq!(ids(things.find(doc! {}).batch_size(7).run().unwrap()), all, "{what}: find");
    assert_eq!(ids(things.find(doc! {}).sort(natural(1)).run().unwrap()), all, "{what}: $natural: 1");
    assert_eq!(ids(things.find(doc! {}).sort(natural(-1)).run().unwrap()), reverse, "{what}: $natural: -1");
    let hinted = things.find(doc! {}).hint(Hint::Keys(natural(-1)));
    assert_eq!(ids(hinted.run().unwrap()), reverse, "{what}: a hint of $natural: -1");
    let page = things.find(doc! {}).skip(3).limit(5).run().unwrap();
    assert_eq!(ids(page), all.iter().skip(3).take(5).cloned().collect::<Vec<_>>(), "{what}: a page");
    let page = things.find(doc! {}).sort(natural(-1)).skip(3).limit(5).run().unwrap();
    assert_eq!(ids(page), reverse.iter().skip(3).take(5).cloned().collect::<Vec<_>>(), "{what}: a page back");
    let pipeline = vec![doc! { "$match": { "none": { "$exists": false } } }, doc! { "$project": { "n": 1 } }];
    assert_eq!(ids(things.aggregate(pipeline).run().unwrap()), all, "{what}: a pipeline");
    for group in 0..3 {
        let members = || model.iter().filter(|(_, n)| n % 3 == group).map(|(id, _)| id.clone());
        let filter = doc! { "g": group };
        assert_eq!(
            ids(things.find(filter.clone()).run().unwrap()),
            members().collect::<Vec<_>>(),
            "{what}: {filter}"
        );
        let first = things.find_one(filter).run().unwrap();
        assert_eq!(first.map(|first| first.get("_id").unwrap().clone()), members().next(), "{what}: findOne");
        // documents that the sort calls equal
        let sorted = things.find(doc! { "g": group }).sort(doc! { "g": 1 }).run().unwrap();
        assert_eq!(ids(sorted), members().collect::<Vec<_>>(), "{what}: ties of a sort");
    }
}

#[test]
fn documents_come_in_the_order_of_insertion() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut server = TestServer::start(4);
    let mut model: Vec<(Bson, i32)> = Vec::new();
    let mut made = 0;
    for round in 0..4 {
        let client = server.client();
        let things = client.database("shop").collection::<Document>("things");
        for _ in 0..25 {
            let count = rng.random_range(1..12);
            let new: Vec<(Bson, i32)> =
                (0..count).map(|at| (new_id(&mut rng, made + at), made + at)).collect();
            made += count;
            let documents = || new.iter().map(|(id, n)| doc! { "_id": id, "n": n, "g": n % 3 });
            match rng.random_range(0..7) {
                0 => documents().for_each(|one| drop(things.insert_one(one).run().unwrap())),
                1 => drop(things.insert_many(documents()).run().unwrap()),
                2 => drop(things.insert_many(documents()).ordered(false).run().unwrap()),
                3 => {
                    let mut session = client.start_session().run().unwrap();
                    session.start_transaction().run().unwrap();
                    let (first, rest) =
                        (documents().next().unwrap(), documents().skip(1).collect::<Vec<_>>());
                    things.insert_one(first).session(&mut session).run().unwrap();
                    if !rest.is_empty() {
                        things.insert_many(rest).session(&mut session).run().unwrap();
                    }
                    let mut inside = things.find(doc! {}).session(&mut session).run().unwrap();
                    let inside = ids(inside.iter(&mut session));
                    let expected: Vec<_> = model.iter().chain(&new).map(|(id, _)| id.clone()).collect();
                    assert_eq!(inside, expected, "in a transaction");
                    session.commit_transaction().run().unwrap();
                }
                4 => {
                    for (id, n) in &new {
                        let change = doc! { "$set": { "n": n, "g": n % 3 } };
                        things.update_one(doc! { "_id": id }, change).upsert(true).run().unwrap();
                    }
                }
                // documents stay where they are when they change
                5 => {
                    documents().for_each(|one| drop(things.insert_one(one).run().unwrap()));
                    if let Some((id, n)) = model.choose(&mut rng) {
                        let new = doc! { "n": n, "g": n % 3, "text": "x".repeat(rng.random_range(0..200)) };
                        things.replace_one(doc! { "_id": id }, new).run().unwrap();
                        things.update_many(doc! { "g": 1 }, doc! { "$inc": { "x": 1 } }).run().unwrap();
                    }
                }
                _ => {
                    things.insert_many(documents()).run().unwrap();
                    let group = rng.random_range(0..3);
                    let filter = doc! { "g": group };
                    let gone = match rng.random_range(0..3) {
                        0 => things.find_one_and_delete(filter).run().unwrap().is_some(),
                        _ => things.delete_one(filter).run().unwrap().deleted_count == 1,
                    };
                    let at = model.iter().chain(&new).position(|(_, n)| n % 3 == group);
                    assert_eq!(gone, at.is_some());
                    model.extend(new);
                    at.into_iter().for_each(|at| drop(model.remove(at)));
                    continue;
                }
            }
            model.extend(new);
        }
        check(&things, &model, &format!("round {round}"));
        if round == 1 {
            // with all documents in one partition
            let unique = IndexModel::builder()
                .keys(doc! { "n": 1 })
                .options(IndexOptions::builder().unique(true).build())
                .build();
            things.create_index(unique).run().unwrap();
            check(&things, &model, "with a unique index");
        }
        if round == 0 {
            // an index whose keys are equal, too
            things.create_index(IndexModel::builder().keys(doc! { "g": 1 }).build()).run().unwrap();
            check(&things, &model, "with an index");
        }
        drop((things, client));
        server.engine.checkpoint().unwrap();
        server = server.restart();
        let things = server.client().database("shop").collection::<Document>("things");
        check(&things, &model, &format!("round {round}, after a restart"));
    }
}

#[test]
fn commands_on_one_document_take_the_first() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    let mut order: Vec<i32> = (0..60).collect();
    order.shuffle(&mut StdRng::seed_from_u64(3));
    for n in &order {
        things.insert_one(doc! { "_id": n, "left": true }).run().unwrap();
    }
    for (at, n) in order.iter().enumerate() {
        let (filter, change) = (doc! { "left": true }, doc! { "$set": { "left": false, "at": at as i32 } });
        match at % 4 {
            0 => drop(things.update_one(filter, change).run().unwrap()),
            1 => drop(things.find_one_and_update(filter, change).run().unwrap()),
            2 => drop(things.replace_one(filter, doc! { "left": false, "at": at as i32 }).run().unwrap()),
            _ => drop(things.find_one_and_replace(filter, doc! { "at": at as i32 }).run().unwrap()),
        }
        let changed = things.find_one(doc! { "at": at as i32 }).run().unwrap().unwrap();
        assert_eq!(changed.get_i32("_id").unwrap(), *n, "step {at}");
    }
    for n in &order {
        let gone = things.find_one_and_delete(doc! {}).run().unwrap().unwrap();
        assert_eq!(gone.get_i32("_id").unwrap(), *n);
    }
}

#[test]
fn natural_order_reads_the_collection_whatever_indexes_there_are() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    things.create_index(IndexModel::builder().keys(doc! { "a": 1 }).build()).run().unwrap();
    let values = [5, 3, 9, 1, 7, 2, 8, 4, 6, 0];
    things.insert_many(values.iter().map(|a| doc! { "_id": format!("{}", 9 - a), "a": a })).run().unwrap();
    let found = |found: mongodb::sync::Cursor<Document>| -> Vec<i32> {
        found.map(|document| document.unwrap().get_i32("a").unwrap()).collect()
    };
    let filter = doc! { "a": { "$gt": 2 } };
    let natural = |direction: i32| Hint::Keys(doc! { "$natural": direction });
    // by the index over all partitions
    assert_eq!(found(things.find(filter.clone()).run().unwrap()), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(found(things.find(filter.clone()).hint(natural(1)).run().unwrap()), [5, 3, 9, 7, 8, 4, 6]);
    assert_eq!(found(things.find(filter.clone()).hint(natural(-1)).run().unwrap()), [6, 4, 8, 7, 9, 3, 5]);
    let sorted = things.find(filter.clone()).sort(doc! { "$natural": -1 }).limit(2).run().unwrap();
    assert_eq!(found(sorted), [6, 4]);
    let pipeline = || vec![doc! { "$match": filter.clone() }, doc! { "$limit": 3 }];
    assert_eq!(found(things.aggregate(pipeline()).hint(natural(-1)).run().unwrap()), [6, 4, 8]);
    assert_eq!(found(things.aggregate(pipeline()).run().unwrap()), [3, 4, 5]);
    // several ids come in their own order
    let several = doc! { "_id": { "$in": ["7", "0", "3"] } };
    assert_eq!(found(things.find(several).run().unwrap()), [9, 6, 2]);
    let database = server.client().database("docs");
    let explained = database.run_command(doc! {
        "explain": { "find": "things", "filter": filter, "sort": { "$natural": -1 } },
    });
    let explained = explained.run().unwrap();
    let plan = explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().clone();
    assert_eq!(
        (plan.get_str("stage").unwrap(), plan.get_str("direction").unwrap()),
        ("COLLSCAN", "backward")
    );
}

#[test]
fn an_update_of_many_ends_at_the_first_document_that_is_refused() {
    let server = TestServer::start(4);
    let database = server.client().database("shop");
    let validator = doc! { "n": { "$lt": 1000 } };
    database.create_collection("checked").validator(validator).run().unwrap();
    let mut order: Vec<i32> = (0..100).collect();
    order.shuffle(&mut StdRng::seed_from_u64(11));
    let add = || doc! { "$inc": { "n": 1 } }.into();
    let stages = vec![doc! { "$set": { "n": { "$add": ["$n", 1] } } }].into();
    let cases: [(&str, Document, UpdateModifications, i32); 3] = [
        ("checked", doc! { "n": 999 }, add(), 121),
        ("counts", doc! { "n": "no number" }, add(), 14),
        ("computed", doc! { "n": "no number" }, stages, 14),
    ];
    for (name, bad, change, code) in cases {
        let things = database.collection::<Document>(name);
        let documents = order.iter().enumerate().map(|(at, id)| match at {
            60 | 61 | 90 => doc! { "_id": id, "n": bad.get("n").unwrap() },
            _ => doc! { "_id": id, "n": at as i32 },
        });
        things.insert_many(documents).run().unwrap();
        let error = things.update_many(doc! {}, change.clone()).run().unwrap_err();
        assert_eq!(crate::code(&error), code, "{name}");
        let found: Vec<Document> = things.find(doc! {}).run().unwrap().map(Result::unwrap).collect();
        for (at, document) in found.iter().enumerate() {
            let expected = match at {
                60 | 61 | 90 => bad.get("n").unwrap().clone(),
                at if at < 60 => Bson::Int32(at as i32 + 1),
                at => Bson::Int32(at as i32),
            };
            assert_eq!(document.get("n"), Some(&expected), "{name}: {at}");
        }
    }
}
