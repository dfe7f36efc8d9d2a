//! Cases over rows in memory.
//!
//! `UPDATE_CASES=1` rewrites our replies. `tests/it/influxdb.rs` compares those of InfluxDB with a real server, and the tests of the crate
//! `tidemill` ours with those over SQL.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::case_file::{self, Case, are_equal, read};
use super::memory::Points;
use crate::parse::{BoundValues, parameters, parse};
use crate::reply::{Epoch, ReplyFormat, ReplyWriter};
use crate::rows::MemoryPool;
use crate::run::Session;

/// 2026-01-05T08:10:00Z, the end of the points of `cpu` and `mem`.
const NOW: i64 = 1_767_600_600_000_000_000;

/// Returns the reply to a case.
fn run(case: &Case) -> String {
    let points = Points::read(include_str!("../../tests/cases/points.lp"));
    let bound = match case.parameter("params") {
        Some(json) => parameters(json),
        None => Ok(BoundValues::new()),
    };
    let error =
        |error: String| format!("{{\"error\":\"error parsing query: {}\"}}", error.replace('"', "\\\""));
    let statements = match bound.and_then(|bound| parse(&case.statements, &bound)) {
        Ok(statements) => statements,
        Err(e) => return error(e.to_string()),
    };
    let catalog = points.catalog.clone();
    let pool = MemoryPool::new(64 << 20);
    let session = Session::with_source(Box::new(points), catalog, pool.clone(), NOW, "1.8");
    let format = ReplyFormat {
        epoch: Epoch::of(case.parameter("epoch").unwrap_or_default()).unwrap(),
        is_csv: case.parameter("csv").is_some(),
        is_pretty: case.parameter("pretty") == Some("true"),
    };
    let chunk_rows =
        case.parameter("chunked").map(|_| case.parameter("chunk_size").unwrap_or("10000").parse().unwrap());
    let mut writer = ReplyWriter::new(format, chunk_rows, &pool);
    let mut text = String::new();
    let mut has_failed = false;
    for (id, statement) in statements.iter().enumerate() {
        let result = match has_failed {
            true => Session::not_executed(id),
            false => futures::executor::block_on(session.run(id, statement)),
        };
        has_failed |= result.error.is_some();
        text.extend(writer.pieces(&result));
    }
    text += &writer.finish();
    text.trim_end().to_owned()
}

fn files() -> Vec<PathBuf> {
    case_file::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"))
}

#[test]
fn replies_are_as_in_the_case_files() {
    let (mut count, mut wrong) = (0, String::new());
    for file in files() {
        let (intro, cases) = read(&std::fs::read_to_string(&file).unwrap());
        let mut filled = intro;
        for case in &cases {
            count += 1;
            let reply = run(case);
            let is_equal = are_equal(&reply, &case.here);
            if !is_equal {
                write!(
                    wrong,
                    "\n{}\n{}\nexpected: {}\nfound:    {reply}\n",
                    case.name, case.statements, case.here
                )
                .unwrap();
            }
            if let Some(influxdb) = &case.influxdb {
                assert!(!are_equal(&case.here, influxdb), "{}: the replies do not differ", case.name);
                assert!(case.parameter("differs").is_some(), "{}: expected `? differs=`", case.name);
            }
            let reply = if is_equal { case.here.clone() } else { reply };
            let parameters: String =
                case.parameters.iter().map(|(name, value)| format!("? {name}={value}\n")).collect();
            write!(filled, "=== {}\n{parameters}{}\n", case.name, case.statements).unwrap();
            match &case.influxdb {
                Some(influxdb) => write!(filled, "--- here\n{reply}\n--- InfluxDB\n{influxdb}\n\n").unwrap(),
                None => write!(filled, "---\n{reply}\n\n").unwrap(),
            }
        }
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(&file, filled.trim_end().to_owned() + "\n").unwrap();
        }
    }
    assert!(count >= 100, "only {count} cases were found");
    assert!(wrong.is_empty() || std::env::var_os("UPDATE_CASES").is_some(), "{wrong}");
}

/// The page lists what differs from InfluxDB: each reason, and no other.
#[test]
fn the_page_lists_what_differs() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/influxql.md"))
        .unwrap();
    let table =
        page.split("## What differs from InfluxDB").nth(1).unwrap().split("\nFurther:").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let listed: BTreeSet<String> = rows.map(|row| row.trim_matches(['|', ' ']).to_owned()).collect();
    let mut reasons = BTreeSet::new();
    for file in files() {
        let cases = read(&std::fs::read_to_string(&file).unwrap()).1;
        reasons.extend(cases.iter().filter_map(|case| case.parameter("differs").map(str::to_owned)));
    }
    assert_eq!(listed, reasons);
}

#[test]
fn names_of_cases_are_different() {
    let mut names = BTreeSet::new();
    for file in files() {
        for case in read(&std::fs::read_to_string(&file).unwrap()).1 {
            assert!(names.insert(case.name.clone()), "{} occurs twice", case.name);
        }
    }
}
