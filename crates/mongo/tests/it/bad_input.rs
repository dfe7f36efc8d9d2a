//! Bytes that no driver sends: each is refused with a clear error or ends its own connection, and the server goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use tidemill_mongo::MongoOptions;

use crate::TestServer;
use crate::wire::{body, connect, message, open_server, reply};

const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;

fn ping() -> Vec<u8> {
    body(0, &rawdoc! { "ping": 1, "$db": "admin" })
}

/// Sends a message and no more. Returns the reply, if there is one.
fn answer(server: &TestServer, message: &[u8]) -> Option<Document> {
    let mut stream = connect(server);
    // the server may close the connection while the message is still sent
    let _ = stream.write_all(message);
    let _ = stream.shutdown(Shutdown::Write);
    reply(&mut stream, 5).map(|(_, document)| document)
}

/// Sends a command, and stays there for its reply: one that takes time ends when its client has gone.
fn answer_to_command(server: &TestServer, message: &[u8]) -> Document {
    let mut stream = connect(server);
    stream.write_all(message).unwrap();
    reply(&mut stream, 5).map(|(_, document)| document).unwrap()
}

#[track_caller]
fn assert_goes_on(server: &TestServer) {
    assert_eq!(answer(server, &message(OP_MSG, &ping())), Some(doc! { "ok": 1.0 }));
}

/// Sends a message. Returns the operation of its reply.
fn connected_reply(server: &TestServer, message: &[u8]) -> i32 {
    let mut stream = connect(server);
    stream.write_all(message).unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    i32::from_le_bytes(head[12..].try_into().unwrap())
}

fn section(name: &str, documents: &[u8]) -> Vec<u8> {
    let mut section = vec![1];
    section.extend_from_slice(&(4 + name.len() as i32 + 1 + documents.len() as i32).to_le_bytes());
    section.extend_from_slice(name.as_bytes());
    section.push(0);
    section.extend_from_slice(documents);
    section
}

fn compressed(compressor: u8, length: i32, packed: &[u8]) -> Vec<u8> {
    let mut content = OP_MSG.to_le_bytes().to_vec();
    content.extend_from_slice(&length.to_le_bytes());
    content.push(compressor);
    content.extend_from_slice(packed);
    message(OP_COMPRESSED, &content)
}

#[test]
fn a_frame_of_a_wrong_length_ends_its_connection() {
    let server = open_server();
    let good = message(OP_MSG, &ping());
    for length in [i32::MIN, -1, 0, 15, 16, 17, 20, good.len() as i32 - 1, 48_000_001, i32::MAX] {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(answer(&server, &bytes), None, "length {length}");
    }
    for cut in 0..good.len() {
        assert_eq!(answer(&server, &good[..cut]), None, "{cut} bytes");
    }
    assert_goes_on(&server);
}

#[test]
fn an_unknown_operation_or_checksum_ends_its_connection() {
    let server = open_server();
    for op in [0, 1, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 2014, -1, i32::MAX, i32::MIN] {
        assert_eq!(answer(&server, &message(op, &ping())), None, "operation {op}");
    }
    let with_checksum = body(1, &rawdoc! { "ping": 1, "$db": "admin" });
    for checksum in [[0; 4], [0xFF; 4]] {
        let bytes = message(OP_MSG, &[with_checksum.as_slice(), &checksum].concat());
        assert_eq!(answer(&server, &bytes), None);
    }
    // a checksum that would begin before the message
    assert_eq!(answer(&server, &message(OP_MSG, &[1, 0, 0, 0])), None);
    assert_goes_on(&server);
}

