//! Messages about wrong options, servers and tables, as text cases in `tests/cases/rdbms.txt`.
//!
//! A case is `case NAME`, lines `option value`, `sql STATEMENT`, `attributes name type, …` and `only DATABASE`, `----`, and for each
//! database what connecting says. In the file PORT stands for the port of the server,
//! URL for the URL of the database, SERVER for that without the database. `UPDATE_CASES=1` rewrites the
//! results; review the difference.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use tidemill_connect::PartitionEpochs;
use tidemill_types::{FieldType, StreamSchema};

use super::database::{TestDatabase, databases, stream};
use super::numbered;

struct Case {
    lines: Vec<String>,
    expected: Vec<String>,
}

#[test]
fn messages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/rdbms.txt");
    let source = std::fs::read_to_string(&path).unwrap();
    let databases = databases();
    let mut written = String::new();
    let mut failures = String::new();
    for part in source.split_inclusive("\n\n") {
        let Some((head, expected)) = part.split_once("----\n") else {
            written += part;
            continue;
        };
        let case = Case {
            lines: head.lines().map(str::to_owned).collect(),
            expected: expected.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        };
        let mut found = vec![];
        for db in &databases {
            let name = db.pick("postgresql", "mariadb");
            if case.lines.iter().any(|line| line.strip_prefix("only ").is_some_and(|only| only != name)) {
                continue;
            }
            found.push(format!("{name}: {}", run(&case, db)));
        }
        // a database that there is not here is not checked
        for line in &case.expected {
            if !databases.iter().any(|db| line.starts_with(db.pick("postgresql:", "mariadb:"))) {
                found.push(line.clone());
            }
        }
        if found != case.expected {
            writeln!(failures, "{head}expected {:#?}\nfound {found:#?}", case.expected).unwrap();
        }
        write!(written, "{head}----\n{}\n\n", found.join("\n")).unwrap();
    }
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(path, written.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Opens and connects a sink; returns the message with the server's port replaced.
fn run(case: &Case, db: &TestDatabase) -> String {
    let port = db.url.rsplit(':').next().unwrap().split('/').next().unwrap();
    let server = db.url.trim_end_matches("/tidemill");
    let mut options = vec![];
    let mut schema = numbered();
    db.drop_table("message");
    for line in &case.lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.replace("PORT", port);
        match word {
            "case" | "only" => {}
            "sql" => db.run(&rest),
            "attributes" => schema = attributes(&rest),
            option => {
                options.push((option.to_owned(), rest.replace("URL", &db.url).replace("SERVER", server)))
            }
        }
    }
    let options: Vec<(&str, &str)> = options.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let message = match db.try_sink("message", &schema, &options) {
        Err(message) => message,
        Ok(mut sink) => match sink.connect(&PartitionEpochs::new(), std::future::pending()) {
            Ok(_) => {
                sink.close();
                "connected".into()
            }
            Err(e) => format!("{}: {e}", e.kind().name()),
        },
    };
    for secret in ["hunter2", "sesame"] {
        assert!(!message.contains(secret), "a secret is shown: {message}");
    }
    message.replace(port, "PORT")
}

fn attributes(text: &str) -> Arc<StreamSchema> {
    let fields: Vec<(&str, FieldType)> = text
        .split(',')
        .map(|part| {
            let (name, ty) = part.trim().split_once(' ').unwrap();
            (name, FieldType::parse(ty).unwrap())
        })
        .collect();
    stream(&fields)
}
