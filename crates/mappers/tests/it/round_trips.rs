//! Events that become messages and come back, and messages of arbitrary bytes.

use std::sync::Arc;

use arrow_array::RecordBatch;
use proptest::prelude::*;
use tidemill_connect::{MapperConfig, Message};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{StreamSchema, Timestamp};

use crate::fixture::{mapper, named, read, schema, show, sink, source, write};

/// Mapper with the options of both directions, and whether it may refuse events with unusual values.
struct Form {
    name: &'static str,
    source: MapperConfig,
    sink: MapperConfig,
    refuses: bool,
    /// True if null comes back.
    nulls: bool,
    /// Attributes of the stream.
    names: &'static [&'static str],
}

fn form(name: &'static str, source: MapperConfig, sink: MapperConfig, refuses: bool) -> Form {
    Form { name, source, sink, refuses, nulls: true, names: &ALL }
}

fn forms() -> Vec<Form> {
    let plain = |name: &str| mapper(name, &[]);
    let grouped = |name: &str| mapper(name, &[("event.grouping.enabled", "true")]);
    let mut paths = plain("json");
    paths.attributes = ALL.iter().map(|name| named(name, &format!("$.event.{name}"))).collect();
    vec![
        form("passThrough", plain("passThrough"), plain("passThrough"), false),
        form("json", plain("json"), mapper("json", &[("enable.null.attribute.value", "true")]), true),
        form(
            "json without nulls",
            mapper("json", &[("fail.on.missing.attribute", "false"), ("enclosing.element", "$.a.b")]),
            mapper("json", &[("enclosing.element", "$.a.b"), ("event.grouping.enabled", "true")]),
            true,
        ),
        form("json paths", paths, mapper("json", &[("enable.null.attribute.value", "true")]), true),
        form("text", plain("text"), plain("text"), true),
        form("text grouped", grouped("text"), grouped("text"), true),
        form("xml", plain("xml"), plain("xml"), true),
        form(
            "keyvalue",
            mapper("keyvalue", &[("fail.on.missing.attribute", "false")]),
            plain("keyvalue"),
            false,
        ),
        form(
            "keyvalue with other delimiters",
            mapper(
                "keyvalue",
                &[("fail.on.missing.attribute", "false"), ("delimiter", "--"), ("key.value.separator", "=")],
            ),
            mapper("keyvalue", &[("delimiter", "--"), ("key.value.separator", "=")]),
            false,
        ),
        form("csv", plain("csv"), plain("csv"), false),
        form(
            "csv grouped",
            mapper("csv", &[("header.present", "true"), ("delimiter", "-")]),
            mapper("csv", &[("header", "true"), ("delimiter", "-"), ("event.grouping.enabled", "true")]),
            false,
        ),
        csv_columns(),
        Form { names: &ALL[..7], nulls: false, ..form("binary", plain("binary"), plain("binary"), false) },
        Form {
            names: &ALL[..7],
            nulls: false,
            ..form("binary grouped", plain("binary"), grouped("binary"), false)
        },
        Form { nulls: false, ..form("avro", plain("avro"), plain("avro"), false) },
        avro_nullable(),
        protobuf(),
        Form { nulls: false, ..form("xml paths", xml_paths(), xml_template(), true) },
    ]
}

