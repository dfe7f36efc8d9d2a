// Included twice: `mongodb` is the driver, or `tidemill_mongo::embedded`. Nothing here tells which.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::mongodb::IndexModel;
use self::mongodb::bson::{self, Bson, Document, RawDocumentBuf, doc};
use self::mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use self::mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use self::mongodb::options::{FullDocumentType, Hint, IndexOptions, ReturnDocument};
use self::mongodb::results::UpdateResult;
use self::mongodb::sync::{ChangeStream, ClientSession, Collection};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Job {
    #[serde(rename = "_id")]
    id: i32,
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

fn job(id: i32, state: &str) -> Job {
    Job { id, state: state.into(), note: None }
}

/// Returns the next change of a stream, which waits for it a short time each.
fn next<T>(stream: &mut ChangeStream<ChangeStreamEvent<T>>) -> ChangeStreamEvent<T>
where
    T: DeserializeOwned + Unpin + Send + Sync,
{
    loop {
        if let Some(event) = stream.next_if_any().unwrap() {
            return event;
        }
    }
}

#[test]
fn documents_of_a_type_are_written_and_read() {
    let (_server, client) = start(2);
    let jobs: Collection<Job> = client.database("docs").collection("job");
    assert_eq!(jobs.find_one(doc! { "_id": 1 }).run().unwrap(), None);
    assert_eq!(jobs.insert_one(job(1, "new")).run().unwrap().inserted_id, Bson::Int32(1));
    let inserted = jobs.insert_many((2..6).map(|id| job(id, "new"))).run().unwrap();
    assert_eq!(inserted.inserted_ids[&3], Bson::Int32(5));
    assert_eq!(jobs.find_one(doc! { "_id": 1 }).run().unwrap(), Some(job(1, "new")));
    assert_eq!(jobs.find_one(doc! { "_id": 1.0 }).run().unwrap(), Some(job(1, "new")), "numbers are equal");
    let last = jobs.find_one(doc! { "state": "new" }).sort(doc! { "_id": -1 }).skip(1).run().unwrap();
    assert_eq!(last, Some(job(4, "new")));

    let updated = jobs.update_one(doc! { "_id": 1 }, doc! { "$set": { "note": "x" } }).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count, updated.upserted_id), (1, 1, None));
    let updated = jobs.update_one(doc! { "_id": 1 }, doc! { "$set": { "note": "x" } }).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 0));
    let updated: UpdateResult =
        jobs.update_one(doc! { "_id": 99 }, doc! { "$set": { "note": "x" } }).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (0, 0));
    let stages = vec![doc! { "$set": { "note": { "$concat": ["$state", "!"] } } }];
    let updated = jobs.update_many(doc! { "_id": { "$gt": 3 } }, stages).run().unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (2, 2));
    assert_eq!(jobs.find_one(doc! { "_id": 5 }).run().unwrap().unwrap().note.as_deref(), Some("new!"));
    let replaced = jobs.replace_one(doc! { "_id": 2 }, job(2, "old")).run().unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (1, 1));
    let upserted = jobs.replace_one(doc! { "_id": 7 }, job(7, "old")).upsert(true).run().unwrap();
    assert_eq!((upserted.matched_count, upserted.upserted_id), (0, Some(Bson::Int32(7))));
    let old = jobs.find_one(doc! { "_id": 2 }).projection(doc! { "state": 1 }).run().unwrap();
    assert_eq!(old, Some(job(2, "old")));

    assert_eq!(jobs.count_documents(doc! { "state": "new" }).run().unwrap(), 4);
    assert_eq!(jobs.count_documents(doc! {}).skip(1).limit(3).run().unwrap(), 3);
    assert_eq!(jobs.estimated_document_count().run().unwrap(), 6);
    let states = jobs.distinct("state", doc! {}).run().unwrap();
    assert_eq!(states, [Bson::from("new"), Bson::from("old")]);
    assert_eq!(jobs.delete_one(doc! { "_id": 1 }).run().unwrap().deleted_count, 1);
    assert_eq!(jobs.delete_one(doc! { "_id": 1 }).run().unwrap().deleted_count, 0);
    assert_eq!(jobs.delete_many(doc! { "state": "old" }).run().unwrap().deleted_count, 2);

    // the types of documents that need no serde
    let raw = jobs.clone_with_type::<RawDocumentBuf>();
    let found = raw.find_one(doc! { "_id": 3 }).run().unwrap().unwrap();
    assert_eq!(found.get_str("state").unwrap(), "new");
    raw.insert_one(bson::rawdoc! { "state": "raw", "_id": 8 }).run().unwrap();
    let found = jobs.clone_with_type::<Document>().find_one(doc! { "_id": 8 }).run().unwrap().unwrap();
    assert_eq!(found, doc! { "_id": 8, "state": "raw" });
    let given = client.database("docs").collection::<Document>("any").insert_one(doc! { "a": 1 }).run();
    assert!(given.unwrap().inserted_id.as_object_id().is_some());
    // a document without the fields of the type
    jobs.clone_with_type::<Document>().insert_one(doc! { "_id": 9 }).run().unwrap();
    assert!(jobs.find_one(doc! { "_id": 9 }).run().is_err());
}

