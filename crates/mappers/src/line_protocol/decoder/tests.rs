use influxdb_line_protocol::LineProtocolBuilder;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use tidemill_types::{Field, FieldType, event_json};

use super::*;

fn stream(name: &str, fields: &[(&str, FieldType)], id: &[usize]) -> Arc<StreamSchema> {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: name.into(), fields, key: None, id: id.to_vec(), time: Some(0) })
}

fn streams() -> Vec<Arc<StreamSchema>> {
    use FieldType::*;
    vec![
        stream(
            "cpu",
            &[("at", Time), ("host", String), ("core", Int), ("usage", Double), ("idle", Long), ("up", Bool)],
            &[0, 2],
        ),
        stream(
            "log",
            &[("time", Time), ("text", String), ("more", Object), ("seen", Time), ("ratio", Float)],
            &[],
        ),
        Arc::new(StreamSchema { time: None, ..(*stream("plain", &[("n", Long)], &[])).clone() }),
    ]
}

fn decode(body: &[u8], options: LineOptions) -> (Vec<String>, Vec<String>) {
    let streams = streams();
    let lookup = move |name: &str| {
        streams
            .iter()
            .find(|s| s.name == name)
            .cloned()
            .ok_or_else(|| format!("measurement `{name}`: unknown"))
    };
    let mut decoder = LineDecoder::new(options, lookup);
    decoder.push_body(body, Timestamp(7_000_000));
    let rows = decoder.finish();
    let mut events = vec![String::new(); rows.rows.len()];
    rows.rows.for_each_arrival(|arrival, part, row| {
        let (stream, batch) = &rows.rows.parts[part];
        events[arrival] = format!("{} {}", stream.name, Json::Object(event_json(stream, batch, row)));
    });
    (events, rows.rejected.iter().map(ToString::to_string).collect())
}

fn kept() -> LineOptions {
    LineOptions { fills_time: true, keeps_mismatches: true, ..LineOptions::default() }
}

#[test]
fn values_go_to_fields_by_name_and_others_are_kept() {
    let body = b"cpu,host=a,core=3,rack=r7 usage=1i,idle=97.0,up=t,load=0.5 1451606400000000000\n\
        cpu,host=a,core=3 usage=\"high\",idle=0.5,up=1i,host2=\"b\" 1451606401000000000\n\
        log text=\"a, \\\"b\\\"\",more=5u,seen=1451606400000i,ratio=2 1451606402000000000\n\
        log text=7i,more=\"x\",seen=\"2016-01-01T00:00:00Z\",ratio=1e300\n\
        plain n=18446744073709551615u 1\n\
        plain n=5u 1000\n";
    let (events, rejected) = decode(body, kept());
    assert_eq!(
        events,
        [
            r#"cpu {"at":"2016-01-01T00:00:00Z","core":3,"host":"a","idle":97,"load":0.5,"rack":"r7","up":true,"usage":1.0}"#,
            r#"cpu {"at":"2016-01-01T00:00:01Z","core":3,"host":"a","host2":"b","idle":0.5,"up":1,"usage":"high"}"#,
            r#"log {"more":5,"ratio":2.0,"seen":"2016-01-01T00:00:00Z","text":"a, \"b\"","time":"2016-01-01T00:00:02Z"}"#,
            r#"log {"more":"x","ratio":1e+300,"seen":"2016-01-01T00:00:00Z","text":7,"time":"1970-01-01T00:00:07Z"}"#,
            r#"plain {"n":18446744073709551615}"#,
            r#"plain {"n":5}"#,
        ]
    );
    assert_eq!(rejected, [""; 0]);
}

#[test]
fn bad_lines_are_refused_by_themselves_with_their_numbers() {
    let body = b"# a comment\ncpu,host=a,core=x usage=1 1\ncpu usage=1 1\n\ncpu usage\nmem free=1i 1\n\
        cpu usage=1,usage=2 1\ncpu at=1i 1\n\xff usage=1 1\ncpu usage=1 x\ncpu usage=1 9223372036854775807\ncpu usage=2 1\n";
    let (events, rejected) = decode(body, kept());
    assert_eq!(events.len(), 3);
    assert_eq!(
        rejected,
        [
            "line 2, byte 12: field `core`: expected int (a whole number of 32 bits), found \"x\"",
            "line 5, byte 55: no field has a value: expected `field=value` behind the measurement and its tags",
            "line 6, byte 65: measurement `mem`: unknown",
            "line 7, byte 79: field `usage` occurs twice",
            "line 8, byte 101: field `at` occurs twice",
            "line 9, byte 113: the line is not UTF-8: its byte 1 is 0xff",
            "line 10, byte 125: expected the end of the line or a time as a whole number, found `x`",
        ]
    );
    let (_, rejected) =
        decode(b"cpu usage=1 9223372036854775807\n", LineOptions { precision: Precision::Seconds, ..kept() });
    assert_eq!(rejected, ["line 1, byte 0: the time 9223372036854775807 is not in the years -9999 to 9999"]);
}

