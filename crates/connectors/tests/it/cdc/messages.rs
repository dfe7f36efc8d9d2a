//! Messages about wrong options, servers and tables, as text cases in `tests/cases/cdc.txt`.
//!
//! A case is `case NAME`, lines `option value`, `sql STATEMENT`, `attributes name type, …` and `only DATABASE`, `----`, and for
//! each database what the source says. In the file PORT stands for the port of the server, and URL for the URL of the
//! database. `UPDATE_CASES=1` rewrites the results; review the difference.

use std::fmt::Write;
use std::path::Path;

use tidemill_connect::{ConnectorConfig, ConnectorContext};
use tidemill_types::FieldType;

use super::{drop_slots, source_name};
use crate::positioned::{PositionedSource, context};
use crate::rdbms::database::{TestDatabase, databases};

#[test]
fn messages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/cdc.txt");
    let source = std::fs::read_to_string(&path).unwrap();
    let databases = databases();
    let mut written = String::new();
    for part in source.split_inclusive("\n\n") {
        let Some((head, expected)) = part.split_once("----\n") else {
            written += part;
            continue;
        };
        writeln!(written, "{head}----").unwrap();
        for name in ["postgresql", "mariadb"] {
            if head.lines().any(|line| line.strip_prefix("only ").is_some_and(|only| only != name)) {
                continue;
            }
            // a database that there is not here is not checked
            let found = match databases.iter().find(|db| db.pick("postgresql", "mariadb") == name) {
                Some(db) => format!("{name}: {}", run(head, db)),
                None => expected.lines().find(|line| line.starts_with(name)).unwrap_or_default().into(),
            };
            writeln!(written, "{found}").unwrap();
        }
        written.push('\n');
    }
    let written = written.trim_end().to_owned() + "\n";
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(path, written).unwrap();
        return;
    }
    let differs = written.lines().zip(source.lines()).find(|(found, expected)| found != expected);
    assert!(written == source, "found and expected: {differs:#?}");
}

/// Opens a source; returns the message with the server's port replaced.
fn run(head: &str, db: &TestDatabase) -> String {
    let port = db.url.rsplit(':').next().unwrap().split('/').next().unwrap();
    let mut options = vec![];
    let mut fields = vec![("id".to_owned(), FieldType::Int)];
    db.run("DROP TABLE IF EXISTS cdc_message");
    for line in head.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.replace("PORT", port);
        match word {
            "case" | "only" => {}
            "sql" => db.run(&rest),
            "attributes" => {
                let field = |part: &str| {
                    let (name, ty) = part.trim().split_once(' ').unwrap();
                    (name.to_owned(), FieldType::parse(ty).unwrap())
                };
                fields = rest.split(',').map(field).collect();
            }
            option => options.push((option.to_owned(), rest.replace("URL", &db.url))),
        }
    }
    let usual = [
        ("url", db.url.as_str()),
        ("username", "tidemill"),
        ("password", "tidemill"),
        ("table.name", "cdc_message"),
        ("operation", "insert"),
    ];
    for (name, value) in usual {
        if !options.iter().any(|(known, _)| known == name) {
            options.push((name.into(), value.into()));
        }
    }
    // an option without a value is left out
    options.retain(|(_, value)| !value.is_empty());
    let config = ConnectorConfig { options, ..crate::helpers::config("cdc", &[]) };
    let fields: Vec<(&str, FieldType)> = fields.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
    let name = source_name("message");
    let context = ConnectorContext { name: name.clone(), ..context(&fields) };
    let opened = crate::helpers::catalog().create_source(&config, &context);
    let message = match opened {
        Err(e) => e.to_string(),
        Ok(_) => {
            let mut source = PositionedSource::open_as(&name, &fields, config, Path::new("."));
            source.wait_problem_or("the source listens", |source| source.positions.contains_key("log"))
        }
    };
    drop_slots(db, "message");
    for secret in ["hunter2", "sesame"] {
        assert!(!message.contains(secret), "a secret is shown: {message}");
    }
    let message = message.replace(port, "PORT").replace("; the source connects again", "");
    let own = name.rsplit('/').next().unwrap();
    message.replace(own, "N")
}
