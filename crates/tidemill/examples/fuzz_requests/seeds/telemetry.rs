//! Messages of OTLP and of remote write.

use super::{PLAIN, SNAPPY, input};
use crate::protobuf::{bytes, double, fixed, fixed_32, int, packed, packed_fixed};

const BASE_S: u64 = 1_767_603_600;
const BASE_NS: u64 = BASE_S * 1_000_000_000;

pub fn add(seeds: &mut Vec<Vec<u8>>) {
    for (signal, service, message) in
        [("logs", "logs", logs()), ("metrics", "metrics", metrics()), ("traces", "trace", traces())]
    {
        seeds.push(input(&format!("/v1/{signal}"), "application/x-protobuf", PLAIN, &message));
        let call = format!("/opentelemetry.proto.collector.{service}");
        seeds.push(input(&call, "application/grpc", PLAIN, &message));
    }
    for (signal, text) in [
        (
            "logs",
            r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeLogs":[{"scope":{"name":"s"},"logRecords":[{"timeUnixNano":"1767603600000000001","severityNumber":9,"body":{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{"values":[{"intValue":"7"},{"doubleValue":"NaN"},{"bytesValue":"AQI="}]}}}]}},"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708"}]}]}]}"#,
        ),
        (
            "metrics",
            r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[{"timeUnixNano":"1767603600000000001","asInt":"-3"},{"timeUnixNano":1767603600000000001,"asDouble":1e300}]}},{"name":"h","histogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"1","count":"3","sum":1.5,"bucketCounts":["1","2"],"explicitBounds":[5]}]}},{"name":"e","exponentialHistogram":{"dataPoints":[{"timeUnixNano":"1","count":"1","scale":-1,"zeroCount":"0","positive":{"offset":2,"bucketCounts":["1"]}}]}},{"name":"s","summary":{"dataPoints":[{"timeUnixNano":"1","count":"1","sum":2,"quantileValues":[{"quantile":0.5,"value":2}]}]}}]}]}]}"#,
        ),
        (
            "traces",
            r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","parentSpanId":"","name":"GET /","kind":2,"startTimeUnixNano":"1767603600000000001","endTimeUnixNano":"1767603600000500001","events":[{"timeUnixNano":"1","name":"e","attributes":[{"key":"n","value":{"boolValue":true}}]}],"links":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708"}],"status":{"code":2,"message":"x"}}]}]}]}"#,
        ),
    ] {
        seeds.push(input(&format!("/v1/{signal}"), "application/json", PLAIN, text));
    }
    seeds.push(input("/api/v1/write", "application/x-protobuf", SNAPPY, write_1()));
    seeds.push(input("/api/v1/write", "application/x-protobuf;proto", SNAPPY, write_2()));
}

fn message<const N: usize>(fields: [Vec<u8>; N]) -> Vec<u8> {
    fields.concat()
}

fn attribute(number: u8, name: &str, value: Vec<u8>) -> Vec<u8> {
    bytes(number, message([bytes(1, name), bytes(2, value)]))
}

/// Returns attributes with values of all kinds.
fn attributes(number: u8) -> Vec<u8> {
    let list = bytes(5, message([bytes(1, bytes(1, "x")), bytes(1, int(3, u64::MAX)), bytes(1, vec![])]));
    message([
        attribute(number, "text", bytes(1, "ä")),
        attribute(number, "yes", int(2, 1)),
        attribute(number, "nan", double(4, f64::NAN)),
        attribute(number, "list", list),
        attribute(number, "map", bytes(6, attribute(1, "k", bytes(7, [0, 255])))),
    ])
}

fn resource() -> Vec<u8> {
    bytes(1, message([attribute(1, "service.name", bytes(1, "shop")), int(2, 1)]))
}

fn scope() -> Vec<u8> {
    bytes(1, message([bytes(1, "lib"), bytes(2, "1.0"), attributes(3)]))
}

fn whole(records: Vec<u8>) -> Vec<u8> {
    let scoped = bytes(2, message([scope(), records, bytes(3, "https://schema")]));
    bytes(1, message([resource(), scoped, bytes(3, "https://schema")]))
}

fn logs() -> Vec<u8> {
    let record = message([
        fixed(1, BASE_NS + 7),
        int(2, 17),
        bytes(3, "ERROR"),
        bytes(5, bytes(1, "it broke")),
        attributes(6),
        int(7, 2),
        fixed_32(8, 1),
        bytes(9, [1; 16]),
        bytes(10, [2; 8]),
        fixed(11, BASE_NS),
        bytes(12, "broken"),
    ]);
    whole([bytes(2, &record), bytes(2, &record), bytes(2, [])].concat())
}

