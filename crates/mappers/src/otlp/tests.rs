use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use tidemill_types::{Field, FieldType, StreamSchema, Timestamp, Value, row_value};

use super::messages::common::{AnyValue, ArrayValue, KeyValue, KeyValueList, Value as Any};
use super::messages::logs::{LogRecord, ResourceLogs, ScopeLogs};
use super::messages::metrics::*;
use super::messages::trace::{ResourceSpans, ScopeSpans, Span, SpanEvent, SpanLink, SpanStatus};
use super::*;
use crate::telemetry::{DeclaredStream, TelemetryRows};

const NOW: Timestamp = Timestamp(7);
const AT: u64 = 1_767_603_600_000_000_001;

/// Returns the schema of a stream as it is declared, but for the columns that `without` names.
fn schema(stream: &DeclaredStream, without: &[&str]) -> Arc<StreamSchema> {
    let columns = stream.columns.iter().filter(|(name, _)| !without.contains(name));
    let fields: Vec<Field> = columns.map(|(name, ty)| Field::new(*name, *ty)).collect();
    let index = |name: &str| fields.iter().position(|field| field.name == name);
    let (key, time) = (index(stream.key), stream.time.and_then(index));
    let id = stream.id.iter().filter_map(|name| index(name)).collect();
    Arc::new(StreamSchema { name: stream.name.into(), fields, key, id, time })
}

fn rows_of(signal: Signal, encoding: Encoding, body: &[u8]) -> Result<TelemetryRows> {
    let mut rows = StreamRows::new(|stream| Ok(schema(stream, &[])), |_| Ok(()), NOW);
    decode(signal, encoding, body, &mut rows)?;
    Ok(rows.finish())
}

/// Returns the values of a row by their columns, without those that are missing.
fn shown(rows: &TelemetryRows) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![];
    for (stream, batch) in &rows.rows.rows.parts {
        for row in 0..batch.num_rows() {
            let names = stream.fields.iter().map(|field| field.name.as_str()).chain(["_time", "_extra"]);
            let cells = names.enumerate().map(|(n, name)| (name.to_owned(), row_value(batch, n, row)));
            let cells = cells.filter(|(_, value)| !value.is_absent()).map(|(name, value)| match value {
                Value::Str(text) => (name, text.to_string()),
                value => (name, value.to_string()),
            });
            all.push(cells.collect());
        }
    }
    all
}

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(text: &str) -> Any {
    Any::Text(text.to_owned())
}

fn resource() -> Option<Resource> {
    let attributes = vec![pair("service.name", text("shop")), pair("host.id", Any::Int(1 << 60))];
    Some(Resource { attributes, dropped_attributes_count: 0 })
}

fn scope() -> Option<InstrumentationScope> {
    Some(InstrumentationScope { name: "lib".into(), version: "1".into(), ..Default::default() })
}

fn logs(log_records: Vec<LogRecord>) -> LogsRequest {
    let scope_logs = ScopeLogs { scope: scope(), log_records, schema_url: "http://scope".into() };
    let resource_logs = vec![ResourceLogs {
        resource: resource(),
        scope_logs: vec![scope_logs],
        schema_url: "http://resource".into(),
    }];
    LogsRequest { resource_logs }
}

fn record(body: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: AT,
        observed_time_unix_nano: AT + 2000,
        severity_number: 17,
        severity_text: "ERROR".into(),
        body: Some(AnyValue { value: Some(text(body)) }),
        attributes: vec![pair("user", text("u1"))],
        flags: 1,
        trace_id: (1..=16).collect(),
        span_id: (1..=8).collect(),
        ..Default::default()
    }
}

fn traces(spans: Vec<Span>) -> TracesRequest {
    let scope_spans = vec![ScopeSpans { scope: scope(), spans, ..Default::default() }];
    TracesRequest {
        resource_spans: vec![ResourceSpans { resource: resource(), scope_spans, ..Default::default() }],
    }
}