#[test]
fn arrays_are_updated_by_filters_and_errors_have_their_codes() {
    let (_server, client) = start(2);
    let things = client.database("shop").collection::<Document>("thing");
    things.insert_one(doc! { "_id": 1, "n": [1, 5, 9] }).run().unwrap();
    things
        .update_one(doc! { "_id": 1 }, doc! { "$inc": { "n.$[large]": 10 } })
        .array_filters(vec![doc! { "large": { "$gt": 4 } }])
        .run()
        .unwrap();
    let found = things.find_one(doc! { "_id": 1 }).run().unwrap();
    assert_eq!(found, Some(doc! { "_id": 1, "n": [1, 15, 19] }));
    let error = things.insert_one(doc! { "_id": 1 }).run().unwrap_err();
    assert_eq!(code(&error), 11000);
    let error = things.update_one(doc! { "_id": 1 }, doc! { "$nope": { "a": 1 } }).run().unwrap_err();
    assert_eq!(code(&error), 9);
    let error = things.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).run().unwrap_err();
    assert_eq!(code(&error), 14);
    let error = things.replace_one(doc! { "_id": 1 }, doc! { "_id": 2 }).run().unwrap_err();
    assert_eq!(code(&error), 66);
    assert!(things.update_one(doc! { "_id": 1 }, doc! { "a": 1 }).run().is_err(), "it is no update");
    assert!(things.replace_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }).run().is_err());
    assert!(things.insert_many(Vec::<Document>::new()).run().is_err());
    let error = things.find(doc! { "$nope": 1 }).run().map(|_| ()).unwrap_err();
    assert_eq!(code(&error), 2);
    let error = things.find_one(doc! {}).hint(Hint::Name("none".into())).run().unwrap_err();
    assert_eq!(code(&error), 2);
    let none = || Hint::Keys(doc! { "none": 1 });
    let update = doc! { "$set": { "a": 1 } };
    let error = things.update_one(doc! { "_id": 1 }, update.clone()).hint(none()).run().unwrap_err();
    assert_eq!(code(&error), 2);
    assert_eq!(code(&things.delete_many(doc! {}).hint(none()).run().unwrap_err()), 2);
    let by_id = Hint::Name("_id_".into());
    assert_eq!(things.update_one(doc! { "_id": 1 }, update).hint(by_id).run().unwrap().modified_count, 1);
    let error = client.database("shop").collection::<Document>("a$b").insert_one(doc! {}).run().unwrap_err();
    assert_eq!(code(&error), 73);
    let error = client.database("shop").run_command(doc! { "nope": 1 }).run().unwrap_err();
    assert_eq!(code(&error), 59);
    let reply = client.database("shop").run_command(doc! { "count": "thing" }).run().unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 1);
}