fn traces() -> Vec<u8> {
    let event = message([fixed(1, BASE_NS), bytes(2, "happened"), attributes(3), int(4, 1)]);
    let link = message([bytes(1, [3; 16]), bytes(2, [4; 8]), bytes(3, "a=b"), attributes(4)]);
    let span = message([
        bytes(1, [1; 16]),
        bytes(2, [2; 8]),
        bytes(3, "a=b"),
        bytes(4, [5; 8]),
        bytes(5, "GET /"),
        int(6, 2),
        fixed(7, BASE_NS),
        fixed(8, BASE_NS + 5),
        attributes(9),
        int(10, 1),
        bytes(11, event),
        bytes(13, link),
        bytes(15, message([bytes(2, "no"), int(3, 2)])),
        fixed_32(16, 1),
    ]);
    whole(bytes(2, span))
}

fn metrics() -> Vec<u8> {
    let metric = |name: &str, kind: u8, data: Vec<u8>| {
        bytes(
            2,
            message([bytes(1, name), bytes(2, "text"), bytes(3, "ms"), bytes(kind, data), attributes(12)]),
        )
    };
    let times = || message([fixed(2, BASE_NS), fixed(3, BASE_NS + 9)]);
    let exemplar =
        message([fixed(2, BASE_NS), double(3, 1.5), bytes(4, [2; 8]), bytes(5, [1; 16]), attributes(7)]);
    let number = message([times(), double(4, -0.0), bytes(5, &exemplar), attributes(7)]);
    let whole_number = message([times(), fixed(6, u64::MAX), attributes(7), int(8, 1)]);
    let sum = message([bytes(1, &whole_number), int(2, 2), int(3, 1)]);
    let histogram = message([
        times(),
        fixed(4, 4),
        double(5, 12.5),
        packed_fixed(6, &[2, 1, 1]),
        packed_fixed(7, &[5.0_f64.to_bits(), 10.0_f64.to_bits()]),
        bytes(8, &exemplar),
        attributes(9),
        double(11, 0.0),
        double(12, 12.0),
    ]);
    let buckets = message([int(1, 3), packed(2, &[1, 0, 300])]);
    let exponential = message([
        attributes(1),
        fixed(2, BASE_NS),
        fixed(3, BASE_NS),
        fixed(4, 302),
        double(5, 1.0),
        int(6, 5),
        fixed(7, 1),
        bytes(8, &buckets),
        bytes(9, &buckets),
        bytes(11, &exemplar),
        double(14, 0.1),
    ]);
    let quantile = message([double(1, 0.5), double(2, 2.0)]);
    let summary = message([times(), fixed(4, 1), double(5, 2.0), bytes(6, quantile), attributes(7)]);
    whole(message([
        metric("gauge", 5, message([bytes(1, number), bytes(1, whole_number)])),
        metric("sum", 7, sum),
        metric("histogram", 9, message([bytes(1, histogram), int(2, 1)])),
        metric("exponential", 10, message([bytes(1, exponential), int(2, 2)])),
        metric("summary", 11, bytes(1, summary)),
    ]))
}

/// Returns the fields of a native histogram that both versions have.
fn native() -> Vec<u8> {
    let span = message([int(1, 1), int(2, 2)]);
    message([
        int(1, 6),
        double(3, 9.5),
        int(4, 4),
        double(5, 0.001),
        int(6, 1),
        bytes(8, &span),
        packed(9, &[4, 1]),
        bytes(11, &span),
        packed(12, &[4, 2]),
        int(14, 1),
        int(15, BASE_S * 1000 + 2),
    ])
}

fn sample() -> Vec<u8> {
    message([double(1, 1.5), int(2, BASE_S * 1000)])
}

fn write_1() -> Vec<u8> {
    let label = |name: &str, value: &str| bytes(1, message([bytes(1, name), bytes(2, value)]));
    let exemplar = message([label("trace_id", "0102"), double(2, 0.5), int(3, BASE_S * 1000)]);
    let labels = || message([label("__name__", "up"), label("job", "a"), label("le", "ä")]);
    let stale = message([fixed(1, 0x7ff0_0000_0000_0002), int(2, BASE_S * 1000 + 1)]);
    message([
        bytes(1, message([labels(), bytes(2, sample()), bytes(2, stale), bytes(3, exemplar)])),
        bytes(1, message([labels(), bytes(4, native())])),
        bytes(3, message([int(1, 1), bytes(2, "up"), bytes(4, "Help."), bytes(5, "seconds")])),
    ])
}

fn write_2() -> Vec<u8> {
    let symbols = ["", "__name__", "up", "job", "a", "Help.", "seconds", "trace_id", "0102"];
    let symbols: Vec<u8> = symbols.iter().flat_map(|symbol| bytes(4, symbol)).collect();
    let exemplar = message([packed(1, &[7, 8]), double(2, 0.5), int(3, BASE_S * 1000)]);
    let metadata = message([int(1, 1), int(3, 5), int(4, 6)]);
    let series = message([
        packed(1, &[1, 2, 3, 4]),
        bytes(2, sample()),
        bytes(3, native()),
        bytes(4, exemplar),
        bytes(5, metadata),
        int(6, BASE_S * 1000),
    ]);
    [symbols, bytes(5, series)].concat()
}
