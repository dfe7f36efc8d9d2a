//! Documents that updates and replacements insert, over several partitions.

use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::{IndexOptions, ReturnDocument};

use crate::TestServer;

#[test]
fn upserted_documents_are_found_by_their_id() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    for n in 0..20 {
        let upserted =
            things.update_one(doc! { "n": n }, doc! { "$set": { "a": 1 } }).upsert(true).run().unwrap();
        let id = upserted.upserted_id.unwrap();
        let updated = things.update_one(doc! { "_id": &id }, doc! { "$set": { "a": 2 } }).run().unwrap();
        assert_eq!(updated.matched_count, 1, "{id}");
        let many =
            things.update_many(doc! { "m": n }, doc! { "$set": { "a": 1 } }).upsert(true).run().unwrap();
        let id = many.upserted_id.unwrap();
        assert_eq!(things.count_documents(doc! { "_id": &id }).run().unwrap(), 1, "{id}");
        assert_eq!(things.delete_one(doc! { "_id": &id }).run().unwrap().deleted_count, 1, "{id}");
        let set_id = doc! { "$set": { "_id": n } };
        things.update_one(doc! { "k": n }, set_id).upsert(true).run().unwrap();
        assert_eq!(things.delete_one(doc! { "_id": n }).run().unwrap().deleted_count, 1, "{n}");
    }
    assert_eq!(things.count_documents(doc! {}).run().unwrap(), 20);
    // documents that match are updated, and none is inserted
    let many = things.update_many(doc! { "a": 2 }, doc! { "$set": { "a": 3 } }).upsert(true).run().unwrap();
    assert_eq!((many.modified_count, many.upserted_id), (20, None));
}

#[test]
fn a_replacement_that_finds_a_document_keeps_its_id() {
    let server = TestServer::start(4);
    let things = server.collection("things");
    things.insert_many((0..20).map(|n| doc! { "_id": n, "n": n })).run().unwrap();
    for n in 0..20 {
        let replaced = things.replace_one(doc! { "n": n }, doc! { "new": n }).upsert(true).run().unwrap();
        assert_eq!((replaced.modified_count, replaced.upserted_id), (1, None));
        assert_eq!(things.find_one(doc! { "_id": n }).run().unwrap(), Some(doc! { "_id": n, "new": n }));
        let after = things
            .find_one_and_replace(doc! { "other": n }, doc! { "x": n })
            .upsert(true)
            .return_document(ReturnDocument::After)
            .run()
            .unwrap()
            .unwrap();
        let id = after.get_object_id("_id").unwrap();
        assert_eq!(things.delete_one(doc! { "_id": id }).run().unwrap().deleted_count, 1);
    }
}

/// Of clients that upsert by the same equality at the same time, one inserts and the others change its document.
#[test]
fn upserts_of_several_clients_make_one_document() {
    const CLIENTS: usize = 6;
    const KEYS: i32 = 20;
    let server = TestServer::start(4);
    let client = server.client();
    let database = client.database("docs");
    let unique = IndexModel::builder()
        .keys(doc! { "a": 1, "b": 1 })
        .options(IndexOptions::builder().unique(true).build())
        .build();
    database.collection::<Document>("indexed").create_index(unique).run().unwrap();
    let by_id: fn(i32) -> Document = |n| doc! { "_id": n };
    let by_index: fn(i32) -> Document = |n| doc! { "b": { "$eq": n }, "a": "x" };
    let by_key: fn(i32) -> Document = |n| doc! { "id": format!("c{n}") };
    for (name, filter) in [("things", by_id), ("indexed", by_index), ("Customer", by_key)] {
        let upsert_all = |worker: usize| {
            let collection = database.collection::<Document>(name);
            for n in 0..KEYS {
                let filter = filter(n);
                let one = doc! { "$inc": { "n": 1 } };
                match worker % 3 {
                    0 => drop(collection.update_one(filter, one).upsert(true).run().unwrap()),
                    1 => drop(collection.find_one_and_update(filter, one).upsert(true).run().unwrap()),
                    _ => drop(collection.update_many(filter, one).upsert(true).run().unwrap()),
                }
            }
        };
        std::thread::scope(|scope| {
            for worker in 0..CLIENTS {
                scope.spawn(move || upsert_all(worker));
            }
        });
        let found: Vec<Document> =
            database.collection(name).find(doc! {}).run().unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), KEYS as usize, "{name}");
        let sum: i32 = found.iter().map(|one| one.get_i32("n").unwrap()).sum();
        assert_eq!(sum, KEYS * CLIENTS as i32, "{name}");
    }
}

/// Replacements have no `_id` of their own, and must not get one before it is known that they insert.
#[test]
fn replacements_of_several_clients_make_one_document() {
    let server = TestServer::start(4);
    let client = server.client();
    let indexed = client.database("docs").collection::<Document>("indexed");
    let unique = IndexModel::builder()
        .keys(doc! { "a": 1 })
        .options(IndexOptions::builder().unique(true).build())
        .build();
    indexed.create_index(unique).run().unwrap();
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let indexed = &indexed;
            scope.spawn(move || {
                for n in 0..20 {
                    let document = doc! { "a": n, "by": worker };
                    match worker % 2 {
                        0 => drop(indexed.replace_one(doc! { "a": n }, document).upsert(true).run().unwrap()),
                        _ => drop(
                            indexed
                                .find_one_and_replace(doc! { "a": n }, document)
                                .upsert(true)
                                .run()
                                .unwrap(),
                        ),
                    }
                }
            });
        }
    });
    assert_eq!(indexed.count_documents(doc! {}).run().unwrap(), 20);
}
