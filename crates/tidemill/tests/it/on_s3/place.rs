//! An app whose tables are in a bucket, its data directory, and the program that runs it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidemill_test_servers::{SharedServer, shared};

use crate::{Serving, interrupt, tidemill};

/// Secret key of the server.
pub const SECRET: &str = "tidemill";
/// How long a state may take to arrive.
const WAIT: Duration = Duration::from_secs(120);

const RULES: &str = "event Trades { symbol: string, at: time, n: long } key symbol id n time at;\n";

pub struct Place {
    dir: tempfile::TempDir,
    /// Settings of every app, one a line.
    settings: Vec<String>,
    server: SharedServer,
}

impl Place {
    /// Creates an app that flushes often, with these settings in addition. `None`, with a message, where the server cannot
    /// be had.
    pub fn new(settings: &[&str]) -> Option<Self> {
        let server = shared("s3")?;
        let endpoint = server.address("SERVERS_S3").to_owned();
        let own = [
            "flush_interval = \"50ms\"".to_owned(),
            "checkpoint_interval = \"500ms\"".to_owned(),
            "zones.merge_tablets = 3".to_owned(),
            "zones.cache_disk_bytes = 33554432".to_owned(),
            format!("tables = \"s3://tidemill/{}\"", uuid::Uuid::new_v4()),
            format!("tables_store.endpoint = \"{endpoint}\""),
        ];
        let place = Self { dir: tempfile::tempdir().unwrap(), settings: own.to_vec(), server };
        place.write("app/app.rules", RULES);
        place.app(settings);
        Some(place)
    }

    /// Returns the URL of the server.
    pub fn endpoint(&self) -> &str {
        self.server.address("SERVERS_S3")
    }

    /// Writes the app with settings in addition to its own; the same name replaces one.
    pub fn app(&self, settings: &[&str]) {
        let name = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
        let replaced = |line: &&String| settings.iter().any(|other| name(other) == name(line));
        let kept = self.settings.iter().filter(|line| !replaced(line)).map(String::as_str);
        let lines: Vec<&str> = kept.chain(settings.iter().copied()).collect();
        self.write("app/app.toml", &format!("name = \"trades\"\n[settings]\n{}\n", lines.join("\n")));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        self.text(name)
    }

    /// Returns whether a file of the data directory contains `secret` with quotes or as a value.
    pub fn contains(&self, secret: &str) -> bool {
        let needles =
            [format!("\"{secret}\""), format!("={secret}\n"), format!("secret_access_key={secret}")];
        let mut dirs = vec![self.path("data")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let bytes = std::fs::read(&path).unwrap();
                let found =
                    |needle: &String| bytes.windows(needle.len()).any(|part| part == needle.as_bytes());
                if needles.iter().any(found) {
                    return true;
                }
            }
        }
        false
    }

    /// Returns the command that runs the app, with the credentials of the server.
    pub fn command(&self) -> Command {
        let (app, data) = (self.text("app"), self.text("data"));
        let mut command = tidemill(&["run", &app, "--data", &data, "--listen", "127.0.0.1:0"]);
        credentials(&mut command);
        command
    }

    pub fn run(&self) -> Server {
        self.start(self.command())
    }

    /// Starts the program and waits until it can be asked.
    pub fn start(&self, mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            // what is no text is not read further
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let base = lines.find_map(|line| Some(line.strip_prefix("Listening on ")?.to_owned()));
        std::thread::spawn(move || lines.for_each(drop));
        let Some(base) = base else {
            let _ = child.wait();
            panic!("the program ended: {}", log.join().unwrap());
        };
        let token = std::fs::read_to_string(self.path("data/token")).unwrap();
        Server { serving: Serving { child, base, token: token.trim().to_owned() }, log: Some(log) }
    }
}

pub fn credentials(command: &mut Command) {
    command
        .env("AWS_ACCESS_KEY_ID", "tidemill")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_REGION", "us-east-1");
}

