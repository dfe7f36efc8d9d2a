//! Text cases: `tests/cases/*.slt` has queries and their output.
//!
//! A case is `query [table|json|ndjson|csv]` or `error`, the SQL, `----`, and the output up to an empty line.
//! Every case runs with the rows in the tail, in files, and in both, because their location must not matter,
//! unless the file starts with `only both`. `UPDATE_CASES=1 cargo test -p tidemill-sql` rewrites the outputs;
//! review the difference.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use futures::StreamExt;
use tidemill_sql::Sql;
use tidemill_sql::output::{Format, Writer};

use crate::fixture::{self, State};

pub struct Case {
    /// Comments and empty lines before the case.
    pub before: String,
    pub directive: String,
    pub sql: String,
    pub expected: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn cases() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let mut failures = String::new();
    for state in State::ALL {
        let (_fixture, sql) = fixture::sql(state, fixture::options()).await;
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            if text.starts_with("only both") && state != State::Both {
                continue;
            }
            // what is written would be in the results of others
            let own = match text.starts_with("only both: writes") {
                true => {
                    let (fixture, sql) = fixture::sql(state, fixture::options()).await;
                    fixture.declare(&fixture::sensor()).await;
                    Some((fixture, sql))
                }
                false => None,
            };
            let sql = own.as_ref().map_or(&sql, |(_, sql)| sql);
            let (cases, after) = parse(&text);
            let mut written = String::new();
            for case in &cases {
                let found = run(sql, case).await;
                if found != case.expected {
                    let name = file.file_name().unwrap().to_string_lossy();
                    writeln!(
                        failures,
                        "{name} ({state:?}): {}\nexpected:\n{}found:\n{found}",
                        case.sql, case.expected
                    )
                    .unwrap();
                }
                write!(written, "{}{}\n{}\n----\n{found}", case.before, case.directive, case.sql).unwrap();
            }
            // one state writes the outputs, the others check them
            let writes = state == State::ALL[0] || text.starts_with("only both");
            if writes && std::env::var_os("UPDATE_CASES").is_some() {
                std::fs::write(file, written + &after).unwrap();
                failures.clear();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

pub fn parse(text: &str) -> (Vec<Case>, String) {
    let mut cases = vec![];
    let mut before = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !(line.starts_with("query") || line.starts_with("error")) {
            before += &format!("{line}\n");
            continue;
        }
        let sql: Vec<&str> = lines.by_ref().take_while(|l| *l != "----").collect();
        let expected: Vec<&str> = lines.by_ref().take_while(|l| !l.is_empty()).collect();
        cases.push(Case {
            before: std::mem::take(&mut before),
            directive: line.to_owned(),
            sql: sql.join("\n"),
            expected: expected.iter().map(|l| format!("{l}\n")).collect(),
        });
        before.push('\n');
    }
    (cases, if before == "\n" { String::new() } else { before })
}

async fn run(sql: &Sql, case: &Case) -> String {
    let mut words = case.directive.split(' ');
    let must_fail = words.next() == Some("error");
    let format = words.next().map_or(Format::Table, |f| Format::from_str(f).unwrap());
    match print(sql, &case.sql, format).await {
        Err(error) if must_fail => format!("{}: {error}\n", error.kind().name()),
        Ok(text) if !must_fail => text,
        Ok(text) => format!("no error, but:\n{text}"),
        Err(error) => format!("unexpected error: {}: {error}\n", error.kind().name()),
    }
}

pub async fn print(sql: &Sql, text: &str, format: Format) -> tidemill_types::Result<String> {
    let mut result = sql.run(fixture::request_of_session(text)).await?;
    let mut writer = Writer::new(format, &result.schema(), Vec::new())?;
    while let Some(batch) = result.next().await {
        writer.write(&batch?)?;
    }
    Ok(String::from_utf8(writer.finish()?).unwrap())
}
