use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use tidemill_types::{Field, FieldType, StreamSchema, Value, row_value};

use super::messages::*;
use super::*;
use crate::telemetry::TelemetryRows;

const AT: i64 = 1_767_603_600_000;

fn schema(stream: &DeclaredStream, own: &[&str]) -> Arc<StreamSchema> {
    let columns = stream.columns.iter().copied().chain(own.iter().map(|name| (*name, FieldType::String)));
    let fields: Vec<Field> = columns.map(|(name, ty)| Field::new(name, ty)).collect();
    let index = |name: &str| fields.iter().position(|field| field.name == name);
    let (key, time) = (index(stream.key), stream.time.and_then(index));
    let id = stream.id.iter().filter_map(|name| index(name)).collect();
    Arc::new(StreamSchema { name: stream.name.into(), fields, key, id, time })
}

fn decoded(version: Version, body: &[u8], streams: &[&str]) -> Result<(TelemetryRows, WrittenCounts)> {
    let lookup = |stream: &'static DeclaredStream| match streams.contains(&stream.name) {
        true => Ok(schema(stream, &["code"])),
        false => Err(format!("no {}", stream.name)),
    };
    let mut rows = StreamRows::new(lookup, |_| Ok(()), Timestamp(7));
    let written = decode(version, body, &mut rows)?;
    Ok((rows.finish(), written))
}

const ALL: [&str; 3] = ["prometheus", "prometheus_exemplars", "prometheus_metadata"];

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

fn labels(pairs: &[(&str, &str)]) -> Vec<Label> {
    pairs.iter().map(|(name, value)| Label { name: (*name).into(), value: (*value).into() }).collect()
}

fn sample(value: f64, timestamp: i64) -> Sample {
    Sample { value, timestamp, start_timestamp: 0 }
}

fn up(samples: Vec<Sample>) -> TimeSeriesV1 {
    let labels = labels(&[("job", "shop"), ("__name__", "up"), ("code", "500"), ("empty", "")]);
    TimeSeriesV1 { labels, samples, ..Default::default() }
}

fn v1(timeseries: Vec<TimeSeriesV1>) -> Vec<u8> {
    RequestV1 { timeseries, metadata: vec![] }.encode_to_vec()
}

fn histogram() -> Histogram {
    Histogram {
        count_int: Some(9),
        sum: 12.5,
        schema: 3,
        zero_threshold: 0.001,
        zero_count_int: Some(1),
        positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
        positive_deltas: vec![5, -2],
        reset_hint: 2,
        timestamp: AT,
        ..Default::default()
    }
}

#[test]
fn samples_become_rows() {
    let body = v1(vec![up(vec![
        sample(1.5, AT),
        sample(f64::from_bits(0x7ff0_0000_0000_0002), AT + 1),
        sample(f64::NAN, -1),
        sample(f64::INFINITY, 0),
    ])]);
    let (rows, written) = decoded(Version::V1, &body, &ALL).unwrap();
    assert_eq!(written, WrittenCounts { samples: 4, ..Default::default() });
    let rows = shown(&rows);
    let found: Vec<(&str, &str)> =
        rows[0].iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        found,
        [
            ("_time", "2026-01-05T09:00:00Z"),
            ("code", "500"),
            ("id", &rows[0]["id"]),
            ("is_stale", "false"),
            ("job", "shop"),
            ("labels", r#"{"code":"500","job":"shop"}"#),
            ("metric_name", "up"),
            ("time", "2026-01-05T09:00:00Z"),
            ("value", "1.5"),
        ]
    );
    assert_eq!((rows[1].get("value"), rows[1]["is_stale"].as_str()), (None, "true"));
    assert_eq!((rows[2]["value"].as_str(), rows[2]["is_stale"].as_str()), ("NaN", "false"));
    assert_eq!(rows[2]["time"], "1969-12-31T23:59:59.999Z");
    assert_eq!((rows[3]["value"].as_str(), rows[3]["time"].as_str()), ("inf", "1970-01-01T00:00:00Z"));
}

#[test]
fn a_sample_is_known_by_its_series_and_its_time() {
    let ids = |series: TimeSeriesV1| -> Vec<String> {
        let (rows, _) = decoded(Version::V1, &v1(vec![series]), &ALL).unwrap();
        shown(&rows).into_iter().map(|row| row["id"].clone()).collect()
    };
    let all = ids(up(vec![sample(1.0, AT), sample(2.0, AT), sample(1.0, AT + 1)]));
    assert_eq!(all[0], all[1]);
    assert_ne!(all[0], all[2]);
    // the order of labels does not matter, nor a label without a value
    let mut other = up(vec![sample(3.0, AT)]);
    other.labels.reverse();
    other.labels.retain(|label| label.name != "empty");
    assert_eq!(ids(other.clone())[0], all[0]);
    other.labels[0].value = "501".into();
    assert_ne!(ids(other)[0], all[0]);
}

