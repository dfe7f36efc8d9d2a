//! Objects in a bucket: S3 by a real server, Google Cloud Storage by one of the tests, and what a broken network leaves there.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{Attribute, ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use tidemill_connect::{
    ConnectorConfig, ConnectorContext, ConnectorSink, DeliveredEvents, DeliveryProgress, MapperConfig,
    PartitionEpochs, runtime,
};
use tidemill_test_servers::{FaultyHttp, Outage};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{EventId, Offset, PartitionId, Timestamp};

use crate::helpers::{catalog, context, free_port, schema, sink_error};
use crate::http_server::{Answer, Received, TestServer};
use crate::servers;

/// Opens a sink of the stream `S`, with a mapper, whose objects are those of the writer `writer`.
fn open(kind: &str, mapper: &str, writer: &str, options: &[(&str, &str)]) -> ConnectorSink {
    let context = ConnectorContext { writer: writer.into(), ..context("app", "S") };
    let config = ConnectorConfig {
        kind: kind.into(),
        options: options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        mapper: Some(MapperConfig { kind: mapper.into(), ..MapperConfig::default() }),
    };
    catalog().open_sink(&config, &context).unwrap_or_else(|e| panic!("{e}"))
}

/// Event `n` is row 0 of record `n` of partition 0.
fn id(n: u64) -> EventId {
    EventId { partition: PartitionId(0), offset: Offset(n), row: 0 }
}

/// Delivers the events `from..to`, with the texts `a` and `b` in turn. Returns the number of delivered
/// events.
fn deliver(sink: &mut ConnectorSink, from: u64, to: u64) -> Result<usize, String> {
    let mut builder = BatchBuilder::new(schema("S"));
    for n in from..to {
        let text = if n % 2 == 0 { "a" } else { "b" };
        builder
            .push_values(&[FieldValue::Text(text.into()), FieldValue::Int(n as i64)], Timestamp(0))
            .unwrap();
    }
    let ids: Vec<EventId> = (from..to).map(id).collect();
    let mut progress = DeliveryProgress::default();
    let delivered = sink.deliver(&builder.finish(), &ids, &mut progress, std::future::pending());
    delivered.map(|()| progress.delivered).map_err(|e| e.to_string())
}

fn connect(sink: &mut ConnectorSink) -> Result<DeliveredEvents, String> {
    sink.connect(&PartitionEpochs::new(), std::future::pending())
        .map(|known| known.unwrap_or_default().delivered)
        .map_err(|e| e.to_string())
}

fn s3(endpoint: &str) -> AmazonS3 {
    let builder = AmazonS3Builder::new().with_bucket_name("tidemill").with_endpoint(endpoint);
    builder
        .with_access_key_id("tidemill")
        .with_secret_access_key("tidemill")
        .with_allow_http(true)
        .build()
        .unwrap()
}

/// Returns the objects below a place, with their contents.
fn objects(store: &dyn ObjectStore, place: &str) -> BTreeMap<String, String> {
    runtime().block_on(async {
        let found: Vec<_> =
            futures::TryStreamExt::try_collect(store.list(Some(&Path::from(place)))).await.unwrap();
        let mut all = BTreeMap::new();
        for object in found {
            let bytes = store.get(&object.location).await.unwrap().bytes().await.unwrap();
            all.insert(object.location.to_string(), String::from_utf8(bytes.to_vec()).unwrap());
        }
        all
    })
}

fn content_type(store: &dyn ObjectStore, key: &str) -> String {
    let found = runtime().block_on(store.get(&Path::from(key))).unwrap();
    found.attributes.get(&Attribute::ContentType).expect("a content type").to_string()
}

/// Returns the numbers of all events in objects of JSON, in order.
fn numbers(objects: &BTreeMap<String, String>) -> Vec<i64> {
    let mut all = vec![];
    for (name, text) in objects {
        let json: serde_json::Value =
            serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
        all.extend(json.as_array().unwrap().iter().map(|event| event["event"]["n"].as_i64().unwrap()));
    }
    all.sort_unstable();
    all
}

