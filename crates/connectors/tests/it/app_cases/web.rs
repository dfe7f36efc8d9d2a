//! HTTP: a client of the app's sources, and a server for its sinks.

use std::time::Duration;

use tidemill_connect::runtime;

use super::ends::End;
use crate::helpers::{PATIENCE, free_port};
use crate::http_server::TestServer;

/// The port of the app's sources, `${HTTP_PORT}`, and a server that takes everything, `${HTTP_SERVER}`.
pub struct Web {
    port: u16,
    server_port: u16,
    server: TestServer,
}

impl Web {
    pub fn start() -> Self {
        let server_port = free_port();
        let server = TestServer::start(server_port, |_| (200, vec![], String::new()));
        Self { port: free_port(), server_port, server }
    }
}

impl End for Web {
    fn variables(&self) -> Vec<(&'static str, String)> {
        let server = format!("http://127.0.0.1:{}", self.server_port);
        vec![("HTTP_PORT", self.port.to_string()), ("HTTP_SERVER", server)]
    }

    fn send(&mut self, path: &str, lines: &[String]) {
        for line in lines {
            let (status, body) = post(&self.variables(), path, line);
            assert!(status == 200, "{line}: {status} {body}");
        }
    }

    fn read(&mut self, path: &str) -> Vec<String> {
        let received = self.server.received().into_iter();
        received.filter(|request| request.target == path).map(|request| request.body).collect()
    }
}

/// Posts a message to the app, as soon as it listens, and returns status and body of the answer.
pub fn post(variables: &[(&'static str, String)], path: &str, message: &str) -> (u16, String) {
    let port = &variables.iter().find(|(name, _)| *name == "HTTP_PORT").unwrap().1;
    let url = format!("http://127.0.0.1:{port}{path}");
    let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    runtime().block_on(async {
        loop {
            let answer = client.post(&url).body(message.to_owned()).send().await;
            // no one listens yet, or the source has not begun
            let is_early = match &answer {
                Ok(answer) => answer.status() == 404 || answer.status() == 503,
                Err(e) => e.is_connect(),
            };
            if is_early && std::time::Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let answer = answer.unwrap();
            return (answer.status().as_u16(), answer.text().await.unwrap());
        }
    })
}