#[test]
fn an_insert_of_many_tells_which_documents_were_refused() {
    for (ordered, expected) in [(true, 3), (false, 5)] {
        let (_server, client) = start(2);
        let things = client.database("docs").collection::<Document>("thing");
        things.insert_one(doc! { "_id": 2 }).run().unwrap();
        let many = [0, 1, 2, 3, 2, 4].map(|id| doc! { "_id": id });
        let error = things.insert_many(many).ordered(ordered).run().unwrap_err();
        let refused = if ordered { vec![(2, 11000)] } else { vec![(2, 11000), (4, 11000)] };
        assert_eq!(refused_documents(&error), refused);
        assert_eq!(things.count_documents(doc! {}).run().unwrap(), expected);
    }
}

#[test]
fn a_cursor_reads_batches_of_one_moment() {
    let (_server, client) = start(3);
    let jobs = client.database("docs").collection::<Job>("job");
    jobs.insert_many((0..500).map(|id| job(id, "new"))).run().unwrap();
    let mut cursor =
        jobs.find(doc! { "_id": { "$gte": 100 } }).sort(doc! { "_id": 1 }).batch_size(30).run().unwrap();
    assert_eq!(cursor.next().unwrap().unwrap(), job(100, "new"));
    jobs.delete_many(doc! {}).run().unwrap();
    let rest: Vec<i32> = cursor.map(|job| job.unwrap().id).collect();
    assert_eq!(rest, (101..500).collect::<Vec<_>>());
    let cheap = doc! { "$expr": { "$lt": ["$_id", "$$most"] } };
    let found = jobs.find(cheap).let_vars(doc! { "most": 2 }).run().unwrap();
    assert_eq!(found.count(), 0);
    let mut none = jobs.find(doc! {}).run().unwrap();
    assert!(!none.advance().unwrap());
    jobs.insert_many((0..5).map(|id| job(id, "new"))).run().unwrap();
    let mut some = jobs.find(doc! {}).sort(doc! { "_id": -1 }).skip(1).limit(2).run().unwrap();
    assert!(some.advance().unwrap());
    assert_eq!(some.current().get_i32("_id").unwrap(), 3);
    assert_eq!(some.deserialize_current().unwrap(), job(3, "new"));
    assert!(some.advance().unwrap() && !some.advance().unwrap());
}

