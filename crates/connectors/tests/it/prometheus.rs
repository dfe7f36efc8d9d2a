//! Metrics: scraped from a sink, pushed to a real push gateway, and read by a source from both.

use std::path::Path;

use tidemill_connect::{ConnectorConfig, ConnectorSink, DeliveryProgress, PartitionEpochs};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Error, EventId, FieldType, Offset, PartitionId, Timestamp};

use crate::helpers::{catalog, free_port};
use crate::positioned::{PositionedSource, context, mapped};
use crate::servers;

const FIELDS: &[(&str, FieldType)] = &[("site", FieldType::String), ("value", FieldType::Double)];

fn open(options: &[(&str, &str)]) -> ConnectorSink {
    let config = mapped("prometheus", options, "keyvalue", &[]);
    catalog().open_sink(&config, &context(FIELDS)).unwrap_or_else(|e| panic!("{e}"))
}

/// Delivers events with the ids from `first` on.
fn deliver(
    sink: &mut ConnectorSink,
    first: u64,
    events: &[(&str, Option<f64>)],
) -> (DeliveryProgress, Result<(), Error>) {
    let mut builder = BatchBuilder::new(context(FIELDS).schema);
    for (site, value) in events {
        let value = value.map_or(FieldValue::Missing, FieldValue::Float);
        builder.push_values(&[FieldValue::Text((*site).into()), value], Timestamp(0)).unwrap();
    }
    let id = |n| EventId { partition: PartitionId(0), offset: Offset(first + n), row: 0 };
    let ids: Vec<EventId> = (0..events.len() as u64).map(id).collect();
    let mut progress = DeliveryProgress::default();
    let delivered = sink
        .connect(&PartitionEpochs::new(), std::future::pending())
        .and_then(|_| sink.deliver(&builder.finish(), &ids, &mut progress, std::future::pending()));
    (progress, delivered)
}

fn get(url: &str) -> String {
    tidemill_connect::runtime().block_on(async { reqwest::get(url).await.unwrap().text().await.unwrap() })
}

fn source(fields: &[(&str, FieldType)], options: &[(&str, &str)]) -> PositionedSource {
    let options = [&[("scrape.interval", "1")], options].concat();
    PositionedSource::open(fields, mapped("prometheus", &options, "keyvalue", &[]), Path::new("."))
}

