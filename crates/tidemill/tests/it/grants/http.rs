//! Steps over HTTP: `METHOD PATH [BODY]`, and for the routes of InfluxDB `q STATEMENTS` and `write LINES`.
//!
//! The answer is status and body. What a step keeps is the token of the next page, or the number of the statement with `~`.

use super::{Answer, Wire, World};

pub struct Http;

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true).build().into()
}

/// Sends a request. Returns status and body.
pub fn ask(base: &str, method: &str, path: &str, token: &str, body: Option<(&str, &str)>) -> (u16, String) {
    let (status, text, _) = exchange(base, method, path, token, body);
    (status, text)
}

/// Sends a request. Returns status, body, and the values of the headers for the next page and the statement.
fn exchange(
    base: &str,
    method: &str,
    path: &str,
    token: &str,
    body: Option<(&str, &str)>,
) -> (u16, String, [Option<String>; 2]) {
    let mut builder = ureq::http::Request::builder()
        .method(method)
        .uri(format!("{base}{path}"))
        .header("authorization", format!("Bearer {token}"));
    if let Some((content_type, _)) = body {
        builder = builder.header("content-type", content_type);
    }
    if path == "/mcp" {
        builder = builder.header("accept", "application/json, text/event-stream");
    }
    let request = builder.body(body.map_or("", |(_, text)| text).to_owned()).unwrap();
    let mut reply = agent().run(request).unwrap_or_else(|e| panic!("{method} {path}: {e}"));
    let header = |name: &str| reply.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let headers = ["tidemill-next-page", "tidemill-statement"].map(header);
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap(), headers)
}

/// Writes the characters of a query as a part of an address.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

impl Wire for Http {
    fn take(&mut self, world: &mut World, user: &str, step: &str) -> Answer {
        let (method, rest) = step.split_once(' ').unwrap_or((step, ""));
        let (method, path, body) = match method {
            "q" => ("GET", format!("/query?q={}", encoded(rest)), None),
            "write" => ("POST", "/write".to_owned(), Some(("text/plain", rest.replace("\\n", "\n")))),
            _ => {
                let (path, body) =
                    rest.split_once(' ').map_or((rest, None), |(path, body)| (path, Some(body)));
                let content_type = |body: &str| match body.starts_with(['{', '[']) {
                    true => "application/json",
                    false => "text/plain",
                };
                (method, path.to_owned(), body.map(|body| (content_type(body), body.replace("\\n", "\n"))))
            }
        };
        let body = body.as_ref().map(|(content_type, body)| (*content_type, body.as_str()));
        let (status, text, [page, statement]) =
            exchange(&world.serving.base, method, &path, world.token(user), body);
        let kept = if path.contains("number") { statement } else { page };
        Answer { text: format!("{status} {text}"), kept }
    }
}
