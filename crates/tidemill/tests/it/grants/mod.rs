//! Rights over each wire: who asks what, and the answer, as text. `UPDATE_CASES=1` rewrites the answers.
//!
//! ```text
//! === a hidden table is not there
//! reader: SELECT count(*) FROM {Vault|Vaulx}
//! ---
//! ERROR 42P01: there is no stream `NAME` …
//! ```
//!
//! A case has steps `USER: STEP` and a line with the answer to each of them. `$ users …` and `$ tokens …` run the command, and the server
//! knows the change before the next step. A step with `{HIDDEN|MISSING}` is taken with both names, and fails unless both answers are the
//! same. After ` => WORD`, a step keeps a part of its answer, and `$WORD` in later ones stands for it. `~` before a step leaves its answer
//! out of the file, because it is another one each time.
//!
//! No answer may have a word of what is hidden from its user, unless the step itself says the word: [`HIDDEN`].

mod flight;
mod http;
mod mcp;
mod postgres;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use tempfile::TempDir;

use crate::{Serving, run, served, tidemill};

/// Streams, of which two have the same columns, collections, a rule; in SiddhiQL a query, a table and an aggregation.
const RULES: &str =
    "event Wattage { id: string, gauge: string, watt: double, at: time } id id key gauge time at;
event Vault { id: string, gauge: string, watt: double, at: time } id id key gauge time at;
event Strongroom { id: string, pincode: string } id id;
event Peak { id: string, watt: double };
entity Panel key name;
entity Strongbox key name;
rule GuardVault { when { w: Wattage(watt > 100); } then { emit new Peak(w.id, w.watt); } }
";
const QUERIES: &str = "define stream Vault (id string, gauge string, watt double, at long);
define stream Alarmed (id string);
define table Keyring (id string, pincode string);
define aggregation Vaultsums from Vault select gauge, sum(watt) as total group by gauge aggregate every sec...hour;
@info(name = 'alarming') from Vault[watt > 60.0] select id insert into Alarmed;
";
const SETTINGS: &str = "[settings]\npartitions = 1\nserver.mcp = true\n";

/// Users, their grants, and the words that no answer to them has.
const USERS: [(&str, &str, &[&[&str]]); 5] = [
    ("reader", "read stream:Wattage", &[&HIDDEN, &PANEL]),
    ("viewer", "read collection:docs.Panel", &[&HIDDEN, &WATTAGE]),
    ("writer", "write stream:Wattage", &[&HIDDEN, &PANEL]),
    // the explanation of a rule has the events of its stream
    ("explainer", "read rule:GuardVault", &[&HIDDEN, &PANEL]),
    ("nobody", "", &[&HIDDEN, &PANEL, &WATTAGE]),
];
/// Words of names and values that are hidden from all users but the administrator, in lower case.
const HIDDEN: [&str; 11] = [
    "vault",
    "strongroom",
    "strongbox",
    "pincode",
    "lockcode",
    "s3cret",
    "peak",
    "alarm",
    "keyring",
    "tidemill_admin",
    "of_admin",
];
const WATTAGE: [&str; 3] = ["wattage", "gauge", "watt"];
const PANEL: [&str; 2] = ["panel", "colour"];

const EVENTS: [(&str, &str); 3] = [
    (
        "Wattage",
        r#"{"id":"w1","gauge":"g1","watt":1.5,"at":"2024-05-01T10:00:00Z"}
{"id":"w2","gauge":"g2","watt":2.5,"at":"2024-05-01T10:01:00Z"}
{"id":"w3","gauge":"g2","watt":3.5,"at":"2024-05-01T10:02:00Z"}
"#,
    ),
    ("Vault", "{\"id\":\"s3cret\",\"gauge\":\"s3cret\",\"watt\":7.0,\"at\":\"2024-05-01T10:00:00Z\"}\n"),
    ("Strongroom", "{\"id\":\"s3cret\",\"pincode\":\"s3cret\"}\n"),
];

fn password(user: &str) -> String {
    format!("password of {user}")
}