fn span() -> Span {
    Span {
        trace_id: (1..=16).collect(),
        span_id: (1..=8).collect(),
        parent_span_id: vec![9; 8],
        trace_state: "a=b".into(),
        name: "GET /".into(),
        kind: 2,
        start_time_unix_nano: AT,
        end_time_unix_nano: AT + 1_500_000,
        attributes: vec![pair("http.status", Any::Int(500))],
        events: vec![SpanEvent {
            time_unix_nano: AT + 5,
            name: "exception".into(),
            attributes: vec![pair("type", text("E"))],
            dropped_attributes_count: 2,
        }],
        links: vec![SpanLink { trace_id: vec![1; 16], span_id: vec![2; 8], flags: 1, ..Default::default() }],
        status: Some(SpanStatus { message: "no".into(), code: 2 }),
        flags: 257,
        ..Default::default()
    }
}

fn metrics(metrics: Vec<Metric>) -> MetricsRequest {
    let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics, ..Default::default() }];
    MetricsRequest {
        resource_metrics: vec![ResourceMetrics { resource: resource(), scope_metrics, ..Default::default() }],
    }
}

fn number_point() -> NumberDataPoint {
    NumberDataPoint {
        attributes: vec![pair("core", Any::Int(0))],
        start_time_unix_nano: AT - 1_000_000_000,
        time_unix_nano: AT,
        as_int: Some(i64::MAX),
        exemplars: vec![Exemplar {
            filtered_attributes: vec![pair("user", text("u1"))],
            time_unix_nano: AT,
            as_double: Some(f64::NAN),
            span_id: vec![2; 8],
            trace_id: vec![1; 16],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn all_metrics() -> MetricsRequest {
    let metric = |name: &str| Metric { name: name.into(), unit: "By".into(), ..Default::default() };
    let histogram = HistogramDataPoint {
        time_unix_nano: AT,
        count: 3,
        sum: Some(4.5),
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![2.0],
        max: Some(f64::INFINITY),
        ..Default::default()
    };
    let exponential = ExponentialHistogramDataPoint {
        time_unix_nano: AT,
        count: u64::MAX,
        scale: -1,
        zero_count: 1,
        positive: Some(Buckets { offset: -3, bucket_counts: vec![1, 1 << 60] }),
        ..Default::default()
    };
    let summary = SummaryDataPoint {
        time_unix_nano: AT,
        count: 2,
        sum: 3.0,
        quantile_values: vec![ValueAtQuantile { quantile: 0.5, value: f64::NAN }],
        ..Default::default()
    };
    metrics(vec![
        Metric { gauge: Some(Gauge { data_points: vec![number_point()] }), ..metric("g") },
        Metric {
            sum: Some(Sum {
                data_points: vec![number_point()],
                aggregation_temporality: 2,
                is_monotonic: true,
            }),
            ..metric("s")
        },
        Metric {
            histogram: Some(Histogram { data_points: vec![histogram], aggregation_temporality: 1 }),
            ..metric("h")
        },
        Metric {
            exponential_histogram: Some(ExponentialHistogram {
                data_points: vec![exponential],
                aggregation_temporality: 9,
            }),
            ..metric("e")
        },
        Metric { summary: Some(Summary { data_points: vec![summary] }), ..metric("q") },
    ])
}

fn expect(row: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = row.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

const SHARED: [(&str, &str); 4] = [
    ("service_name", "shop"),
    ("resource_attributes", r#"{"host.id":1152921504606846976,"service.name":"shop"}"#),
    ("scope_name", "lib"),
    ("scope_version", "1"),
];

#[test]
fn log_records_become_rows() {
    let body = logs(vec![record("it broke")]).encode_to_vec();
    let found = rows_of(Signal::Logs, Encoding::Protobuf, &body).unwrap();
    let row = &shown(&found)[0];
    assert_eq!(row["id"].len(), 32);
    let mut expected = SHARED.to_vec();
    expected.extend([
        ("id", row["id"].as_str()),
        ("time", "2026-01-05T09:00:00Z"),
        ("_time", "2026-01-05T09:00:00Z"),
        ("nanos", "1"),
        ("observed_time", "2026-01-05T09:00:00.000002Z"),
        ("severity_number", "17"),
        ("severity_text", "ERROR"),
        ("body", "it broke"),
        ("log_attributes", r#"{"user":"u1"}"#),
        ("flags", "1"),
        ("trace_id", "0102030405060708090a0b0c0d0e0f10"),
        ("span_id", "0102030405060708"),
        ("scope_schema_url", "http://scope"),
        ("resource_schema_url", "http://resource"),
    ]);
    expect(row, &expected);
}

#[test]
fn spans_become_rows() {
    let body = traces(vec![span()]).encode_to_vec();
    let found = rows_of(Signal::Traces, Encoding::Protobuf, &body).unwrap();
    let mut expected = SHARED.to_vec();
    expected.extend([
        ("time", "2026-01-05T09:00:00Z"),
        ("_time", "2026-01-05T09:00:00Z"),
        ("nanos", "1"),
        ("end_time", "2026-01-05T09:00:00.0015Z"),
        ("duration_nano", "1500000"),
        ("trace_id", "0102030405060708090a0b0c0d0e0f10"),
        ("span_id", "0102030405060708"),
        ("parent_span_id", "0909090909090909"),
        ("trace_state", "a=b"),
        ("flags", "257"),
        ("span_name", "GET /"),
        ("span_kind", "Server"),
        ("status_code", "Error"),
        ("status_message", "no"),
        ("span_attributes", r#"{"http.status":500}"#),
        (
            "events",
            r#"[{"time":"2026-01-05T09:00:00.000000006Z","name":"exception","attributes":{"type":"E"},"dropped_attributes_count":2}]"#,
        ),
        (
            "links",
            r#"[{"trace_id":"01010101010101010101010101010101","span_id":"0202020202020202","flags":1,"attributes":{}}]"#,
        ),
    ]);
    expect(&shown(&found)[0], &expected);
}

#[test]
fn points_of_all_kinds_become_rows_of_their_streams() {
    let found = rows_of(Signal::Metrics, Encoding::Protobuf, &all_metrics().encode_to_vec()).unwrap();
    assert!(found.rows.rejected.is_empty() && found.refused.is_empty());
    let rows = shown(&found);
    let names: Vec<&str> = rows.iter().map(|row| row["metric_name"].as_str()).collect();
    assert_eq!(names, ["g", "s", "h", "e", "q"]);
    for (row, columns) in rows.iter().zip([
        &[
            ("value", "9223372036854776000"),
            ("int_value", "9223372036854775807"),
            ("attributes", r#"{"core":0}"#),
            ("start_time", "2026-01-05T08:59:59Z"),
            ("metric_unit", "By"),
            (
                "exemplars",
                r#"[{"time":"2026-01-05T09:00:00.000000001Z","value":"NaN","trace_id":"01010101010101010101010101010101","span_id":"0202020202020202","attributes":{"user":"u1"}}]"#,
            ),
        ][..],
        &[("aggregation_temporality", "Cumulative"), ("is_monotonic", "true")],
        &[
            ("count", "3"),
            ("sum", "4.5"),
            ("max", "inf"),
            ("bucket_counts", "[1,2]"),
            ("explicit_bounds", "[2.0]"),
            ("aggregation_temporality", "Delta"),
        ],
        &[
            // beyond the range of `long`
            ("_extra", r#"{"count":18446744073709551615}"#),
            ("aggregation_temporality", "9"),
            ("scale", "-1"),
            ("zero_count", "1"),
            ("zero_threshold", "0"),
            ("positive_offset", "-3"),
            ("positive_bucket_counts", "[1,1152921504606846976]"),
        ],
        &[("count", "2"), ("sum", "3"), ("quantile_values", r#"[{"quantile":0.5,"value":"NaN"}]"#)],
    ]) {
        for (name, value) in columns {
            assert_eq!(row.get(*name).map(String::as_str), Some(*value), "{name} of {row:?}");
        }
    }
}

#[test]
fn json_gives_the_rows_of_protocol_buffers() {
    let json = r#"{"resourceLogs": [{"unknown": {"a": [1]},
      "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "host.id", "value": {"intValue": "1152921504606846976"}}]},
      "scopeLogs": [{"scope": {"name": "lib", "version": "1", "attributes": null},
        "logRecords": [{"timeUnixNano": "1767603600000000001", "observedTimeUnixNano": 1767603600000002001,
          "severityNumber": 17, "severityText": "ERROR", "body": {"stringValue": "it broke", "newValue": 1},
          "attributes": [{"key": "user", "value": {"stringValue": "u1"}}], "flags": 1,
          "traceId": "0102030405060708090A0B0C0D0E0F10", "spanId": "0102030405060708"}],
        "schemaUrl": "http://scope"}], "schemaUrl": "http://resource"}]}"#;
    let of_json = shown(&rows_of(Signal::Logs, Encoding::Json, json.as_bytes()).unwrap());
    let body = logs(vec![record("it broke")]).encode_to_vec();
    assert_eq!(of_json, shown(&rows_of(Signal::Logs, Encoding::Protobuf, &body).unwrap()));

    let json = r#"{"resourceMetrics": [{"scopeMetrics": [{"metrics": [
      {"name": "g", "gauge": {"dataPoints": [{"timeUnixNano": "5000", "asInt": "-7"}, {"timeUnixNano": "6000", "asDouble": "NaN"}]}},
      {"name": "h", "histogram": {"aggregationTemporality": 2, "dataPoints": [{"timeUnixNano": "5000", "count": "3",
        "sum": "Infinity", "bucketCounts": ["1", 2], "explicitBounds": [1e3], "min": null}]}},
      {"name": "e", "exponentialHistogram": {"dataPoints": [{"timeUnixNano": 5000, "count": 1, "scale": "2",
        "positive": {"offset": 1, "bucketCounts": ["1"]}}]}}]}]}]}"#;
    let rows = shown(&rows_of(Signal::Metrics, Encoding::Json, json.as_bytes()).unwrap());
    for (row, name, value) in [
        (0, "value", "-7"),
        (0, "int_value", "-7"),
        (1, "value", "NaN"),
        (2, "sum", "inf"),
        (2, "explicit_bounds", "[1000.0]"),
        (3, "positive_bucket_counts", "[1]"),
    ] {
        assert_eq!(rows[row][name], value, "{name} of {:?}", rows[row]);
    }

    let values = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"attributes":[
      {"key":"all","value":{"kvlistValue":{"values":[{"key":"b","value":{"bytesValue":"_-8"}},{"key":"a","value":{"arrayValue":{
        "values":[{"boolValue":true},{"doubleValue":"-Infinity"},{"doubleValue":1},{"intValue":3},{}]}}}]}}}]}]}]}]}"#;
    let rows = shown(&rows_of(Signal::Logs, Encoding::Json, values.as_bytes()).unwrap());
    assert_eq!(rows[0]["log_attributes"], r#"{"all":{"a":[true,"-Infinity",1.0,3,null],"b":"/+8="}}"#);
}

