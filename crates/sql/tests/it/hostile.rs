//! The statements of `tests/hostile.txt`: each gets an answer, and the process survives.

use std::fmt::Write;
use std::time::Duration;

use arrow::util::display::array_value_to_string;
use tidemill_sql::{QueryRows, Sql, SqlOptions};
use tidemill_types::Result;

use crate::fixture::{self, State, options};

struct Statement {
    name: String,
    outcomes: Vec<String>,
    sql: String,
}

fn statements() -> Vec<Statement> {
    let text = include_str!("../hostile.txt");
    // the first two paragraphs describe the file
    let entries = text.split("\n\n").skip(2).map(str::trim).filter(|entry| !entry.is_empty());
    let named = entries.map(|entry| {
        let named = entry.split_once('\n').and_then(|(head, sql)| Some((head.rsplit_once(": ")?, sql)));
        named.unwrap_or_else(|| panic!("expected `name: outcome` and a statement on the next lines: {entry}"))
    });
    let statement = |((name, outcomes), sql): ((&str, &str), &str)| Statement {
        name: name.to_owned(),
        outcomes: outcomes.split(" or ").map(str::to_owned).collect(),
        sql: expand(sql),
    };
    named.map(statement).collect()
}

/// Expands every `<<N¦text¦between>>`.
fn expand(sql: &str) -> String {
    let mut rest = sql;
    let mut out = String::new();
    while let Some((before, more)) = rest.split_once("<<") {
        let (inside, after) = more.split_once("¦>>").map_or_else(
            || more.split_once(">>").unwrap(),
            |with_nothing| match more.split_once(">>") {
                Some(shorter) if shorter.0.len() < with_nothing.0.len() => shorter,
                _ => with_nothing,
            },
        );
        let mut parts = inside.split('¦');
        let count: usize = parts.next().unwrap().parse().unwrap();
        let (copy, between) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        out += before;
        for n in 0..count {
            if n > 0 {
                out += between;
            }
            out += &copy.replace("#+1", &(n + 1).to_string()).replace('#', &n.to_string());
        }
        rest = after;
    }
    out + rest
}

async fn run(sql: &Sql, text: &str) -> Result<QueryRows> {
    sql.query(text).await?.collect().await
}

fn matches(outcome: &str, found: &Result<QueryRows>) -> bool {
    match found {
        Err(error) => error.kind().name() == outcome,
        Ok(_) if outcome == "rows" => true,
        Ok(rows) => {
            let batch = rows.batches.first();
            let cell = batch.map(|b| array_value_to_string(b.column(0), 0).unwrap());
            rows.num_rows() == 1 && cell.as_deref() == Some(outcome)
        }
    }
}

#[tokio::test]
async fn hostile_statements_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SqlOptions {
        spill_dir: Some(dir.path().to_owned()),
        spill_bytes: 1 << 30,
        query_timeout: Duration::from_secs(60),
        ..options()
    };
    let (_fixture, sql) = fixture::sql(State::Tail, limits).await;
    let (_fixture, impatient) =
        fixture::sql(State::Tail, SqlOptions { query_timeout: Duration::from_secs(2), ..options() }).await;
    // all statements take several minutes in a debug build, so every fourth runs; `TIDEMILL_HOSTILE=` runs
    // all, `TIDEMILL_HOSTILE=chain` those with that name
    let only = std::env::var("TIDEMILL_HOSTILE").ok();
    let chosen = |(n, s): &(usize, &Statement)| match &only {
        Some(name) => s.name.contains(name),
        None => n % 4 == 0,
    };
    let mut failures = String::new();
    let all = statements();
    assert!(all.iter().enumerate().any(|s| chosen(&s)), "no statement is called so: {only:?}");
    for (_, statement) in all.iter().enumerate().filter(chosen) {
        let endless = statement.name.starts_with("endless");
        let found = run(if endless { &impatient } else { &sql }, &statement.sql).await;
        if !statement.outcomes.iter().any(|o| matches(o, &found)) {
            let found = found.map(|rows| format!("{} rows", rows.num_rows()));
            writeln!(failures, "{}: expected {:?}, found {found:?}", statement.name, statement.outcomes)
                .unwrap();
        }
        assert_eq!(run(&sql, "select 1").await.unwrap().num_rows(), 1, "after: {}", statement.name);
    }
    assert!(failures.is_empty(), "{failures}");
}
