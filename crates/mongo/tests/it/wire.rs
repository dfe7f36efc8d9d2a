//! Bytes on a socket: messages that drivers do not send.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use tidemill_mongo::MongoOptions;

use crate::TestServer;

const OP_MSG: i32 = 2013;
const OP_QUERY: i32 = 2004;
const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 2;

pub fn connect(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

pub fn message(op: i32, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for number in [16 + content.len() as i32, 7, 0, op] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.extend_from_slice(content);
    message
}

pub fn body(flags: u32, document: &RawDocumentBuf) -> Vec<u8> {
    let mut content = flags.to_le_bytes().to_vec();
    content.push(0);
    content.extend_from_slice(document.as_bytes());
    content
}

/// Reads a reply. Returns its operation, and its document, which begins `skip` bytes after the header, without the times of the log.
pub fn reply(stream: &mut TcpStream, skip: usize) -> Option<(i32, bson::Document)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    assert_eq!(number(8), 7, "the reply names the request");
    let mut content = vec![0; number(0) as usize - 16];
    stream.read_exact(&mut content).unwrap();
    let mut document: bson::Document = bson::deserialize_from_slice(&content[skip..]).unwrap();
    let time = document.remove("operationTime").expect("each reply has the time");
    let cluster_time = document.remove("$clusterTime").unwrap();
    assert_eq!(cluster_time.as_document().unwrap().get("clusterTime"), Some(&time));
    Some((number(12), document))
}

pub fn open_server() -> TestServer {
    TestServer::start_with(MongoOptions::default())
}

#[test]
fn first_ismaster_may_come_as_a_query() {
    let server = open_server();
    let mut stream = connect(&server);
    let mut content = 0_i32.to_le_bytes().to_vec();
    content.extend_from_slice(b"admin.$cmd\0");
    content.extend_from_slice(&[0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    content.extend_from_slice(rawdoc! { "ismaster": 1, "helloOk": true }.as_bytes());
    stream.write_all(&message(OP_QUERY, &content)).unwrap();
    let (op, document) = reply(&mut stream, 20).unwrap();
    assert_eq!(
        (op, document.get_bool("ismaster").unwrap(), document.get_i32("maxWireVersion").unwrap()),
        (1, true, 25)
    );
}

#[test]
fn documents_may_stand_beside_the_body() {
    let server = open_server();
    let mut stream = connect(&server);
    let mut content = body(0, &rawdoc! { "insert": "things", "$db": "docs" });
    let documents: Vec<u8> = (0..3).flat_map(|n| rawdoc! { "_id": n }.as_bytes().to_vec()).collect();
    content.push(1);
    content.extend_from_slice(&(4 + 10 + documents.len() as i32).to_le_bytes());
    content.extend_from_slice(b"documents\0");
    content.extend_from_slice(&documents);
    stream.write_all(&message(OP_MSG, &content)).unwrap();
    assert_eq!(reply(&mut stream, 5).unwrap().1, bson::doc! { "n": 3, "ok": 1.0 });
}

#[test]
fn a_client_that_wants_no_reply_gets_none() {
    let server = open_server();
    let mut stream = connect(&server);
    let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }], "$db": "docs" };
    stream.write_all(&message(OP_MSG, &body(MORE_TO_COME, &insert))).unwrap();
    stream.write_all(&message(OP_MSG, &body(0, &rawdoc! { "count": "things", "$db": "docs" }))).unwrap();
    assert_eq!(reply(&mut stream, 5).unwrap().1, bson::doc! { "n": 1, "ok": 1.0 });
}

#[test]
fn a_checksum_is_verified() {
    let server = open_server();
    let ping = body(CHECKSUM_PRESENT, &rawdoc! { "ping": 1, "$db": "admin" });
    for (damage, answered) in [(0, true), (1, false)] {
        let mut stream = connect(&server);
        let mut bytes = message(OP_MSG, &[ping.as_slice(), &[0; 4]].concat());
        let end = bytes.len() - 4;
        let checksum = crc32c::crc32c(&bytes[..end]) ^ damage;
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        stream.write_all(&bytes).unwrap();
        assert_eq!(reply(&mut stream, 5).is_some(), answered);
    }
}

/// Each of them ends its connection, and no other.
#[test]
fn malformed_messages_end_their_connection_only() {
    let server = open_server();
    let ping = body(0, &rawdoc! { "ping": 1, "$db": "admin" });
    let mut other = connect(&server);
    let mut bad: Vec<Vec<u8>> = vec![
        vec![0; 16],
        vec![0xFF; 64],
        message(2001, b""),
        message(OP_MSG, b""),
        message(OP_MSG, &[0; 4]),
        message(OP_MSG, &body(1 << 5, &rawdoc! { "ping": 1 })),
        message(OP_MSG, &[ping.as_slice(), &[9]].concat()),
        message(OP_MSG, &[ping.as_slice(), &[1, 3, 0, 0, 0, b'x']].concat()),
        message(OP_MSG, &[ping.as_slice(), &[1, 0xFF, 0xFF, 0xFF, 0x7F, b'x', 0]].concat()),
        message(2012, &[0xDD, 7, 0, 0, 0xFF, 0xFF, 0xFF, 0x7F, 1]),
        message(2012, &[0xDD, 7, 0, 0, 100, 0, 0, 0, 3, 1, 2, 3, 4]),
        message(2012, &[0xDD, 7, 0, 0, 100, 0, 0, 0, 99]),
    ];
    // a document whose length says more than there is
    let mut long = ping.clone();
    long[5] = 0x7F;
    bad.push(message(OP_MSG, &long));
    for (number, bytes) in bad.iter().enumerate() {
        let mut stream = connect(&server);
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(reply(&mut stream, 5), None, "message {number}");
    }
    other.write_all(&message(OP_MSG, &ping)).unwrap();
    assert_eq!(reply(&mut other, 5).unwrap().1, bson::doc! { "ok": 1.0 });
}

