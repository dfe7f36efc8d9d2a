//! Google Pub/Sub against a server that answers as its documentation says: requests, tokens, failures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value as Json, json};

use crate::helpers::{
    TestSource, deliver, deliver_all, free_port, sink, sink_error, source_error, wait_until,
};
use crate::http_server::{Answer, Received, TestServer};

/// Topics with their messages, and subscriptions with what they have not acknowledged.
#[derive(Default)]
struct Service {
    topics: BTreeMap<String, Vec<Json>>,
    /// Topic, and messages by the id of their acknowledgement.
    subscriptions: BTreeMap<String, (String, BTreeMap<String, Json>)>,
    delivered: u64,
    /// Requests that are answered by this status instead, in order; `0` does what is asked first.
    failures: Vec<(String, u16)>,
}

fn refused(status: u16, message: &str) -> Answer {
    (status, vec![], json!({ "error": { "code": status, "message": message } }).to_string())
}

impl Service {
    fn answer(&mut self, request: &Received) -> Answer {
        let path = request.target.strip_prefix("/v1/").unwrap_or(&request.target).to_owned();
        let body: Json = serde_json::from_str(&request.body).unwrap_or_default();
        let (resource, verb) = path.split_once(':').unwrap_or((&path, ""));
        let failure = self.failures.iter().position(|(of, _)| of == verb);
        let status = failure.map(|at| self.failures.remove(at).1);
        if let Some(status) = status.filter(|status| *status > 0) {
            return refused(status, "it does not work now");
        }
        let done = self.perform(&request.method, resource, verb, &body);
        if status == Some(0) { refused(503, "the answer is lost") } else { done }
    }

    fn perform(&mut self, method: &str, resource: &str, verb: &str, body: &Json) -> Answer {
        let ok = |answer: Json| (200, vec![], answer.to_string());
        let kind = resource.split('/').nth(2).unwrap_or_default();
        match (method, kind, verb) {
            ("PUT", "topics", "") if self.topics.contains_key(resource) => refused(409, "exists"),
            ("PUT", "topics", "") => {
                self.topics.insert(resource.into(), vec![]);
                ok(json!({ "name": resource }))
            }
            ("PUT", "subscriptions", "") => {
                let topic = body["topic"].as_str().unwrap_or_default().to_owned();
                self.subscriptions.insert(resource.into(), (topic, BTreeMap::new()));
                ok(json!({ "name": resource }))
            }
            ("POST", "topics", "publish") => {
                let Some(topic) = self.topics.get_mut(resource) else { return refused(404, "no such topic") };
                let messages = body["messages"].as_array().cloned().unwrap_or_default();
                let text =
                    |message: &Json| STANDARD.decode(message["data"].as_str().unwrap_or_default()).unwrap();
                if messages.iter().any(|message| text(message).windows(6).any(|part| part == b"poison")) {
                    return refused(400, "one of the messages is wrong");
                }
                topic.extend(messages.clone());
                for (of, waiting) in self.subscriptions.values_mut().filter(|(of, _)| of == resource) {
                    assert_eq!(of, resource);
                    for message in &messages {
                        self.delivered += 1;
                        waiting.insert(format!("{:06}", self.delivered), message.clone());
                    }
                }
                ok(json!({ "messageIds": ["1"] }))
            }
            ("POST", "subscriptions", "pull") => {
                let Some((_, waiting)) = self.subscriptions.get(resource) else {
                    return refused(404, "no such subscription");
                };
                let max = body["maxMessages"].as_u64().unwrap_or(1) as usize;
                let received: Vec<Json> = waiting
                    .iter()
                    .take(max)
                    .map(|(id, message)| {
                        let mut message = message.clone();
                        message["messageId"] = json!(id);
                        message["publishTime"] = json!("2026-01-02T03:04:05.678Z");
                        json!({ "ackId": id, "message": message })
                    })
                    .collect();
                if received.is_empty() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    return ok(json!({}));
                }
                ok(json!({ "receivedMessages": received }))
            }
            ("POST", "subscriptions", "acknowledge") => {
                let ids = body["ackIds"].as_array().cloned().unwrap_or_default();
                if let Some((_, waiting)) = self.subscriptions.get_mut(resource) {
                    ids.iter().filter_map(Json::as_str).for_each(|id| drop(waiting.remove(id)));
                }
                ok(json!({}))
            }
            _ => refused(404, "no such method"),
        }
    }
}

struct Fake {
    endpoint: String,
    service: Arc<Mutex<Service>>,
    server: TestServer,
}

