//! Generated statements: each has the result that PostgreSQL gives, or is refused.
//!
//! `STATEMENTS` (default 400) and `TIDEMILL_SEED` choose the sample, `REPLAY=FILE` takes the lines of a file instead; `RECORD=FILE` writes the statements with their results, which
//! `scripts/compare_duckdb.py FILE` compares with DuckDB's. `docs/testing.md` has the commands.
//! `tests/compare/accepted.txt` lists the differences that are meant, with the reason for each.

mod accepted;
mod aggregates;
mod canonical;
mod catalogs;
mod chains;
mod expressions;
mod joins;
mod postgres;
mod predicates;
mod queries;
mod random;
mod subqueries;
mod tables;
mod tools;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::fixture;
use accepted::Accepted;
use canonical::Rows;
use postgres::Postgres;
use random::{Generator, Statement};

/// Held by a test that uses the schema `events` of PostgreSQL.
static EVENTS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Part of the statements that may be refused. Refusing everything would agree with everything.
const REFUSED_PERCENT_MAX: usize = 20;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// What became of the statements of a run.
#[derive(Default)]
struct Outcomes {
    equal: usize,
    refused: BTreeMap<String, (usize, String)>,
    refused_by_postgres: usize,
    /// Statements that PostgreSQL refuses and we do not, by its code.
    taken: BTreeMap<String, Vec<String>>,
    accepted: BTreeMap<String, usize>,
    different: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_statements_have_the_results_of_postgresql() {
    let Some(server) = tidemill_test_servers::shared("postgres") else { return };
    let seed = setting("TIDEMILL_SEED", 20_261_127);
    let count = setting("STATEMENTS", 400);
    println!("TIDEMILL_SEED={seed} STATEMENTS={count}");
    let postgres = Postgres::new(server.address("SERVERS_POSTGRES"));
    postgres.fill(&tables::as_sql("timestamptz", "double precision"));
    let (_fixture, sql) = tables::session(fixture::options()).await;
    let accepted = Accepted::read();
    let mut record = std::env::var("RECORD").ok().map(|path| std::fs::File::create(path).expect("RECORD"));
    if let Some(file) = &mut record {
        let tables = tables::as_sql("timestamp", "double");
        writeln!(file, "{}", serde_json::json!({ "tables": tables, "seed": seed })).expect("RECORD");
    }
    let mut outcomes = Outcomes::default();
    let mut generator = Generator::new(StdRng::seed_from_u64(seed));
    let replayed = std::env::var("REPLAY").ok().map(|path| std::fs::read_to_string(path).expect("REPLAY"));
    let mut statements: Box<dyn Iterator<Item = Statement>> = match &replayed {
        Some(text) => Box::new(text.lines().map(|line| Statement::unordered(line.to_owned()))),
        None => Box::new((0..count).map(|_| generator.statement())),
    };
    loop {
        let batch: Vec<Statement> = statements.by_ref().take(100).collect();
        if batch.is_empty() {
            break;
        }
        let expected = postgres.results(&batch);
        assert_eq!(expected.len(), batch.len());
        for (statement, expected) in batch.iter().zip(expected) {
            let ours = canonical::run(&sql, statement).await;
            if let Some(file) = &mut record {
                writeln!(file, "{}", canonical::as_json(statement, &ours, &expected)).expect("RECORD");
            }
            outcomes.add(&statement.text, ours, expected, &accepted);
        }
    }
    println!("{}", outcomes.summary());
    assert!(
        outcomes.different.is_empty(),
        "TIDEMILL_SEED={seed}: {} statements differ:\n{}",
        outcomes.different.len(),
        {
            outcomes.different.truncate(20);
            outcomes.different.join("\n")
        }
    );
    let refused: usize = outcomes.refused.values().map(|(count, _)| count).sum();
    assert!(
        refused * 100 <= count as usize * REFUSED_PERCENT_MAX,
        "{refused} of {count} statements were refused"
    );
}

impl Outcomes {
    fn add(
        &mut self,
        text: &str,
        ours: Result<Rows, String>,
        expected: Result<Rows, String>,
        accepted: &Accepted,
    ) {
        match (ours, expected) {
            (Ok(ours), Ok(expected)) if ours == expected => self.equal += 1,
            (Ok(_), Err(code)) => {
                self.refused_by_postgres += 1;
                self.taken.entry(code).or_default().push(text.to_owned());
            }
            (Err(_), Err(_)) => self.refused_by_postgres += 1,
            (Err(error), Ok(_)) => {
                // what is expected there is a refusal in words of ours, never a defect
                if error.starts_with("internal") || error.contains("Physical plan does not support") {
                    self.different.push(format!("{text}\n  fails: {error}"));
                    return;
                }
                let key: String = without_names(&error);
                self.refused.entry(key).or_insert((0, text.to_owned())).0 += 1;
            }
            (Ok(ours), Ok(expected)) => match accepted.reason("postgresql", text) {
                Some(reason) => *self.accepted.entry(reason).or_default() += 1,
                None => {
                    self.different.push(format!(
                        "{text}\n  ours:       {}\n  postgresql: {}",
                        canonical::outline(&ours),
                        canonical::outline(&expected)
                    ));
                }
            },
        }
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "equal {}, refused by PostgreSQL {}, different {}\n",
            self.equal,
            self.refused_by_postgres,
            self.different.len()
        );
        for (reason, count) in &self.accepted {
            let _ = writeln!(text, "accepted {count}: {reason}");
        }
        for (code, texts) in &self.taken {
            let _ = writeln!(text, "refused by PostgreSQL only, {code}: {}", texts.len());
            for statement in texts.iter().take(3) {
                let _ = writeln!(text, "    {statement}");
            }
        }
        for (error, (count, example)) in &self.refused {
            let _ = writeln!(text, "refused {count}: {error}\n    {example}");
        }
        text
    }
}

/// Leaves out of an error what differs from statement to statement.
fn without_names(error: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    for c in error.chars() {
        match c {
            '`' | '\'' => quoted = !quoted,
            _ if quoted || c.is_ascii_digit() => {}
            c => out.push(c),
        }
    }
    out.chars().take(160).collect()
}