fn s3_options<'o>(endpoint: &'o str, path: &'o str, more: &[(&'o str, &'o str)]) -> Vec<(&'o str, &'o str)> {
    let mut all = vec![
        ("bucket.name", "tidemill"),
        ("object.path", path),
        ("aws.access.key", "tidemill"),
        ("aws.secret.key", "tidemill"),
        ("aws.region", "us-east-1"),
        ("endpoint", endpoint),
    ];
    all.extend(more);
    all
}

#[test]
fn events_become_objects_of_s3() {
    let Some(server) = servers::shared("s3") else { return };
    let endpoint = server.address("SERVERS_S3");
    let store = s3(endpoint);
    let options = s3_options(endpoint, "plain", &[("flush.size", "3"), ("content.type", "application/json")]);
    let mut sink = open("s3", "json", "1/app", &options);
    connect(&mut sink).unwrap();
    assert_eq!(deliver(&mut sink, 0, 7), Ok(7));
    let found = objects(&store, "plain");
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "plain/S-7e82ee4cdda50a2c-0000-000000000000-000000_000000000002-000000.json",
            "plain/S-7e82ee4cdda50a2c-0000-000000000003-000000_000000000005-000000.json",
            "plain/S-7e82ee4cdda50a2c-0000-000000000006-000000.json",
        ]
    );
    assert_eq!(
        found[names[0]],
        r#"[{"event":{"text":"a","n":0}},{"event":{"text":"b","n":1}},{"event":{"text":"a","n":2}}]"#
    );
    assert_eq!(found[names[2]], r#"[{"event":{"text":"a","n":6}}]"#);
    assert_eq!(content_type(&store, names[0]), "application/json");
}

#[test]
fn places_and_types_depend_on_the_event() {
    let Some(server) = servers::shared("s3") else { return };
    let endpoint = server.address("SERVERS_S3");
    let store = s3(endpoint);
    let more = [("flush.size", "10"), ("content.type", "text/{{text}}"), ("node.id", "n1")];
    let mut sink = open("s3", "csv", "2/app", &s3_options(endpoint, "by/{{text}}", &more));
    connect(&mut sink).unwrap();
    assert_eq!(deliver(&mut sink, 0, 5), Ok(5));
    let found = objects(&store, "by");
    let shown: Vec<_> =
        found.iter().map(|(name, text)| (name.split("-n1-").next().unwrap(), text.as_str())).collect();
    assert_eq!(shown, [("by/a/S", "a,0\na,2\na,4\n"), ("by/b/S", "b,1\nb,3\n")]);
    let last = found.keys().next_back().unwrap();
    assert_eq!(content_type(&store, last), "text/b");
    // one event an object, which a repetition writes again
    let mut sink = open("s3", "text", "3/app", &s3_options(endpoint, "single", &[]));
    connect(&mut sink).unwrap();
    deliver(&mut sink, 0, 2).unwrap();
    deliver(&mut sink, 0, 2).unwrap();
    let texts: Vec<_> = objects(&store, "single").into_values().collect();
    assert_eq!(texts, ["text:\"a\",\nn:0\n", "text:\"b\",\nn:1\n"]);
    let mut sink = open("s3", "xml", "3/app", &s3_options(endpoint, "xml", &[("flush.size", "2")]));
    connect(&mut sink).unwrap();
    deliver(&mut sink, 0, 2).unwrap();
    let text = objects(&store, "xml").into_values().next().unwrap();
    assert!(
        text.starts_with("<Events>") && text.ends_with("</Events>") && text.contains("<n>1</n>"),
        "{text}"
    );
}