#[test]
fn sinks_of_one_address_share_a_server() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let common = [("server.url", url.as_str())];
    let mut counter =
        open(&[&common[..], &[("metric.type", "counter"), ("metric.name", "orders_total")]].concat());
    let mut same =
        open(&[&common[..], &[("metric.type", "counter"), ("metric.name", "orders_total")]].concat());
    let more = [
        ("metric.type", "histogram"),
        ("metric.name", "seconds"),
        ("buckets", "1,5"),
        ("metric.help", "Time."),
    ];
    let mut histogram = open(&[&common[..], &more].concat());
    let (progress, delivered) = deliver(
        &mut counter,
        0,
        &[("a", Some(2.0)), ("b", Some(1.0)), ("a", Some(-1.0)), ("a", None), ("a", Some(0.5))],
    );
    delivered.unwrap();
    assert_eq!(progress.delivered, 5);
    let refused: Vec<_> = progress.refused.iter().map(|r| (r.row, r.reason.as_str())).collect();
    let expected = [(2, "a counter cannot be increased by -1"), (3, "the value of the metric is null")];
    assert_eq!(refused, expected);
    deliver(&mut same, 0, &[("b", Some(10.0))]).1.unwrap();
    // events that come again, after an error elsewhere, are not counted twice
    deliver(&mut same, 0, &[("b", Some(10.0)), ("b", Some(100.0))]).1.unwrap();
    deliver(&mut histogram, 0, &[("a \"x\"", Some(3.0))]).1.unwrap();
    let expected = "# HELP orders_total orders_total counter\n# TYPE orders_total counter\norders_total{site=\"a\"} 2.5\n\
                    orders_total{site=\"b\"} 111\n# HELP seconds Time.\n# TYPE seconds histogram\n\
                    seconds_bucket{site=\"a \\\"x\\\"\",le=\"1\"} 0\nseconds_bucket{site=\"a \\\"x\\\"\",le=\"5\"} 1\n\
                    seconds_bucket{site=\"a \\\"x\\\"\",le=\"+Inf\"} 1\nseconds_count{site=\"a \\\"x\\\"\"} 1\n\
                    seconds_sum{site=\"a \\\"x\\\"\"} 3\n";
    assert_eq!(get(&format!("{url}/metrics")), expected);
    assert_eq!(get(&format!("{url}/other")), "the metrics are at /metrics\n");

    let mut other =
        open(&[&common[..], &[("metric.type", "gauge"), ("metric.name", "orders_total")]].concat());
    let error = deliver(&mut other, 0, &[("a", Some(1.0))]).1.unwrap_err();
    assert!(error.message().contains("has a metric `orders_total` of another type"), "{error}");

    // a source reads what the sink serves
    let fields = [
        ("metric_name", FieldType::String),
        ("subtype", FieldType::String),
        ("help", FieldType::String),
        ("site", FieldType::String),
        ("le", FieldType::String),
        ("value", FieldType::Long),
    ];
    let target = format!("127.0.0.1:{port}/metrics");
    let options = [("target.url", target.as_str()), ("metric.type", "histogram"), ("metric.name", "seconds")];
    let mut scraped = source(&fields, &options);
    let expected = [
        "seconds|bucket|Time.|a \"x\"|1|0",
        "seconds|bucket|Time.|a \"x\"|5|1",
        "seconds|bucket|Time.|a \"x\"|+Inf|1",
        "seconds|count|Time.|a \"x\"||1",
        "seconds|sum|Time.|a \"x\"||3",
    ];
    assert_eq!(scraped.poll_rows(5), expected);
    scraped.poll_rows(10);
    assert!(scraped.rejected.is_empty());

    for (options, expected) in [
        ([("metric.type", "counter"), ("metric.name", "none")], "there is no metric `none`"),
        (
            [("metric.type", "gauge"), ("metric.name", "orders_total")],
            "the metric `orders_total` is a counter, not a gauge",
        ),
        ([("metric.type", "counter"), ("metric.name", "orders_total")], ""),
    ] {
        let more = if expected.is_empty() {
            [("grouping.key", "'site:none'")]
        } else {
            [("target.url", target.as_str())]
        };
        let target = if expected.is_empty() { vec![("target.url", target.as_str())] } else { vec![] };
        let mut wrong = source(FIELDS, &[&options[..], &more, &target].concat());
        let problem = wrong.wait_problem();
        let expected =
            if expected.is_empty() { "no sample of `orders_total` has the labels" } else { expected };
        assert!(problem.contains(expected), "{problem}");
    }
    drop((counter, same, histogram, other));
    let mut away = source(FIELDS, &[("target.url", &target), ("metric.type", "counter")]);
    let problem = away.wait_problem();
    assert!(problem.starts_with(&format!("http://127.0.0.1:{port}/metrics: ")), "{problem}");
}

