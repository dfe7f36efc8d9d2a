//! The sink: a metric that events update.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    RefusedRow, SinkBatch, SinkConnector, SinkType, write_value,
};
use tidemill_types::{Error, EventId, FieldType, Result, Value, row_value};
use url::Url;

use super::metric::{BUCKETS, LabelledMetric, MetricKind, MetricSpec};
use super::server::{self, MetricServer, TEXT_FORMAT};
use crate::cause::cause;
use crate::http::client::{build, client_builder};
use crate::ports::SharedPort;

/// Timeout for a push gateway.
const PUSH_TIMEOUT: Duration = Duration::from_secs(30);

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("job", "Job of the metric in a push gateway.").default("siddhiJob"),
    OptionSpec::one_of(
        "publish.mode",
        &["server", "pushgateway"],
        "Whether Prometheus scrapes the metric here, or finds it in a push gateway.",
    )
    .default("server"),
    OptionSpec::text("server.url", "Address at which the metrics of all sinks with it are served.")
        .default("http://localhost:9080"),
    OptionSpec::text("push.url", "Address of the push gateway.").default("http://localhost:9091"),
    OptionSpec::one_of("metric.type", super::TYPES, "Type of the metric.").required(),
    OptionSpec::text("metric.help", "Description of the metric; by default its name and type."),
    OptionSpec::text("metric.name", "Name of the metric; by default that of the stream."),
    OptionSpec::text(
        "buckets",
        "Upper limits of the buckets of a histogram, separated by commas; by default 0.005 to 10.",
    ),
    OptionSpec::text("quantiles", "Quantiles of a summary, separated by commas, such as 0.5,0.95."),
    OptionSpec::text("quantile.error", "Relative error of quantiles, above 0 and below 1.").default("0.001"),
    OptionSpec::text("value.attribute", "Attribute with the value; all others are labels.").default("value"),
    OptionSpec::one_of(
        "gauge.operation",
        &["add", "set"],
        "Whether a value is added to a gauge, as Siddhi does, or replaces it.",
    )
    .default("add"),
    OptionSpec::one_of(
        "push.operation",
        &["push", "pushadd"],
        "Whether a push replaces all metrics of its group, or those with the same names.",
    )
    .default("pushadd"),
    OptionSpec::text(
        "grouping.key",
        "Further labels of the group in a push gateway: `'key1:value1','key2:value2'`.",
    ),
];

/// Type of the sink.
pub(crate) struct PrometheusSinkType;

impl SinkType for PrometheusSinkType {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn summary(&self) -> &'static str {
        "Keeps a metric of the events, which Prometheus scrapes or which goes to a push gateway."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn takes_messages(&self) -> bool {
        false
    }

    fn ignores_mapper(&self, kind: &str) -> bool {
        kind.eq_ignore_ascii_case("keyvalue")
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let schema = &context.schema;
        let value_attribute = options.text("value.attribute");
        let value_column = schema.field_index(value_attribute).ok_or_else(|| {
            let message =
                format!("the stream has no attribute `{value_attribute}` for the value of the metric");
            OptionError::option("value.attribute", message)
        })?;
        let ty = schema.fields[value_column].ty;
        if !matches!(ty, FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double) {
            let message = format!("the attribute `{value_attribute}` must be a number");
            return Err(OptionError::option("value.attribute", message));
        }
        let kind = metric_kind(options)?;
        let own_label = match kind {
            MetricKind::Histogram(_) => "le",
            MetricKind::Summary { .. } => "quantile",
            _ => "",
        };
        let label_columns: Vec<usize> = (0..schema.fields.len()).filter(|i| *i != value_column).collect();
        let labels: Vec<String> = label_columns.iter().map(|i| schema.fields[*i].name.clone()).collect();
        if labels.iter().any(|label| label == own_label) {
            let message =
                format!("an attribute cannot be called `{own_label}`, which is a label of the metric itself");
            return Err(OptionError::connector(message));
        }
        let name = super::metric_name(options.get("metric.name"), &schema.name)?;
        let default_help = format!("{name} {}", options.text("metric.type").to_ascii_lowercase());
        let help = options.get("metric.help").map_or(default_help, str::to_owned);
        let spec = MetricSpec { name, help, kind, labels };
        let target = match options.text("publish.mode").eq_ignore_ascii_case("server") {
            true => Target::server(options)?,
            false => Target::gateway(options, &spec)?,
        };
        Ok(Box::new(PrometheusSink {
            spec,
            target,
            value_column,
            label_columns,
            applied: BTreeMap::new(),
            refused: vec![],
        }))
    }
}

