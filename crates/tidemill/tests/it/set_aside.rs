//! A record that works for hours: the program ends all the same, and starts again without it.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Serving, run, serve, serve_data, sql};

/// A function that multiplies large numbers: one turn of its loop takes long, and the operator counts no steps.
const APP: &str = "
@key('k') define stream In (k string, v int);
define function f[javascript] return int {
  if (data[0] < 2) return data[0];
  var x = 3n ** 300000n, y = x;
  for (var i = 0; i < 19000000; i++) y = x * x;
  return 1;
};
@info(name='q') from In select k, f(v) as r insert into Out;
";

fn post(serving: &Serving, event: &Value) -> bool {
    let agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build().new_agent();
    let path = format!("{}/api/v1/streams/In", serving.base);
    let request = agent.post(&path).header("authorization", &format!("Bearer {}", serving.token));
    request.send_json(event).is_ok()
}

fn terminate(serving: &mut Serving) {
    let killed = Command::new("kill").args(["-TERM", &serving.pid().to_string()]).status().unwrap();
    assert!(killed.success());
    serving.child.wait().unwrap();
}

fn problems(data: &str) -> Vec<String> {
    let text = |row: &Value| row["problem"].as_str().unwrap_or_default().to_owned();
    sql(data, "select problem from system.problems").iter().map(text).collect()
}

#[test]
fn a_script_without_an_end_stops_neither_the_program_nor_its_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("app");
    std::fs::create_dir_all(&app).unwrap();
    std::fs::write(app.join("a.siddhi"), APP).unwrap();
    std::fs::write(app.join("app.toml"), "[settings]\npartitions = 1\nrecord_timeout = \"2s\"\n").unwrap();
    let data = dir.path().join("data");
    let name = data.to_str().unwrap();
    let mut serving = serve(app.to_str().unwrap(), &data);
    assert!(post(&serving, &json!({"k": "a", "v": 1})));
    // it is acknowledged when it is on the disk, or the sender gives up waiting for what follows from it
    post(&serving, &json!({"k": "a", "v": 2}));
    let note =
        |data: &Path| std::fs::read_dir(data.join("set_aside")).is_ok_and(|mut files| files.next().is_some());
    while !note(&data) {
        thread::sleep(Duration::from_millis(20));
    }
    terminate(&mut serving);
    let mut serving = serve_data(&data);
    assert_eq!(sql(name, "select k, v from events.\"In\" order by v").len(), 2, "stored");
    assert_eq!(sql(name, "select r from events.\"Out\"").len(), 1, "and not seen");
    let problems = problems(name);
    assert!(
        problems.iter().any(|p| p.contains("record_timeout") && p.contains("errors rerun")),
        "{problems:?}"
    );
    let (out, _) = run(&["errors", "records", "--data", name], 0);
    assert!(out.contains("1 event of In"), "{out}");
    let id = out.split_whitespace().next().unwrap().to_owned();
    let (out, _) = run(&["errors", "forget", "--data", name, "--id", &id], 0);
    assert_eq!(out, format!("record {id} is forgotten\n"));
    let (out, _) = run(&["errors", "records", "--data", name], 0);
    assert_eq!(out, "no record is set aside\n");
    let (_, err) = run(&["errors", "rerun", "--data", name, "--id", &id], 1);
    assert!(err.contains("is not set aside"), "{err}");
    terminate(&mut serving);
}