#[test]
fn wrong_messages_say_what_is_wrong_and_where() {
    for (json, expected) in [
        ("{", "EOF while parsing an object at line 1 column 1"),
        (
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"-1"}]}]}]}"#,
            "string \"-1\", expected a whole number",
        ),
        (
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":-1}]}]}]}"#,
            "a whole number of 64 bits in range",
        ),
        (
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":"SEVERITY_NUMBER_INFO"}]}]}]}"#,
            "a whole number of 32 bits",
        ),
        (
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"xy"}]}]}]}"#,
            "pairs of hexadecimal digits",
        ),
        (
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"abc"}]}]}]}"#,
            "pairs of hexadecimal digits",
        ),
        (
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"intValue":1,"boolValue":true}}]}]}]}"#,
            "values of two types",
        ),
        (r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"bytesValue":"*"}}]}]}]}"#, "not Base64"),
        (r#"{"resourceLogs":{}}"#, "expected a sequence"),
    ] {
        let error = rows_of(Signal::Logs, Encoding::Json, json.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("the body is not OTLP as JSON: ") && error.contains(expected),
            "{json}: {error}"
        );
    }
    let body = logs(vec![record("x")]).encode_to_vec();
    let error = rows_of(Signal::Logs, Encoding::Protobuf, &body[..body.len() - 1]).unwrap_err().to_string();
    assert!(error.starts_with("the body is not a message of OTLP: "), "{error}");
    let mut deep = AnyValue { value: Some(text("x")) };
    for _ in 0..200 {
        deep = AnyValue { value: Some(Any::ArrayValue(ArrayValue { values: vec![deep] })) };
    }
    let body = logs(vec![LogRecord { body: Some(deep), ..record("") }]).encode_to_vec();
    let error = rows_of(Signal::Logs, Encoding::Protobuf, &body).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn bad_records_are_rejected_beside_good_ones() {
    let spans = vec![
        span(),
        Span { trace_id: vec![1; 15], ..span() },
        Span { span_id: vec![0; 8], ..span() },
        Span { parent_span_id: vec![1], ..span() },
        Span { start_time_unix_nano: -5_i64 as u64, ..span() },
        Span { trace_id: vec![], ..span() },
    ];
    let found = rows_of(Signal::Traces, Encoding::Protobuf, &traces(spans).encode_to_vec()).unwrap();
    let reasons: Vec<(u64, &str)> =
        found.rows.rejected.iter().map(|bad| (bad.origin.number, bad.message.as_str())).collect();
    assert_eq!(
        reasons,
        [
            (1, "traceId: expected 16 bytes, found 15"),
            (2, "spanId: expected an id, found only zeros"),
            (3, "parentSpanId: expected 8 bytes or none, found 1"),
            (
                4,
                "startTimeUnixNano: expected nanoseconds since 1970, up to the year 2262, found 18446744073709551611 (as a signed number -5)"
            ),
            (5, "traceId: expected 16 bytes, found 0"),
        ]
    );
    assert!(found.rows.rejected[0].text.contains(r#""service_name":"shop""#), "{:?}", found.rows.rejected);
    assert_eq!(found.rows.rows.len(), 1);

    let points = vec![
        number_point(),
        NumberDataPoint { time_unix_nano: 0, ..number_point() },
        NumberDataPoint { as_double: Some(1.0), ..number_point() },
        NumberDataPoint { as_int: None, ..number_point() },
        // a gap: it says itself that there is no value
        NumberDataPoint { as_int: None, flags: 1, ..number_point() },
    ];
    let gauge = Metric { name: "g".into(), gauge: Some(Gauge { data_points: points }), ..Default::default() };
    let both = Metric { sum: Some(Sum::default()), ..gauge.clone() };
    let wrong = HistogramDataPoint {
        time_unix_nano: AT,
        bucket_counts: vec![1],
        explicit_bounds: vec![1.0],
        ..Default::default()
    };
    let wrong = Metric {
        histogram: Some(Histogram { data_points: vec![wrong], aggregation_temporality: 2 }),
        ..Default::default()
    };
    let body = metrics(vec![gauge, both, wrong]).encode_to_vec();
    let found = rows_of(Signal::Metrics, Encoding::Protobuf, &body).unwrap();
    let reasons: Vec<&str> = found.rows.rejected.iter().map(|bad| bad.message.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "the point has no timeUnixNano",
            "the point has both asDouble and asInt",
            "the point has neither asDouble nor asInt",
            "a metric has points of two kinds",
            "bucketCounts: expected one more than explicitBounds, which are 1, found 1",
        ]
    );
    let rows = shown(&found);
    assert_eq!((rows.len(), rows[1].get("value"), rows[1]["flags"].as_str()), (2, None, "1"));

    let odd = LogRecord { trace_id: vec![7; 3], span_id: vec![0; 8], ..record("x") };
    let found = rows_of(Signal::Logs, Encoding::Protobuf, &logs(vec![odd]).encode_to_vec()).unwrap();
    let row = &shown(&found)[0];
    assert_eq!((row.get("trace_id"), row.get("span_id")), (None, None));
    assert_eq!(row["_extra"], r#"{"invalid_trace_id":"070707"}"#);
    assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
}

#[test]
fn a_message_that_comes_again_has_the_same_ids() {
    let ids = |request: LogsRequest| -> Vec<String> {
        let rows = rows_of(Signal::Logs, Encoding::Protobuf, &request.encode_to_vec()).unwrap();
        shown(&rows).into_iter().map(|row| row["id"].clone()).collect()
    };
    let all = ids(logs(vec![record("a"), record("b"), record("a")]));
    assert_eq!(all, ids(logs(vec![record("a"), record("b"), record("a")])));
    // equal records are events of their own
    assert_eq!(all[2], format!("{}-1", all[0]));
    // the place in the message does not matter
    assert_eq!(ids(logs(vec![record("b"), record("a")])), [all[1].clone(), all[0].clone()]);
    let other = |change: fn(&mut LogRecord)| {
        let mut record = record("a");
        change(&mut record);
        assert_ne!(ids(logs(vec![record]))[0], all[0]);
    };
    other(|record| record.time_unix_nano += 1);
    other(|record| record.attributes[0].key = "users".into());
    other(|record| record.severity_number = 0);
    let mut elsewhere = logs(vec![record("a")]);
    elsewhere.resource_logs[0].resource = None;
    assert_ne!(ids(elsewhere)[0], all[0]);
}

#[test]
fn a_record_has_the_time_at_which_it_was_observed_or_arrived() {
    let observed = LogRecord { time_unix_nano: 0, ..record("x") };
    let never = LogRecord { time_unix_nano: 0, observed_time_unix_nano: 0, ..record("x") };
    let body = logs(vec![observed, never]).encode_to_vec();
    let rows = shown(&rows_of(Signal::Logs, Encoding::Protobuf, &body).unwrap());
    assert_eq!(rows[0]["time"], "2026-01-05T09:00:00.000002Z");
    assert_eq!((rows[1].get("time"), rows[1]["_time"].as_str()), (None, "1970-01-01T00:00:00.000007Z"));
}

#[test]
fn streams_of_the_app_decide_about_columns_and_bodies() {
    let lookup = |stream: &'static DeclaredStream| {
        let mut schema = StreamSchema::clone(&schema(stream, &["id", "scope_name", "scope_version"]));
        let body = schema.field_index("body").unwrap();
        schema.fields[body] = Field::new("body", FieldType::Object);
        schema.fields.push(Field::new("own", FieldType::String));
        Ok(Arc::new(schema))
    };
    let list = KeyValueList { values: vec![pair("k", Any::Int(1))] };
    let structured = LogRecord { body: Some(AnyValue { value: Some(Any::Keys(list)) }), ..record("") };
    let body = logs(vec![record("text"), structured.clone()]).encode_to_vec();
    let mut rows = StreamRows::new(lookup, |_| Ok(()), NOW);
    decode(Signal::Logs, Encoding::Protobuf, &body, &mut rows).unwrap();
    let rows = shown(&rows.finish());
    assert_eq!((rows[0]["body"].as_str(), rows[1]["body"].as_str()), ("\"text\"", "{\"k\":1}"));
    assert_eq!(rows[0]["_extra"], r#"{"scope_name":"lib","scope_version":"1"}"#);
    assert_eq!((rows[0].get("own"), rows[0].get("id")), (None, None));
    // where it is a text, what is structured is its JSON
    let rows = rows_of(Signal::Logs, Encoding::Protobuf, &logs(vec![structured]).encode_to_vec()).unwrap();
    assert_eq!(shown(&rows)[0]["body"], "{\"k\":1}");
}

#[test]
fn records_of_a_stream_that_is_missing_are_counted_with_the_reason_once() {
    let lookup = |stream: &'static DeclaredStream| match stream.name {
        "otel_metrics_gauge" => Ok(schema(stream, &[])),
        name => Err(format!("no {name}")),
    };
    let mut rows = StreamRows::new(lookup, |_| Ok(()), NOW);
    decode(Signal::Metrics, Encoding::Protobuf, &all_metrics().encode_to_vec(), &mut rows).unwrap();
    let found = rows.finish();
    let refused: Vec<_> = found.refused.iter().map(|of| (of.stream.name, of.count)).collect();
    assert_eq!(
        refused,
        [
            ("otel_metrics_exponential_histogram", 1),
            ("otel_metrics_histogram", 1),
            ("otel_metrics_sum", 1),
            ("otel_metrics_summary", 1),
        ]
    );
    assert_eq!(
        (found.rows.rows.len(), found.refused[0].reason.as_str()),
        (1, "no otel_metrics_exponential_histogram")
    );
}

#[test]
fn memory_is_asked_for_before_it_is_used() {
    let limit = 1_000_000;
    let decode_within = |encoding, body: &[u8]| {
        let mut largest = 0;
        let mut rows = StreamRows::new(
            |stream| Ok(schema(stream, &[])),
            |bytes| {
                largest = bytes;
                if bytes > limit { Err(tidemill_types::Error::limit("too much")) } else { Ok(()) }
            },
            NOW,
        );
        let result = decode(Signal::Logs, encoding, body, &mut rows);
        drop(rows);
        (result.is_ok(), largest)
    };
    let empty = || LogRecord::default();
    // two bytes each
    let bomb = logs((0..20_000).map(|_| empty()).collect()).encode_to_vec();
    assert!(bomb.len() < 50_000);
    let (is_ok, largest) = decode_within(Encoding::Protobuf, &bomb);
    // at once: before any of it is decoded
    assert!(!is_ok && largest > 3 * limit, "{largest}");
    let json =
        format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}{{}}]}}]}}]}}"#, "{},".repeat(20_000));
    assert!(!decode_within(Encoding::Json, json.as_bytes()).0);
    // a resource that all rows have
    let mut large = logs((0..200).map(|_| record("x")).collect());
    large.resource_logs[0].resource = Some(Resource {
        attributes: vec![pair("x", text(&"y".repeat(10_000)))],
        dropped_attributes_count: 0,
    });
    let large = large.encode_to_vec();
    assert!(large.len() < 100_000);
    let (is_ok, largest) = decode_within(Encoding::Protobuf, &large);
    assert!(!is_ok && largest < limit + 20_000, "{largest}");
    let small = logs((0..200).map(|_| record("x")).collect()).encode_to_vec();
    assert!(decode_within(Encoding::Protobuf, &small).0);
}

