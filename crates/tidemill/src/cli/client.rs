//! Client of the server that runs on a data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// File that a server writes to its data directory so that commands can find it.
#[derive(Serialize, Deserialize)]
pub struct ServerFile {
    /// Address, such as `127.0.0.1:4700`.
    pub address: String,
    /// Process id of the server.
    pub pid: u32,
}

/// Client of a server that responds.
pub struct Client {
    base: String,
    token: String,
    agent: ureq::Agent,
}

/// Returns the path of the server's [`ServerFile`].
pub fn server_file(data: &Path) -> PathBuf {
    data.join("server.json")
}

/// Returns the path of the token.
pub fn token_file(data: &Path) -> PathBuf {
    data.join("token")
}

impl Client {
    /// Finds the server on `data`; `None` if none responds.
    pub fn find(data: &Path) -> anyhow::Result<Option<Self>> {
        let Ok(file) = std::fs::read(server_file(data)) else { return Ok(None) };
        let server: ServerFile =
            serde_json::from_slice(&file).with_context(|| format!("{}", server_file(data).display()))?;
        let agent = ureq::Agent::new_with_config(
            ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_connect(Some(Duration::from_secs(2)))
                .build(),
        );
        let base = format!("http://{}", server.address);
        if agent.get(format!("{base}/livez")).call().is_err() {
            return Ok(None);
        }
        let token = std::fs::read_to_string(token_file(data))
            .with_context(|| format!("the server's token, {}", token_file(data).display()))?;
        Ok(Some(Self { base, token: token.trim().to_owned(), agent }))
    }

    /// Sends SQL and copies the rows to `out`.
    pub fn sql(&self, query: &str, format: &str, out: &mut dyn std::io::Write) -> anyhow::Result<()> {
        let mut response = self
            .agent
            .post(format!("{}/api/v1/sql?format={format}", self.base))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "text/plain")
            .send(query)
            .context("the server did not answer")?;
        if response.status() != 200 {
            bail!("{}", error_message(response.body_mut()));
        }
        std::io::copy(&mut response.body_mut().as_reader(), out).context("the rows broke off")?;
        Ok(())
    }

    /// Posts JSON to a path and returns the JSON of the reply.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<serde_json::Value> {
        let mut response = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.token))
            .send_json(body)
            .context("the server did not answer")?;
        if response.status() != 200 {
            bail!("{}", error_message(response.body_mut()));
        }
        response.body_mut().read_json().context("the server's reply is not JSON")
    }

    /// Sends a GET to a path and returns the body of the reply, which comes as long as the server sends.
    pub fn stream(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<impl std::io::Read + 'static> {
        let mut response = self
            .agent
            .get(format!("{}{path}", self.base))
            .query_pairs(query.iter().copied())
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .context("the server did not answer")?;
        if response.status() != 200 {
            bail!("{}", error_message(response.body_mut()));
        }
        Ok(response.into_body().into_reader())
    }

    /// Sends a GET to a path and returns the JSON of the reply.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<serde_json::Value> {
        let mut response = self
            .agent
            .get(format!("{}{path}", self.base))
            .query_pairs(query.iter().copied())
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .context("the server did not answer")?;
        if response.status() != 200 {
            bail!("{}", error_message(response.body_mut()));
        }
        response.body_mut().read_json().context("the server's reply is not JSON")
    }
}

/// Percent-encodes a name as a path segment.
pub fn path_segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escaped = name.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    escaped.collect()
}

/// Returns the message of an error reply.
fn error_message(body: &mut ureq::Body) -> String {
    let text = body.read_to_string().unwrap_or_default();
    let json: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    json.and_then(|v| v.pointer("/error/message").and_then(|m| m.as_str()).map(str::to_owned)).unwrap_or(text)
}
