//! PostgreSQL, asked through `psql`.

use std::io::Write;
use std::process::{Command, Stdio};

use super::canonical::{self, Rows};
use super::random::Statement;

/// Texts that no cell has: the end of a statement, the separator of cells, and NULL.
const END: &str = "\u{1}end";
const SEPARATOR: &str = "\u{2}";
const NULL: &str = "\u{3}";

pub struct Postgres {
    url: String,
}

impl Postgres {
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    /// Creates the tables in a schema of their own.
    pub fn fill(&self, tables: &str) {
        let script = format!("drop schema if exists compared cascade; create schema compared; {tables}");
        let (out, errors) = self.psql(&script);
        assert!(errors.is_empty(), "{out}{errors}");
    }

    /// Runs a script, which must not fail.
    pub fn run(&self, script: &str) {
        let (out, errors) = self.psql(script);
        assert!(errors.is_empty(), "{out}{errors}");
    }

    /// Returns the result of each statement.
    pub fn results(&self, statements: &[Statement]) -> Vec<Result<Rows, String>> {
        let script: String = statements
            .iter()
            .map(|statement| format!("{};\n\\echo \u{4} :SQLSTATE\n\\echo {END}\n", statement.text))
            .collect();
        let (out, _) = self.psql(&script);
        let mut parts: Vec<&str> = out.split(&format!("{END}\n")).collect();
        parts.pop();
        parts.iter().zip(statements).map(|(part, statement)| rows(part, statement)).collect()
    }

    fn psql(&self, script: &str) -> (String, String) {
        let mut command = Command::new("psql");
        command.arg(&self.url).args(["-X", "-q", "-t", "-A", "-F", SEPARATOR, "-P", &format!("null={NULL}")]);
        command.env(
            "PGOPTIONS",
            "-c search_path=compared -c timezone=UTC -c datestyle=ISO -c statement_timeout=20s -c client_min_messages=warning",
        );
        // errors stand where the rows of their statement would
        command
            .env("PGCLIENTENCODING", "UTF8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut psql = command.spawn().expect("psql");
        let mut input = psql.stdin.take().expect("a pipe");
        let script = format!("{SETUP}{script}");
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
        let output = psql.wait_with_output().expect("psql");
        writer.join().expect("no panic").expect("psql reads its input");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (text(output.stdout), text(output.stderr))
    }
}

/// A failed statement prints its code, so that the results stay in order.
const SETUP: &str = "\\set ON_ERROR_STOP off\n";

fn rows(part: &str, statement: &Statement) -> Result<Rows, String> {
    // psql prints nothing to its output for a statement that failed, and an empty result is empty as well: the statement
    // is followed by its state
    let Some((rows, state)) = part.rsplit_once("\u{4}") else { return Err("no state".into()) };
    let state = state.trim();
    if state != "00000" {
        return Err(state.to_owned());
    }
    let rows = rows.lines().map(|line| {
        let cells = line.split(SEPARATOR);
        cells.map(|cell| canonical::cell((cell != NULL).then_some(cell))).collect()
    });
    Ok(canonical::arranged(rows.collect(), statement))
}
