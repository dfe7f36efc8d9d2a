//! Server metrics, and `/metrics`: the metrics of engine and server in the OpenMetrics text format.

use std::fmt::{self, Write};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelSetEncoder, LabelValueEncoder,
    MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tidemill_engine::{Metric, MetricKind};
use tidemill_gateway::{ConnectionCounts, Metrics};

/// Name of the protocol in settings and metrics.
pub(crate) const PROTOCOL: &str = "http";

/// The content type of [`HttpMetrics::exposition`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the request duration buckets, in seconds: 0.5 ms to 30 s.
const DURATION_BUCKETS_S: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Labels of the request counter. Routes are templates, so that the number of label sets is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub method: MethodLabel,
    pub route: String,
    pub status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RouteLabels {
    pub method: MethodLabel,
    pub route: String,
}

/// Label of an HTTP method. Unknown methods are `OTHER`, because clients may invent them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MethodLabel(&'static str);

impl From<&axum::http::Method> for MethodLabel {
    fn from(method: &axum::http::Method) -> Self {
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        Self(known.into_iter().find(|k| *k == method.as_str()).unwrap_or("OTHER"))
    }
}

impl MethodLabel {
    /// Returns the label.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl EncodeLabelValue for MethodLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.0)
    }
}

/// The server's own metrics.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    pub requests: Family<RequestLabels, Counter>,
    pub duration: Family<RouteLabels, Histogram>,
    pub panics: Counter,
    pub in_flight: Gauge,
    pub body_bytes: Gauge<u64, AtomicU64>,
    pub left_out: Counter,
    registry: Registry,
}

impl HttpMetrics {
    /// Creates the metrics, all at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("http");
        let requests = Family::<RequestLabels, Counter>::default();
        let duration =
            Family::<RouteLabels, Histogram>::new_with_constructor(|| Histogram::new(DURATION_BUCKETS_S));
        let (panics, in_flight) = (Counter::default(), Gauge::default());
        let body_bytes = Gauge::<u64, AtomicU64>::default();
        registry.register("requests", "Requests that were answered", requests.clone());
        registry.register(
            "request_duration_seconds",
            "Time from a request's head to its reply's head",
            duration.clone(),
        );
        registry.register("panics", "Requests that hit a defect and were answered with 500", panics.clone());
        registry.register("requests_in_flight", "Requests to /api that are worked on", in_flight.clone());
        registry.register("request_body_bytes", "Bytes of request bodies in memory", body_bytes.clone());
        let left_out = Counter::default();
        registry.register(
            "remote_write_left_out",
            "Exemplars and descriptions of metrics that no stream took",
            left_out.clone(),
        );
        Self { requests, duration, panics, in_flight, body_bytes, left_out, registry }
    }

    /// Counts an answered request and its duration.
    pub fn record(&self, method: MethodLabel, route: &str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.duration
            .get_or_create(&RouteLabels { method, route: route.clone() })
            .observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }

    /// Writes all metrics in the text format: the engine's first, then those of the connections of all protocols, then the server's.
    pub fn exposition(&self, mut engine: Vec<Metric>, connections: &Metrics) -> Result<String, fmt::Error> {
        engine.extend(connection_metrics(connections));
        let mut text = String::new();
        let mut others = Registry::default();
        others.register_collector(Box::new(EngineMetrics(engine)));
        prometheus_client::encoding::text::encode_registry(&mut text, &others)?;
        prometheus_client::encoding::text::encode_registry(&mut text, &self.registry)?;
        prometheus_client::encoding::text::encode_eof(&mut text)?;
        Ok(text)
    }
}

/// Returns the metrics of connections, by protocol.
fn connection_metrics(connections: &Metrics) -> Vec<Metric> {
    let all = connections.all();
    let metric = |name, help, kind, value: fn(&ConnectionCounts) -> u64| {
        let sample = |(protocol, counts): &(&'static str, ConnectionCounts)| {
            (vec![("protocol", (*protocol).to_owned())], value(counts) as f64)
        };
        Metric { name, help, kind, samples: all.iter().map(sample).collect() }
    };
    let (gauge, counter) = (MetricKind::Gauge, MetricKind::Counter);
    let own = connections.of(PROTOCOL).open as f64;
    vec![
        metric("gateway_connections", "Open connections", gauge, |counts| counts.open),
        metric("gateway_connections_accepted_total", "Connections that were accepted", counter, |counts| {
            counts.accepted
        }),
        metric(
            "gateway_connections_refused_total",
            "Connections that were closed because their TLS handshake failed",
            counter,
            |counts| counts.refused,
        ),
        metric(
            "gateway_connections_evicted_total",
            "Idle connections that were closed to make room for others",
            counter,
            |counts| counts.evicted,
        ),
        metric(
            "gateway_connections_cut_total",
            "Connections that were closed at a shutdown after the grace period",
            counter,
            |counts| counts.cut,
        ),
        Metric {
            name: "http_connections",
            help: "Open connections",
            kind: MetricKind::Gauge,
            samples: vec![(vec![], own)],
        },
    ]
}

/// Snapshot of the engine's metrics.
#[derive(Debug)]
struct EngineMetrics(Vec<Metric>);

impl Collector for EngineMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            let (kind, name) = match metric.kind {
                // the encoder itself appends `_total` to the name of a counter
                MetricKind::Counter => {
                    (MetricType::Counter, metric.name.strip_suffix("_total").unwrap_or(metric.name))
                }
                MetricKind::Gauge => (MetricType::Gauge, metric.name),
            };
            let mut family =
                encoder.encode_descriptor(name, metric.help.trim_end_matches('.'), None, kind)?;
            for (labels, value) in &metric.samples {
                if labels.is_empty() {
                    encode_value(family, metric.kind, *value)?;
                    // without labels, a second sample could not be distinguished
                    break;
                }
                encode_value(family.encode_family(&SampleLabels(labels))?, metric.kind, *value)?;
            }
        }
        Ok(())
    }
}

fn encode_value(encoder: MetricEncoder<'_>, kind: MetricKind, value: f64) -> fmt::Result {
    match kind {
        MetricKind::Counter => ConstCounter::new(value).encode(encoder),
        MetricKind::Gauge => ConstGauge::new(value).encode(encoder),
    }
}

/// Label names and values of one sample.
#[derive(Debug)]
struct SampleLabels<'a>(&'a [(&'static str, String)]);

impl EncodeLabelSet for SampleLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_and_server_metrics_are_one_text() {
        let http = HttpMetrics::new();
        http.record(MethodLabel::from(&axum::http::Method::GET), "/livez", 200, Duration::from_millis(3));
        let engine = vec![
            Metric {
                name: "tidemill_events_received_total",
                help: "Events that arrived.",
                kind: MetricKind::Counter,
                samples: vec![(vec![("stream", "A\"b".into())], 7.0), (vec![("stream", "C".into())], 0.0)],
            },
            Metric {
                name: "tidemill_tail_rows",
                help: "Rows in memory.",
                kind: MetricKind::Gauge,
                samples: vec![(vec![], 2.5)],
            },
        ];
        let text = http.exposition(engine, &Metrics::default()).unwrap();
        for line in [
            "# TYPE tidemill_events_received counter",
            r#"tidemill_events_received_total{stream="A\"b"} 7.0"#,
            "tidemill_tail_rows 2.5",
            "http_connections 0",
            r#"http_requests_total{method="GET",route="/livez",status="200"} 1"#,
            r#"http_request_duration_seconds_bucket{le="0.005",method="GET",route="/livez"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(text.matches("# EOF").count(), 1);
    }
}
