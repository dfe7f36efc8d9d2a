//! Runs the steps of a case against an engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_engine::{App, Engine, UndeliveredSelection};
use tidemill_flow::Connectors;
use tidemill_types::event_json;

use super::case::{Case, Step};
use super::ends::Ends;
use crate::helpers::{catalog, wait_until};

/// Maximum time a case waits for its expected output.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time without changes before a case is updated.
const QUIET: Duration = Duration::from_secs(3);
/// Time without events before a case ends.
const IDLE: Duration = Duration::from_millis(300);

/// Runs the case `tests/apps/NAME.case` with the app `tests/apps/NAME.siddhi`.
pub fn run(name: &str) {
    let path = |extension: &str| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/apps").join(name).with_extension(extension)
    };
    let (mut case, app) = (Case::read(&path("case")), path("siddhi"));
    let text = std::fs::read_to_string(&app).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let Some(ends) = Ends::open(&text, &case, dir.path()) else { return };
    let variables = ends.variables(&text);
    let app = quiet(App::read(&app, &variables).unwrap());
    let mut driver = Driver { app, data: dir.path().join("data"), ends, engine: None };
    let updates = std::env::var_os("UPDATE_CASES").is_some();
    for step in &mut case.steps {
        driver.step(step, updates);
    }
    driver.finish(&case);
    if updates {
        case.write();
    }
}

/// Keeps rows out of the files of tables, so that all are in memory.
fn quiet(mut app: App) -> App {
    app.settings.flush_interval = tidemill_types::Duration::seconds(3600);
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    app
}

struct Driver {
    app: App,
    data: PathBuf,
    ends: Ends,
    engine: Option<Engine>,
}

impl Driver {
    fn step(&mut self, step: &mut Step, updates: bool) {
        let [verb, end, rest] = step.words();
        match (verb, end) {
            ("start", "engine") => self.engine = Some(start(&self.data, &self.app)),
            ("restart", "engine") => {
                self.engine().abandon();
                self.engine = None;
                self.engine = Some(start(&self.data, &self.app));
            }
            ("stop", "engine") => {
                self.engine().stop().unwrap();
                self.engine = None;
            }
            ("retry", "undelivered") => {
                let retried = self.engine().retry_undelivered(&UndeliveredSelection::default()).unwrap();
                assert_eq!(retried.errors, [""; 0], "{}", step.head);
            }
            ("stop", server) => self.own_server(server, |server| server.stop()),
            ("start", server) => self.own_server(server, |server| server.start_again()),
            ("create", end) => self.ends.get(end).create(rest),
            ("send" | "append" | "sql", end) => self.ends.get(end).send(rest, &step.body),
            ("request", "http") => {
                let requests: Vec<&String> =
                    step.body.iter().filter(|line| !line.starts_with("=> ")).collect();
                let path = rest.to_owned();
                let answers = requests.into_iter().flat_map(|request| {
                    let (status, body) = super::web::post(&self.ends.get("http").variables(), &path, request);
                    [request.clone(), format!("=> {status} {body}")]
                });
                let found: Vec<String> = answers.collect();
                match updates {
                    true => step.body = found,
                    false => assert_eq!(found, step.body, "{}", step.head),
                }
            }
            ("expect", _) if updates => step.body = self.settled(end, rest),
            ("expect", _) => self.expect(step),
            _ => panic!("there is no step `{}`", step.head),
        }
    }

    /// Waits until what a step expects is there.
    fn expect(&mut self, step: &Step) {
        let [_, end, from] = step.words();
        let patience = Instant::now() + PATIENCE;
        loop {
            let found = self.found(end, from);
            if found == step.body {
                return;
            }
            if Instant::now() > patience {
                self.fail(step, &found);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn fail(&self, step: &Step, found: &[String]) -> ! {
        let problems = self.engine.as_ref().map(|engine| {
            format!(
                "sinks: {:#?}\nproblems: {:?}\nrejected: {:?}",
                engine.sinks(),
                engine.health(),
                engine.rejected_snapshot().unwrap().tail
            )
        });
        let (expected, found) = (step.body.join("\n  "), found.join("\n  "));
        panic!("{}\nexpected:\n  {expected}\nfound:\n  {found}\n{}", step.head, problems.unwrap_or_default());
    }

    /// Returns what is there when nothing changes any more.
    fn settled(&mut self, end: &str, from: &str) -> Vec<String> {
        let (mut found, mut since) = (self.found(end, from), Instant::now());
        while since.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.found(end, from);
            if now != found {
                (found, since) = (now, Instant::now());
            }
        }
        found
    }

    /// Returns what is there now.
    fn found(&mut self, end: &str, from: &str) -> Vec<String> {
        match end {
            "table" => table(self.engine(), from),
            "query" => {
                let rows = self.engine().query_on_demand(None, from).unwrap();
                rows.into_iter().map(|row| serde_json::Value::from(row).to_string()).collect()
            }
            "undelivered" => {
                let events = self.engine().undelivered(&UndeliveredSelection::default(), 1000).unwrap();
                let line = |event: &tidemill_engine::UndeliveredEvent| {
                    format!("{} {}: {}", event.stream, event.event, event.reason)
                };
                events.iter().map(line).collect()
            }
            end => self.ends.get(end).read(from),
        }
    }

    /// Checks that nothing came twice, and that every event of each sink was delivered or refused.
    fn finish(&mut self, case: &Case) {
        let mut counts = (vec![], Instant::now());
        wait_until("all events are delivered and no more come", || {
            let sinks = self.engine().sinks();
            let now: Vec<u64> = sinks.iter().map(|sink| sink.emitted).collect();
            if now != counts.0 || sinks.iter().any(|sink| sink.waiting > 0) {
                counts = (now, Instant::now());
            }
            counts.1.elapsed() > IDLE
        });
        for sink in self.engine().sinks() {
            assert_eq!(sink.emitted, sink.delivered + sink.failed, "{sink:?}");
        }
        let last = case.steps.iter().rev().take_while(|step| step.words::<2>()[0] == "expect");
        for step in last {
            let [_, end, from] = step.words();
            let found = self.found(end, from);
            if found != step.body {
                self.fail(step, &found);
            }
        }
        self.engine().stop().unwrap();
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the case has the step `start engine`")
    }

    fn own_server(&mut self, end: &str, change: impl FnOnce(&crate::servers::OwnServer)) {
        let end = match end {
            "smtp" => "mail",
            "mosquitto" => "mqtt",
            end => end,
        };
        change(self.ends.get(end).server().expect("a server that can be stopped"));
    }
}

/// Opens the data directory with the app and all connectors, as the program does.
fn start(data: &Path, app: &App) -> Engine {
    let connectors = Connectors::Catalog(Arc::new(catalog()));
    let engine = Engine::builder(data).app(app.clone()).connectors(connectors).open();
    let engine = engine.unwrap_or_else(|e| panic!("{e}"));
    engine.start_sources().unwrap();
    engine
}

/// Returns the events of a stream in order.
fn table(engine: &Engine, stream: &str) -> Vec<String> {
    let schema = engine.stream_schema(stream).unwrap();
    let snapshot = engine.table_snapshot(stream).unwrap().unwrap();
    let rows = snapshot.tail.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    rows.map(|(batch, row)| serde_json::Value::Object(event_json(schema, batch, row)).to_string()).collect()
}
