//! Requests to Pub/Sub.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value as Json;
use tidemill_connect::{ConnectorContext, OptionError, Options};
use tidemill_types::{Error, Result};
use url::Url;

use super::account::ServiceAccount;
use crate::cause::cause;
use crate::http::client::plain_client;

/// Timeout for an answer. Pub/Sub itself waits less for messages.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of a reason that an error shows.
const SHOWN_BYTES: usize = 300;

/// Options of both directions.
macro_rules! pubsub_options {
    ($($own:expr),* $(,)?) => {
        &[
            OptionSpec::text("project.id", "Project of Google Cloud.").alias("projectId").required(),
            OptionSpec::text("topic.id", "Topic; made if there is none.").alias("topicId").required(),
            $($own,)*
            OptionSpec::text("credential.path", "Key file of a service account, in JSON. Read when the connector connects; not needed at an `endpoint` without TLS."),
            OptionSpec::text("endpoint", "Where Pub/Sub answers, such as `http://localhost:8085` of an emulator.").default("https://pubsub.googleapis.com"),
        ]
    };
}
pub(super) use pubsub_options;

/// Client of one project.
pub(super) struct PubSubClient {
    client: reqwest::Client,
    endpoint: Url,
    project: String,
    pub topic: String,
    account: Option<ServiceAccount>,
}

/// Answer with a status other than success.
pub(super) struct RefusedRequest {
    pub status: StatusCode,
    pub reason: String,
}

impl PubSubClient {
    /// Reads the options.
    pub(super) fn new(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let wrong = |why: &str| OptionError::option("endpoint", why);
        let endpoint = Url::parse(options.text("endpoint").trim()).ok();
        let endpoint = endpoint.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let endpoint = endpoint.ok_or_else(|| wrong("expected `https://host` or `http://host:port`"))?;
        if !endpoint.username().is_empty() || endpoint.password().is_some() || endpoint.query().is_some() {
            return Err(wrong("expected a URL without a login and without parameters"));
        }
        let account = options.get("credential.path").map(|path| ServiceAccount::new(context.dir.join(path)));
        if account.is_none() && endpoint.scheme() == "https" {
            return Err(OptionError::connector("Pub/Sub needs the option `credential.path`")
                .expected(["credential.path='account.json'"]));
        }
        let client = plain_client(ANSWER_TIMEOUT)?;
        Ok(Self {
            client,
            endpoint,
            project: resource_id(options, "project.id")?,
            topic: resource_id(options, "topic.id")?,
            account,
        })
    }

    /// Returns `projects/PROJECT/KIND/ID`.
    pub(super) fn resource(&self, kind: &str, id: &str) -> String {
        format!("projects/{}/{kind}/{id}", self.project)
    }

    /// Sends a request to a resource.
    ///
    /// Errors: `Unavailable` if the server does not answer, or without an access token.
    pub(super) async fn send(
        &mut self,
        method: Method,
        resource: &str,
        body: &Json,
    ) -> Result<Result<Json, RefusedRequest>> {
        let answer = self.send_once(method.clone(), resource, body).await?;
        match (answer, &mut self.account) {
            // the token may have been withdrawn
            (Err(refused), Some(account)) if refused.status == StatusCode::UNAUTHORIZED => {
                account.forget_token();
                self.send_once(method, resource, body).await
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn send_once(
        &mut self,
        method: Method,
        resource: &str,
        body: &Json,
    ) -> Result<Result<Json, RefusedRequest>> {
        let url = format!("{}/v1/{resource}", self.endpoint.as_str().trim_end_matches('/'));
        let mut request = self
            .client
            .request(method, &url)
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body.to_string());
        if let Some(account) = &mut self.account {
            request = request.bearer_auth(account.access_token(&self.client).await?);
        }
        let failed = |e: reqwest::Error| {
            Error::unavailable(format!("no answer from {}: {}", self.endpoint, cause(&e.without_url())))
        };
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(failed)?;
        if !status.is_success() {
            return Ok(Err(RefusedRequest { status, reason: reason(status, &bytes) }));
        }
        let answer = serde_json::from_slice(&bytes);
        answer.map(Ok).map_err(|_| Error::unavailable(format!("the answer of {} is no JSON", self.endpoint)))
    }

    /// Makes a topic or a subscription, unless it is there already.
    ///
    /// Errors: `Unavailable`, why not.
    pub(super) async fn create(&mut self, resource: &str, body: &Json) -> Result<()> {
        match self.send(Method::PUT, resource, body).await? {
            Ok(_) => Ok(()),
            Err(refused) if refused.status == StatusCode::CONFLICT => Ok(()),
            Err(refused) => Err(Error::unavailable(format!(
                "{resource} is not there and cannot be made: {}",
                refused.reason
            ))),
        }
    }
}

/// Returns the id of a project, topic or subscription.
///
/// Errors: the text is not an id.
pub(super) fn resource_id(options: &Options, name: &str) -> Result<String, OptionError> {
    let id = options.text(name).trim();
    let is_id = id.starts_with(|c: char| c.is_ascii_alphabetic())
        && id.len() >= 3
        && id.len() <= 255
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "-._~+%:".contains(c));
    match is_id {
        true => Ok(id.to_owned()),
        false => Err(OptionError::option(
            name,
            "expected 3 to 255 letters, digits and `-._~+%`, beginning with a letter",
        )),
    }
}

/// Returns the reason that an answer gives.
fn reason(status: StatusCode, body: &[u8]) -> String {
    let answer: Json = serde_json::from_slice(body).unwrap_or_default();
    let text = answer.pointer("/error/message").and_then(Json::as_str).unwrap_or("no reason is given");
    let shown: String = text.chars().take(SHOWN_BYTES).collect();
    format!("{status}: {shown}")
}
