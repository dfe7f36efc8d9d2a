//! Steps over MCP: `TOOL ARGUMENTS` calls a tool, `METHOD/… ARGUMENTS` another method.

use serde_json::{Value, json};

use super::{Answer, Wire, World, http};

pub struct Mcp;

impl Wire for Mcp {
    fn take(&mut self, world: &mut World, user: &str, step: &str) -> Answer {
        let (name, arguments) = step.split_once(' ').unwrap_or((step, "{}"));
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|e| panic!("{step}: {e}"));
        let (method, params) = match name.contains('/') {
            true => (name, arguments),
            false => ("tools/call", json!({"name": name, "arguments": arguments})),
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let body = message.to_string();
        let token = world.token(user);
        let (status, text) =
            http::ask(&world.serving.base, "POST", "/mcp", token, Some(("application/json", &body)));
        let Ok(reply) = serde_json::from_str::<Value>(&text) else {
            return format!("{status} {text}").into();
        };
        let result = &reply["result"];
        match result["content"][0]["text"].as_str() {
            Some(text) if result["isError"] == true => format!("ERROR {text}"),
            Some(text) => text.to_owned(),
            None => format!("{status} {}", if result.is_null() { &reply["error"] } else { result }),
        }
        .into()
    }
}