#[test]
fn pipelines_group_and_join() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Total {
        #[serde(rename = "_id")]
        name: String,
        amount: i32,
    }
    let (_server, client) = start(2);
    let database = client.database("docs");
    let orders = database.collection::<Document>("order");
    let people = database.collection::<Document>("person");
    people.insert_many([doc! { "_id": 1, "name": "Ann" }, doc! { "_id": 2, "name": "Bob" }]).run().unwrap();
    orders.insert_many((0..200).map(|id| doc! { "_id": id, "by": id % 2 + 1, "amount": 1 })).run().unwrap();
    let pipeline = [
        doc! { "$group": { "_id": "$by", "amount": { "$sum": "$amount" } } },
        doc! { "$lookup": { "from": "person", "localField": "_id", "foreignField": "_id", "as": "person" } },
        doc! { "$unwind": "$person" },
        doc! { "$project": { "_id": "$person.name", "amount": 1 } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let totals = orders.aggregate(pipeline).with_type::<Total>().run().unwrap();
    let totals: Vec<Total> = totals.map(Result::unwrap).collect();
    let total = |name: &str| Total { name: name.into(), amount: 100 };
    assert_eq!(totals, [total("Ann"), total("Bob")]);
    let all: Vec<_> = orders.aggregate([doc! { "$match": {} }]).batch_size(7).run().unwrap().collect();
    assert_eq!(all.len(), 200);
    let literal = database.aggregate([doc! { "$documents": [{ "a": 1 }] }]).run().unwrap();
    assert_eq!(literal.map(Result::unwrap).collect::<Vec<_>>(), [doc! { "a": 1 }]);
    let error = orders.aggregate([doc! { "$nope": 1 }]).run().map(|_| ()).unwrap_err();
    assert_eq!(code(&error), 40324);
}

#[test]
fn one_document_is_changed_and_returned() {
    let (_server, client) = start(2);
    let jobs = client.database("docs").collection::<Job>("job");
    jobs.insert_many((0..3).map(|id| job(id, "new"))).run().unwrap();
    let taken = jobs
        .find_one_and_update(doc! { "state": "new" }, doc! { "$set": { "state": "taken" } })
        .sort(doc! { "_id": -1 })
        .return_document(ReturnDocument::After)
        .run()
        .unwrap();
    assert_eq!(taken, Some(job(2, "taken")));
    let before = jobs.find_one_and_replace(doc! { "_id": 2 }, job(2, "done")).run().unwrap();
    assert_eq!(before, taken);
    assert_eq!(jobs.find_one_and_delete(doc! { "_id": 2 }).run().unwrap(), Some(job(2, "done")));
    assert_eq!(jobs.find_one_and_delete(doc! { "_id": 2 }).run().unwrap(), None);
    let upserted = jobs
        .find_one_and_update(doc! { "_id": 9 }, doc! { "$set": { "state": "new" } })
        .upsert(true)
        .return_document(ReturnDocument::After)
        .run()
        .unwrap();
    assert_eq!(upserted, Some(job(9, "new")));
}

#[test]
fn transactions_are_committed_taken_back_and_repeated() {
    let (_server, client) = start(2);
    let accounts = client.database("docs").collection::<Document>("account");
    accounts.insert_many((0..4).map(|id| doc! { "_id": id, "n": 10 })).run().unwrap();
    let amount =
        |id: i32| accounts.find_one(doc! { "_id": id }).run().unwrap().unwrap().get_i32("n").unwrap();
    let add = |session: &mut ClientSession, id: i32, n: i32| {
        let update = doc! { "$inc": { "n": n } };
        accounts.update_one(doc! { "_id": id }, update).session(session).run().map(|_| ())
    };
    let mut session = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    assert!(session.start_transaction().run().is_err(), "it has one");
    add(&mut session, 0, 5).unwrap();
    accounts.insert_one(doc! { "_id": 4, "n": 0 }).session(&mut session).run().unwrap();
    accounts.delete_one(doc! { "_id": 3 }).session(&mut session).run().unwrap();
    let own = accounts.find_one(doc! { "_id": 0 }).session(&mut session).run().unwrap();
    assert_eq!(own, Some(doc! { "_id": 0, "n": 15 }));
    assert_eq!(amount(0), 10, "nobody else sees it");
    assert_eq!(accounts.count_documents(doc! { "n": { "$gt": 0 } }).session(&mut session).run().unwrap(), 3);
    let mut found =
        accounts.find(doc! {}).sort(doc! { "_id": 1 }).batch_size(2).session(&mut session).run().unwrap();
    let ids: Vec<i32> = found.iter(&mut session).map(|d| d.unwrap().get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [0, 1, 2, 4]);
    let total = [doc! { "$group": { "_id": 1, "n": { "$sum": "$n" } } }];
    let mut found = accounts.aggregate(total).session(&mut session).run().unwrap();
    assert_eq!(found.next(&mut session).unwrap().unwrap().get_i32("n").unwrap(), 35);
    session.commit_transaction().run().unwrap();
    session.commit_transaction().run().expect("a commit may be repeated");
    assert_eq!(amount(0), 15);

    session.start_transaction().run().unwrap();
    add(&mut session, 0, 100).unwrap();
    session.abort_transaction().run().unwrap();
    assert!(session.abort_transaction().run().is_err() && session.commit_transaction().run().is_err());
    assert_eq!(amount(0), 15);

    // the second writer of a document is told to begin again
    let mut other = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    other.start_transaction().run().unwrap();
    add(&mut session, 1, 1).unwrap();
    let error = add(&mut other, 1, 1).unwrap_err();
    assert_eq!(code(&error), 112);
    assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR));
    session.commit_transaction().run().unwrap();
    assert_eq!(code(&other.commit_transaction().run().unwrap_err()), 251);

    // and does so by itself
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut session = client.start_session().run().unwrap();
                for _ in 0..10 {
                    session
                        .start_transaction()
                        .and_run(|session| {
                            add(&mut *session, 1, 1)?;
                            add(&mut *session, 2, -1)
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!((amount(1), amount(2)), (41, -20));
    let error = session
        .start_transaction()
        .and_run(|session| {
            add(&mut *session, 1, 1)?;
            accounts.insert_one(doc! { "_id": 1 }).session(&mut *session).run().map(|_| ())
        })
        .unwrap_err();
    assert_eq!(code(&error), 11000);
    assert_eq!(amount(1), 41);
    add(&mut session, 1, 1).expect("a session without a transaction");
    assert_eq!(amount(1), 42);
}

#[test]
fn changes_are_followed_and_resumed() {
    let (_server, client) = start(2);
    let jobs = client.database("docs").collection::<Job>("job");
    let mut stream = jobs.watch().max_await_time(Duration::from_millis(20)).run().unwrap();
    assert!(stream.next_if_any().unwrap().is_none());
    jobs.insert_one(job(1, "new")).run().unwrap();
    jobs.update_one(doc! { "_id": 1 }, doc! { "$set": { "state": "old" }, "$unset": { "x": 1 } })
        .run()
        .unwrap();
    let inserted = next(&mut stream);
    assert_eq!(inserted.operation_type, OperationType::Insert);
    assert_eq!(inserted.full_document, Some(job(1, "new")));
    assert_eq!(inserted.document_key, Some(doc! { "_id": 1 }));
    let namespace = inserted.ns.unwrap();
    assert_eq!((namespace.db.as_str(), namespace.coll.as_deref()), ("docs", Some("job")));
    let updated = next(&mut stream);
    assert_eq!(updated.operation_type, OperationType::Update);
    assert_eq!(updated.update_description.unwrap().updated_fields, doc! { "state": "old" });
    jobs.delete_one(doc! { "_id": 1 }).run().unwrap();
    client.database("docs").collection::<Document>("other").insert_one(doc! {}).run().unwrap();

    let mut resumed = jobs.watch().resume_after(inserted.id).run().unwrap();
    assert_eq!(next(&mut resumed).operation_type, OperationType::Update);
    assert_eq!(resumed.next().unwrap().unwrap().operation_type, OperationType::Delete);
    let token = resumed.resume_token().unwrap();
    jobs.insert_one(job(2, "new")).run().unwrap();
    jobs.update_one(doc! { "_id": 2 }, doc! { "$set": { "note": "y" } }).run().unwrap();
    let mut full = jobs
        .watch()
        .pipeline([doc! { "$match": { "operationType": "update" } }])
        .full_document(FullDocumentType::UpdateLookup)
        .start_after(token)
        .run()
        .unwrap();
    assert_eq!(next(&mut full).full_document.unwrap().note.as_deref(), Some("y"));

    assert_eq!(next(&mut stream).operation_type, OperationType::Delete);
    jobs.drop().run().unwrap();
    let rest: Vec<_> = stream.map(|event| event.unwrap().operation_type).collect();
    assert_eq!(
        rest,
        [OperationType::Insert, OperationType::Update, OperationType::Drop, OperationType::Invalidate]
    );
}

#[test]
fn databases_and_the_client_are_followed() {
    let (_server, client) = start(2);
    let await_time = Duration::from_millis(20);
    let mut shop = client.database("shop").watch().max_await_time(await_time).run().unwrap();
    let mut all = client.watch().max_await_time(await_time).run().unwrap();
    client.database("docs").collection::<Document>("thing").insert_one(doc! { "_id": 1 }).run().unwrap();
    client.database("shop").collection::<Document>("order").insert_one(doc! { "_id": 2 }).run().unwrap();
    assert_eq!(next(&mut shop).full_document, Some(doc! { "_id": 2 }));
    assert_eq!(next(&mut all).full_document, Some(doc! { "_id": 1 }));
    assert_eq!(next(&mut all).ns.unwrap().coll.as_deref(), Some("order"));
    assert!(shop.next_if_any().unwrap().is_none() && all.next_if_any().unwrap().is_none());
    assert!(shop.is_alive());
    // what a pipeline makes of changes may have a type of its own
    let things = client.database("docs").collection::<Document>("thing");
    let only_type = [doc! { "$project": { "operationType": 1 } }];
    let mut types = things.watch().pipeline(only_type).run().unwrap().with_type::<Document>();
    things.delete_one(doc! { "_id": 1 }).run().unwrap();
    assert_eq!(types.next().unwrap().unwrap().get_str("operationType").unwrap(), "delete");
}

#[test]
fn a_waiting_stream_hears_of_a_change() {
    let (_server, client) = start(2);
    let things = client.database("docs").collection::<Document>("thing");
    let mut stream = things.watch().run().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || stream.next().unwrap().unwrap().operation_type);
        things.insert_one(doc! { "_id": 1 }).run().unwrap();
        assert_eq!(waiting.join().unwrap(), OperationType::Insert);
    });
}

