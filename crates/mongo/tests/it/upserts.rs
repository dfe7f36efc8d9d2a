//! Documents that updates and replacements insert, over several partitions.

use mongodb::bson::doc;
use mongodb::options::ReturnDocument;

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
