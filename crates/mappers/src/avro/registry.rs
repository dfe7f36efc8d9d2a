//! Schema registry over HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BlockingRetryable, ConstantBuilder};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::schema::AvroSchema;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Delays between requests for a schema; after the last one, messages that need it are refused.
const DELAYS: ConstantBuilder =
    ConstantBuilder::new().with_delay(Duration::from_millis(500)).with_max_times(2);
/// Time without requests after the last attempt failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Greatest number of bytes of an answer.
const ANSWER_MAX: u64 = 4 << 20;

/// Client of a schema registry. It remembers the schemas that it has fetched.
pub(super) struct Registry {
    agent: ureq::Agent,
    /// URL without user, password and the slash at its end.
    url: String,
    authorization: Option<String>,
    schemas: HashMap<String, (Arc<AvroSchema>, Option<i32>)>,
    /// Requests that failed.
    failures: HashMap<String, (Instant, String)>,
}

#[derive(Deserialize)]
struct Answer {
    schema: String,
    id: Option<i32>,
    #[serde(rename = "schemaType")]
    schema_type: Option<String>,
}

enum RequestError {
    /// The registry cannot be reached, or is out of order.
    Unavailable(String),
    /// The registry has no usable answer.
    Refused(String),
}

impl Registry {
    /// Creates a client, without connecting. A user and a password may also be in the URL.
    ///
    /// Errors: a wrong URL. They do not contain it, because it may have a password.
    pub(super) fn new(url: &str, user: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        let mut parsed = url::Url::parse(url.trim()).map_err(|e| format!("not a URL: {e}"))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err("expected a URL that begins with `http://` or `https://`".to_owned());
        }
        let user = user.unwrap_or(parsed.username()).to_owned();
        let password = password.or(parsed.password()).unwrap_or_default().to_owned();
        let authorization = (!user.is_empty())
            .then(|| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))));
        // both cannot fail for a URL with a host
        let _ = (parsed.set_username(""), parsed.set_password(None));
        let config = ureq::Agent::config_builder();
        let config = config.timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
        Ok(Self {
            agent: config.into(),
            url: parsed.as_str().trim_end_matches('/').to_owned(),
            authorization,
            schemas: HashMap::new(),
            failures: HashMap::new(),
        })
    }

    /// Returns the schema with this id.
    ///
    /// Errors: the registry has no such schema, or cannot be reached.
    pub(super) fn schema_of_id(&mut self, id: i32) -> Result<Arc<AvroSchema>, String> {
        Ok(self.fetch(&format!("/schemas/ids/{id}"))?.0)
    }

    /// Returns the latest schema of a subject, with its id. Later versions are not noticed until the next start.
    ///
    /// Errors: the registry has no such subject, or cannot be reached.
    pub(super) fn schema_of_name(&mut self, name: &str) -> Result<(Arc<AvroSchema>, i32), String> {
        let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let (schema, id) = self.fetch(&format!("/subjects/{}/versions/latest", name.replace('+', "%20")))?;
        Ok((schema, id.ok_or("the schema registry did not tell the id of the schema")?))
    }

    fn fetch(&mut self, path: &str) -> Result<(Arc<AvroSchema>, Option<i32>), String> {
        if let Some(known) = self.schemas.get(path) {
            return Ok(known.clone());
        }
        if let Some((at, reason)) = self.failures.get(path)
            && at.elapsed() < RETRY_AFTER
        {
            return Err(reason.clone());
        }
        let found =
            (|| self.request(path)).retry(DELAYS).when(|e| matches!(e, RequestError::Unavailable(_))).call();
        match found {
            Ok(found) => {
                self.failures.remove(path);
                self.schemas.insert(path.to_owned(), found.clone());
                Ok(found)
            }
            Err(RequestError::Refused(reason) | RequestError::Unavailable(reason)) => {
                let reason = format!("the schema at {}{path} cannot be fetched: {reason}", self.url);
                self.failures.insert(path.to_owned(), (Instant::now(), reason.clone()));
                Err(reason)
            }
        }
    }

    fn request(&self, path: &str) -> Result<(Arc<AvroSchema>, Option<i32>), RequestError> {
        let unavailable = |e: ureq::Error| RequestError::Unavailable(e.to_string());
        let mut request = self.agent.get(format!("{}{path}", self.url));
        request = request.header("Accept", "application/vnd.schemaregistry.v1+json, application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let mut response = request.call().map_err(unavailable)?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        let body = body.map_err(unavailable)?;
        if status.is_server_error() {
            return Err(RequestError::Unavailable(format!("the answer is {status}")));
        }
        if !status.is_success() {
            let body: String = body.chars().take(200).collect();
            return Err(RequestError::Refused(format!("the answer is {status}: {body}")));
        }
        let answer: Answer = serde_json::from_str(&body)
            .map_err(|e| RequestError::Refused(format!("the answer has no schema: {e}")))?;
        match answer.schema_type.as_deref() {
            None | Some("AVRO") => {}
            Some(other) => {
                return Err(RequestError::Refused(format!("it is of the type {other}, not AVRO")));
            }
        }
        let schema = AvroSchema::parse(&answer.schema).map_err(RequestError::Refused)?;
        Ok((schema, answer.id))
    }
}