/// The running program.
pub struct Server {
    serving: Serving,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let agent =
            ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
        let mut response = agent
            .post(format!("{}{path}", self.serving.base))
            .header("authorization", format!("Bearer {}", self.serving.token))
            .header("content-type", if path.contains("/sql") { "text/plain" } else { "application/x-ndjson" })
            .send(body)
            .unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// Sends `rows` events, those of `batch`, and waits until they are applied. Returns the status.
    pub fn send(&self, batch: u64, rows: u64) -> u16 {
        let (status, reply) = self.try_send(batch, rows, "?wait=true");
        assert!(status != 200 || reply.contains(&format!("\"accepted\":{rows}")), "{reply}");
        status
    }

    pub fn try_send(&self, batch: u64, rows: u64, parameters: &str) -> (u16, String) {
        let event = |n: u64| json!({"symbol": format!("s{}", n % 7), "at": format!("2026-01-05T09:{:02}:{:02}Z", n / 60 % 60, n % 60), "n": n});
        let lines: Vec<String> = (batch * rows..(batch + 1) * rows).map(|n| event(n).to_string()).collect();
        self.post(&format!("/api/v1/streams/Trades{parameters}"), &lines.join("\n"))
    }

    /// Returns the status and the rows of a query, or its error.
    pub fn try_sql(&self, query: &str) -> (u16, Value) {
        let (status, text) = self.post("/api/v1/sql?format=json", query);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub fn sql(&self, query: &str) -> Value {
        let (status, rows) = self.try_sql(query);
        assert_eq!(status, 200, "{query}: {rows}");
        rows
    }

    fn number(&self, query: &str) -> u64 {
        self.sql(query)[0]["n"].as_u64().unwrap()
    }

    pub fn count(&self) -> u64 {
        self.number("SELECT count(*) AS n FROM Trades")
    }

    /// Waits until the column `n` of a query has this value.
    pub fn wait_until(&self, query: &str, value: u64) {
        let deadline = Instant::now() + WAIT;
        while self.number(query) != value {
            let problems = || self.sql("SELECT * FROM system.problems");
            assert!(Instant::now() < deadline, "{query}: {}; {}", self.sql(query), problems());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a problem with these words is reported; the server must answer that whatever the store does.
    pub fn wait_for_problem(&self, words: &str) {
        let deadline = Instant::now() + WAIT;
        loop {
            let agent = ureq::Agent::new_with_config(
                ureq::Agent::config_builder().http_status_as_error(false).build(),
            );
            let request = agent.get(format!("{}/readyz", self.serving.base));
            // problems are told to those who may read them
            let request = request.header("authorization", format!("Bearer {}", self.serving.token));
            let mut response = request.call().unwrap();
            let text = response.body_mut().read_to_string().unwrap();
            if text.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all events are in files, and checks that each of `events` is there once and that the ledger balances.
    pub fn check_exact(&self, events: u64) {
        let counts = "SELECT count(*) AS n, count(DISTINCT n) AS ids, max(n) AS last FROM Trades";
        assert_eq!(self.sql(counts), json!([{"n": events, "ids": events, "last": events - 1}]));
        self.wait_until(
            "SELECT sum(rows) AS n FROM system.zones WHERE stream = 'Trades' AND zone != 'tail'",
            events,
        );
        assert_eq!(self.sql(counts), json!([{"n": events, "ids": events, "last": events - 1}]));
        let ledger =
            "SELECT stored, rows_in_table, removed, balanced FROM system.ledger WHERE stream = 'Trades'";
        let expected = json!([{"stored": events, "rows_in_table": events, "removed": 0, "balanced": true}]);
        assert_eq!(self.sql(ledger), expected);
    }

    /// Stops the program in order, returns what it wrote to standard error.
    pub fn stop(&mut self) -> String {
        interrupt(self.serving.pid());
        let status = self.serving.child.wait().unwrap();
        let log = self.log.take().unwrap().join().unwrap();
        assert!(status.success(), "{status}: {log}");
        log
    }

    pub fn kill(&mut self) {
        self.serving.kill();
    }

    /// Asks the program to stop, and waits until it has, whatever it says.
    pub fn interrupt_and_wait(&mut self) {
        interrupt(self.serving.pid());
        self.serving.child.wait().unwrap();
    }
}