/// Server with the app and its users.
pub struct World {
    _dir: TempDir,
    data: String,
    serving: Serving,
    /// Address for PostgreSQL clients.
    postgres: String,
    tokens: BTreeMap<String, String>,
    /// Values that steps have kept.
    kept: BTreeMap<String, String>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (app, data) = (dir.path().join("app"), dir.path().join("data"));
        std::fs::create_dir(&app).unwrap();
        for (name, text) in [("hidden.rules", RULES), ("hidden.siddhi", QUERIES), ("app.toml", SETTINGS)] {
            std::fs::write(app.join(name), text).unwrap();
        }
        let data_text = data.to_str().unwrap().to_owned();
        run(&["run", app.to_str().unwrap(), "--data", &data_text, "--until-idle"], 0);
        let mut world = Self {
            data: data_text,
            serving: Serving {
                child: std::process::Command::new("true").spawn().unwrap(),
                base: String::new(),
                token: String::new(),
            },
            postgres: String::new(),
            tokens: BTreeMap::new(),
            kept: BTreeMap::new(),
            _dir: dir,
        };
        for (name, grants, _) in USERS {
            let grants: Vec<&str> = grants
                .split(", ")
                .filter(|grant| !grant.is_empty())
                .flat_map(|grant| ["--grant", grant])
                .collect();
            world.command(&[&["users", "add", name][..], &grants].concat(), name);
            let token = world.command(&["tokens", "new", name], name);
            world.tokens.insert(name.to_owned(), token.trim().to_owned());
        }
        world.command(&["users", "add", "probe"], "probe");
        let listen = free_address();
        let arguments = ["serve", "--data", &world.data, "--listen", "127.0.0.1:0", "--postgres", &listen];
        world.serving = served(tidemill(&arguments), &data, "Ready: ");
        world.postgres = listen;
        world.tokens.insert("admin".to_owned(), world.serving.token.clone());
        world.fill();
        world
    }

    /// Stores events and documents, and has plans kept of statements of the administrator.
    fn fill(&self) {
        for (stream, rows) in EVENTS {
            let (status, body) = self.post(
                "admin",
                &format!("/api/v1/streams/{stream}?wait=true"),
                "application/x-ndjson",
                rows,
            );
            assert_eq!(status, 200, "{body}");
        }
        for (collection, document) in [
            ("Panel", r#"{"_id":"p1","name":"p1","colour":"red"}"#),
            ("Strongbox", r#"{"_id":"s3cret","name":"s3cret","lockcode":"s3cret"}"#),
        ] {
            let path = format!("/api/v1/collections/{collection}/documents");
            let (status, body) = self.post("admin", &path, "application/json", document);
            assert_eq!(status, 200, "{body}");
        }
        for statement in [
            "SELECT count(*) FROM Vault",
            "SELECT gauge, watt FROM Vault AS of_admin",
            "SELECT count(*) FROM Strongbox",
        ] {
            for _ in 0..3 {
                let (status, body) = self.post("admin", "/api/v1/sql", "text/plain", statement);
                assert_eq!(status, 200, "{body}");
            }
        }
    }

    /// Runs a command of the program with the password of a user.
    fn command(&self, arguments: &[&str], user: &str) -> String {
        let mut command = tidemill(&[arguments, &["--data", &self.data]].concat());
        let output = command.env("TIDEMILL_PASSWORD", password(user)).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Changes users, and waits until the server knows it: it reads all of the file at once, so a token that was made later is known later.
    fn change_users(&self, command: &str) {
        self.command(&shell_words(command), "any");
        let token = self.command(&["tokens", "new", "probe"], "probe");
        let begun = std::time::Instant::now();
        loop {
            let (status, _) = http::ask(&self.serving.base, "GET", "/api/v1/streams", token.trim(), None);
            if status == 200 {
                return;
            }
            assert!(begun.elapsed().as_secs() < 60, "the server does not know a token: {status}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn token(&self, user: &str) -> &str {
        self.tokens.get(user).unwrap_or_else(|| panic!("there is no user `{user}`"))
    }

    fn post(&self, user: &str, path: &str, content_type: &str, body: &str) -> (u16, String) {
        http::ask(&self.serving.base, "POST", path, self.token(user), Some((content_type, body)))
    }
}

/// Splits a command of a case into words, of which one in quotes may have spaces.
fn shell_words(text: &str) -> Vec<&str> {
    let parts = text.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

/// Returns an address that was free a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Answer to a step, and the part of it that a later step may use.
pub struct Answer {
    text: String,
    kept: Option<String>,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, kept: None }
    }
}

/// Client of a wire that takes the steps of its cases.
trait Wire {
    fn take(&mut self, world: &mut World, user: &str, step: &str) -> Answer;
}

/// Takes a step. Returns its line of the file.
fn answer(wire: &mut dyn Wire, world: &mut World, line: &str, leaks: &mut String) -> String {
    if let Some(command) = line.strip_prefix("$ ") {
        world.change_users(command);
        return "done".to_owned();
    }
    let (user, step) = line.split_once(": ").unwrap_or_else(|| panic!("expected USER: STEP: {line}"));
    let (step, is_shown) = step.strip_prefix("~ ").map_or((step, true), |step| (step, false));
    let (step, word) = step.rsplit_once(" => ").map_or((step, None), |(step, word)| (step, Some(word)));
    let mut step = step.to_owned();
    for (word, value) in &world.kept {
        step = step.replace(&format!("${word}"), value);
    }
    let steps = variants(&step);
    let mut answers = Vec::new();
    for (step, name) in &steps {
        let Answer { text, kept } = wire.take(world, user, step);
        check_words(user, step, &text, leaks);
        if let (Some(word), Some(kept)) = (word, kept) {
            world.kept.insert(word.to_owned(), kept);
        }
        answers.push(if name.is_empty() { text } else { text.replace(name.as_str(), "NAME") });
    }
    if let [hidden, missing] = answers.as_slice()
        && hidden != missing
    {
        writeln!(leaks, "{line}\n  hidden:  {hidden}\n  missing: {missing}").unwrap();
    }
    let text = answers.swap_remove(0);
    match is_shown {
        true if text.is_empty() => "nothing".to_owned(),
        true => text,
        false => "not shown".to_owned(),
    }
}

/// Returns a step with each name of its `{HIDDEN|MISSING}`, and the name; the step itself if it has none.
fn variants(step: &str) -> Vec<(String, String)> {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(char::is_alphanumeric);
    for (at, _) in step.match_indices('{') {
        let Some((names, behind)) = step[at + 1..].split_once('}') else { break };
        match names.split_once('|') {
            Some((hidden, missing)) if is_name(hidden) && is_name(missing) => {
                let with = |name: &str| (format!("{}{name}{behind}", &step[..at]), name.to_owned());
                return vec![with(hidden), with(missing)];
            }
            _ => {}
        }
    }
    vec![(step.to_owned(), String::new())]
}

/// Notes words of an answer that its user must not know.
fn check_words(user: &str, step: &str, answer: &str, leaks: &mut String) {
    let Some((.., words)) = USERS.iter().find(|(name, ..)| *name == user) else { return };
    let (step, answer) = (step.to_lowercase(), answer.to_lowercase());
    for word in
        words.iter().copied().flatten().filter(|word| !step.contains(**word) && answer.contains(**word))
    {
        writeln!(leaks, "{user}: {step}\n  `{word}` is in: {answer}").unwrap();
    }
}

/// Takes the steps of a file, and compares or rewrites its answers.
fn check(file: &str, wire: &mut dyn Wire, world: &mut World) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/grants").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut parts = text.split("=== ");
    let (mut filled, mut wrong, mut leaks) = (parts.next().unwrap().to_owned(), String::new(), String::new());
    let mut count = 0;
    for case in parts {
        let (asked, expected) = case.split_once("\n---\n").unwrap_or((case, ""));
        let (name, lines) =
            asked.trim_end().split_once('\n').unwrap_or_else(|| panic!("a case without steps: {case}"));
        let steps = lines.lines().filter(|line| !line.starts_with("-- "));
        let found: Vec<String> =
            steps.map(|line| answer(wire, world, line, &mut leaks).trim_end().replace('\n', "\\n")).collect();
        count += found.len();
        let found = found.join("\n");
        if found != expected.trim_end() {
            write!(wrong, "\n{name}\nexpected:\n{}\nfound:\n{found}\n", expected.trim_end()).unwrap();
        }
        write!(filled, "=== {name}\n{lines}\n---\n{found}\n\n").unwrap();
    }
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&path, filled.trim_end().to_owned() + "\n").unwrap();
        wrong.clear();
    }
    assert!(leaks.is_empty(), "{file} tells what is hidden:\n{leaks}");
    assert!(wrong.is_empty(), "{file}:\n{wrong}");
    assert!(count >= 40, "{file} has only {count} steps");
}

#[test]
fn postgres_tells_nothing_that_is_not_granted() {
    let mut world = World::new();
    check("postgres.txt", &mut postgres::Clients::new(), &mut world);
}

#[test]
fn flight_tells_nothing_that_is_not_granted() {
    let mut world = World::new();
    check("flight.txt", &mut flight::Clients::new(), &mut world);
}

#[test]
fn rest_tells_nothing_that_is_not_granted() {
    check("rest.txt", &mut http::Http, &mut World::new());
}

#[test]
fn influxdb_routes_tell_nothing_that_is_not_granted() {
    check("influxdb.txt", &mut http::Http, &mut World::new());
}

#[test]
fn mcp_tells_nothing_that_is_not_granted() {
    check("mcp.txt", &mut mcp::Mcp, &mut World::new());
}