#[test]
fn histograms_exemplars_and_descriptions_become_rows() {
    let exemplar =
        ExemplarV1 { labels: labels(&[("trace_id", "abc"), ("x", "y")]), value: 0.5, timestamp: AT };
    let series = TimeSeriesV1 { histograms: vec![histogram()], exemplars: vec![exemplar], ..up(vec![]) };
    let metadata = MetadataV1 {
        metric_type: 1,
        metric_family_name: "up_total".into(),
        help: "Ups.".into(),
        unit: "ups".into(),
    };
    let body = RequestV1 { timeseries: vec![series], metadata: vec![metadata] }.encode_to_vec();
    let (rows, written) = decoded(Version::V1, &body, &ALL).unwrap();
    assert_eq!(written, WrittenCounts { histograms: 1, exemplars: 1, ..Default::default() });
    let rows = shown(&rows);
    for (row, name, value) in [
        (0, "histogram_count", "9"),
        (0, "histogram_sum", "12.5"),
        (0, "histogram_schema", "3"),
        (0, "histogram_zero_count", "1"),
        (0, "histogram_zero_threshold", "0.001"),
        (0, "histogram_positive", r#"[{"index":0,"count":5},{"index":1,"count":3}]"#),
        (0, "histogram_reset_hint", "no"),
        (1, "trace_id", "abc"),
        (1, "exemplar_labels", r#"{"trace_id":"abc","x":"y"}"#),
        (1, "value", "0.5"),
        (1, "metric_name", "up"),
        (1, "job", "shop"),
        (2, "metric_type", "counter"),
        (2, "metric_help", "Ups."),
        (2, "metric_name", "up_total"),
    ] {
        assert_eq!(rows[row].get(name).map(String::as_str), Some(value), "{name} of {:?}", rows[row]);
    }
    assert_eq!(rows[0].get("value"), None);
    // without their streams these are left out, and counted
    let (rows, written) = decoded(Version::V1, &body, &["prometheus"]).unwrap();
    assert_eq!(written, WrittenCounts { histograms: 1, left_out: 2, ..Default::default() });
    assert_eq!((shown(&rows).len(), rows.refused.len()), (1, 0));
    let (rows, _) = decoded(Version::V1, &body, &[]).unwrap();
    assert_eq!(
        rows.refused.iter().map(|of| (of.stream.name, of.count)).collect::<Vec<_>>(),
        [("prometheus", 1)]
    );
}

fn v2(series: TimeSeriesV2) -> Vec<u8> {
    let symbols = ["", "__name__", "up", "job", "shop", "Ups.", "seconds"];
    RequestV2 { symbols: symbols.map(str::to_owned).to_vec(), timeseries: vec![series] }.encode_to_vec()
}

fn series_v2() -> TimeSeriesV2 {
    TimeSeriesV2 {
        labels_refs: vec![1, 2, 3, 4],
        samples: vec![Sample { value: 1.0, timestamp: AT, start_timestamp: AT - 1000 }, sample(2.0, AT + 1)],
        metadata: Some(MetadataV2 { metric_type: 2, help_ref: 5, unit_ref: 6 }),
        created_timestamp: AT - 2000,
        ..Default::default()
    }
}

#[test]
fn version_2_has_symbols_descriptions_and_starts() {
    let (rows, written) = decoded(Version::V2, &v2(series_v2()), &ALL).unwrap();
    assert_eq!(written, WrittenCounts { samples: 2, ..Default::default() });
    let rows = shown(&rows);
    for (row, name, value) in [
        (0, "metric_name", "up"),
        (0, "labels", r#"{"job":"shop"}"#),
        (0, "metric_type", "gauge"),
        (0, "metric_help", "Ups."),
        (0, "metric_unit", "seconds"),
        (0, "start_time", "2026-01-05T08:59:59Z"),
        (1, "start_time", "2026-01-05T08:59:58Z"),
    ] {
        assert_eq!(rows[row].get(name).map(String::as_str), Some(value), "{name} of {:?}", rows[row]);
    }
    // the same sample by the other version, without what is said about it
    let old = v1(vec![TimeSeriesV1 {
        labels: labels(&[("__name__", "up"), ("job", "shop")]),
        samples: vec![sample(1.0, AT)],
        ..Default::default()
    }]);
    assert_eq!(shown(&decoded(Version::V1, &old, &ALL).unwrap().0)[0]["id"], rows[0]["id"]);
}

#[test]
fn bad_series_are_rejected_beside_good_ones() {
    let named =
        |labels: Vec<Label>| TimeSeriesV1 { labels, samples: vec![sample(1.0, AT)], ..Default::default() };
    let wrong = Histogram { positive_deltas: vec![1], ..histogram() };
    let body = v1(vec![
        named(labels(&[("job", "x")])),
        named(labels(&[("__name__", "a"), ("b", "1"), ("b", "2")])),
        named(labels(&[("__name__", "a"), ("", "1")])),
        up(vec![sample(1.0, i64::MAX), sample(1.0, AT)]),
        TimeSeriesV1 { histograms: vec![wrong], ..up(vec![]) },
    ]);
    let (rows, written) = decoded(Version::V1, &body, &ALL).unwrap();
    assert_eq!(written.samples, 1);
    let reasons: Vec<&str> = rows.rows.rejected.iter().map(|bad| bad.message.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "a series without the label `__name__`",
            "the label `b` occurs twice",
            "a label has no name; its value is `1`",
            "the time 9223372036854775807 is not in the years -9999 to 9999",
            "the positive buckets are 2 by their spans, and 1 by their counts",
        ]
    );
    for (series, expected) in [
        (TimeSeriesV2 { labels_refs: vec![1, 2, 3], ..series_v2() }, "labels_refs: expected pairs"),
        (
            TimeSeriesV2 { labels_refs: vec![1, 7], ..series_v2() },
            "the symbol 7 is not among the 7 of the request",
        ),
        (
            TimeSeriesV2 {
                metadata: Some(MetadataV2 { metric_type: 1, help_ref: 99, unit_ref: 0 }),
                ..series_v2()
            },
            "the symbol 99",
        ),
    ] {
        let (rows, written) = decoded(Version::V2, &v2(series), &ALL).unwrap();
        assert_eq!((written.samples, rows.rows.rejected.len()), (0, 2));
        assert!(rows.rows.rejected[0].message.starts_with(expected), "{:?}", rows.rows.rejected);
    }
}

#[test]
fn messages_of_the_other_version_and_broken_ones_are_refused() {
    for (version, body, expected) in [
        (Version::V1, v2(series_v2()), "the message has no series: version 2.0 has another content type"),
        (Version::V2, v1(vec![up(vec![sample(1.0, AT)])]), "the message has no series: version 1.0 has"),
        (Version::V1, vec![0x0a, 0x05, 0x0a], "the body is not a message of remote write: "),
        (
            Version::V2,
            RequestV2 { symbols: vec!["x".into()], timeseries: vec![series_v2()] }.encode_to_vec(),
            "the first of the symbols is not the empty text",
        ),
    ] {
        let error = decoded(version, &body, &ALL).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    for version in [Version::V1, Version::V2] {
        assert_eq!(decoded(version, &[], &ALL).unwrap().1, WrittenCounts::default());
    }
}

#[test]
fn labels_that_are_named_many_times_do_not_grow_without_bound() {
    let symbols =
        vec![String::new(), "__name__".into(), "n".into(), "y".repeat(600_000), "a".into(), "b".into()];
    let series = TimeSeriesV2 { labels_refs: vec![1, 2, 4, 3, 5, 3], ..series_v2() };
    let series = TimeSeriesV2 { metadata: None, ..series };
    let body = RequestV2 { symbols, timeseries: vec![series] }.encode_to_vec();
    let (rows, _) = decoded(Version::V2, &body, &ALL).unwrap();
    assert_eq!(rows.rows.rejected[0].message, "the labels take more than 1048576 bytes");
}

#[test]
fn snappy_says_its_size_and_is_checked() {
    let body = v1(vec![up(vec![sample(1.0, AT)])]);
    let block = snap::raw::Encoder::new().compress_vec(&body).unwrap();
    assert_eq!(decompressed_bytes(&block).unwrap(), body.len());
    assert_eq!(decompress(&block).unwrap(), body);
    assert!(decompress(&block[..block.len() - 1]).is_err());
    assert!(decompressed_bytes(&[]).is_ok_and(|bytes| bytes == 0) || decompressed_bytes(&[]).is_err());
    // 4 GiB in five bytes
    assert_eq!(decompressed_bytes(&[0xff, 0xff, 0xff, 0xff, 0x0f]).unwrap(), u32::MAX as usize);
    assert!(decompressed_bytes(&[0xff; 10]).is_err());
}

/// Changed messages are decoded or refused without a panic.
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
    let old = v1(vec![TimeSeriesV1 { histograms: vec![histogram()], ..up(vec![sample(1.0, AT)]) }]);
    let originals = [(Version::V1, old), (Version::V2, v2(series_v2()))];
    let mut taken = 0;
    for _ in 0..20_000 {
        let (version, original) = &originals[random(2)];
        let mut body = original.clone();
        for _ in 0..=random(3) {
            let at = random(body.len());
            match random(3) {
                0 => body[at] = random(256) as u8,
                1 => body.truncate(at.max(1)),
                _ => body.insert(at, random(256) as u8),
            }
        }
        if let Ok((rows, written)) = decoded(*version, &body, &ALL) {
            taken += 1;
            assert!(rows.rows.rows.len() as u64 >= written.samples + written.histograms + written.exemplars);
        }
        let block = snap::raw::Encoder::new().compress_vec(&body).unwrap();
        let mut block = block[..=random(block.len())].to_vec();
        let at = random(block.len());
        block[at] = random(256) as u8;
        if decompressed_bytes(&block).is_ok_and(|bytes| bytes < 1 << 20) {
            let _ = decompress(&block);
        }
    }
    assert!(taken > 100, "only {taken} messages were decoded");
}
