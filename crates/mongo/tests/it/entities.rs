//! Documents that drivers write into entities of the app: rules find them by their key, which is their `_id`.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use tidemill_engine::{App, BodyFormat, SendOptions};

use crate::{TestServer, code};

const RULES: &str = "
event Reading { device: string, temp: double } key device;
event Hot { device: string, status: string } key device;
entity Device key id;
entity Place key name shard area;
relation device(): Device by device;
rule Warn {
  when { r: Reading(temp > 50); d: r.device(); }
  then { emit Hot { device: r.device, status: d.status }; }
}";

fn server(partitions: u32) -> TestServer {
    TestServer::start_app(App::from_rules("docs", RULES), partitions)
}

#[test]
fn a_rule_finds_what_a_driver_wrote() {
    let server = server(3);
    let devices = server.collection("Device");
    devices.insert_one(doc! { "_id": "a", "status": "one" }).run().unwrap();
    devices.insert_one(doc! { "_id": "b", "id": "b", "status": "two" }).run().unwrap();
    devices
        .update_one(doc! { "id": "c" }, doc! { "$set": { "status": "three" } })
        .upsert(true)
        .run()
        .unwrap();
    devices.replace_one(doc! { "id": "d" }, doc! { "status": "four" }).upsert(true).run().unwrap();
    for (device, status) in [("a", "one"), ("b", "two"), ("c", "three"), ("d", "four")] {
        let found = devices.find_one(doc! { "_id": device }).run().unwrap();
        assert_eq!(found, Some(doc! { "_id": device, "id": device, "status": status }));
        let event = format!(r#"{{"device": "{device}", "temp": 99}}"#);
        let options = SendOptions { wait: true, ..SendOptions::default() };
        let sent = server.engine.send_json("Reading", event.as_bytes(), BodyFormat::Json, &options).unwrap();
        assert_eq!(sent.emitted.unwrap_or_default().len(), 1, "{device}: {:?}", sent.rule_errors);
    }
}

#[test]
fn all_ways_in_refuse_another_key() {
    let server = server(3);
    let client = server.client();
    let devices = client.database("docs").collection::<Document>("Device");
    // a driver makes an `_id`
    let error = devices.insert_one(doc! { "id": "zz", "status": "ok" }).run().unwrap_err();
    assert_eq!(code(&error), 121);
    let text = error.to_string();
    assert!(text.contains("entity Device: `_id` must be the value of its key `id`"), "{text}");
    assert!(text.contains("write _id: "), "{text}");
    devices.insert_one(doc! { "_id": "a" }).run().unwrap();
    let by_id = || doc! { "_id": "a" };
    let set = || doc! { "$set": { "id": "other" } };
    let refused = [
        devices.update_one(by_id(), set()).run().unwrap_err(),
        devices.update_many(doc! {}, set()).run().unwrap_err(),
        devices.update_one(by_id(), doc! { "$unset": { "id": 1 } }).run().unwrap_err(),
        devices.update_one(by_id(), vec![set()]).run().unwrap_err(),
        devices.replace_one(by_id(), doc! { "id": "other" }).run().unwrap_err(),
        devices.find_one_and_update(by_id(), set()).run().unwrap_err(),
        devices.find_one_and_replace(by_id(), doc! { "id": "other" }).run().unwrap_err(),
        devices.update_one(doc! { "_id": "new" }, set()).upsert(true).run().unwrap_err(),
        devices.insert_one(doc! { "id": "zz" }).bypass_document_validation(true).run().unwrap_err(),
        devices.insert_many([doc! { "_id": "b" }, doc! { "id": "zz" }]).run().unwrap_err(),
    ];
    for error in refused {
        assert_eq!(code(&error), 121, "{error}");
    }
    let run = |database: &str, command| client.database(database).run_command(command).run();
    let bulk = doc! {
        "bulkWrite": 1, "nsInfo": [{ "ns": "docs.Device" }],
        "ops": [{ "insert": 0, "document": { "_id": 1, "id": 2 } }],
    };
    assert_eq!(run("admin", bulk).unwrap().get_i32("nErrors").unwrap(), 1);
    client
        .database("docs")
        .collection("source")
        .insert_one(doc! { "_id": ObjectId::new(), "id": "other" })
        .run()
        .unwrap();
    for stage in [doc! { "$merge": "Device" }, doc! { "$out": "Device" }] {
        let error =
            run("docs", doc! { "aggregate": "source", "pipeline": [stage], "cursor": {} }).unwrap_err();
        assert_eq!(code(&error), 121, "{error}");
    }
    let mut session = client.start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    let error = devices.insert_one(doc! { "id": "zz" }).session(&mut session).run().unwrap_err();
    assert_eq!(code(&error), 121);
    session.abort_transaction().run().unwrap();
    for command in [
        doc! { "renameCollection": "docs.Device", "to": "docs.other" },
        doc! { "renameCollection": "docs.source", "to": "docs.Device", "dropTarget": true },
    ] {
        let error = run("admin", command).unwrap_err().to_string();
        assert!(error.contains("is an entity of the app"), "{error}");
    }
    assert!(server.engine.health().problems.is_empty());
}

#[test]
fn an_entity_that_a_driver_drops_is_the_same_when_it_comes_back() {
    let server = server(3);
    let places = server.collection("Place");
    places.drop().run().unwrap();
    places.insert_one(doc! { "_id": "x", "area": "north" }).run().unwrap();
    let spec = server.engine.collection_spec("Place").unwrap();
    assert_eq!(spec.shard_key.as_deref(), Some("area"));
    assert_eq!(
        places.find_one(doc! {}).run().unwrap(),
        Some(doc! { "_id": "x", "name": "x", "area": "north" })
    );
    let server = server.restart();
    assert_eq!(server.collection("Place").count_documents(doc! {}).run().unwrap(), 1);
}
