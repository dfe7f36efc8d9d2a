//! Statements of tools, from the case files: PostgreSQL with equal tables and rows has equal results.

use std::collections::BTreeSet;
use std::path::Path;

use tidemill_sql::Sql;
use tidemill_sql::output::Format;

use super::canonical;
use super::postgres::Postgres;
use super::random::Statement;
use crate::cases;
use crate::fixture::{self, State};

const FILES: [&str; 4] = ["pg_grafana.slt", "pg_metabase.slt", "pg_odbc.slt", "pg_powerbi.slt"];

/// Statements whose results are not those of PostgreSQL, by a part of their text, and the reason.
const DIFFERENT: [(&str, &str); 6] = [
    ("string_to_array(current_setting", "functions in FROM that are no tables, and parse_ident, are refused"),
    ("information_schema.schemata", "other schemas"),
    ("flight * 1000000000", "a product of integers has 64 bits here"),
    ("pg_stat_user_tables", "tables have comments here"),
    ("COL_DESCRIPTION", "columns have comments here"),
    ("i.indisprimary = 't'", "a boolean is not compared with a text here"),
];

/// The streams of the fixture, with what an event has beside its fields.
const TABLES: &str = "drop schema if exists events cascade; create schema events; \
    create table events.\"TakeOffEvent\" (carrier text, flight integer, origin text, sched timestamptz, actual timestamptz, \
    distance double precision, on_time boolean, meta text, gate text, _time timestamptz not null, _extra text, \
    _received timestamptz not null, _partition integer not null, _offset bigint not null, _row integer not null, \
    primary key (_partition, _offset, _row)); \
    create table events.\"Landing\" (flight integer, \"Gate\" text, _time timestamptz not null, _extra text, \
    _received timestamptz not null, _partition integer not null, _offset bigint not null, _row integer not null, \
    primary key (_partition, _offset, _row)); set search_path = events;\n";

#[tokio::test(flavor = "multi_thread")]
async fn tools_get_the_rows_that_postgresql_gives() {
    let Some(server) = tidemill_test_servers::shared("postgres") else { return };
    let postgres = Postgres::new(server.address("SERVERS_POSTGRES"));
    let _schema = super::EVENTS.lock().await;
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let rows = cases::print(&sql, "select * from events.\"TakeOffEvent\"", Format::Csv).await.unwrap();
    postgres.run(&format!("{TABLES}copy \"TakeOffEvent\" from stdin (format csv, header);\n{rows}\\.\n"));
    let (mut different, mut unused) = (vec![], BTreeSet::from(DIFFERENT.map(|(part, _)| part)));
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
        let (cases, _) = cases::parse(&std::fs::read_to_string(path).unwrap());
        let statements = cases.iter();
        // functions of TimescaleDB are not in PostgreSQL
        let statements = statements.filter(|case| !case.sql.contains("time_bucket"));
        let texts: Vec<String> = statements.map(|case| case.sql.clone()).collect();
        check(&postgres, &sql, &texts, &mut different, &mut unused).await;
    }
    postgres.run("drop schema events cascade");
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(unused.is_empty(), "no statement has these parts, or it has the rows of PostgreSQL: {unused:?}");
}

async fn check(
    postgres: &Postgres,
    sql: &Sql,
    texts: &[String],
    different: &mut Vec<String>,
    unused: &mut BTreeSet<&str>,
) {
    let path = Statement::unordered("set search_path = events, docs, system".to_owned());
    let statements = texts.iter().map(|text| Statement::unordered(text.clone()));
    let statements: Vec<Statement> = std::iter::once(path).chain(statements).collect();
    let expected = postgres.results(&statements);
    assert_eq!(expected.len(), statements.len());
    for (statement, expected) in statements.iter().zip(expected).skip(1) {
        let ours = canonical::run(sql, statement).await;
        if ours == expected && ours.is_ok() {
            continue;
        }
        match DIFFERENT.iter().find(|(part, _)| statement.text.contains(part)) {
            Some((part, _)) => _ = unused.remove(part),
            None => different
                .push(format!("{}\n  ours:       {ours:?}\n  postgresql: {expected:?}", statement.text)),
        }
    }
}