#[test]
fn indexes_are_created_listed_and_dropped() {
    let (_server, client) = start(1);
    let users = client.database("docs").collection::<Document>("user");
    let by_mail = IndexModel::builder()
        .keys(doc! { "mail": 1 })
        .options(IndexOptions::builder().unique(true).build())
        .build();
    assert_eq!(users.create_index(by_mail).run().unwrap().index_name, "mail_1");
    let others = [
        IndexModel::builder().keys(doc! { "a": 1, "b": -1 }).build(),
        IndexModel::builder()
            .keys(doc! { "at": 1 })
            .options(
                IndexOptions::builder().name("old".to_owned()).expire_after(Duration::from_secs(60)).build(),
            )
            .build(),
    ];
    assert_eq!(users.create_indexes(others).run().unwrap().index_names, ["a_1_b_-1", "old"]);
    users.insert_one(doc! { "_id": 1, "mail": "a" }).run().unwrap();
    let error = users.insert_one(doc! { "_id": 2, "mail": "a" }).run().unwrap_err();
    assert_eq!(code(&error), 11000);
    users.insert_one(doc! { "_id": 2, "mail": "b" }).run().unwrap();
    let error = users.update_one(doc! { "_id": 2 }, doc! { "$set": { "mail": "a" } }).run().unwrap_err();
    assert_eq!(code(&error), 11000);
    let error = users.update_many(doc! { "_id": 2 }, doc! { "$set": { "mail": "a" } }).run().unwrap_err();
    assert_eq!(code(&error), 11000);
    let hinted = users.find_one(doc! { "mail": "a" }).hint(Hint::Keys(doc! { "mail": 1 })).run().unwrap();
    assert_eq!(hinted, Some(doc! { "_id": 1, "mail": "a" }));
    users.drop_index("mail_1").run().unwrap();
    assert_eq!(code(&users.drop_index("mail_1").run().unwrap_err()), 27);
    let mut names = users.list_index_names().run().unwrap();
    names.sort();
    assert_eq!(names, ["_id_", "a_1_b_-1", "old"]);
    users.drop_indexes().run().unwrap();
    assert_eq!(users.list_index_names().run().unwrap(), ["_id_"]);
}