#[test]
fn sections_that_are_cut_unknown_or_twice_end_their_connection() {
    let server = open_server();
    let insert = body(0, &rawdoc! { "insert": "things", "$db": "docs" });
    let one = rawdoc! { "_id": 1 }.into_bytes();
    let list = section("documents", &one);
    for kind in 2..=255 {
        assert_eq!(answer(&server, &message(OP_MSG, &[ping().as_slice(), &[kind]].concat())), None);
    }
    for cut in 1..list.len() {
        let bytes = message(OP_MSG, &[insert.as_slice(), &list[..cut]].concat());
        assert_eq!(answer(&server, &bytes), None, "{cut} bytes");
    }
    for length in [i32::MIN, -1, 0, 4, 13, 14 + one.len() as i32 - 1, 14 + one.len() as i32 + 1, i32::MAX] {
        let mut list = list.clone();
        list[1..5].copy_from_slice(&length.to_le_bytes());
        assert_eq!(answer(&server, &message(OP_MSG, &[insert.as_slice(), &list].concat())), None, "{length}");
    }
    let two_bodies = [insert.as_slice(), &ping()[4..]].concat();
    assert_eq!(answer(&server, &message(OP_MSG, &two_bodies)), None);
    assert_eq!(answer(&server, &message(OP_MSG, &[&[0; 4], list.as_slice()].concat())), None, "no body");
    let two_lists = [insert.as_slice(), &list, &section("documents", &rawdoc! { "_id": 2 }.into_bytes())];
    assert_eq!(answer(&server, &message(OP_MSG, &two_lists.concat())), None);
    let not_utf8 = [insert.as_slice(), &[1, 7, 0, 0, 0, 0xFF, 0xFE, 0]].concat();
    assert_eq!(answer(&server, &message(OP_MSG, &not_utf8)), None);
    // nothing of it was written
    let count = message(OP_MSG, &body(0, &rawdoc! { "count": "things", "$db": "docs" }));
    assert_eq!(answer_to_command(&server, &count), doc! { "n": 0, "ok": 1.0 });
}

/// A message of 40 MB would take minutes if each section were compared with all before it.
#[test]
fn a_message_of_many_sections_or_documents_is_refused() {
    let server = open_server();
    let insert = body(0, &rawdoc! { "insert": "things", "$db": "docs" });
    let sections: Vec<u8> = (0..1_000_000).flat_map(|n| section(&n.to_string(), &[])).collect();
    let documents = section("documents", &[5, 0, 0, 0, 0].repeat(100_001));
    for list in [sections, documents] {
        let start = Instant::now();
        assert_eq!(answer(&server, &message(OP_MSG, &[insert.as_slice(), &list].concat())), None);
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
    assert_goes_on(&server);
}

#[test]
fn a_document_whose_lengths_overflow_is_refused() {
    let server = open_server();
    let good = ping();
    // the length of the document itself is a part of the frame
    for length in [i32::MIN, -1, 0, 4, good.len() as i32 - 5 + 1, i32::MAX] {
        let mut bytes = good.clone();
        bytes[5..9].copy_from_slice(&length.to_le_bytes());
        assert_eq!(answer(&server, &message(OP_MSG, &bytes)), None, "length {length}");
    }
    // those inside are part of the command
    for value in [
        rawdoc! { "v": "text" },
        rawdoc! { "v": { "a": 1 } },
        rawdoc! { "v": [1] },
        rawdoc! { "v": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1; 4] } },
    ] {
        let command = body(0, &rawdoc! { "ping": 1, "$db": "admin", "comment": value });
        let at = command.windows(2).rposition(|bytes| bytes == b"v\0").unwrap() + 2;
        for length in [i32::MIN, -1, 0, 100, i32::MAX] {
            let mut bytes = command.clone();
            bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
            let refused = answer(&server, &message(OP_MSG, &bytes)).unwrap();
            // an empty binary leaves four bytes that are no element either
            assert_eq!(refused.get_i32("code").ok(), Some(22), "length {length}: {refused}");
        }
    }
    assert_goes_on(&server);
}

