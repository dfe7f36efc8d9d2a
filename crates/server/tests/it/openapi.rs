//! The API description matches the routes.

use std::collections::HashSet;

use serde_json::Value as Json;

use crate::harness::Mill;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn operations(api: &Json) -> Vec<(String, &'static str, &Json)> {
    let paths = api["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            METHODS.into_iter().filter_map(move |m| Some((path.clone(), m, item.get(m)?)))
        })
        .collect()
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let mill = Mill::start();
    let api = mill.get("/api/v1/openapi.json").json();
    let described = operations(&api);
    assert_eq!(described.len(), 50);
    for (path, method, _) in &described {
        let filled = path
            .replace("{stream}", "S")
            .replace("{collection}", "c")
            .replace("{id}", "1")
            .replace("{rule}", "r")
            .replace("{query}", "q");
        let reply = mill.send(&method.to_uppercase(), &filled, &[], b"");
        let text = reply.text();
        assert!(
            !text.contains("no route") && reply.status != 405,
            "{method} {path}: {} {text}",
            reply.status
        );
        // the router has no undocumented method on this path
        let methods: HashSet<String> = mill
            .send("PROPFIND", &filled, &[], b"")
            .header("allow")
            .unwrap()
            .split(", ")
            .map(str::to_lowercase)
            .collect();
        let mut expected: HashSet<String> =
            described.iter().filter(|(p, ..)| p == path).map(|(_, m, _)| (*m).to_owned()).collect();
        if expected.contains("get") {
            expected.insert("head".to_owned());
        }
        assert_eq!(methods, expected, "{path}");
    }
}

/// Compares the description with the published one, from which clients are generated. `UPDATE_CASES=1`
/// rewrites it.
#[test]
fn the_description_is_the_published_one() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let found = Mill::start().get("/api/v1/openapi.json").json();
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&file, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
    }
    let published: Json = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(
        found == published,
        "the API differs from {}: run with UPDATE_CASES=1 and look at the change",
        file.display()
    );
}

#[test]
fn the_description_is_whole() {
    let api = Mill::start().get("/api/v1/openapi.json").json();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(api["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    let mut ids = HashSet::new();
    for (path, method, operation) in operations(&api) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id), "operation id {id} is there twice");
        assert!(operation["summary"].is_string(), "{method} {path} has no summary");
        assert!(!operation["responses"].as_object().unwrap().is_empty());
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let in_path: Vec<&str> =
            parameters.iter().filter(|p| p["in"] == "path").map(|p| p["name"].as_str().unwrap()).collect();
        let in_template: Vec<&str> =
            path.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(in_path, in_template, "{method} {path}");
    }
    check_references(&api, &api);
}

/// Checks the error replies for which generated clients must be prepared.
#[test]
fn refusals_that_any_operation_may_give_are_described() {
    let api = Mill::start().get("/api/v1/openapi.json").json();
    assert_eq!(api["servers"][0]["url"], "http://127.0.0.1:4700");
    for (path, method, operation) in operations(&api) {
        let is_open = operation.get("security").is_some();
        let is_otlp = path.starts_with("/v1/") || path.starts_with("/opentelemetry.");
        let is_counted = (path.starts_with("/api/") && !path.starts_with("/api/v1/statements")) || is_otlp;
        let has_body = operation.get("requestBody").is_some();
        for (status, expected) in [
            ("400", has_body),
            ("401", !is_open),
            ("408", has_body),
            ("413", has_body),
            ("415", has_body),
            ("421", true),
            ("429", is_counted),
            ("500", true),
            ("503", is_counted),
        ] {
            let is_described = operation["responses"].get(status).is_some();
            assert!(is_described || !expected, "{method} {path} does not say {status}");
            // an operation may declare a status itself that the guards do not return
            let content = &operation["responses"][status]["content"];
            let body = match path.as_str() {
                "/api/v1/write" => &content["text/plain"]["schema"]["type"],
                _ => &content["application/json"]["schema"]["$ref"],
            };
            assert!(!expected || body.is_string(), "{method} {path}, {status}: no schema");
        }
        assert!(!is_open || operation["responses"].get("401").is_none(), "{method} {path} needs no token");
    }
}

/// Checks that every `$ref` resolves.
fn check_references(api: &Json, part: &Json) {
    match part {
        Json::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Json::as_str) {
                let pointer = target.strip_prefix('#').unwrap();
                assert!(api.pointer(pointer).is_some(), "{target} leads nowhere");
            }
            fields.values().for_each(|f| check_references(api, f));
        }
        Json::Array(values) => values.iter().for_each(|v| check_references(api, v)),
        _ => {}
    }
}