fn metric_kind(options: &Options) -> Result<MetricKind, OptionError> {
    let numbers = |name: &str| -> Result<Option<Vec<f64>>, OptionError> {
        let Some(text) = options.get(name) else { return Ok(None) };
        let number = |text: &str| match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(OptionError::option(
                name,
                format!("expected numbers separated by commas, found `{text}`"),
            )),
        };
        text.split(',').map(number).collect::<Result<_, _>>().map(Some)
    };
    let (buckets, quantiles) = (numbers("buckets")?, numbers("quantiles")?);
    let kind = options.text("metric.type").to_ascii_lowercase();
    for (name, of) in [("buckets", "histogram"), ("quantiles", "summary")] {
        if options.is_written(name) && kind != of {
            return Err(OptionError::option(name, format!("only a {of} has {name}")));
        }
    }
    Ok(match kind.as_str() {
        "counter" => MetricKind::Counter,
        "gauge" => MetricKind::Gauge { set: options.text("gauge.operation").eq_ignore_ascii_case("set") },
        "histogram" => {
            let buckets = buckets.unwrap_or_else(|| BUCKETS.to_vec());
            if !buckets.windows(2).all(|pair| pair[0] < pair[1]) {
                return Err(OptionError::option("buckets", "the limits must increase"));
            }
            MetricKind::Histogram(buckets)
        }
        _ => {
            let quantiles = quantiles.unwrap_or_default();
            if !quantiles.iter().all(|q| (0.0..=1.0).contains(q)) {
                return Err(OptionError::option("quantiles", "quantiles are from 0 to 1"));
            }
            let error = options.text("quantile.error").trim().parse::<f64>();
            let error = error.ok().filter(|error| *error > 0.0 && *error < 1.0).ok_or_else(|| {
                OptionError::option("quantile.error", "expected a number above 0 and below 1")
            })?;
            MetricKind::Summary { quantiles, error }
        }
    })
}

struct PrometheusSink {
    spec: MetricSpec,
    target: Target,
    value_column: usize,
    label_columns: Vec<usize>,
    /// The last event of each partition that is in the metric: a push that failed is repeated without counting twice.
    applied: DeliveredEvents,
    /// Events that are refused and not yet reported.
    refused: Vec<(EventId, String)>,
}

enum Target {
    Server { host: String, port: u16, open: Option<OpenServer> },
    Gateway { url: Url, replaces: bool, client: reqwest::Client, metric: Mutex<LabelledMetric> },
}

struct OpenServer {
    /// The server ends with its last sink.
    _port: Arc<SharedPort<MetricServer>>,
    metric: Arc<Mutex<LabelledMetric>>,
}

impl Target {
    fn server(options: &Options) -> Result<Self, OptionError> {
        let url = parse_url("server.url", options.text("server.url"), &["http"])?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Ok(Self::Server { host, port: url.port_or_known_default().unwrap_or(80), open: None })
    }

