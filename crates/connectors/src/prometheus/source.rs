//! The source: samples of a metric, scraped at intervals.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use serde_json::{Map, Number, Value as Json};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::Result;
use url::Url;

use super::samples::{self, Sample, Scrape};
use super::sink::parse_url;
use crate::cause::cause;
use crate::http::client::{build, client_builder, trust};
use crate::tls::OptionFile;

/// Bytes of a scrape.
const SCRAPE_BYTES_MAX: usize = 64 << 20;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("target.url", "URL of the metrics, such as http://localhost:9100/metrics.").required(),
    OptionSpec::one_of("metric.type", super::TYPES, "Type of the metric.").required(),
    OptionSpec::text("metric.name", "Name of the metric; by default that of the stream."),
    OptionSpec::integer("scrape.interval", 1, 86_400, "Seconds between scrapes.").default("60"),
    OptionSpec::integer("scrape.timeout", 1, 3600, "Seconds that a scrape may take.").default("10"),
    OptionSpec::one_of("scheme", &["http", "https"], "Scheme of a target.url without one.").default("http"),
    OptionSpec::text("username", "User for basic authentication."),
    OptionSpec::text("password", "Password for basic authentication.").secret(),
    OptionSpec::text("client.truststore.file", "PEM file with the authorities that are trusted for HTTPS."),
    OptionSpec::text("client.truststore.password", "Accepted without effect; a PEM file has no password.")
        .secret(),
    OptionSpec::text("headers", "Headers of the requests: `'name1:value1','name2:value2'`.").secret(),
    OptionSpec::text("job", "Value that the label `job` must have."),
    OptionSpec::text("instance", "Value that the label `instance` must have."),
    OptionSpec::text("grouping.key", "Labels that samples must have: `'key1:value1','key2:value2'`."),
];

/// Type of the source.
pub(crate) struct PrometheusSourceType;

impl SourceType for PrometheusSourceType {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn summary(&self) -> &'static str {
        "Scrapes a metric in Prometheus' text format; each sample becomes an event."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let target = options.text("target.url").trim();
        let scheme = options.text("scheme").to_ascii_lowercase();
        let target = if target.contains("://") { target.to_owned() } else { format!("{scheme}://{target}") };
        let url = parse_url("target.url", &target, &["http", "https"])?;
        let seconds = |name| Duration::from_secs(options.integer(name).unwrap_or(1).unsigned_abs());
        let mut headers = HeaderMap::new();
        for (name, value) in super::parse_pairs("headers", options.text("headers"))
            .map_err(|_| OptionError::option("headers", "expected pairs `'name1:value1','name2:value2'`"))?
        {
            let wrong = |_| OptionError::option("headers", "a name or a value cannot be in a header");
            let name = name.parse::<HeaderName>().map_err(|e| wrong(e.to_string()))?;
            let mut value = value.parse::<HeaderValue>().map_err(|e| wrong(e.to_string()))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let mut client = client_builder()
            .redirect(Policy::default())
            .timeout(seconds("scrape.timeout"))
            .default_headers(headers);
        if let Some(file) = OptionFile::read(options, "client.truststore.file", &context.dir)? {
            client = trust(client, &file)?;
        }
        let client = build(client)?;
        let login = match (options.get("username"), options.get("password")) {
            (Some(user), Some(password)) => Some((user.to_owned(), password.to_owned())),
            (None, None) => None,
            _ => {
                let message = "`username` and `password` are written together or not at all";
                return Err(OptionError::connector(message));
            }
        };
        let mut conditions = super::parse_pairs("grouping.key", options.text("grouping.key"))?;
        for name in ["job", "instance"] {
            conditions.extend(options.get(name).map(|value| (name.to_owned(), value.to_owned())));
        }
        Ok(Box::new(PrometheusSource {
            url,
            name: super::metric_name(options.get("metric.name"), &context.schema.name)?,
            kind: options.text("metric.type").to_ascii_lowercase(),
            interval: seconds("scrape.interval"),
            client,
            login,
            conditions,
        }))
    }
}