fn start() -> Fake {
    let (port, service) = (free_port(), Arc::new(Mutex::new(Service::default())));
    let of = service.clone();
    let server = TestServer::start(port, move |request| of.lock().answer(request));
    Fake { endpoint: format!("http://127.0.0.1:{port}"), service, server }
}

fn options<'o>(fake: &'o Fake, more: &[(&'o str, &'o str)]) -> Vec<(&'o str, &'o str)> {
    let mut all = vec![("project.id", "shop-1"), ("topic.id", "orders"), ("endpoint", &*fake.endpoint)];
    all.extend(more);
    all
}

#[test]
fn messages_go_through_a_topic() {
    let fake = start();
    let mut source = TestSource::start(
        "googlepubsub",
        &options(&fake, &[("subscription.id", "sub"), ("max.messages", "2")]),
    );
    wait_until("the subscription is made", || !fake.service.lock().subscriptions.is_empty());
    let mut sink = sink("googlepubsub", &options(&fake, &[("ordering.key", "{{text}}")]));
    deliver_all(&mut sink, &[("a", 1), ("b", 2), ("c", 3)]);
    assert_eq!(source.poll_rows(3), ["a 1", "b 2", "c 3"]);
    wait_until("all are acknowledged", || {
        fake.service.lock().subscriptions.values().all(|(_, left)| left.is_empty())
    });
    let first = fake.service.lock().topics["projects/shop-1/topics/orders"][0].clone();
    let expected = json!({
        "data": STANDARD.encode(r#"{"event":{"text":"a","n":1}}"#),
        "attributes": { "event.id": "app/S/0-0-0" },
        "orderingKey": "a",
    });
    assert_eq!(first, expected);
    let lines: Vec<String> =
        fake.server.received().iter().map(|of| format!("{} {} {}", of.method, of.target, of.body)).collect();
    for expected in [
        "PUT /v1/projects/shop-1/topics/orders {}",
        r#"PUT /v1/projects/shop-1/subscriptions/sub {"ackDeadlineSeconds":30,"topic":"projects/shop-1/topics/orders"}"#,
        r#"POST /v1/projects/shop-1/subscriptions/sub:pull {"maxMessages":2}"#,
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected} is not in {lines:#?}");
    }
}

#[test]
fn messages_come_again_until_they_are_durable() {
    let fake = start();
    let with = options(&fake, &[("subscription.id", "sub"), ("max.messages", "10")]);
    let mut source = TestSource::start("googlepubsub", &with);
    wait_until("the subscription is made", || !fake.service.lock().subscriptions.is_empty());
    deliver_all(&mut sink("googlepubsub", &options(&fake, &[])), &[("a", 1), ("b", 2)]);
    source.acknowledges = false;
    source.poll_rows(2);
    source.drop_receipts();
    source.acknowledges = true;
    source.poll_rows(4);
    assert_eq!(source.rows, ["a 1", "b 2", "a 1", "b 2"]);
    wait_until("all are acknowledged", || {
        fake.service.lock().subscriptions.values().all(|(_, left)| left.is_empty())
    });
}

#[test]
fn failures_are_tried_again_and_refused_messages_left_out() {
    let fake = start();
    let mut sink = sink("googlepubsub", &options(&fake, &[]));
    fake.service.lock().failures =
        vec![("publish".into(), 503), ("publish".into(), 429), ("publish".into(), 0)];
    for reason in ["503", "429", "503"] {
        let (progress, delivered) = deliver(&mut sink, &[("a", 1)]);
        let error = delivered.unwrap_err();
        assert!(error.kind().is_retryable() && error.to_string().contains(reason), "{error}");
        assert_eq!(progress.delivered, 0);
    }
    let (progress, delivered) = deliver(&mut sink, &[("a", 1), ("poison", 2), ("c", 3)]);
    delivered.unwrap();
    let refused: Vec<_> = progress.refused.iter().map(|of| (of.row, of.reason.as_str())).collect();
    assert_eq!(refused, [(1, "400 Bad Request: one of the messages is wrong")]);
    // the answer of the first was lost, so it is there twice
    assert_eq!(fake.service.lock().topics.values().map(Vec::len).sum::<usize>(), 3);
}

/// Makes a key of a service account. `None` without openssl.
fn key_file(dir: &Path, token_uri: &str) -> Option<(String, Vec<u8>)> {
    let (key, file) = (dir.join("key.pem"), dir.join("account.json"));
    let openssl = |arguments: &[&str]| Command::new("openssl").args(arguments).output().ok();
    let path = key.to_str().unwrap();
    let Some(made) =
        openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path])
    else {
        eprintln!("SKIPPED: no openssl, which makes the key");
        return None;
    };
    assert!(made.status.success());
    let public = openssl(&["rsa", "-in", path, "-RSAPublicKey_out", "-outform", "DER"]).unwrap().stdout;
    let account = json!({
        "type": "service_account",
        "client_email": "tidemill@shop-1.example",
        "private_key_id": "key-1",
        "private_key": std::fs::read_to_string(&key).unwrap(),
        "token_uri": token_uri,
    });
    std::fs::write(&file, account.to_string()).unwrap();
    Some((file.to_str().unwrap().to_owned(), public))
}

