//! `tidemill users` and `tidemill tokens`, and a server that follows them.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::{Serving, run, serve, serve_data, tidemill};

const APP: &str =
    "event Order { id: string, amount: double } id id key id;\nevent Secret { id: string } id id;";

fn agent() -> ureq::Agent {
    ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build())
}

/// Asks for the number of rows of a stream. Returns status and body.
fn count(server: &Serving, token: &str, stream: &str) -> (u16, String) {
    let mut reply = agent()
        .post(format!("{}/api/v1/sql?format=csv", server.base))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "text/plain")
        .send(format!("select count(*) as n from events.\"{stream}\""))
        .unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

/// Asks until the answer has the status, which is within a second of a change.
fn count_until(server: &Serving, token: &str, stream: &str, status: u16) -> String {
    let begun = Instant::now();
    loop {
        let (found, body) = count(server, token, stream);
        if found == status {
            return body;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{found} {body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command with standard input.
fn run_with_input(args: &[&str], input: &str, code: i32) -> String {
    let mut child = tidemill(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("TIDEMILL_PASSWORD")
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    text
}

fn data_directory(dir: &Path) -> String {
    let app = dir.join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("orders.rules"), APP).unwrap();
    let data = dir.join("data");
    let data = data.to_str().unwrap().to_owned();
    run(&["run", app.to_str().unwrap(), "--data", &data, "--until-idle"], 0);
    data
}

#[test]
fn a_running_server_follows_users_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_directory(dir.path());
    let server = serve_data(Path::new(&data));
    assert_eq!(count(&server, &server.token, "Order"), (200, "n\n0\n".to_owned()));

    let (out, _) =
        run(&["users", "add", "ana", "--no-password", "--grant", "read stream:Order", "--data", &data], 0);
    assert_eq!(out, "user ana: read stream:Order\n");
    let (token, note) = run(&["tokens", "new", "ana", "--data", &data], 0);
    let token = token.trim();
    assert!(note.contains("of user ana") && !note.contains(token), "{note}");
    let file = std::fs::read_to_string(Path::new(&data).join("access.json")).unwrap();
    assert!(!file.contains(token.rsplit('_').next().unwrap()), "the file has the secret");
    count_until(&server, token, "Order", 200);
    let (status, hidden) = count(&server, token, "Secret");
    let (_, missing) = count(&server, token, "Secrey");
    assert_eq!((status, hidden.replace("Secret", "X")), (404, missing.replace("Secrey", "X")));
    // statements of others are not shown
    let mut reply = agent()
        .get(format!("{}/api/v1/statements", server.base))
        .header("authorization", format!("Bearer {token}"))
        .call()
        .unwrap();
    let statements: Vec<serde_json::Value> = reply.body_mut().read_json().unwrap();
    assert!(!statements.is_empty() && statements.iter().all(|one| one["caller"] == "ana"), "{statements:?}");

    run(&["users", "grant", "ana", "read", "stream:Sec*", "--data", &data], 0);
    count_until(&server, token, "Secret", 200);
    let (listed, _) = run(&["tokens", "list", "--data", &data], 0);
    let id = listed.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let (rotated, _) = run(&["tokens", "rotate", &id, "--data", &data], 0);
    count_until(&server, token, "Order", 401);
    count_until(&server, rotated.trim(), "Order", 200);
    run(&["tokens", "revoke", &id, "--data", &data], 0);
    count_until(&server, rotated.trim(), "Order", 401);
    assert_eq!(count(&server, &server.token, "Order").0, 200, "the first administrator stays");
}

#[test]
fn a_limited_token_has_less_than_its_user() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_directory(dir.path());
    let (token, _) = run(&["tokens", "new", "admin", "--limit", "read stream:Order", "--data", &data], 0);
    let server = serve_data(Path::new(&data));
    let token = token.trim();
    assert_eq!(count(&server, token, "Order").0, 200);
    assert_eq!(count(&server, token, "Secret").0, 404);
    let mut reply = agent()
        .post(format!("{}/api/v1/streams/Order", server.base))
        .header("authorization", format!("Bearer {token}"))
        .send_json(serde_json::json!({ "id": "1", "amount": 1.0 }))
        .unwrap();
    let body: serde_json::Value = reply.body_mut().read_json().unwrap();
    assert_eq!((reply.status().as_u16(), &body["error"]["kind"]), (403, &"forbidden".into()), "{body}");
}

#[test]
fn passwords_come_from_standard_input_or_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_directory(dir.path());
    let said = run_with_input(&["users", "add", "ana", "--data", &data], "a good password\n", 0);
    assert_eq!(said, "user ana: no grants\n");
    for (input, hint) in [("", "TIDEMILL_PASSWORD"), ("short\n", "8 at least")] {
        let said = run_with_input(&["users", "add", "eva", "--data", &data], input, 1);
        assert!(said.contains(hint), "{said}");
    }
    let mut command = tidemill(&["users", "password", "ana", "--data", &data]);
    let output = command.env("TIDEMILL_PASSWORD", "another password").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = std::fs::read_to_string(Path::new(&data).join("access.json")).unwrap();
    assert!(file.contains("stored_key") && !file.contains("password\""), "{file}");
    let (listed, _) = run(&["users", "list", "--data", &data], 0);
    assert_eq!(
        listed,
        "user   password    tokens  grants\nadmin  DATA/token  0       admin *\nana    yes         0       no grants\n"
    );
}

#[test]
fn mistakes_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_directory(dir.path());
    for (args, code, hint) in [
        (&["users", "add", "admin", "--no-password"][..], 1, "choose another name"),
        (&["users", "add", "a b", "--no-password"], 1, "is not a name of a user"),
        (&["users", "add", "ana", "--no-password", "--grant", "reed *"], 2, "Did you mean `read`?"),
        (&["users", "grant", "ana", "read", "streams:x"], 2, "Did you mean `stream`?"),
        (&["users", "grant", "ana", "read"], 1, "tidemill users add ana"),
        (&["users", "remove", "admin"], 1, "first administrator"),
        (&["tokens", "new", "ana"], 1, "there is no user `ana`"),
        (&["tokens", "new", "admin", "--expires", "soon"], 2, "is not a duration"),
        (&["tokens", "revoke", "x"], 1, "tidemill tokens new"),
    ] {
        let args = [args, &["--data", &data]].concat();
        let (_, said) = run(&args, code);
        assert!(said.contains(hint), "{args:?}: {said}");
    }
    let (_, said) = run(&["users", "list", "--data", dir.path().to_str().unwrap()], 1);
    assert!(said.contains("is not a data directory"), "{said}");
}

#[test]
fn a_start_refuses_a_damaged_file() {
    let dir = tempfile::tempdir().unwrap();
    let data = data_directory(dir.path());
    std::fs::write(Path::new(&data).join("access.json"), "{\n  \"version\": 1,\n  \"users\": [}\n").unwrap();
    let (_, said) = run(&["serve", "--data", &data, "--listen", "127.0.0.1:0"], 1);
    assert!(said.contains("access.json: line 3, column 13"), "{said}");
    // commands that change users leave it as it is
    let (_, said) = run(&["users", "list", "--data", &data], 1);
    assert!(said.contains("access.json: line 3"), "{said}");
}

#[test]
fn an_app_is_served_with_its_users_from_the_first_start_on() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("orders.rules"), APP).unwrap();
    let server = serve(app.to_str().unwrap(), &dir.path().join("data"));
    assert_eq!(count(&server, &server.token, "Order").0, 200);
    assert_eq!(count(&server, "tidemill_0_0", "Order").0, 401);
}
