//! Connections to other systems from the command line. The program is its own other side: its sink posts to its source.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tidemill_test_servers::free_port;

use super::{Serving, run, tidemill};

/// Runs an app whose sources never end, until it listens.
fn serve(app: &Path, data: &Path) -> Serving {
    let arguments =
        ["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut child = tidemill(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let base = lines.find_map(|line| Some(line.strip_prefix("Listening on ")?.to_owned())).unwrap();
    // nobody may have to wait until this end is read
    std::thread::spawn(move || lines.for_each(drop));
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    Serving { child, base, token: token.trim().to_owned() }
}

/// Calls until the output has this many lines that contain `text`.
fn wait_for(arguments: &[&str], text: &str, count: usize) -> String {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let (out, _) = run(arguments, 0);
        if out.lines().filter(|line| line.contains(text)).count() == count {
            return out;
        }
        assert!(Instant::now() < end, "{arguments:?}\n{out}");
    }
}

#[test]
fn refused_events_are_listed_retried_and_discarded_and_streams_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (orders, amounts) = (free_port(), free_port());
    // a customer that is no number makes a message that the other source refuses
    let text = format!(
        "@source(type='http', receiver.url='http://127.0.0.1:{orders}/orders', @map(type='json'))
         define stream Orders (customer string);
         @source(type='http', receiver.url='http://127.0.0.1:{amounts}/amounts', @map(type='json'))
         define stream Amounts (amount int);
         @sink(type='http', publisher.url='http://127.0.0.1:{amounts}/amounts', on.error='STORE',
               @map(type='json', @payload(\"\"\"{{\"event\": {{\"amount\": {{{{customer}}}}}}}}\"\"\")))
         define stream Sent (customer string);
         from Orders select customer insert into Sent;"
    );
    let app = dir.path().join("orders.siddhi");
    std::fs::write(&app, text).unwrap();
    let data_dir = dir.path().join("data");
    let data = data_dir.to_str().unwrap();
    let mut serving = serve(&app, &data_dir);
    for customer in ["7", "x", "8"] {
        let end = Instant::now() + Duration::from_secs(120);
        let body = format!(r#"{{"event":{{"customer":"{customer}"}}}}"#);
        // the port of the source opens a moment after that of the server
        while let Err(e) = ureq::post(format!("http://127.0.0.1:{orders}/orders")).send(&body) {
            assert!(Instant::now() < end, "{e}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let (out, _) = run(&["tap", "Amounts", "--data", data, "--after", "0", "--limit", "2"], 0);
    let mut received: Vec<&str> =
        out.lines().filter_map(|line| line.split_once("\"amount\":")).map(|x| x.1).collect();
    received.sort_unstable();
    assert_eq!(received, ["7}", "8}"]);
    let name = "orders.siddhi: http to Orders";
    let (out, _) = run(&["tap", name, "--data", data, "--after", "0", "--limit", "1", "--ids"], 0);
    let (id, event) = out.split_once('\t').unwrap();
    assert!(event.contains("\"customer\""), "{out}");
    // behind that event the others come
    let (out, _) = run(&["tap", name, "--data", data, "--after", id, "--limit", "2"], 0);
    assert_eq!(out.lines().count(), 2);
    let (_, err) = run(&["tap", "Order", "--data", data], 1);
    assert!(err.contains("there is no stream, source or sink `Order`. Did you mean `Orders`?"), "{err}");
    let (_, err) = run(&["tap", "Orders", "--data", data, "--after", "1-2"], 1);
    assert!(err.contains("`1-2` is not an id of an event"), "{err}");

    let list = ["errors", "list", "--data", data];
    let first = wait_for(&list, "orders.siddhi: Sent to http#", 1);
    assert!(first.contains("{\"customer\":\"x\"}") && first.contains("refused 20"), "{first}");
    let (out, _) = run(&["errors", "retry", "--data", data, "--sink", "orders.siddhi: Sent to http"], 0);
    assert_eq!(out, "1 events go to their sinks again\n");
    let again = wait_for(&list, "orders.siddhi: Sent to http#", 1);
    assert_ne!(first.lines().next(), again.lines().next(), "it has a new id");

    // without a server the commands open the directory
    serving.kill();
    let (_, err) = run(&["tap", "Orders", "--data", data], 1);
    assert!(err.contains("start one with `tidemill serve --data"), "{err}");
    let (out, _) = run(&["errors", "list", "--data", data, "--json"], 0);
    let event: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(event["event"], serde_json::json!({"customer": "x"}));
    let id = event["id"].as_str().unwrap();
    let (out, _) = run(&["errors", "discard", "--data", data, "--id", id], 0);
    assert_eq!(out, "1 events are forgotten\n");
    assert_eq!(run(&list, 0).0, "no undelivered events\n");
}

#[test]
fn check_tries_to_connect() {
    let dir = tempfile::tempdir().unwrap();
    let (port, nobody) = (free_port(), free_port());
    let text = format!(
        "@source(type='http', receiver.url='http://127.0.0.1:{port}/in', @map(type='json'))
         define stream In (n int);
         @sink(type='tcp', url='tcp://127.0.0.1:{nobody}/Out', @map(type='binary'))
         define stream Out (n int);
         from In select n insert into Out;"
    );
    let app = dir.path().join("a.siddhi");
    std::fs::write(&app, text).unwrap();
    let app = app.to_str().unwrap();
    let (out, err) = run(&["check", app, "--connect"], 1);
    assert!(out.contains("source a.siddhi: http to In: connected"), "{out}\n{err}");
    assert!(err.contains("sink a.siddhi: Out to tcp: not connected: "), "{out}\n{err}");
    let (out, _) = run(&["check", app, "--connect", "--without-io"], 0);
    assert!(out.contains("a: no connections to other systems"), "{out}");
}

#[test]
fn connectors_are_listed() {
    let (out, _) = run(&["connectors"], 0);
    for line in ["source:", "sink:", "store:", "mapper of sources:", "  kafka", "  rdbms", "  documents"] {
        assert!(out.lines().any(|found| found.starts_with(line)), "{line}\n{out}");
    }
    let (out, _) = run(&["connectors", "rdbms"], 0);
    assert!(out.contains("store rdbms: ") && out.contains("sink rdbms: "), "{out}");
    let (_, err) = run(&["connectors", "kafak"], 1);
    assert!(
        err.contains("there is no source, sink, store or mapper `kafak`. Did you mean `kafka`?"),
        "{err}"
    );
}
