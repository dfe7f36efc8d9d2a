//! The mapper `avro` with a schema registry: a server on loopback that answers as registries do.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use tidemill_connect::{MapperConfig, Message};
use tidemill_types::Timestamp;
use tidemill_types::decode::{BatchBuilder, FieldValue};

use crate::fixture::{mapper, read, schema, show, sink, source, write};

/// Answers of a registry by path. It runs until the test process ends.
struct RegistryServer {
    url: String,
    /// Request lines and authorizations that arrived.
    requests: Arc<Mutex<Vec<String>>>,
}

const STOCK: &str = r#"{"type":"record","name":"Stock","fields":[
    {"name":"symbol","type":"string"},{"name":"price","type":["null","float"],"default":null}]}"#;

impl RegistryServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(vec![]));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
                let head: Vec<String> = head.collect();
                let line = head.first().cloned().unwrap_or_default();
                let authorization =
                    head.iter().find(|l| l.to_ascii_lowercase().starts_with("authorization:"));
                let mut seen = seen.lock().unwrap();
                seen.push(line.clone());
                seen.extend(authorization.map(|line| line.to_ascii_lowercase()));
                let definition = |id: i32| serde_json::json!({"schema": STOCK, "id": id}).to_string();
                let (status, body) = match line.split(' ').nth(1).unwrap_or_default() {
                    "/schemas/ids/7" => ("200 OK", definition(7)),
                    "/subjects/stock%2Fvalue/versions/latest" => ("200 OK", definition(7)),
                    "/schemas/ids/8" => ("200 OK", r#"{"schema":"{\"type\":\"int\"}"}"#.to_owned()),
                    "/schemas/ids/9" => ("200 OK", r#"{"schema":"x","schemaType":"JSON"}"#.to_owned()),
                    _ => ("404 Not Found", r#"{"error_code":40403,"message":"Schema not found"}"#.to_owned()),
                };
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
        });
        Self { url, requests }
    }
}

/// Writes an event and reads it with another mapper; returns the first payload and the event as a line.
fn there_and_back(to: &MapperConfig, from: MapperConfig) -> (Vec<u8>, String) {
    let stream = schema("symbol string, price float");
    let mut rows = BatchBuilder::new(stream.clone());
    rows.push_values(&[FieldValue::Text("IBM".into()), FieldValue::Float(1.5)], Timestamp(1)).unwrap();
    let (payloads, refused) = write(sink(&stream, to).unwrap().as_mut(), &rows.finish());
    assert!(refused.is_empty(), "{refused:?}");
    let message = Message::new(payloads[0].bytes.clone());
    let (rows, rejected) = read(&stream, source(&stream, from).unwrap().as_mut(), &[message]);
    assert!(rejected.is_empty(), "{rejected:?}");
    (payloads[0].bytes.to_vec(), show(&stream, &rows.unwrap(), 0))
}

#[test]
fn schemas_come_from_a_registry() {
    let server = RegistryServer::start();
    let by_id = [("schema.registry", server.url.as_str()), ("schema.id", "7")];
    let by_name = [
        ("schema.registry", server.url.as_str()),
        ("schema.name", "stock/value"),
        ("schema.registry.username", "reader"),
        ("schema.registry.password", "secret"),
    ];
    let event = "\"IBM\", 1.5".to_owned();
    let (bytes, back) = there_and_back(&mapper("avro", &by_id), mapper("avro", &by_name));
    assert_eq!((bytes.as_slice(), &back), (b"\x06IBM\x02\x00\x00\xc0\x3f".as_slice(), &event));

    let framed = [&by_name[..], &[("use.avro.serializer", "true")]].concat();
    let only_ids = [by_id[0], ("schema.id", "8"), ("use.avro.deserializer", "true")];
    let requests = server.requests.lock().unwrap().len();
    // the id of the message counts, and its schema is converted to that of the mapper
    let own = r#"{"type":"record","name":"Stock","fields":[{"name":"price","type":"double"},{"name":"symbol","type":"string"}]}"#;
    let own = [by_id[0], ("schema.def", own), ("use.avro.deserializer", "true")];
    let (bytes, back) = there_and_back(&mapper("avro", &framed), mapper("avro", &own));
    assert_eq!((&bytes[..5], back), (b"\0\0\0\0\x07".as_slice(), event));
    let seen = server.requests.lock().unwrap()[requests..].to_vec();
    assert_eq!(
        seen,
        [
            "GET /subjects/stock%2Fvalue/versions/latest HTTP/1.1",
            "authorization: basic cmvhzgvyonnly3jlda==",
            "GET /schemas/ids/7 HTTP/1.1"
        ]
    );
    let stream = schema("symbol string, price float");
    let mut mapper = source(&stream, mapper("avro", &only_ids)).unwrap();
    let messages = [bytes.clone(), b"\0\0\0\0\x63".to_vec(), b"\0\0\0\0\x09".to_vec(), b"x".to_vec()];
    let (_, rejected) = read(&stream, mapper.as_mut(), &messages.map(Message::new));
    let reasons: Vec<String> =
        rejected.iter().map(|bad| bad.message.replace(server.url.as_str(), "URL")).collect();
    assert_eq!(
        reasons,
        [
            "not Avro of the schema: Expected Value::Int, got: Record([(\"symbol\", String(\"IBM\")), (\"price\", Union(1, Float(1.5)))])",
            "the schema at URL/schemas/ids/99 cannot be fetched: the answer is 404 Not Found: {\"error_code\":40403,\"message\":\"Schema not found\"}",
            "the schema at URL/schemas/ids/9 cannot be fetched: it is of the type JSON, not AVRO",
            "expected a zero and the id of the schema in 4 bytes",
        ]
    );
}

#[test]
fn a_registry_that_is_not_there_is_reported_without_its_password() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://reader:secret@{address}/registry/");
    let config = mapper("avro", &[("schema.registry", &url), ("schema.id", "7")]);
    let stream = schema("symbol string, price float");
    let (_, rejected) =
        read(&stream, source(&stream, config).unwrap().as_mut(), &[Message::new("a"), Message::new("b")]);
    assert_eq!(rejected.len(), 2);
    for bad in rejected {
        let expected = format!("the schema at http://{address}/registry/schemas/ids/7 cannot be fetched: ");
        assert!(bad.message.starts_with(&expected), "{}", bad.message);
        assert!(!bad.message.contains("secret"), "{}", bad.message);
    }
}

#[test]
fn wrong_values_are_read_without_panics() {
    let schemas = [
        r#"{"type":"array","items":{"type":"map","values":{"type":"array","items":"int"}}}"#,
        r#"{"type":"record","name":"a","fields":[{"name":"symbol","type":{"type":"enum","name":"e","symbols":["x"]}},
            {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}}]}"#,
        r#"{"type":"record","name":"a","fields":[{"name":"symbol","type":{"type":"string","logicalType":"uuid"}},
            {"name":"price","type":{"type":"fixed","name":"f","size":12,"logicalType":"duration"}}]}"#,
    ];
    let stream = schema("symbol string, price float");
    let mut random = 1_u64;
    for definition in schemas {
        let mut mapper = source(&stream, mapper("avro", &[("schema.def", definition)])).unwrap();
        let messages = (0..2000).map(|n| {
            let bytes = (0..n % 24).map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if random >> 62 == 0 { 0xff } else { (random >> 56) as u8 & 0x1f }
            });
            Message::new(bytes.collect::<Vec<u8>>())
        });
        // `read` checks that each message counts
        read(&stream, mapper.as_mut(), &messages.collect::<Vec<_>>());
    }
}