#[test]
fn invalid_bson_is_answered_with_an_error() {
    let server = open_server();
    let mut stream = connect(&server);
    let mut ping = body(0, &rawdoc! { "ping": "text", "$db": "admin" });
    // the string's bytes are not UTF-8 any more
    let at = ping.windows(4).position(|w| w == b"text").unwrap();
    ping[at] = 0xFF;
    stream.write_all(&message(OP_MSG, &ping)).unwrap();
    let document = reply(&mut stream, 5).unwrap().1;
    assert_eq!((document.get_f64("ok").unwrap(), document.get_i32("code").unwrap()), (0.0, 22), "{document}");
    // the connection goes on
    stream.write_all(&message(OP_MSG, &body(0, &rawdoc! { "ping": 1, "$db": "admin" }))).unwrap();
    assert_eq!(reply(&mut stream, 5).unwrap().1, bson::doc! { "ok": 1.0 });
}

#[test]
fn a_large_message_before_the_login_is_refused() {
    let server = TestServer::start(1);
    let mut stream = connect(&server);
    let large = rawdoc! { "ping": 1, "$db": "admin", "comment": "x".repeat(100_000) };
    // the server may close the connection while the message is still sent
    let _ = stream.write_all(&message(OP_MSG, &body(0, &large)));
    assert_eq!(reply(&mut stream, 5), None);
}

#[test]
fn unknown_fields_and_commands_have_their_codes() {
    let server = open_server();
    let mut stream = connect(&server);
    for (command, code) in [
        (rawdoc! { "nope": 1, "$db": "docs" }, 59),
        (rawdoc! { "find": "things", "fliter": {}, "$db": "docs" }, 40415),
        (rawdoc! { "find": 1, "$db": "docs" }, 73),
        (rawdoc! { "find": "things", "filter": 1, "$db": "docs" }, 14),
        (rawdoc! { "insert": "things", "documents": [], "$db": "docs" }, 16),
        (rawdoc! { "insert": "system.x", "documents": [{}], "$db": "docs" }, 73),
        (rawdoc! { "insert": "a/b", "documents": [{}], "$db": "docs" }, 73),
        (rawdoc! { "insert": "a", "documents": [{}], "$db": "a.b" }, 73),
        (rawdoc! { "getMore": 77_i64, "collection": "things", "$db": "docs" }, 43),
        (rawdoc! { "insert": "things", "documents": [{}], "txnNumber": 1_i64, "$db": "docs" }, 72),
        (rawdoc! { "aggregate": "things", "pipeline": [], "$db": "docs" }, 9),
    ] {
        stream.write_all(&message(OP_MSG, &body(0, &command))).unwrap();
        let document = reply(&mut stream, 5).unwrap().1;
        assert_eq!(document.get_i32("code").unwrap(), code, "{document}");
    }
}

#[test]
fn the_id_is_kept_in_front() {
    let server = open_server();
    let mut stream = connect(&server);
    let insert = rawdoc! { "insert": "things", "documents": [{ "a": 1, "_id": 5 }], "$db": "docs" };
    stream.write_all(&message(OP_MSG, &body(0, &insert))).unwrap();
    assert_eq!(reply(&mut stream, 5).unwrap().1, bson::doc! { "n": 1, "ok": 1.0 });
    stream.write_all(&message(OP_MSG, &body(0, &rawdoc! { "find": "things", "$db": "docs" }))).unwrap();
    let found = reply(&mut stream, 5).unwrap().1;
    let first =
        found.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
    assert_eq!(first.keys().collect::<Vec<_>>(), ["_id", "a"]);
}

#[test]
fn a_message_without_a_database_is_refused() {
    let server = open_server();
    let mut stream = connect(&server);
    let ping = rawdoc! { "ping": 1 };
    stream.write_all(&message(OP_MSG, &body(0, &ping))).unwrap();
    let (_, answer) = reply(&mut stream, 5).unwrap();
    assert_eq!(answer.get_i32("code").unwrap(), 40571, "{answer}");
}

/// A write concern that one server cannot meet is told beside an error of the command.
#[test]
fn an_error_has_the_error_of_its_write_concern_beside_it() {
    let server = open_server();
    let mut stream = connect(&server);
    let mut run = |command: &RawDocumentBuf| {
        stream.write_all(&message(OP_MSG, &body(0, command))).unwrap();
        reply(&mut stream, 5).unwrap().1
    };
    run(&rawdoc! { "create": "things", "$db": "docs" });
    let answer = run(&rawdoc! {
        "create": "things", "capped": true, "size": 4096, "writeConcern": { "w": 2 }, "$db": "docs",
    });
    assert_eq!(answer.get_f64("ok").unwrap(), 0.0);
    assert_eq!(answer.get_i32("code").unwrap(), 48);
    assert_eq!(answer.get_document("writeConcernError").unwrap().get_i32("code").unwrap(), 100);
}
