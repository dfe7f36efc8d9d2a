//! Requests to InfluxDB.

use std::time::Duration;

use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value as Json;
use tidemill_connect::{OptionError, Options};
use tidemill_types::{Error, Result};
use url::Url;

use super::layout::identifier;
use crate::http::client::plain_client;
use crate::logins::{login_of, url_login};

/// Points of one request.
pub(super) const LINES_MAX: usize = 5000;
/// Timeout for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a reason that an error shows.
const SHOWN_BYTES: usize = 300;

/// Client of one database.
pub(super) struct InfluxClient {
    client: reqwest::Client,
    url: Url,
    database: String,
    login: Option<(String, String)>,
}

/// Outcome of writing points.
pub(super) enum Written {
    All,
    /// At least one is refused for good.
    Refused(String),
}

impl InfluxClient {
    pub(super) fn new(options: &Options) -> Result<Self, OptionError> {
        let wrong = || OptionError::option("url", "expected `http://host:8086` or `https://host:8086`");
        let mut url = Url::parse(options.text("url").trim()).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong());
        }
        let in_url = url_login(&url);
        let login = login_of(options, "username", "password")?.or(in_url);
        // an HTTP URL with a host takes both
        let _ = (url.set_username(""), url.set_password(None));
        url.set_query(None);
        if options.text("influxdb.database").is_empty() {
            return Err(OptionError::option("influxdb.database", "the name of the database is empty"));
        }
        let client = plain_client(ANSWER_TIMEOUT)?;
        Ok(Self { client, url, database: options.text("influxdb.database").to_owned(), login })
    }

    /// Writes points.
    ///
    /// Errors: `Unavailable` if they may be taken later.
    pub(super) async fn write(&self, lines: &str, policy: &str) -> Result<Written> {
        let request = || {
            let url = self.at("write", &[("db", &self.database), ("rp", policy), ("precision", "ms")]);
            self.client.post(url).body(lines.to_owned())
        };
        let mut answer = self.send(request()).await?;
        if answer.0 == StatusCode::NOT_FOUND {
            self.create().await?;
            answer = self.send(request()).await?;
        }
        match answer {
            (status, _) if status.is_success() => Ok(Written::All),
            (StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE, body) => {
                Ok(Written::Refused(reason(&body)))
            }
            (status, body) => Err(self.failed(status, &body)),
        }
    }

    /// Runs a statement, and returns its answer with times in milliseconds.
    ///
    /// Errors: `Invalid` if InfluxDB does not take the statement; `Unavailable` if it may later.
    pub(super) async fn query(&self, statement: &str) -> Result<Json> {
        match self.try_query(statement).await? {
            Ok(answer) => Ok(answer),
            Err(why) if why.starts_with("database not found") => {
                self.create().await?;
                let again = self.try_query(statement).await?;
                again.map_err(|why| Error::invalid(format!("InfluxDB: {why}")))
            }
            // there is nothing to delete
            Err(why) if why.starts_with("measurement not found") => Ok(Json::Null),
            Err(why) => Err(Error::invalid(format!("InfluxDB: {why}"))),
        }
    }

    async fn try_query(&self, statement: &str) -> Result<Result<Json, String>> {
        let url = self.at("query", &[("db", &self.database), ("epoch", "ms")]);
        let form = url::form_urlencoded::Serializer::new(String::new()).append_pair("q", statement).finish();
        let request = self
            .client
            .post(url)
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let (status, body) = self.send(request).await?;
        if status == StatusCode::BAD_REQUEST {
            return Ok(Err(reason(&body)));
        }
        if !status.is_success() {
            return Err(self.failed(status, &body));
        }
        let answer: Json = serde_json::from_slice(&body)
            .map_err(|_| Error::unavailable(format!("the answer of InfluxDB at {} is no JSON", self.url)))?;
        match answer.pointer("/results/0/error").and_then(Json::as_str) {
            Some(why) => Ok(Err(why.to_owned())),
            None => Ok(Ok(answer)),
        }
    }

    async fn create(&self) -> Result<()> {
        let statement = format!("CREATE DATABASE {}", identifier(&self.database));
        let made = self.try_query(&statement).await?;
        made.map(drop)
            .map_err(|why| Error::unavailable(format!("InfluxDB: the database cannot be made: {why}")))
    }

    fn at(&self, path: &str, parameters: &[(&str, &str)]) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{path}", self.url.path().trim_end_matches('/')));
        url.query_pairs_mut().extend_pairs(parameters);
        url
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<(StatusCode, Vec<u8>)> {
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        let failed = |e: reqwest::Error| {
            Error::unavailable(format!("no answer from InfluxDB at {}: {}", self.url, e.without_url()))
        };
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        Ok((status, answer.bytes().await.map_err(failed)?.to_vec()))
    }

    fn failed(&self, status: StatusCode, body: &[u8]) -> Error {
        Error::unavailable(format!("InfluxDB at {}: {status}: {}", self.url, reason(body)))
    }
}

/// Returns the reason that an answer gives.
fn reason(body: &[u8]) -> String {
    let answer: Json = serde_json::from_slice(body).unwrap_or_default();
    let text = answer.get("error").and_then(Json::as_str).unwrap_or("no reason is given");
    text.chars().take(SHOWN_BYTES).collect()
}
