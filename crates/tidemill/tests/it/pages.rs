//! Documentation tests: the commands, code and queries of the pages and help texts are run here, and their
//! output is compared.
//!
//! The word after a fence states the kind of a block:
//!
//! | word | what is done with it |
//! | --- | --- |
//! | `console` | each `$ command` is run, and prints what follows it; `…` stands for any text, alone on a line for any lines. `$ cat FILE` makes the file |
//! | `sh` | each command is run and ends with 0 |
//! | `http` | method and path, a body, the reply, separated by empty lines |
//! | `rules`, `siddhi` | compiles; rules without declarations know those of the flights |
//! | `test` | a file of tests for the rules that the page shows last |
//! | `sql` | is a query; on a page with an `app.siddhi` of its own over that |
//! | `toml` | is an `app.toml` |
//! | `json` | is JSON |
//! | `text`, also as a second word | is shown, and not run |
//!
//! All commands of a page run in a directory of its own, on one shared data directory with the flights, which
//! is served.

pub mod blocks;
mod help;
mod page;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::{Serving, root, run, served, sql, tidemill};
use page::Page;

/// Pages with blocks that run. Every page is checked for blocks without a kind.
const PAGES: [&str; 23] = [
    "README.md",
    "examples/flights/README.md",
    "docs/ARCHITECTURE.md",
    "docs/access.md",
    "docs/app.md",
    "docs/backup.md",
    "docs/coming-from/flink.md",
    "docs/coming-from/influxdb.md",
    "docs/coming-from/kafka-streams.md",
    "docs/coming-from/mongodb.md",
    "docs/coming-from/siddhi.md",
    "docs/encryption.md",
    "docs/http.md",
    "docs/load.md",
    "docs/mongodb.md",
    "docs/rules.md",
    "docs/semantics.md",
    "docs/siddhi.md",
    "docs/sql.md",
    "docs/rfcs/0001-spine.md",
    "docs/rfcs/0002-flow.md",
    "docs/rfcs/0003-flow-in-the-engine.md",
    "docs/rfcs/0004-corrections.md",
];

/// Environment of the pages: the flights, replayed and served.
pub struct World {
    dir: tempfile::TempDir,
    /// Output of `tidemill run`.
    printed: String,
    server: Serving,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let text = data.to_str().unwrap();
        let (printed, _) = run(&["run", "examples/flights", "--data", text, "--until-idle"], 0);
        let arguments = ["serve", "--data", text, "--listen", "127.0.0.1:0"];
        let mut command = tidemill(&arguments);
        // on a busy machine an answer may take longer than callers usually wait
        command.env("TIDEMILL_SETTINGS__SERVER__REQUEST_TIMEOUT", "10 min");
        let server = served(command, &data, "Ready: ");
        let world = Self { dir, printed, server };
        let bin = world.dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidemill"), bin.join("tidemill")).unwrap();
        world
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Creates a directory in which to run commands; `examples` and `scripts` are available in it.
    fn place(&self, name: &str) -> PathBuf {
        let place = self.dir.path().join(name.replace('/', "-"));
        std::fs::create_dir(&place).unwrap();
        for shared in ["examples", "scripts"] {
            std::os::unix::fs::symlink(root().join(shared), place.join(shared)).unwrap();
        }
        place
    }

    /// Runs a command of a page with the shell. Returns its output on both streams, and its exit code.
    fn shell(&self, place: &Path, command: &str) -> (String, i32) {
        let data = self.data();
        let data = data.to_str().unwrap();
        let host = self.server.base.trim_start_matches("http://");
        let mut text = command.replace("cargo run --release --bin tidemill -- ", "tidemill ");
        for named in ["/tmp/flights", "run", "data", "DATA", "DIR"] {
            text = text.replace(&format!("--data {named} "), &format!("--data {data} "));
            text = text.replace(&format!("{named}/token"), &format!("{data}/token"));
            if let Some(rest) = text.strip_suffix(&format!("--data {named}")) {
                text = format!("{rest}--data {data}");
            }
        }
        for address in ["127.0.0.1:4700", "localhost:4700"] {
            text = text.replace(address, host);
        }
        if text.starts_with("tidemill run examples/flights") {
            return (self.printed.clone(), 0);
        }
        // the interactive shell: without a terminal it reads its queries from standard input
        if text == format!("tidemill sql --data {data}") {
            text = format!("echo 'SELECT 1' | {text}");
        }
        if text.starts_with("tidemill serve") {
            return (String::new(), 0);
        }
        let path = format!("{}:{}", self.dir.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{text}\n")]).current_dir(place).env("PATH", path).env_remove("RUST_LOG");
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (String::from_utf8(printed).unwrap(), output.status.code().unwrap_or(-1))
    }
}

#[test]
fn pages_and_help_show_what_happens() {
    let world = World::new();
    let mut wrong = Vec::new();
    for name in PAGES {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        Page::new(&world, name).run(&text, &mut wrong);
    }
    help::examples(&world, &mut wrong);
    system_tables(&world, &mut wrong);
    try_next(&world, &mut wrong);
    assert!(wrong.is_empty(), "{} things are not as shown\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Checks that the tables of `system` and their columns are those that `docs/sql.md` lists.
fn system_tables(world: &World, wrong: &mut Vec<String>) {
    let query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'system' \
                 ORDER BY table_name, ordinal_position";
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for row in sql(world.data().to_str().unwrap(), query) {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        match found.last_mut().filter(|(table, _)| *table == text("table_name")) {
            Some((_, columns)) => columns.push(text("column_name")),
            None => found.push((text("table_name"), vec![text("column_name")])),
        }
    }
    let page = std::fs::read_to_string(root().join("docs/sql.md")).unwrap();
    for (table, columns) in found {
        let columns: Vec<String> = columns.iter().map(|name| format!("`{name}`")).collect();
        let line = page.lines().find(|line| line.starts_with(&format!("| `system.{table}` |")));
        let shown: Option<Vec<String>> = line.map(|line| {
            let cell = line.split('|').nth(3).unwrap_or_default();
            cell.split('`').skip(1).step_by(2).map(|name| format!("`{name}`")).collect()
        });
        if shown.as_ref() != Some(&columns) {
            wrong.push(format!(
                "docs/sql.md: expected a line `| `system.{table}` | … | {} |`, found {line:?}",
                columns.join(" ")
            ));
        }
    }
}

/// Runs the commands that a run of the flights suggests.
fn try_next(world: &World, wrong: &mut Vec<String>) {
    let offered = world.printed.lines().map(str::trim).filter(|line| line.starts_with("tidemill "));
    let offered: Vec<&str> = offered.collect();
    assert!(offered.len() >= 3, "{}", world.printed);
    for command in offered {
        let (printed, code) = world.shell(world.dir.path(), command);
        if code != 0 {
            wrong.push(format!("offered by the run: {command}\nexit code {code}\n{printed}"));
        }
    }
}

/// Returns the help text of a command, of `tidemill` itself for `None`.
fn help_of(command: Option<&str>) -> String {
    let args: Vec<&str> = command.into_iter().chain(["--help"]).collect();
    let output = tidemill(&args).output().unwrap();
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}