#[test]
fn a_name_that_is_too_long_is_refused_alone() {
    let Some(server) = servers::shared("s3") else { return };
    let endpoint = server.address("SERVERS_S3");
    let path = format!("{}{{{{text}}}}/{{{{n}}}}", format!("{}/", "x".repeat(200)).repeat(4));
    let mut sink = open("s3", "json", "4/app", &s3_options(endpoint, &path, &[]));
    connect(&mut sink).unwrap();
    let mut builder = BatchBuilder::new(schema("S"));
    for text in ["ok", &format!("{}/{}", "y".repeat(90), "y".repeat(90)), "../.."] {
        builder.push_values(&[FieldValue::Text((*text).into()), FieldValue::Int(1)], Timestamp(0)).unwrap();
    }
    let mut progress = DeliveryProgress::default();
    sink.deliver(&builder.finish(), &[id(0), id(1), id(2)], &mut progress, std::future::pending()).unwrap();
    let refused: Vec<_> = progress.refused.iter().map(|refused| refused.row).collect();
    assert_eq!((refused, progress.delivered), (vec![1], 3));
    assert!(progress.refused[0].reason.contains("more than 1024 bytes: xxx"), "{:?}", progress.refused);
    // no value leads out of its place
    let found = objects(&s3(endpoint), &"x".repeat(200));
    let places: Vec<_> = found.keys().map(|name| name.split('/').nth(4).unwrap()).collect();
    assert_eq!(places, ["%2E%2E", "ok"]);
}

/// A program that is killed anywhere in a delivery, and one whose requests fail or whose answers are lost, leaves each event in
/// one object.
#[test]
fn each_event_is_in_one_object_after_failures_and_crashes() {
    let Some(server) = servers::shared("s3") else { return };
    let endpoint = server.address("SERVERS_S3");
    let store = s3(endpoint);
    let network = FaultyHttp::start(endpoint, 7);
    let options = s3_options(network.url(), "faulty/{{text}}", &[("flush.size", "4")]);
    network.set_fault_share(0.3);
    const EVENTS: u64 = 200;
    let mut rng = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(7);
    let mut sink = open("s3", "json", "5/app", &options);
    // what the queue of the engine knows durably, and what it would send next
    let (mut durable, mut next) = (0, 0);
    let mut crashes = 0;
    while next < EVENTS {
        if rand::Rng::random_bool(&mut rng, 0.2) {
            sink = open("s3", "json", "5/app", &options);
            next = durable;
            crashes += 1;
        }
        let Ok(known) = connect(&mut sink) else { continue };
        next = known.get(&PartitionId(0)).map_or(next, |id| next.max(id.offset.0 + 1));
        let to = (next + rand::Rng::random_range(&mut rng, 1..30)).min(EVENTS);
        if deliver(&mut sink, next, to).is_ok() {
            next = to;
            if rand::Rng::random_bool(&mut rng, 0.5) {
                durable = next;
            }
        }
    }
    let counts = network.counts();
    assert!(crashes > 3 && counts.before > 5 && counts.after > 5, "{crashes} crashes, {counts:?}");
    assert_eq!(numbers(&objects(&store, "faulty")), (0..EVENTS as i64).collect::<Vec<_>>());
}