#[test]
fn text_that_is_not_utf_8_is_refused_wherever_it_stands() {
    let server = open_server();
    for command in [
        rawdoc! { "insert": "things", "documents": [{ "_id": 1, "TEXT": 1 }], "$db": "docs" },
        rawdoc! { "insert": "things", "documents": [{ "_id": 1, "a": "TEXT" }], "$db": "docs" },
        rawdoc! { "insert": "TEXT", "documents": [{ "_id": 1 }], "$db": "docs" },
        rawdoc! { "find": "things", "filter": { "TEXT": 1 }, "$db": "docs" },
        rawdoc! { "find": "things", "TEXT": 1, "$db": "docs" },
        rawdoc! { "TEXT": 1, "$db": "docs" },
    ] {
        let mut bytes = body(0, &command);
        let at = bytes.windows(4).position(|bytes| bytes == b"TEXT").unwrap();
        bytes[at..at + 2].copy_from_slice(&[0xC0, 0x80]);
        let refused = answer(&server, &message(OP_MSG, &bytes)).unwrap();
        assert_eq!(refused.get_i32("code").ok(), Some(22), "{refused}");
        assert!(refused.get_str("errmsg").unwrap().contains("UTF-8"), "{refused}");
    }
    // a document beside the body is looked at as well
    let mut list = section("documents", rawdoc! { "_id": 1, "a": "TEXT" }.as_bytes());
    let at = list.windows(4).position(|bytes| bytes == b"TEXT").unwrap();
    list[at] = 0xFF;
    let insert = body(0, &rawdoc! { "insert": "things", "$db": "docs" });
    let refused = answer(&server, &message(OP_MSG, &[insert, list].concat())).unwrap();
    assert!(refused.to_string().contains("UTF-8"), "{refused}");
}

/// Returns the document `{a: {a: …}}`.
fn nested(depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for left in (0..depth).rev() {
        // length, type and name of each level that is inside, and all the ends
        out.extend_from_slice(&(5 + left as i32 * 8).to_le_bytes());
        if left > 0 {
            out.extend_from_slice(&[3, b'a', 0]);
        }
    }
    out.extend(std::iter::repeat_n(0, depth));
    out
}

#[test]
fn documents_nested_10_000_deep_are_refused() {
    let server = open_server();
    let deep = RawDocumentBuf::from_bytes(nested(10_000)).unwrap();
    for command in [
        rawdoc! { "insert": "things", "documents": [deep.clone()], "$db": "docs" },
        rawdoc! { "find": "things", "filter": deep.clone(), "$db": "docs" },
        rawdoc! { "update": "things", "updates": [{ "q": {}, "u": deep.clone() }], "$db": "docs" },
        rawdoc! { "aggregate": "things", "pipeline": [{ "$project": deep.clone() }], "cursor": {}, "$db": "docs" },
        rawdoc! { "hello": 1, "client": deep.clone(), "$db": "docs" },
        deep.clone(),
    ] {
        let refused = answer_to_command(&server, &message(OP_MSG, &body(0, &command)));
        assert_eq!(refused.get_i32("code").ok(), Some(15), "{refused}");
        assert!(refused.get_str("errmsg").unwrap().contains("deeper than 100"), "{refused}");
    }
    let insert = body(0, &rawdoc! { "insert": "things", "$db": "docs" });
    let list = section("documents", deep.as_bytes());
    let refused = answer(&server, &message(OP_MSG, &[insert, list].concat())).unwrap();
    assert!(refused.to_string().contains("deeper than 100"), "{refused}");
}