/// Changed messages are decoded or refused: no panic, and each row of what is decoded is stored or rejected.
#[test]
fn random_bytes_are_refused_or_decoded() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |now| now.as_nanos() as u64)
    });
    println!("SEED={seed}");
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"01","spanId":"02","kind":1,"startTimeUnixNano":"1"}]}]}]}"#;
    let originals = [
        (Signal::Logs, Encoding::Protobuf, logs(vec![record("a"), record("b")]).encode_to_vec()),
        (Signal::Metrics, Encoding::Protobuf, all_metrics().encode_to_vec()),
        (Signal::Traces, Encoding::Protobuf, traces(vec![span(), span()]).encode_to_vec()),
        (Signal::Traces, Encoding::Json, json.as_bytes().to_vec()),
    ];
    let mut decoded = 0;
    for _ in 0..20_000 {
        let (signal, encoding, original) = &originals[random(originals.len())];
        let mut body = original.clone();
        for _ in 0..=random(4) {
            let at = random(body.len());
            match random(4) {
                0 => body[at] = random(256) as u8,
                1 => body[at] ^= 1 << random(8),
                2 => body.truncate(at),
                _ => body.insert(at, random(256) as u8),
            }
            if body.is_empty() {
                break;
            }
        }
        if let Ok(rows) = rows_of(*signal, *encoding, &body) {
            decoded += 1;
            assert_eq!(rows.rows.rows.len(), rows.rows.row_numbers.len());
            for row in shown(&rows) {
                for object in row.iter().filter(|(name, _)| name.ends_with("attributes")) {
                    let json: serde_json::Value = serde_json::from_str(object.1).unwrap();
                    assert!(json.is_object(), "{object:?}");
                }
            }
        }
    }
    assert!(decoded > 100, "only {decoded} messages were decoded");
}
