//! The 14 statements: their texts for each system, with the parameters of a data set.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

/// Size of a data set, which decides the parameters of the statements and the expected results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// 100 trucks, 1 day.
    Small,
    /// 400 trucks, 3 days.
    Medium,
}

impl Set {
    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
        }
    }
}

/// Variant of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Tidemill's, that is DataFusion's.
    Tidemill,
    /// DuckDB's.
    DuckDb,
    /// ClickHouse's.
    ClickHouse,
    /// QuestDB's.
    QuestDb,
    /// PostgreSQL's.
    Postgres,
}

/// A statement as a system is asked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// `q01` to `q14`; with `-nobound` without the lower bound of time.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Column that results are compared by, from 0; `None` for all. Of rows with a limit only those in the order are certain.
    pub key: Option<usize>,
}

/// Texts that several systems understand, and better or only texts of one: name, portable, then by dialect.
struct Template {
    name: &'static str,
    portable: &'static str,
    own: &'static [(Dialect, &'static str)],
}

macro_rules! template {
    ($name:literal $(, $dialect:ident $extension:literal)*) => {
        Template {
            name: $name,
            portable: include_str!(concat!("../statements/", $name, ".sql")),
            own: &[$((
                Dialect::$dialect,
                include_str!(concat!("../statements/", $name, ".", $extension, ".sql")),
            )),*],
        }
    };
}

const TEMPLATES: [Template; 14] = [
    template!("q01", QuestDb "questdb"),
    template!("q02", QuestDb "questdb"),
    template!("q03", QuestDb "questdb"),
    template!("q04", QuestDb "questdb"),
    template!("q05", QuestDb "questdb"),
    template!("q06", QuestDb "questdb"),
    template!("q07", DuckDb "duckdb", ClickHouse "clickhouse", QuestDb "questdb", Postgres "postgres"),
    template!("q08", DuckDb "duckdb", ClickHouse "clickhouse", QuestDb "questdb", Postgres "postgres"),
    template!("q09", QuestDb "questdb"),
    template!("q10", QuestDb "questdb"),
    template!("q11", DuckDb "duckdb", ClickHouse "clickhouse", QuestDb "questdb", Postgres "postgres"),
    template!("q12", ClickHouse "clickhouse", QuestDb "questdb", Postgres "postgres"),
    template!("q13", QuestDb "questdb"),
    template!("q14", QuestDb "questdb", Postgres "postgres"),
];

const PARAMETERS: &str = include_str!("../statements/params.json");

/// Returns the statements for a data set in a dialect, in order. `unbounded` adds those with a lower bound of time once more,
/// without it.
pub fn statements(set: Set, dialect: Dialect, unbounded: bool) -> Result<Vec<Statement>> {
    let all: BTreeMap<String, BTreeMap<String, serde_json::Value>> =
        serde_json::from_str(PARAMETERS).context("statements/params.json")?;
    let parameters =
        all.get(set.name()).with_context(|| format!("params.json has no set `{}`", set.name()))?;
    let mut statements = Vec::new();
    for template in &TEMPLATES {
        statements.push(Statement {
            name: template.name.to_owned(),
            text: render(template, dialect, parameters, true)?,
            key: None,
        });
    }
    for template in TEMPLATES.iter().filter(|t| unbounded && t.portable.contains("[[")) {
        statements.push(Statement {
            name: format!("{}-nobound", template.name),
            text: render(template, dialect, parameters, false)?,
            key: None,
        });
    }
    Ok(statements)
}

fn render(
    template: &Template,
    dialect: Dialect,
    parameters: &BTreeMap<String, serde_json::Value>,
    bounded: bool,
) -> Result<String> {
    let own = template.own.iter().find(|(of, _)| *of == dialect);
    let mut text = own.map_or(template.portable, |(_, text)| text).to_owned();
    text = bounds(&text, bounded);
    for (name, value) in parameters {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text = text.replace(&format!("{{{{{name}}}}}"), &value);
    }
    if let Some((_, rest)) = text.split_once("{{") {
        bail!("{}: params.json has no `{}`", template.name, rest.split("}}").next().unwrap_or_default());
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    Ok(if own.is_some() { lines.join("\n") } else { translate(&lines.join("\n"), dialect) })
}

/// Keeps what is between `[[` and `]]`, or leaves it out.
fn bounds(text: &str, keep: bool) -> String {
    let mut parts = text.split("[[");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (bound, rest) = part.split_once("]]").unwrap_or((part, ""));
        if keep {
            kept.push_str(bound);
        }
        kept.push_str(rest);
    }
    kept
}