#[test]
fn databases_and_collections_are_listed_created_and_dropped() {
    let (_server, client) = start(2);
    let shop = client.database("shop");
    shop.create_collection("order").validator(doc! { "n": { "$gt": 0 } }).run().unwrap();
    assert_eq!(code(&shop.create_collection("order").run().unwrap_err()), 48);
    let orders = shop.collection::<Document>("order");
    assert_eq!(code(&orders.insert_one(doc! { "_id": 1, "n": 0 }).run().unwrap_err()), 121);
    orders.insert_one(doc! { "_id": 1, "n": 0 }).bypass_document_validation(true).run().unwrap();
    let error = orders.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": -1 } }).run();
    assert_eq!(code(&error.unwrap_err()), 121);
    shop.create_collection("none")
        .view_on("order".to_owned())
        .pipeline(vec![doc! { "$match": { "n": { "$gt": 100 } } }])
        .run()
        .unwrap();
    let view = shop.collection::<Document>("none");
    assert_eq!(view.find_one(doc! { "_id": 1 }).run().unwrap(), None);
    orders.insert_one(doc! { "_id": 2, "n": 101 }).run().unwrap();
    assert_eq!(view.find_one(doc! { "_id": 2 }).run().unwrap(), Some(doc! { "_id": 2, "n": 101 }));
    assert_eq!(view.count_documents(doc! {}).run().unwrap(), 1);
    assert_eq!(view.find(doc! {}).run().unwrap().count(), 1);
    assert_eq!(code(&view.insert_one(doc! { "_id": 3 }).run().unwrap_err()), 166);
    assert_eq!(code(&view.delete_one(doc! { "_id": 2 }).run().unwrap_err()), 166);
    assert_eq!(
        code(&view.update_one(doc! { "_id": 2 }, doc! { "$set": { "n": 1 } }).run().unwrap_err()),
        166
    );
    let mut names = shop.list_collection_names().run().unwrap();
    names.sort();
    assert_eq!(names, ["none", "order"]);
    let names = shop.list_collection_names().filter(doc! { "type": "view" }).run().unwrap();
    assert_eq!(names, ["none"]);
    let databases = client.list_database_names().run().unwrap();
    assert_eq!(databases, ["admin", "config", "docs", "local", "shop"]);
    orders.drop().run().unwrap();
    assert_eq!(orders.count_documents(doc! {}).run().unwrap(), 0);
    shop.drop().run().unwrap();
    assert!(shop.list_collection_names().run().unwrap().is_empty());
}