#[test]
fn a_compressed_message_of_another_size_is_refused() {
    let server = open_server();
    let packed = |compressor: u8, content: &[u8]| match compressor {
        0 => content.to_vec(),
        1 => snap::raw::Encoder::new().compress_vec(content).unwrap(),
        2 => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        _ => zstd::bulk::compress(content, 3).unwrap(),
    };
    let content = ping();
    for compressor in 0..4 {
        let bytes = packed(compressor, &content);
        let length = content.len() as i32;
        let good = connected_reply(&server, &compressed(compressor, length, &bytes));
        // a reply to the compressor 0, which is none, is not compressed either
        assert_eq!(good, if compressor == 0 { OP_MSG } else { OP_COMPRESSED }, "compressor {compressor}");
        for wrong in [i32::MIN, -1, 0, length - 1, length + 1, 48_000_000, 48_000_001, i32::MAX] {
            assert_eq!(
                answer(&server, &compressed(compressor, wrong, &bytes)),
                None,
                "{compressor}: {wrong}"
            );
        }
        assert_eq!(answer(&server, &compressed(compressor, length, &bytes[..bytes.len() - 1])), None);
        // a compressed message inside
        let mut inner = compressed(compressor, length, &bytes);
        inner[16..20].copy_from_slice(&OP_COMPRESSED.to_le_bytes());
        assert_eq!(answer(&server, &inner), None);
    }
    for compressor in 4..=255 {
        assert_eq!(answer(&server, &compressed(compressor, content.len() as i32, &content)), None);
    }
    assert_goes_on(&server);
}

/// A frame of zstd says how large a window its reader has to reserve, here 2 GiB.
#[test]
fn a_zstd_frame_that_asks_for_a_large_window_is_refused() {
    let server = open_server();
    // magic number, descriptor without a size, window of 2^31, one raw block of 4 bytes that is the last
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA8, 0x21, 0x00, 0x00, 1, 2, 3, 4];
    assert_eq!(answer(&server, &compressed(3, 4, &frame)), None);
    assert_goes_on(&server);
}

#[test]
fn cursors_that_nobody_reads_have_a_limit_of_memory() {
    let server =
        TestServer::start_with(MongoOptions { cursor_memory_max: 1 << 20, ..MongoOptions::default() });
    let mut stream = connect(&server);
    let mut send = |command: RawDocumentBuf| -> Document {
        stream.write_all(&message(OP_MSG, &body(0, &command))).unwrap();
        reply(&mut stream, 5).unwrap().1
    };
    for n in 0..10 {
        let documents: bson::RawArrayBuf =
            (0..100).map(|m| rawdoc! { "_id": n * 100 + m, "x": "y".repeat(1000) }).collect();
        send(rawdoc! { "insert": "things", "documents": documents, "$db": "docs" });
    }
    // a projection makes documents that nobody else has, 1 MB of them
    let find = rawdoc! { "find": "things", "projection": { "z": "$x" }, "batchSize": 2, "$db": "docs" };
    let first = send(find.clone());
    let mut refused = send(find.clone());
    while refused.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
        refused = send(find.clone());
    }
    assert_eq!(refused.get_i32("code").ok(), Some(146), "{refused}");
    assert!(refused.get_str("errmsg").unwrap().contains("cursor_memory_max"), "{refused}");
    // what needs no cursor is answered still
    assert_eq!(send(rawdoc! { "find": "things", "limit": 1, "$db": "docs" }).get_f64("ok").ok(), Some(1.0));
    let id = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    send(rawdoc! { "killCursors": "things", "cursors": [id], "$db": "docs" });
    assert_eq!(send(find).get_f64("ok").ok(), Some(1.0));
}