/// Writes a portable text in a dialect.
fn translate(text: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Tidemill | Dialect::QuestDb => text.to_owned(),
        Dialect::DuckDb => bins(text, |interval, time| format!("time_bucket(INTERVAL '{interval}', {time})")),
        Dialect::Postgres => times(text, |time| format!("TIMESTAMPTZ '{time}+00'")),
        Dialect::ClickHouse => {
            let text = bins(text, |interval, time| {
                format!("toStartOfInterval({time}, INTERVAL {})", interval.trim_end_matches('s'))
            });
            let text = epochs(&text);
            let text = times(&text, |time| format!("toDateTime64('{time}', 6, 'UTC')"));
            // without this, the last window of a truck would end in 1970 and not be null
            text.replace("lead(ten_minutes)", "lead(toNullable(ten_minutes))")
        }
    }
}

/// Replaces each `date_bin(INTERVAL 'I', T, …)` by `to(I, T)`.
fn bins(text: &str, to: impl Fn(&str, &str) -> String) -> String {
    replace_calls(text, "date_bin(INTERVAL '", ", TIMESTAMP '2000-01-01 00:00:00')", |call| {
        let (interval, time) = call.split_once("', ")?;
        Some(to(interval, time))
    })
}

/// Replaces each `TIMESTAMP 'T'` by `to(T)`.
fn times(text: &str, to: impl Fn(&str) -> String) -> String {
    replace_calls(text, "TIMESTAMP '", "'", |time| Some(to(time)))
}

/// Replaces each `extract(epoch FROM T)` by ClickHouse's function.
fn epochs(text: &str) -> String {
    replace_calls(text, "extract(epoch FROM ", ")", |time| Some(format!("toUnixTimestamp({time})")))
}

/// Replaces each text between `open` and the next `close`, both included.
fn replace_calls(text: &str, open: &str, close: &str, to: impl Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split(open);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(close).and_then(|(call, rest)| Some((to(call)?, rest))) {
            Some((call, rest)) => {
                replaced.push_str(&call);
                replaced.push_str(rest);
            }
            None => {
                replaced.push_str(open);
                replaced.push_str(part);
            }
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_has_a_text_for_every_system_and_set() {
        use Dialect::{ClickHouse, DuckDb, Postgres, QuestDb, Tidemill};
        for set in [Set::Small, Set::Medium] {
            for dialect in [Tidemill, DuckDb, ClickHouse, QuestDb, Postgres] {
                let all = statements(set, dialect, true).unwrap();
                assert_eq!(all.len(), 18);
                for statement in all {
                    let text = &statement.text;
                    assert!(!text.contains("[[") && !text.contains("{{"), "{text}");
                    let translated = !matches!(dialect, Tidemill | Postgres);
                    assert!(!(translated && text.contains("date_bin")), "{dialect:?}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_bound_is_kept_or_left_out() {
        assert_eq!(bounds("SELECT a [[WHERE b]] LIMIT 1", true), "SELECT a WHERE b LIMIT 1");
        assert_eq!(bounds("SELECT a [[WHERE b]] LIMIT 1", false), "SELECT a  LIMIT 1");
    }

    #[test]
    fn portable_texts_are_translated() {
        let text = "date_bin(INTERVAL '10 minutes', r.time, TIMESTAMP '2000-01-01 00:00:00') >= TIMESTAMP '2016-01-01'";
        assert_eq!(
            translate(text, Dialect::ClickHouse),
            "toStartOfInterval(r.time, INTERVAL 10 minute) >= toDateTime64('2016-01-01', 6, 'UTC')"
        );
        assert_eq!(
            translate(text, Dialect::DuckDb),
            "time_bucket(INTERVAL '10 minutes', r.time) >= TIMESTAMP '2016-01-01'"
        );
    }
}