#[test]
fn places_and_words_are_found() {
    let (_server, client) = start(3);
    let shops: Collection<Document> = client.database("docs").collection("shop");
    let shop = |id: i32, name: &str| doc! { "_id": id, "name": name, "at": [id, 0] };
    shops.insert_many([shop(1, "Red shoes"), shop(2, "Green shoes"), shop(3, "Red hats")]).run().unwrap();
    let place = IndexModel::builder().keys(doc! { "at": "2d" });
    let place = place.options(IndexOptions::builder().bits(20).min(-10.0).max(10.0).build()).build();
    let words = IndexModel::builder().keys(doc! { "name": "text" });
    let options = IndexOptions::builder().weights(doc! { "name": 3 }).default_language("english".to_owned());
    let words = words.options(options.language_override("l".to_owned()).build()).build();
    assert_eq!(shops.create_indexes([place, words]).run().unwrap().index_names, ["at_2d", "name_text"]);
    let ids = |found: mongodb::sync::Cursor<Document>| -> Vec<i32> {
        found.map(|shop| shop.unwrap().get_i32("_id").unwrap()).collect()
    };
    assert_eq!(ids(shops.find(doc! { "at": { "$near": [2.9, 0] } }).limit(2).run().unwrap()), [3, 2]);
    let score = doc! { "$meta": "textScore" };
    let red = shops.find(doc! { "$text": { "$search": "red" } }).sort(doc! { "s": score.clone(), "_id": 1 });
    assert_eq!(ids(red.run().unwrap()), [1, 3]);
    let scored = shops.aggregate([
        doc! { "$match": { "$text": { "$search": "hat" } } },
        doc! { "$project": { "s": score } },
    ]);
    let scored: Vec<Document> = scored.run().unwrap().map(|shop| shop.unwrap()).collect();
    assert_eq!(scored, [doc! { "_id": 3, "s": 2.25 }]);
    assert!(shops.insert_one(doc! { "_id": 4, "at": [11, 0] }).run().is_err());
}
