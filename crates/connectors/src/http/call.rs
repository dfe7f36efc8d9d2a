//! The sinks `http-call` and `http-request`, whose answers go to the sources `http-call-response` and `http-response`.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures::FutureExt;
use regex::Regex;
use reqwest::Response;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, Message, OptionError, OptionSpec,
    Options, Payload, SinkBatch, SinkConnector, SinkType, SourceConnector, SourceType, Template,
};
use tidemill_types::{Error, Result};
use tokio::io::AsyncWriteExt;
use url::Url;

use super::client::{CLIENT_OPTIONS, IDLE_TIMEOUT_OPTIONS, describe, read_body, shown_url};
use super::options::joined;
use super::receiver::header_properties;
use super::sink::{
    Outcome, REQUEST_OPTIONS, Requests, answer_outcome, deliver_parallel, parallel, refused_if_impossible,
    status_outcome,
};
use crate::routes::{Routes, SinkKey, attributes};

/// Bytes of the longest answer that becomes a message.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Calls under way at the same time if the user says nothing.
const PARALLEL_CALLS: usize = 16;
/// Sources that take the answers of calls, each with the statuses that it takes.
static ROUTES: Routes<Regex> = Routes::new();

const SOURCE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("sink.id", "Id of the sink whose answers are taken.").required(),
    OptionSpec::text(
        "http.status.code",
        "Regular expression for the statuses of the answers, such as `2\\d+`.",
    )
    .default("200"),
    OptionSpec::flag(
        "allow.streaming.responses",
        "false",
        "Accepted without effect; an answer is one message.",
    ),
];

/// Type of the sources `http-call-response` and `http-response`.
pub(crate) struct HttpCallResponseSourceType {
    pub(crate) name: &'static str,
}

impl SourceType for HttpCallResponseSourceType {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        match self.name {
            "http-response" => "Takes the answers to the requests of the sink `http-request`.",
            _ => "Takes the answers to the requests of the sink `http-call`.",
        }
    }

    fn options(&self) -> &'static [OptionSpec] {
        SOURCE_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        // a status has no backslash: two of them are one that was escaped
        let text = options.text("http.status.code").replace("\\\\", "\\");
        let status = Regex::new(&format!("^(?:{text})$")).map_err(|e| {
            let message = format!("not a regular expression: {e}");
            OptionError::option("http.status.code", message).expected(["http.status.code='2\\d+'"])
        })?;
        let key = (context.app.clone(), options.text("sink.id").to_owned());
        Ok(Box::new(ROUTES.register(key, status)))
    }
}

const CALL_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("sink.id", "Id that the sources of the answers name.").required(),
    OptionSpec::flag(
        "downloading.enabled",
        "false",
        "Whether the bodies of successful answers become files.",
    ),
    OptionSpec::text("download.path", "File of the body; the message is its path.").dynamic(),
    OptionSpec::flag("blocking.io", "false", "Whether each call waits for the answer to the one before."),
];

const SINK_OPTIONS: [OptionSpec;
    CALL_OPTIONS.len() + REQUEST_OPTIONS.len() + CLIENT_OPTIONS.len() + IDLE_TIMEOUT_OPTIONS.len()] =
    joined(&[CALL_OPTIONS, REQUEST_OPTIONS, CLIENT_OPTIONS, IDLE_TIMEOUT_OPTIONS]);

/// Type of the sinks `http-call` and `http-request`.
pub(crate) struct HttpCallSinkType {
    pub(crate) name: &'static str,
}

impl SinkType for HttpCallSinkType {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        match self.name {
            "http-request" => {
                "Sends each message as an HTTP request; the source `http-response` takes the answer."
            }
            _ => "Sends each message as an HTTP request; the source `http-call-response` takes the answer.",
        }
    }

    fn options(&self) -> &'static [OptionSpec] {
        &SINK_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let download = match (options.flag("downloading.enabled"), options.get("download.path")) {
            (false, _) => None,
            (true, Some(path)) => Some(context.parse_template("download.path", path)?),
            (true, None) => {
                let message = "the path of the files is missing";
                return Err(OptionError::option("downloading.enabled", message)
                    .expected(["download.path='/downloads/{{name}}'"]));
            }
        };
        let names = context.schema.fields.iter().map(|field| field.name.clone()).collect();
        Ok(Box::new(CallSink {
            requests: Requests::of(options, context)?,
            key: (context.app.clone(), options.text("sink.id").to_owned()),
            parallel: if options.flag("blocking.io") { 1 } else { parallel(options, PARALLEL_CALLS) },
            download,
            dir: context.dir.clone(),
            names,
        }))
    }
}