#[test]
fn a_server_that_is_away_and_wrong_keys_are_told() {
    let Some(server) = servers::shared("s3") else { return };
    let endpoint = server.address("SERVERS_S3");
    let network = FaultyHttp::start(endpoint, 1);
    let mut sink = open("s3", "json", "6/app", &s3_options(network.url(), "away", &[]));
    connect(&mut sink).unwrap();
    network.set_outage(Some(Outage::Closed));
    let error = deliver(&mut sink, 0, 1).unwrap_err();
    assert!(error.contains("s3://tidemill/_tidemill/"), "{error}");
    network.set_outage(None);
    connect(&mut sink).unwrap();
    deliver(&mut sink, 0, 1).unwrap();
    assert_eq!(numbers(&objects(&s3(endpoint), "away")), [0]);

    for (changed, expected) in [
        (("aws.secret.key", "hunter2"), "the credentials do not allow it (403)"),
        (("bucket.name", "missing"), "there is no such bucket"),
    ] {
        let mut options = s3_options(endpoint, "p", &[]);
        options.iter_mut().filter(|(name, _)| *name == changed.0).for_each(|option| *option = changed);
        let error = connect(&mut open("s3", "json", "7/app", &options)).unwrap_err();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn wrong_options_are_told() {
    let base = [("bucket.name", "b-1"), ("object.path", "p")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    for (more, expected) in [
        (&[("aws.secret.key", "hunter2")][..], "it needs `aws.access.key`"),
        (&[("credential.provider.class", "org.example.Mine")], "EnvironmentVariableCredentialsProvider"),
        (&[("endpoint", "http://u:hunter2@h")], "without a login"),
        (&[("flush.size", "0")], "from 1 to 1000000"),
        (&[("storage.class", "cheap")], "expected one of standard, standard_ia"),
    ] {
        let error = sink_error("s3", &with(more));
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    let error = sink_error("s3", &[("bucket.name", "a/b"), ("object.path", "p")]);
    assert!(error.contains("`bucket.name`") && error.contains("without a path"), "{error}");
    let error = sink_error("google-cloud-storage", &[("bucket.name", "b-1"), ("endpoint", "gcs")]);
    assert!(error.contains("expected `https://host`"), "{error}");
}

#[test]
fn files_with_credentials_of_google_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("account.json");
    let path = file.to_str().unwrap();
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    for (content, expected) in [
        (None, "No such file"),
        (Some("hunter2"), "it is no file with credentials"),
        (Some(r#"{"type": "service_account", "private_key": "hunter2"}"#), "cannot be used"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let options = [("bucket.name", "b-1"), ("credential.path", path), ("endpoint", &*endpoint)];
        let error = connect(&mut open("google-cloud-storage", "json", "9/app", &options)).unwrap_err();
        assert!(error.contains(expected) && error.contains(path) && !error.contains("hunter2"), "{error}");
    }
}

/// Objects by their names, with their generations.
type Objects = BTreeMap<String, (u64, String)>;

/// Answers as Google Cloud Storage does, by its documentation of the XML interface.
fn answer(objects: &mut Objects, request: &Received) -> Answer {
    let target = format!("path={}", request.target);
    let target = url::form_urlencoded::parse(target.as_bytes()).next().unwrap().1.into_owned();
    let key =
        target.strip_prefix("/shop-1/").unwrap_or_else(|| panic!("{target} is not in the bucket")).to_owned();
    let found = objects.get(&key).cloned();
    let headers = |generation: u64| {
        let time = "Sat, 28 Nov 2026 03:00:00 GMT".to_owned();
        let tag = format!("\"{generation}\"");
        vec![("x-goog-generation", generation.to_string()), ("etag", tag), ("last-modified", time)]
    };
    match (request.method.as_str(), found) {
        ("PUT", found) => {
            let generation = found.map_or(0, |(generation, _)| generation);
            let expected = request.header("x-goog-if-generation-match");
            if !expected.is_empty() && expected != generation.to_string() {
                return (412, vec![], String::new());
            }
            objects.insert(key, (generation + 1, request.body.clone()));
            (200, headers(generation + 1), String::new())
        }
        ("DELETE", Some(_)) => {
            objects.remove(&key);
            (204, vec![], String::new())
        }
        (_, Some((generation, body))) => (200, headers(generation), body),
        (_, None) => (404, vec![], String::new()),
    }
}

#[test]
fn events_become_objects_of_google() {
    let (port, stored) = (free_port(), Arc::new(Mutex::new(Objects::new())));
    let of = stored.clone();
    let server = TestServer::start(port, move |request| answer(&mut of.lock(), request));
    let endpoint = format!("http://127.0.0.1:{port}");
    let options = [
        ("bucket.name", "shop-1"),
        ("object.name", "orders/{{text}}"),
        ("endpoint", &*endpoint),
        ("flush.size", "2"),
        ("storage.class", "nearline"),
    ];
    let mut sink = open("google-cloud-storage", "text", "1/app", &options);
    connect(&mut sink).unwrap();
    assert_eq!(deliver(&mut sink, 0, 5), Ok(5));
    let shown = || -> Vec<String> {
        let lines =
            stored.lock().iter().map(|(name, (_, text))| format!("{name} {text}")).collect::<Vec<_>>();
        lines.into_iter().filter(|line| line.starts_with("orders/")).collect()
    };
    let found = shown();
    let mark = found[0].split('-').nth(1).filter(|mark| mark.len() == 16).expect("a mark").to_owned();
    assert_eq!(
        found,
        [
            format!(
                "orders/a-{mark}-0000-000000000000-000000_000000000002-000000.txt text:\"a\",\nn:0~~~~~~~~~text:\"a\",\nn:2"
            ),
            format!("orders/a-{mark}-0000-000000000004-000000.txt text:\"a\",\nn:4"),
            format!(
                "orders/b-{mark}-0000-000000000001-000000_000000000003-000000.txt text:\"b\",\nn:1~~~~~~~~~text:\"b\",\nn:3"
            ),
        ]
    );
    let received = server.received();
    let put = received.iter().find(|of| of.method == "PUT" && of.target.contains("orders")).unwrap();
    assert_eq!((put.header("content-type"), put.header("x-goog-storage-class")), ("text/plain", "NEARLINE"));
    // after a crash, what was delivered is known
    let mut sink = open("google-cloud-storage", "text", "1/app", &options);
    assert_eq!(connect(&mut sink).unwrap(), DeliveredEvents::from([(PartitionId(0), id(4))]));
    // the program was killed between the objects of a delivery: those that are there go, and their events come again
    assert_eq!(deliver(&mut sink, 5, 7), Ok(2));
    let lost = shown().into_iter().find(|line| line.contains("000000000006")).unwrap();
    stored.lock().remove(lost.split(' ').next().unwrap());
    let mut sink = open("google-cloud-storage", "text", "1/app", &options);
    assert_eq!(connect(&mut sink).unwrap(), DeliveredEvents::from([(PartitionId(0), id(4))]));
    assert_eq!(shown(), found);
}

#[test]
fn a_former_owner_of_a_partition_writes_nothing_after_the_present_one() {
    let Some(server) = servers::shared("s3") else { return };
    let endpoint = server.address("SERVERS_S3");
    let store = s3(endpoint);
    let own = |epoch| PartitionEpochs::from([(PartitionId(0), epoch)]);
    let config = ConnectorConfig {
        kind: "s3".into(),
        options: s3_options(endpoint, "moved", &[("flush.size", "5")])
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        mapper: Some(MapperConfig { kind: "json".into(), ..MapperConfig::default() }),
    };
    let context = ConnectorContext { writer: "9/app".into(), shares_partitions: true, ..context("app", "S") };
    let open = || catalog().open_sink(&config, &context).unwrap_or_else(|e| panic!("{e}"));
    let connect = |sink: &mut ConnectorSink, epoch| {
        sink.connect(&own(epoch), std::future::pending()).unwrap().unwrap_or_default()
    };
    let (mut former, mut present) = (open(), open());
    assert_eq!(connect(&mut former, 3).delivered, BTreeMap::new());
    assert_eq!(deliver(&mut former, 0, 10), Ok(10));
    assert_eq!(connect(&mut present, 4).delivered, [(PartitionId(0), id(9))].into());
    // it has not heard of the other one
    assert!(deliver(&mut former, 10, 30).is_err());
    assert_eq!(connect(&mut former, 3).later_owners, own(4));
    assert_eq!(deliver(&mut present, 10, 20), Ok(10));
    assert_eq!(numbers(&objects(&store, "moved")), (0..20).collect::<Vec<_>>());
}