    fn gateway(options: &Options, spec: &MetricSpec) -> Result<Self, OptionError> {
        let mut url = parse_url("push.url", options.text("push.url"), &["http", "https"])?;
        let mut group = vec![("job".to_owned(), options.text("job").to_owned())];
        group.extend(super::parse_pairs("grouping.key", options.text("grouping.key"))?);
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("metrics");
            for (key, value) in &group {
                // the gateway splits the path at slashes even if they are escaped
                match value.is_empty() || value.contains('/') {
                    true => path.push(&format!("{key}@base64")).push(&base64_segment(value)),
                    false => path.push(key).push(value),
                };
            }
        }
        let client = build(client_builder().redirect(Policy::default()).timeout(PUSH_TIMEOUT))?;
        let replaces = options.text("push.operation").eq_ignore_ascii_case("push");
        Ok(Self::Gateway { url, replaces, client, metric: Mutex::new(LabelledMetric::new(spec.clone())) })
    }

    fn metric(&self) -> Option<&Mutex<LabelledMetric>> {
        match self {
            Self::Server { open, .. } => open.as_ref().map(|open| &*open.metric),
            Self::Gateway { metric, .. } => Some(metric),
        }
    }

    /// Sends the metric if it is not scraped.
    async fn publish(&self) -> Result<()> {
        let Self::Gateway { url, replaces, client, metric } = self else { return Ok(()) };
        let mut body = String::new();
        metric.lock().write(Instant::now(), &mut body);
        let request = if *replaces { client.put(url.clone()) } else { client.post(url.clone()) };
        let shown =
            format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
        let failed = |e: String| Error::unavailable(format!("cannot push to the gateway {shown}: {e}"));
        let answer = request.header(CONTENT_TYPE, TEXT_FORMAT).body(body).send().await;
        let answer = answer.map_err(|e| failed(cause(&e.without_url())))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let text = answer.text().await.unwrap_or_default();
        Err(failed(format!("{status}: {}", text.chars().take(200).collect::<String>().trim())))
    }
}

/// Returns a value as a push gateway reads it behind `@base64`; an empty one is `=`.
fn base64_segment(value: &str) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::URL_SAFE.encode(value);
    if encoded.is_empty() { "=".to_owned() } else { encoded }
}

/// Parses a URL of one of these schemes.
pub(super) fn parse_url(option: &str, text: &str, schemes: &[&str]) -> Result<Url, OptionError> {
    let url = Url::parse(text.trim()).ok();
    let url = url.filter(|url| schemes.contains(&url.scheme()) && url.host_str().is_some());
    url.ok_or_else(|| {
        OptionError::option(option, "this is no URL").expected([format!("{}://localhost:9091", schemes[0])])
    })
}

#[async_trait]
impl SinkConnector for PrometheusSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        if let Target::Server { host, port, open } = &mut self.target
            && open.is_none()
        {
            let port = server::open(host, *port).await?;
            let metric = port.service.metric(&self.spec).map_err(Error::unavailable)?;
            *open = Some(OpenServer { _port: port, metric });
        }
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let rows = batch.rows.num_rows();
        if let Some(metric) = self.target.metric() {
            let mut metric = metric.lock();
            let now = Instant::now();
            for row in progress.delivered..rows {
                let id = batch.ids[row];
                if self.applied.get(&id.partition).is_some_and(|last| id <= *last) {
                    continue;
                }
                if let Err(reason) = self.apply(&mut metric, batch, row, now) {
                    self.refused.push((id, reason));
                }
                self.applied.insert(id.partition, id);
            }
        }
        self.target.publish().await?;
        let refused = self.refused.drain(..).filter_map(|(id, reason)| {
            batch.ids.iter().position(|of_batch| *of_batch == id).map(|row| RefusedRow { row, reason })
        });
        progress.refused.extend(refused);
        progress.delivered = rows;
        Ok(())
    }
}

impl PrometheusSink {
    /// Updates the metric by an event. Errors: why the event is refused.
    fn apply(
        &self,
        metric: &mut LabelledMetric,
        batch: &SinkBatch,
        row: usize,
        now: Instant,
    ) -> Result<(), String> {
        let value = match row_value(&batch.rows, self.value_column, row) {
            Value::Int(value) => value as f64,
            Value::Float(value) => value,
            _ => return Err("the value of the metric is null".into()),
        };
        let label = |column: &usize| {
            let mut text = String::new();
            write_value(&row_value(&batch.rows, *column, row), &mut text);
            text
        };
        metric.update(self.label_columns.iter().map(label).collect(), value, now)
    }
}