fn avro_nullable() -> Form {
    let types = ["string", "boolean", "int", "long", "float", "double"].map(|ty| format!("\"{ty}\""));
    let time = "{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}".to_owned();
    let types = types.into_iter().chain([time, "\"string\"".to_owned()]);
    let fields =
        ALL.iter().zip(types).map(|(name, ty)| format!(r#"{{"name":"{name}","type":["null",{ty}]}}"#));
    let schema = format!(
        r#"{{"type":"record","name":"R","namespace":"a.b","fields":[{}]}}"#,
        fields.collect::<Vec<_>>().join(",")
    );
    let source = mapper("avro", &[("schema.def", &schema), ("use.avro.deserializer", "true")]);
    let options = [("schema.def", schema.as_str()), ("use.avro.serializer", "true"), ("schema.id", "7")];
    form("avro with null", source, mapper("avro", &options), false)
}

fn protobuf() -> Form {
    let types = ["string", "bool", "sint32", "sfixed64", "float", "double", "string", "bytes"];
    let fields = ALL.iter().zip(types).enumerate();
    let fields = fields.map(|(n, (name, ty))| format!("optional {ty} {name} = {};", n + 1));
    let text = format!("syntax = \"proto3\"; message E {{ {} }}", fields.collect::<String>());
    let mapper = mapper("protobuf", &[("schema.def", &text)]);
    form("protobuf", mapper.clone(), mapper, false)
}

fn csv_columns() -> Form {
    let mut source = mapper("csv", &[("delimiter", "\\t")]);
    let mut sink = mapper("csv", &[("delimiter", "\\t")]);
    for (index, name) in ALL.iter().enumerate() {
        let column = (7 - index).to_string();
        source.attributes.push(named(name, &column));
        sink.payload.push(named(name, &column));
    }
    form("csv columns", source, sink, false)
}

fn xml_paths() -> MapperConfig {
    let options = [("enclosing.element", "//a:all"), ("namespaces", "a=urn:x")];
    let mut mapper = mapper("xml", &options);
    let named = ALL.iter().map(|name| match *name {
        "s" | "o" => named(name, &format!("../e/@{name}")),
        name => named(name, &format!("v[@n='{name}']/text()")),
    });
    mapper.attributes = named.collect();
    mapper.options.push(("fail.on.missing.attribute".into(), "false".into()));
    mapper
}

fn xml_template() -> MapperConfig {
    let mut mapper =
        mapper("xml", &[("enclosing.element", "<a:all xmlns:a='urn:x'>"), ("validate.xml", "true")]);
    let mut text = "<e s=\"{{s}}\" o='{{o}}'>".to_owned();
    for name in &ALL[1..7] {
        text += &format!("<v n='{name}'>{{{{{name}}}}}</v>");
    }
    mapper.payload.push(named("", &(text + "</e>")));
    mapper
}

const ALL: [&str; 8] = ["s", "b", "i", "l", "f", "d", "t", "o"];

/// Returns the stream with the first attributes.
fn stream(names: &[&str]) -> Arc<StreamSchema> {
    let types = ["string", "bool", "int", "long", "float", "double", "time", "object"];
    schema(&names.iter().zip(types).map(|(name, ty)| format!("{name} {ty}")).collect::<Vec<_>>().join(","))
}

/// Returns events as a batch, with the first attributes.
fn batch(stream: &Arc<StreamSchema>, events: &[&Vec<FieldValue>]) -> RecordBatch {
    let mut builder = BatchBuilder::new(stream.clone());
    for event in events {
        builder.push_values(&event[..stream.fields.len()], Timestamp(1)).unwrap();
    }
    builder.finish()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,3}",
        ".{0,12}",
        "[\"',:\\\\<>&{}\n\r\t ~;=\\[\\]\u{0}]{0,12}",
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1".to_owned()),
        Just("a\",\nb:\"c".to_owned()),
        Just("\n~~~~~~~~~~\n".to_owned()),
        Just("]]>".to_owned()),
        Just("\u{feff}".to_owned()),
    ]
}

fn json_text() -> impl Strategy<Value = String> {
    prop_oneof![
        text().prop_map(|text| serde_json::Value::from(text).to_string()),
        any::<i32>().prop_map(|n| n.to_string()),
        Just("{\"a\":[1,2.5,\"x\"],\"b\":null}".to_owned()),
        Just("[]".to_owned()),
        Just("true".to_owned()),
    ]
}

fn cell(value: impl Strategy<Value = FieldValue>) -> impl Strategy<Value = FieldValue> {
    prop_oneof![1 => Just(FieldValue::Missing), 9 => value]
}