struct CallSink {
    requests: Requests,
    key: SinkKey,
    parallel: usize,
    download: Option<Template>,
    dir: PathBuf,
    /// Attributes of the events.
    names: Vec<String>,
}

#[async_trait]
impl SinkConnector for CallSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.requests.check_address().await?;
        ROUTES.wait_for_sources(&self.key).await?;
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        ROUTES.wait_for_sources(&self.key).await?;
        let messages = batch.messages_from(progress);
        deliver_parallel(messages, self.parallel, progress, |message| self.call(batch, message).boxed()).await
    }
}

impl CallSink {
    async fn call(&self, batch: &SinkBatch, message: &Payload) -> Result<Outcome> {
        let (url, request) = match self.requests.make(batch, message) {
            Ok(made) => made,
            Err(reason) => return Ok(Outcome::Refused(reason)),
        };
        let response = match self.requests.client.send(request, &url).await {
            Ok(response) => response,
            Err(e) => return refused_if_impossible(e),
        };
        let status = response.status();
        let outputs = ROUTES.outputs(&self.key, |takes| takes.is_match(status.as_str()));
        if outputs.is_empty() && self.download.is_none() {
            return answer_outcome(&url, response).await;
        }
        let mut properties = attributes(&self.names, batch, message.row);
        properties.extend(header_properties(response.headers()));
        properties.push(("HTTP_STATUS_CODE".into(), status.as_str().into()));
        let payload = match self.download.as_ref().filter(|_| status.is_success()) {
            Some(path) => match self.save(path.render(&batch.rows, message.row), response, &url).await? {
                Ok(path) => path.into_bytes(),
                Err(reason) => return Ok(Outcome::Refused(reason)),
            },
            None => match read_body(response, &url, ANSWER_BYTES_MAX).await {
                Err(e) if e.kind() == tidemill_types::ErrorKind::LimitReached => {
                    return Ok(Outcome::Refused(e.message().to_owned()));
                }
                body => body?,
            },
        };
        if outputs.is_empty() && !status.is_success() {
            return status_outcome(&url, status, &payload);
        }
        let answer = Message { payload: payload.into(), properties, ..Message::default() };
        for output in outputs {
            output.send(vec![answer.clone()]).await?.wait().await?;
        }
        Ok(Outcome::Taken)
    }

    /// Writes the body to a file, which appears when it is complete. Returns its path, or why it cannot be written.
    ///
    /// Errors: `Unavailable` if the body breaks off.
    async fn save(&self, path: String, mut response: Response, url: &Url) -> Result<Result<String, String>> {
        let path = self.dir.join(path);
        let mut partial = path.clone().into_os_string();
        partial.push(".part");
        let partial = PathBuf::from(partial);
        let failed = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
        let mut file = match create(&partial).await {
            Ok(file) => file,
            Err(e) => return Ok(Err(failed(e))),
        };
        loop {
            let chunk = response.chunk().await.map_err(|e| {
                Error::unavailable(format!("the answer of {} broke off: {}", shown_url(url), describe(&e)))
            })?;
            let Some(chunk) = chunk else { break };
            if let Err(e) = file.write_all(&chunk).await {
                return Ok(Err(failed(e)));
            }
        }
        let finished = match file.sync_all().await {
            Ok(()) => tokio::fs::rename(&partial, &path).await,
            Err(e) => Err(e),
        };
        Ok(finished.map(|()| path.display().to_string()).map_err(failed))
    }
}

async fn create(path: &Path) -> std::io::Result<tokio::fs::File> {
    if let Some(dir) = path.parent() {
        tokio::fs::create_dir_all(dir).await?;
    }
    tokio::fs::File::create(path).await
}
