//! The source `http-poll`: asks a URL at intervals, and takes what has changed.

use std::time::Duration;

use async_trait::async_trait;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result};
use url::Url;

use super::client::{
    CLIENT_OPTIONS, HttpClient, IDLE_TIMEOUT_OPTIONS, describe_answer, header_text, parse_url, read_body,
};
use super::options::{joined, parse_headers};
use super::receiver::header_properties;

/// Bytes of the longest answer.
const ANSWER_BYTES_MAX: usize = 32 << 20;

const POLL_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("url", "What to ask: an `http` or `https` URL.").required(),
    OptionSpec::duration("interval", "Time from one request to the next.").default("1 min"),
    OptionSpec::one_of("method", &["GET", "POST"], "HTTP method.").default("GET"),
    OptionSpec::text("headers", "Headers: `'name:value','name:value'`."),
    OptionSpec::flag(
        "skip.unchanged",
        "true",
        "Whether an answer that is the same as the one before is left out; the server is asked by If-None-Match and \
         If-Modified-Since.",
    ),
];

const OPTIONS: [OptionSpec; POLL_OPTIONS.len() + CLIENT_OPTIONS.len() + IDLE_TIMEOUT_OPTIONS.len()] =
    joined(&[POLL_OPTIONS, CLIENT_OPTIONS, IDLE_TIMEOUT_OPTIONS]);

/// Type of the source.
pub(crate) struct HttpPollSourceType;

impl SourceType for HttpPollSourceType {
    fn name(&self) -> &'static str {
        "http-poll"
    }

    fn summary(&self) -> &'static str {
        "Asks a URL at intervals; an answer that has changed is a message."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let interval = options.duration("interval").filter(|interval| !interval.is_zero());
        let headers = parse_headers(options.text("headers"));
        Ok(Box::new(HttpPoll {
            client: HttpClient::of(options, &context.dir, true)?,
            url: parse_url(options.text("url")).map_err(|e| OptionError::option("url", e))?,
            interval: interval.ok_or_else(|| OptionError::option("interval", "it must be longer than 0"))?,
            method: if options.text("method").trim().eq_ignore_ascii_case("POST") {
                Method::POST
            } else {
                Method::GET
            },
            headers: headers.map_err(|e| OptionError::option("headers", e))?,
            skips: options.flag("skip.unchanged"),
            last: Answer::default(),
        }))
    }
}

struct HttpPoll {
    client: HttpClient,
    url: Url,
    interval: Duration,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    skips: bool,
    /// The last answer whose events are durable.
    last: Answer,
}

#[derive(Default)]
struct Answer {
    tag: Option<String>,
    modified: Option<String>,
    body: Option<Vec<u8>>,
}

#[async_trait]
impl SourceConnector for HttpPoll {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.poll(output).await?;
            output.report_connected();
        }
    }
}

impl HttpPoll {
    async fn poll(&mut self, output: &SourceOutput) -> Result<()> {
        let mut request = self.client.request(self.method.clone(), self.url.clone());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if self.skips {
            let tag = self.last.tag.iter().map(|tag| (header::IF_NONE_MATCH, tag));
            let modified = self.last.modified.iter().map(|time| (header::IF_MODIFIED_SINCE, time));
            for (name, value) in tag.chain(modified) {
                request = request.header(name, value);
            }
        }
        let response = self.client.send(request, &self.url).await?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED {
            return Ok(());
        }
        let (tag, modified) =
            (header_text(&response, header::ETAG), header_text(&response, header::LAST_MODIFIED));
        let mut properties = header_properties(response.headers());
        properties.push(("HTTP_STATUS_CODE".into(), status.as_str().into()));
        let body = read_body(response, &self.url, ANSWER_BYTES_MAX).await?;
        if !status.is_success() {
            return Err(Error::unavailable(describe_answer(&self.url, status, &body)));
        }
        let unchanged = self.last.body.as_ref() == Some(&body);
        if !(self.skips && unchanged) && status != StatusCode::NO_CONTENT && !body.is_empty() {
            let message = Message { payload: body.clone().into(), properties, ..Message::default() };
            output.send(vec![message]).await?.wait().await?;
        }
        self.last = Answer { tag, modified, body: Some(body).filter(|_| self.skips) };
        Ok(())
    }
}