#[test]
fn without_the_options_declarations_decide() {
    let (events, rejected) =
        decode(b"cpu,host=a usage=\"high\" 1\ncpu,host=a idle=1i\n", LineOptions::default());
    assert_eq!(events, [r#"cpu {"host":"a","idle":1}"#]);
    let reason = "line 1, byte 0: field `usage`: expected double (a number up to 1.8e308), found \"high\"";
    assert_eq!(rejected, [reason]);
}

#[derive(Debug, Clone)]
enum Value {
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    Bool(bool),
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::Unsigned),
        proptest::num::f64::NORMAL.prop_map(Value::Float),
        "[ -~äß€\n]{0,20}".prop_map(Value::Text),
        any::<bool>().prop_map(Value::Bool),
    ]
}

/// Names and texts of tags, which cannot end with a backslash in line protocol.
fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 ,=äß\"]{1,8}".prop_map(|text| format!("{text}_"))
}

proptest! {
    /// Values of all types, and names and tags with all delimiters, come back from lines that another program writes.
    #[test]
    fn values_come_back_from_lines(
        tags in proptest::collection::btree_map(name(), name(), 0..3),
        fields in proptest::collection::btree_map(name().prop_map(|n| format!("f{n}")), value(), 1..4),
        micros in -10_000_000_000_000_i64..10_000_000_000_000,
    ) {
        let mut expected = serde_json::Map::new();
        let mut line = LineProtocolBuilder::new().measurement("plain");
        for (tag, text) in tags.iter().filter(|(tag, _)| !fields.contains_key(*tag)) {
            line = line.tag(tag, text);
            expected.insert(tag.clone(), json!(text));
        }
        let mut fields = fields.into_iter();
        let (first, value) = fields.next().unwrap();
        let mut all = vec![(first.clone(), value.clone())];
        let mut line = match &value {
            Value::Int(n) => line.field(&first, *n),
            Value::Unsigned(n) => line.field(&first, *n),
            Value::Float(x) => line.field(&first, *x),
            Value::Text(text) => line.field(&first, text.as_str()),
            Value::Bool(b) => line.field(&first, *b),
        };
        for (name, value) in fields {
            line = match &value {
                Value::Int(n) => line.field(&name, *n),
                Value::Unsigned(n) => line.field(&name, *n),
                Value::Float(x) => line.field(&name, *x),
                Value::Text(text) => line.field(&name, text.as_str()),
                Value::Bool(b) => line.field(&name, *b),
            };
            all.push((name, value));
        }
        for (name, value) in all {
            expected.insert(name, match value {
                Value::Int(n) => json!(n),
                Value::Unsigned(n) => json!(n),
                Value::Float(x) => json!(x),
                Value::Text(text) => json!(text),
                Value::Bool(b) => json!(b),
            });
        }
        let body = line.timestamp(micros * 1000).close_line().build();
        let mut decoder = LineDecoder::new(kept(), |_: &str| Ok(streams()[2].clone()));
        decoder.push_body(&body, Timestamp(0));
        let rows = decoder.finish();
        prop_assert!(rows.rejected.is_empty(), "{:?}: {}", rows.rejected, String::from_utf8_lossy(&body));
        let (stream, batch) = &rows.rows.parts[0];
        prop_assert_eq!(batch.num_rows(), 1);
        let time = batch.column_by_name("_time").unwrap();
        let time = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::TimestampMicrosecondType>(time);
        prop_assert_eq!(time.value(0), micros);
        prop_assert_eq!(event_json(stream, batch, 0), expected);
    }

    /// Every line of any bytes is a row, a refusal, or neither; none ends the process.
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode(&bytes, kept());
    }

    /// As above, of bytes that mean something.
    #[test]
    fn any_delimiters_are_decoded_or_refused(text in "[cpu,= \\\\\"\n#\t\r\0ti0-9.ä-]{0,80}") {
        let (events, rejected) = decode(text.as_bytes(), kept());
        prop_assert!(events.len() + rejected.len() <= text.lines().count());
    }
}
