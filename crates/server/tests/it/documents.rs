//! Documents by id and by filter.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Mill, options};
use tidemill_server::ServerOptions;

const GATES: &str = "/api/v1/collections/Gate";
const NOTES: &str = "/api/v1/collections/notes";

#[test]
fn a_document_lives_from_insert_to_delete() {
    let mill = Mill::start();
    let reply =
        mill.post_json(&format!("{NOTES}/documents"), r#"{"z":1,"a":{"$date":"2013-01-01T00:00:00Z"}}"#);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.json()["ids"][0]["$oid"].as_str().unwrap().to_owned();
    let path = format!("{NOTES}/documents/{id}");
    // fields are returned in the order in which they were sent
    let text = mill.get(&path).text();
    assert_eq!(text, format!(r#"{{"_id":{{"$oid":"{id}"}},"z":1,"a":{{"$date":"2013-01-01T00:00:00Z"}}}}"#));

    let reply = mill.send(
        "PATCH",
        &path,
        &[("Content-Type", "application/json")],
        br#"{"$inc":{"z":4},"$unset":{"a":""}}"#,
    );
    assert_eq!((reply.status, reply.json()["modified"].as_u64()), (200, Some(1)), "{}", reply.text());
    let reply = mill.send("PUT", &path, &[("Content-Type", "application/json")], br#"{"b":true}"#);
    assert_eq!((reply.status, reply.json()["modified"].as_u64()), (200, Some(1)), "{}", reply.text());
    assert_eq!(mill.get(&path).text(), format!(r#"{{"_id":{{"$oid":"{id}"}},"b":true}}"#));

    assert_eq!(mill.send("DELETE", &path, &[], b"").json()["deleted"], 1);
    mill.get(&path).refusal(404, "not_found");
    mill.send("DELETE", &path, &[], b"").refusal(404, "not_found");
}

#[test]
fn a_search_that_nobody_waits_for_ends() {
    let mill = Mill::with(ServerOptions { request_timeout: Duration::from_millis(200), ..options() });
    let documents: Vec<_> = (0..5_000).map(|id| json!({"_id": id})).collect();
    mill.post_json(&format!("{NOTES}/documents"), &json!(documents).to_string());
    // tens of milliseconds for each document
    let numbers = json!({"$map": {"input": {"$range": [0, 50_000]}, "in": 1}});
    let find = json!({"filter": {"$expr": {"$lt": [{"$sum": numbers}, 0]}}}).to_string();

    let reply = mill.post_json(&format!("{NOTES}/find"), &find);
    assert!([429, 503].contains(&reply.status), "{}", reply.text());
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}

#[test]
fn ids_of_all_types_are_found() {
    let mill = Mill::start();
    mill.post_json(
        &format!("{NOTES}/documents"),
        r#"[{"_id":"5","t":"text"},{"_id":5,"t":"int"},{"_id":6,"t":"six"}]"#,
    );
    let read = |id: &str| mill.get(&format!("{NOTES}/documents/{id}")).json()["t"].clone();
    assert_eq!(read("5"), "text");
    assert_eq!(read("5?type=int"), "int");
    assert_eq!(read("6"), "six");
    mill.get(&format!("{NOTES}/documents/6?type=string")).refusal(404, "not_found");
    let put = |id: &str, body: &str| {
        mill.send(
            "PUT",
            &format!("{NOTES}/documents/{id}"),
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
    };
    assert_eq!(put("new%20one", r#"{"t":1}"#).json()["upserted_id"], "new one");
    assert_eq!(put("7", r#"{"_id":7}"#).json()["upserted_id"], 7);
    put("8", r#"{"_id":9}"#).refusal(400, "invalid");
}

#[test]
fn entities_take_their_key_as_id() {
    let mill = Mill::start();
    let reply = mill.post_json(
        &format!("{GATES}/documents"),
        r#"[{"name":"B4","terminal":"B"},{"name":"B5","terminal":"B"}]"#,
    );
    assert_eq!(reply.json()["ids"], json!(["B4", "B5"]), "{}", reply.text());
    assert_eq!(mill.get(&format!("{GATES}/documents/B4")).json()["terminal"], "B");
    let reply = mill.post_json(&format!("{GATES}/documents"), r#"[{"name":"B4"},{"name":"C1"}]"#);
    assert_eq!(reply.status, 207, "{}", reply.text());
    let json = reply.json();
    assert_eq!((json["inserted"].as_u64(), json["errors"][0]["code"].as_u64()), (Some(1), Some(11000)));
    let reply = mill.post_json(&format!("{GATES}/documents"), r#"{"name":"B4"}"#);
    reply.refusal(409, "conflict");
    let gates = mill.get("/api/v1/collections").json();
    let gate = gates.as_array().unwrap().iter().find(|c| c["name"] == "Gate").unwrap();
    assert_eq!((gate["documents"].as_u64(), gate["key"].as_str()), (Some(3), Some("name")));
}

#[test]
fn find_update_and_delete_by_filter() {
    let mill = Mill::start();
    let docs: Vec<_> = (0..10).map(|i| json!({"_id": i, "n": i % 3, "big": i})).collect();
    mill.post_json(&format!("{NOTES}/documents"), &json!(docs).to_string());
    let find = |body: &str| {
        let reply = mill.post_json(&format!("{NOTES}/find"), body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let reply = find(r#"{"filter":{"n":1},"sort":{"big":-1},"projection":{"big":1,"_id":0},"limit":2}"#);
    assert_eq!(reply, json!({"documents": [{"big": 7}, {"big": 4}], "more": true}));
    let reply = find(r#"{"filter":{"n":1},"sort":{"big":-1},"skip":2,"projection":{"big":1,"_id":0}}"#);
    assert_eq!(reply, json!({"documents": [{"big": 1}], "more": false}));
    assert_eq!(find("{}")["documents"].as_array().unwrap().len(), 10);

    let post = |what: &str, body: &str| mill.post_json(&format!("{NOTES}/{what}"), body).json();
    let reply = post("update", r#"{"filter":{"n":0},"update":{"$set":{"n":9}},"multi":true}"#);
    assert_eq!((reply["matched"].as_u64(), reply["modified"].as_u64()), (Some(4), Some(4)), "{reply}");
    let reply = post("update", r#"{"filter":{"_id":"x"},"update":{"$set":{"n":1}},"upsert":true}"#);
    assert_eq!(reply["upserted_id"], "x", "{reply}");
    assert_eq!(post("delete", r#"{"filter":{"n":9}}"#)["deleted"], 1);
    assert_eq!(post("delete", r#"{"filter":{"n":9},"multi":true}"#)["deleted"], 3);
    assert_eq!(find("{}")["documents"].as_array().unwrap().len(), 7);
}

#[test]
fn a_reply_holds_as_many_documents_as_fit() {
    let mill = Mill::with(ServerOptions { reply_bytes_max: 100, ..options() });
    let docs: Vec<_> = (0..3).map(|i| json!({"_id": i, "text": "x".repeat(60)})).collect();
    mill.post_json(&format!("{NOTES}/documents"), &json!(docs).to_string());
    mill.post_json(&format!("{NOTES}/documents"), &json!({"_id": 9, "text": "x".repeat(600)}).to_string());
    let find = |filter: &str| mill.post_json(&format!("{NOTES}/find"), filter).json();
    let reply = find(r#"{"filter":{"_id":{"$lt":9}}}"#);
    assert_eq!((reply["documents"].as_array().unwrap().len(), &reply["more"]), (1, &json!(true)));
    // a single document is returned even if it exceeds the reply limit
    let reply = find(r#"{"filter":{"_id":9}}"#);
    assert_eq!((reply["documents"].as_array().unwrap().len(), &reply["more"]), (1, &json!(false)));
}