#[test]
fn a_service_account_gets_tokens_by_its_signature() {
    let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
    let token_uri = format!("http://127.0.0.1:{port}/token");
    let Some((file, public)) = key_file(dir.path(), &token_uri) else { return };
    let service = Arc::new(Mutex::new(Service::default()));
    let tokens = Arc::new(Mutex::new(0));
    let (of, count, audience) = (service.clone(), tokens.clone(), token_uri.clone());
    let server = TestServer::start(port, move |request| {
        if request.target != "/token" {
            let expected = format!("Bearer token-{}", *count.lock());
            return match request.header("authorization") == expected {
                true => of.lock().answer(request),
                false => refused(401, "another token is needed"),
            };
        }
        let form: BTreeMap<String, String> =
            url::form_urlencoded::parse(request.body.as_bytes()).into_owned().collect();
        assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let (signed, signature) = form["assertion"].rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &public);
        key.verify(signed.as_bytes(), &signature).expect("the signature is right");
        let part =
            |part: &str| -> Json { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
        let (header, claims) = signed.split_once('.').unwrap();
        assert_eq!(part(header), json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" }));
        let claims = part(claims);
        assert_eq!(claims["iss"], "tidemill@shop-1.example");
        assert_eq!(claims["aud"], audience.as_str());
        assert_eq!(claims["scope"], "https://www.googleapis.com/auth/pubsub");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3600);
        *count.lock() += 1;
        let token = format!("token-{}", *count.lock());
        (
            200,
            vec![],
            json!({ "access_token": token, "expires_in": 3600, "token_type": "Bearer" }).to_string(),
        )
    });
    let endpoint = format!("http://127.0.0.1:{port}");
    let with = [
        ("project.id", "shop-1"),
        ("topic.id", "orders"),
        ("endpoint", &*endpoint),
        ("credential.path", &*file),
    ];
    let mut sink = sink("googlepubsub", &with);
    deliver_all(&mut sink, &[("a", 1), ("b", 2)]);
    assert_eq!(*tokens.lock(), 1, "the token is used again");
    // the service takes it no longer
    *tokens.lock() = 7;
    deliver_all(&mut sink, &[("c", 3)]);
    assert_eq!((*tokens.lock(), service.lock().topics.values().map(Vec::len).sum::<usize>()), (8, 3));
    drop(server);
}

#[test]
fn wrong_options_and_key_files_are_told() {
    let base = [("project.id", "shop-1"), ("topic.id", "orders")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    for (more, expected) in [
        (&[][..], "Pub/Sub needs the option `credential.path`"),
        (&[("endpoint", "pubsub:1")][..], "expected `https://host` or `http://host:port`"),
        (&[("endpoint", "http://u:hunter2@h")][..], "without a login"),
    ] {
        let error = sink_error("googlepubsub", &with(more));
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    let error = source_error("googlepubsub", &with(&[("subscription.id", "a/b"), ("endpoint", "http://h")]));
    assert!(error.contains("`subscription.id`") && error.contains("letters"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("account.json");
    let path: &str = file.to_str().unwrap();
    for (content, expected) in [
        (None, "No such file"),
        (Some("hunter2"), "no key file of a service account"),
        (
            Some(r#"{"type": "authorized_user", "client_email": "a", "private_key": "hunter2"}"#),
            "no key file of a service account",
        ),
        (
            Some(r#"{"type": "service_account", "client_email": "a", "private_key": "hunter2"}"#),
            "`private_key` is no PEM text",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let mut sink = sink(
            "googlepubsub",
            &[&base[..], &[("credential.path", path), ("endpoint", "http://127.0.0.1:1")]].concat(),
        );
        let error = deliver(&mut sink, &[("a", 1)]).1.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(path) && !error.contains("hunter2"), "{error}");
    }
}
