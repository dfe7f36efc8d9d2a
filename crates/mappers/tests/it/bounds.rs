//! Messages that are made to exhaust the stack or the memory, and large ones.

use tidemill_connect::{MapperConfig, Message};

use crate::fixture::{mapper, named, read, schema, source};

/// Maps a message and returns the numbers of events and of rejections.
fn counts(stream: &str, config: MapperConfig, message: Vec<u8>) -> (usize, usize) {
    let stream = schema(stream);
    let mut mapper = source(&stream, config).unwrap();
    let (rows, rejected) = read(&stream, mapper.as_mut(), &[Message::new(message)]);
    (rows.map_or(0, |rows| rows.num_rows()), rejected.len())
}

fn with_paths(kind: &str, options: &[(&str, &str)], paths: &[(&str, &str)]) -> MapperConfig {
    let mut config = mapper(kind, options);
    config.attributes = paths.iter().map(|(name, path)| named(name, path)).collect();
    config
}

#[test]
fn deep_documents_are_rejected() {
    let deep = |open: &str, close: &str, depth| (open.repeat(depth) + &close.repeat(depth)).into_bytes();
    for depth in [129, 100_000] {
        let xml = with_paths("xml", &[], &[("s", "//a")]);
        assert_eq!(counts("s string", xml, deep("<a>", "</a>", depth)), (0, 1));
        let json = with_paths("json", &[], &[("s", "$..a")]);
        assert_eq!(counts("s string", json, deep("{\"a\":", "}", depth)), (0, 1));
        let unclosed = deep("[", "", depth);
        assert_eq!(counts("s string", mapper("json", &[]), unclosed.clone()), (0, 1));
        assert_eq!(counts("s string", mapper("passThrough", &[]), unclosed), (0, 1));
        // a message inside of a message, with a length that is that of all behind it
        let mut proto = vec![];
        for _ in 0..depth {
            let mut outer = vec![0x0a];
            prost_reflect::prost::encoding::encode_varint(proto.len() as u64, &mut outer);
            outer.extend(&proto);
            proto = outer;
            if proto.len() > 3000 {
                break;
            }
        }
        let options = [("schema.def", "syntax = \"proto3\"; message A { A a = 1; string s = 2; }")];
        assert_eq!(counts("s string", mapper("protobuf", &options), proto), (0, 1));
    }
    let within = with_paths("xml", &[], &[("s", "//a[last()]/b")]);
    let message = "<a>".repeat(100) + "<b>x</b>" + &"</a>".repeat(100);
    assert_eq!(counts("s string", within, message.into_bytes()), (1, 0));
}

#[test]
fn entities_do_not_grow() {
    let bomb = r#"<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">
        <!ENTITY c SYSTEM "file:///etc/passwd">]><events><event><s>&b;&c;</s></event></events>"#;
    assert_eq!(counts("s string", mapper("xml", &[]), bomb.as_bytes().to_vec()), (0, 1));
}

#[test]
fn counts_and_lengths_are_not_believed() {
    let many = i32::MAX.to_be_bytes().to_vec();
    assert_eq!(counts("s string", mapper("binary", &[]), many.clone()), (0, 1));
    let long = [&1_i32.to_be_bytes()[..], &0_i64.to_be_bytes(), &many].concat();
    assert_eq!(counts("s string", mapper("binary", &[]), long), (0, 1));
    let options = [("schema.def", r#"{"type":"array","items":{"type":"array","items":"int"}}"#)];
    // blocks of 2^40 and 2^20 items
    for count in [[0x80, 0x80, 0x80, 0x80, 0x80, 0x40].as_slice(), &[0x80, 0x80, 0x80, 0x01]] {
        assert_eq!(counts("s string", mapper("avro", &options), count.repeat(3)), (0, 1));
    }
}

#[test]
fn large_messages_are_mapped_whole() {
    // with a step for each pair of rows, each of these messages would take minutes
    let rows = 20_000;
    let lines = "a,1\n".repeat(rows);
    assert_eq!(counts("s string, n int", mapper("csv", &[]), lines.into_bytes()), (rows, 0));
    let all = "<e><s>a</s><n>1</n></e>".repeat(rows);
    let xml = with_paths("xml", &[("enclosing.element", "/all")], &[("s", "//s"), ("n", "n")]);
    assert_eq!(counts("s string, n int", xml, format!("<all>{all}</all>").into_bytes()), (rows, 0));
    let leaves = format!("<all k=\"v\"><s>a</s>{}</all>", "<b n=\"1\"/>".repeat(rows));
    let options = [("extract.leaf.node.data", "true")];
    let xml = with_paths("xml", &options, &[("s", "/all/s"), ("n", "/all/b/@n")]);
    assert_eq!(counts("s string, n int", xml, leaves.into_bytes()), (rows, 0));
    let pairs = (0..rows).map(|n| format!("k{n}:v,")).collect::<String>() + "s:'a',n:1";
    assert_eq!(counts("s string, n int", mapper("keyvalue", &[]), pairs.into_bytes()), (1, 0));
    let quotes = format!("s:\"{}\",\nn:1", "\",".repeat(rows));
    assert_eq!(counts("s string, n int", mapper("text", &[]), quotes.into_bytes()), (1, 0));
    let regex = with_paths("text", &[("regex.A", "(a+)+(?=b)$")], &[("s", "A[1]")]);
    assert_eq!(counts("s string", regex, "a".repeat(rows).into_bytes()), (0, 1));
}