#[test]
fn metrics_go_to_a_push_gateway() {
    let Some(gateway) = servers::own("pushgateway") else { return };
    let url = gateway.address("SERVERS_PUSHGATEWAY").to_owned();
    let common = [
        ("push.url", url.as_str()),
        ("publish.mode", "pushGateway"),
        ("job", "mill"),
        ("grouping.key", "'part:a/b'"),
    ];
    let options = [("metric.type", "gauge"), ("metric.name", "level")];
    let mut gauge = open(&[&common[..], &options].concat());
    let options = [("metric.type", "summary"), ("metric.name", "delay"), ("quantiles", "0.5")];
    let mut summary = open(&[&common[..], &options].concat());
    deliver(&mut gauge, 0, &[("x", Some(1.0)), ("x", Some(4.0))]).1.unwrap();
    deliver(&mut summary, 0, &[("x", Some(8.0))]).1.unwrap();
    let has = |text: &str, name: &str, value: &str| {
        text.lines()
            .any(|line| line.starts_with(name) && line.contains("part=\"a/b\"") && line.ends_with(value))
    };
    let text = get(&format!("{url}/metrics"));
    assert!(has(&text, "level{", " 5") && has(&text, "delay_sum{", " 8"), "{text}");

    // while the gateway is away, events wait, and are counted once
    gateway.kill();
    let (progress, delivered) = deliver(&mut gauge, 2, &[("x", Some(10.0)), ("x", None)]);
    let error = delivered.unwrap_err();
    assert!(
        error.kind().is_retryable() && error.message().starts_with("cannot push to the gateway"),
        "{error}"
    );
    assert_eq!((progress.delivered, progress.refused.len()), (0, 0));
    gateway.start_again();
    let (progress, delivered) = deliver(&mut gauge, 2, &[("x", Some(10.0)), ("x", None), ("x", Some(100.0))]);
    delivered.unwrap();
    assert_eq!((progress.delivered, progress.refused[0].row), (3, 1));
    let text = get(&format!("{url}/metrics"));
    assert!(has(&text, "level{", " 115"), "{text}");

    let fields = [("site", FieldType::String), ("part", FieldType::String), ("value", FieldType::Double)];
    let target = format!("{url}/metrics");
    let options = [("target.url", target.as_str()), ("metric.type", "gauge"), ("metric.name", "level")];
    let mut scraped =
        source(&fields, &[&options[..], &[("job", "mill"), ("grouping.key", "'part:a/b'")]].concat());
    assert_eq!(scraped.poll_rows(1), ["x|a/b|115"]);
}

#[test]
fn wrong_options_are_refused() {
    let refuse = |options: &[(&str, &str)], fields: &[(&str, FieldType)], mapper: Option<&str>| {
        let config = match mapper {
            Some(mapper) => mapped("prometheus", options, mapper, &[]),
            None => ConnectorConfig { mapper: None, ..mapped("prometheus", options, "keyvalue", &[]) },
        };
        catalog().open_sink(&config, &context(fields)).err().map_or("taken".into(), |e| e.to_string())
    };
    assert_eq!(refuse(&[("metric.type", "counter")], FIELDS, None), "taken");
    for (options, expected) in [
        (
            &[("metric.type", "gauge"), ("value.attribute", "v")][..],
            "option `value.attribute`: the stream has no attribute",
        ),
        (
            &[("metric.type", "gauge"), ("value.attribute", "site")],
            "option `value.attribute`: the attribute `site` must be",
        ),
        (&[("metric.type", "gauge"), ("buckets", "1")], "option `buckets`: only a histogram has buckets"),
        (
            &[("metric.type", "histogram"), ("buckets", "1,x")],
            "option `buckets`: expected numbers separated by commas, found `x`",
        ),
        (&[("metric.type", "histogram"), ("buckets", "2,1")], "option `buckets`: the limits must increase"),
        (&[("metric.type", "summary"), ("quantiles", "2")], "option `quantiles`: quantiles are from 0 to 1"),
        (
            &[("metric.type", "summary"), ("quantile.error", "0")],
            "option `quantile.error`: expected a number above 0",
        ),
        (
            &[("metric.type", "gauge"), ("metric.name", "a-b")],
            "option `metric.name`: `a-b` is no name of a metric",
        ),
        (&[("metric.type", "gauge"), ("server.url", "https://a")], "option `server.url`: this is no URL"),
        (
            &[("metric.type", "gauge"), ("publish.mode", "pushgateway"), ("grouping.key", "a")],
            "option `grouping.key`: expected pairs",
        ),
    ] {
        let found = refuse(options, FIELDS, Some("keyvalue"));
        assert!(found.starts_with(expected), "{found}");
    }
    let found = refuse(&[("metric.type", "gauge")], FIELDS, Some("json"));
    assert_eq!(found, "mapper: the sink `prometheus` takes rows and has no mapper; remove `@map`");
    let fields = [("le", FieldType::String), ("value", FieldType::Int)];
    let found = refuse(&[("metric.type", "histogram")], &fields, None);
    assert!(found.starts_with("an attribute cannot be called `le`"), "{found}");
}