prop_compose! {
    fn event()(
        s in cell(text().prop_map(FieldValue::Text)),
        b in cell(any::<bool>().prop_map(FieldValue::Bool)),
        i in cell(any::<i32>().prop_map(|n| FieldValue::Int(n.into()))),
        l in cell(any::<i64>().prop_map(FieldValue::Int)),
        f in cell(any::<f32>().prop_map(|x| FieldValue::Float(x.into()))),
        d in cell(any::<f64>().prop_map(FieldValue::Float)),
        t in cell((-62_000_000_000_000_000_i64..250_000_000_000_000_000).prop_map(|t| FieldValue::Time(Timestamp(t)))),
        o in cell(json_text().prop_map(FieldValue::Text)),
    ) -> Vec<FieldValue> {
        vec![s, b, i, l, f, d, t, o]
    }
}

/// Returns whether some value is not a number or infinite.
fn has_no_number(event: &[FieldValue]) -> bool {
    event
        .iter()
        .any(|value| matches!(value, FieldValue::Float(x) if !(*x as f32).is_finite() && !x.is_finite()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn events_come_back(events in prop::collection::vec(event(), 1..6)) {
        for form in forms() {
            let stream = stream(form.names);
            let has_null = |event: &Vec<FieldValue>| event.contains(&FieldValue::Missing);
            let events: Vec<_> = events.iter().filter(|event| form.nulls || !has_null(event)).collect();
            let rows = batch(&stream, &events);
            let (payloads, refused) = write(sink(&stream, &form.sink).unwrap().as_mut(), &rows);
            let sent: Vec<usize> = payloads.iter().flat_map(|p| p.row..p.row + p.rows).collect();
            let messages: Vec<Message> = payloads.iter().map(|p| Message::new(p.bytes.clone())).collect();
            let mut mapper = source(&stream, form.source).unwrap();
            let (back, rejected) = read(&stream, mapper.as_mut(), &messages);
            prop_assert!(rejected.is_empty(), "{}: {rejected:?}", form.name);
            let back: Vec<String> = back.iter()
                .flat_map(|rows| (0..rows.num_rows()).map(|row| show(&stream, rows, row)))
                .collect();
            let expected: Vec<String> = sent.iter().map(|row| show(&stream, &rows, *row)).collect();
            prop_assert_eq!(back, expected, "{}", form.name);
            prop_assert!(refused.is_empty() || form.refuses, "{}: {refused:?}", form.name);
            for refused in refused {
                let event = &events[refused.row];
                let strange = |value: &FieldValue| {
                    let FieldValue::Text(text) = value else { return false };
                    text.contains(['\n', '\r', '\u{0}']) || text.chars().any(|c| c.is_control())
                };
                prop_assert!(
                    has_no_number(event) || event.iter().any(strange),
                    "{}: {refused:?} {event:?}", form.name
                );
            }
        }
    }

    #[test]
    fn bytes_give_events_or_rejections(
        messages in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[\\[\\]{}\",:0-9a-z<>/ \n~-]{0,40}".prop_map(String::into_bytes),
        ], 1..5),
    ) {
        let stream = schema("s string, i int");
        let messages: Vec<Message> = messages.into_iter().map(Message::new).collect();
        for form in forms() {
            if form.source.attributes.is_empty() {
                // `read` checks that each message counts
                read(&stream, source(&stream, form.source).unwrap().as_mut(), &messages);
            }
        }
    }

    #[test]
    fn changed_messages_give_events_or_rejections(
        events in prop::collection::vec(event(), 1..4),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        for form in forms() {
            let stream = stream(form.names);
            let rows = batch(&stream, &events.iter().collect::<Vec<_>>());
            let (payloads, _) = write(sink(&stream, &form.sink).unwrap().as_mut(), &rows);
            let changed = payloads.iter().map(|payload| {
                let mut bytes = payload.bytes.to_vec();
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes.truncate(if cut { at } else { bytes.len() });
                Message::new(bytes)
            });
            let messages: Vec<Message> = changed.collect();
            read(&stream, source(&stream, form.source).unwrap().as_mut(), &messages);
        }
    }
}