struct PrometheusSource {
    url: Url,
    name: String,
    kind: String,
    interval: Duration,
    client: reqwest::Client,
    login: Option<(String, String)>,
    /// Labels that samples must have.
    conditions: Vec<(String, String)>,
}

#[async_trait]
impl SourceConnector for PrometheusSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut ticks = tokio::time::interval(self.interval);
        // a slow scrape delays the next ones: two at once would be no better
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.scrape().await {
                Ok((messages, problem)) => {
                    if !messages.is_empty() {
                        output.send(messages).await?;
                    }
                    match problem {
                        None => output.report_connected(),
                        Some(problem) => output.report_problem(self.described(&problem)),
                    }
                }
                Err(problem) => {
                    tracing::warn!(metric = self.name, %problem, "a scrape failed");
                    output.report_problem(self.described(&problem));
                }
            }
        }
    }
}

impl PrometheusSource {
    fn described(&self, problem: &str) -> String {
        let port = self.url.port_or_known_default().unwrap_or(80);
        let host = self.url.host_str().unwrap_or_default();
        format!("{}://{host}:{port}{}: {problem}", self.url.scheme(), self.url.path())
    }

    /// Returns a message for each sample, and what is wrong with others.
    async fn scrape(&self) -> Result<(Vec<Message>, Option<String>), String> {
        let mut request = self.client.get(self.url.clone());
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        let failed = |e: reqwest::Error| cause(&e.without_url());
        let mut answer = request.send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(format!("the answer is {}", answer.status()));
        }
        let mut bytes = vec![];
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > SCRAPE_BYTES_MAX {
                return Err(format!("the answer is longer than {SCRAPE_BYTES_MAX} bytes"));
            }
        }
        let scrape = samples::parse(&String::from_utf8_lossy(&bytes), &self.name);
        if !scrape.kind.is_empty() && scrape.kind != self.kind {
            return Err(format!("the metric `{}` is a {}, not a {}", self.name, scrape.kind, self.kind));
        }
        let messages: Vec<Message> = scrape
            .samples
            .iter()
            .filter(|sample| self.matches(sample))
            .map(|s| self.message(&scrape, s))
            .collect();
        let problem = match &scrape.wrong {
            Some((count, first)) => Some(format!("{count} samples cannot be read: {first}")),
            None if scrape.samples.is_empty() => Some(format!("there is no metric `{}`", self.name)),
            None if messages.is_empty() => {
                Some(format!("no sample of `{}` has the labels that are demanded", self.name))
            }
            None => None,
        };
        Ok((messages, problem))
    }

    fn matches(&self, sample: &Sample) -> bool {
        self.conditions.iter().all(|(name, value)| {
            sample.labels.iter().any(|(label, text)| label == name && text.eq_ignore_ascii_case(value))
        })
    }

    /// Returns a message that `@map(type='keyvalue')` and `@map(type='json')` read.
    fn message(&self, scrape: &Scrape, sample: &Sample) -> Message {
        let part = if sample.part.is_empty() { "null" } else { sample.part };
        let own_label = match (self.kind.as_str(), sample.part) {
            ("histogram", "sum" | "count") => Some("le"),
            ("summary", "sum" | "count") => Some("quantile"),
            _ => None,
        };
        let texts = [
            ("metric_name", self.name.as_str()),
            ("metric_type", self.kind.as_str()),
            ("help", scrape.help.as_str()),
            ("subtype", part),
        ];
        let mut pairs: Vec<(String, String)> =
            texts.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        // samples without this label have it empty, so that all samples have the same attributes
        pairs.extend(own_label.map(|name| (name.to_owned(), String::new())));
        pairs.extend(sample.labels.iter().cloned());
        let mut object: Map<String, Json> =
            pairs.iter().map(|(name, text)| (name.clone(), Json::from(text.as_str()))).collect();
        object.insert("value".into(), json_number(sample.value));
        Message { properties: pairs, ..Message::new(Json::Object(object).to_string()) }
    }
}

/// Returns a number; a whole one without fraction, so that integer attributes take it, and those that JSON does not
/// know as texts.
fn json_number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Json::from(value as i64);
    }
    Number::from_f64(value).map_or_else(|| Json::from(value.to_string()), Json::Number)
}