/// Replies that their clients do not take have a limit: the slowest client loses its connection, the others are answered.
#[test]
fn replies_that_nobody_takes_have_a_limit_of_memory() {
    const LIMIT: usize = 64 << 20;
    let server =
        TestServer::start_with(MongoOptions { message_memory_max: LIMIT, ..MongoOptions::default() });
    let mut good = connect(&server);
    let document = rawdoc! { "_id": 1, "x": "y".repeat(10 << 20) };
    let insert = body(0, &rawdoc! { "insert": "things", "documents": [document], "$db": "docs" });
    good.write_all(&message(OP_MSG, &insert)).unwrap();
    assert_eq!(reply(&mut good, 5).unwrap().1.get_f64("ok").ok(), Some(1.0));
    let find = message(OP_MSG, &body(0, &rawdoc! { "find": "things", "filter": {}, "$db": "docs" }));
    let mut silent: Vec<TcpStream> = (0..30).map(|_| connect(&server)).collect();
    for stream in &mut silent {
        stream.write_all(&find).unwrap();
    }
    // their replies have begun or their connections are closed: from now on, that of the client who reads is never the oldest
    for stream in &silent {
        stream.peek(&mut [0]).unwrap_or_default();
    }
    let start = Instant::now();
    for _ in 0..20 {
        good.write_all(&message(OP_MSG, &ping())).unwrap();
        assert_eq!(reply(&mut good, 5).unwrap().1, doc! { "ok": 1.0 });
        good.write_all(&find).unwrap();
        let found = reply(&mut good, 5).unwrap().1;
        assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    }
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    // at most 6 of the replies, 10 MB each, fit below the limit
    let mut whole = 0;
    for stream in &mut silent {
        let (mut head, mut bytes) = ([0; 4], Vec::new());
        if stream.read_exact(&mut head).is_err() {
            continue;
        }
        let rest = i32::from_le_bytes(head) as u64 - 4;
        let read = stream.take(rest).read_to_end(&mut bytes);
        whole += usize::from(read.is_ok() && bytes.len() as u64 == rest);
    }
    assert!(whole <= 6, "{whole} replies of 10 MB");
}

fn aggregate(server: &TestServer, stages: impl IntoIterator<Item = RawDocumentBuf>) -> Document {
    let stages: bson::RawArrayBuf = stages.into_iter().collect();
    let command = rawdoc! { "aggregate": "things", "pipeline": stages, "cursor": {}, "$db": "docs" };
    answer_to_command(server, &message(OP_MSG, &body(0, &command)))
}

/// Each stage puts the results of the one before one level deeper.
#[test]
fn pipelines_do_not_nest_documents_without_end() {
    let server = open_server();
    let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }], "$db": "docs" };
    answer(&server, &message(OP_MSG, &body(0, &insert))).unwrap();
    let group = |count| std::iter::repeat_n(rawdoc! { "$group": { "_id": { "a": "$_id" } } }, count);
    // few, as this test decodes the reply by calls for each level
    assert_eq!(aggregate(&server, group(20)).get_f64("ok").ok(), Some(1.0));
    assert_eq!(aggregate(&server, group(200)).get_i32("code").ok(), Some(15));
    assert_eq!(aggregate(&server, group(1001)).get_i32("code").ok(), Some(7_749_501));
}

#[test]
fn windows_and_failing_expressions_take_any_number() {
    let server = open_server();
    let documents: bson::RawArrayBuf = (0..50).map(|n| rawdoc! { "_id": n }).collect();
    let insert = rawdoc! { "insert": "things", "documents": documents, "$db": "docs" };
    answer(&server, &message(OP_MSG, &body(0, &insert))).unwrap();
    let window = |output: RawDocumentBuf| {
        aggregate(
            &server,
            [rawdoc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "x": output } } }],
        )
    };
    let shift = window(rawdoc! { "$shift": { "output": "$_id", "by": i64::MIN } });
    assert_eq!(shift.get_f64("ok").ok(), Some(0.0), "{shift}");
    let sum = window(rawdoc! { "$sum": "$_id", "window": { "documents": [i64::MIN, i64::MAX] } });
    let first =
        sum.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
    assert_eq!(first.get_i32("x").ok(), Some(1225), "{sum}");
    // an expression that works for a second before it fails does so for the first document only
    let range = rawdoc! { "$range": [0, 1_000_000] };
    let map = rawdoc! { "$map": { "input": range.clone(), "in": { "$map": { "input": range, "in": 1 } } } };
    let find = rawdoc! { "find": "things", "filter": { "$expr": map }, "$db": "docs" };
    let start = Instant::now();
    let refused = answer_to_command(&server, &message(OP_MSG, &body(0, &find)));
    assert_eq!(refused.get_i32("code").ok(), Some(146), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}
