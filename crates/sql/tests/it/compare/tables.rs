//! Small tables with nulls in every column, the same in all systems.

use std::fmt::Write;
use std::sync::Arc;

use tidemill_sql::{Sql, SqlOptions};
use tidemill_types::FieldType;

use crate::fixture::{self, Fixture};

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Int,
    Float,
    Text,
    Bool,
    Time,
    /// Comes from casts only: streams have no such fields.
    Decimal,
    /// Comes from casts only.
    Date,
    Json,
}

impl Type {
    /// Returns the name that all systems know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "bigint",
            Self::Float => "double precision",
            Self::Text | Self::Json => "text",
            Self::Bool => "boolean",
            Self::Time => "timestamp",
            Self::Decimal => "decimal(10, 2)",
            Self::Date => "date",
        }
    }
}

/// Columns of all tables. `id` has no nulls and no value twice in a table.
pub const COLUMNS: [(&str, Type); 9] = [
    ("id", Type::Int),
    ("g", Type::Int),
    ("x", Type::Int),
    ("y", Type::Int),
    ("d", Type::Float),
    ("s", Type::Text),
    ("b", Type::Bool),
    ("t", Type::Time),
    ("j", Type::Json),
];

const N: Option<i64> = None;

/// Objects of the column `j`, by the `id` of the row; others are null.
const OBJECTS: [(i64, &str); 6] = [
    (1, r#"{"a":1,"b":"x","c":{"x":3,"y":"pq"},"l":[5,6,7],"t":true}"#),
    (2, r#"{"a":2,"b":"y","n":null}"#),
    (3, r#"{}"#),
    (4, r#"{"a":3,"c":{"x":null},"l":[]}"#),
    (5, r#"{"a":-1,"b":null,"c":{"y":"p"},"l":[4],"t":false}"#),
    (9, r#"{"b":"","l":[null,2]}"#),
];

fn object(id: i64) -> Option<&'static str> {
    OBJECTS.iter().find(|(of, _)| *of == id).map(|(_, text)| *text)
}

/// Rows: id, g, x, y, d, s, b, and the day and hour of t.
type Row = (
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<f64>,
    Option<&'static str>,
    Option<bool>,
    Option<&'static str>,
);

pub const TABLES: [(&str, &[Row]); 3] = [
    (
        "R",
        &[
            (1, Some(1), Some(3), Some(1), Some(0.5), Some("ab"), Some(true), Some("2026-01-05T09:00:00Z")),
            (2, Some(2), N, Some(2), Some(-1.25), Some("b"), Some(false), Some("2026-01-05T10:30:00Z")),
            (3, Some(1), Some(2), N, None, Some("abc"), None, Some("2026-01-06T00:00:00Z")),
            (4, N, Some(4), Some(2), Some(2.5), None, Some(true), None),
            (5, Some(3), Some(-1), Some(0), Some(2.5), Some("B"), Some(false), Some("1969-12-31T23:59:59Z")),
            (6, Some(2), Some(2), Some(5), Some(10.0), Some(""), Some(true), Some("2026-02-28T12:15:30.25Z")),
            (7, N, N, N, None, None, None, None),
        ],
    ),
    (
        "S",
        &[
            (1, Some(1), Some(2), Some(2), Some(0.5), Some("b"), Some(true), Some("2026-01-05T09:00:00Z")),
            (2, Some(2), N, Some(1), Some(2.5), Some("ab"), Some(false), Some("2026-01-06T00:00:00Z")),
            (3, Some(2), Some(2), Some(3), None, None, Some(true), Some("2026-03-01T00:00:00Z")),
            (5, N, Some(5), N, Some(-3.0), Some("a%"), None, None),
            (9, Some(4), Some(0), Some(2), Some(0.0), Some("xyz"), Some(false), Some("2025-12-31T23:00:00Z")),
        ],
    ),
    (
        "T",
        &[
            (2, Some(1), Some(1), Some(2), Some(1.5), Some("ab"), Some(false), Some("2026-01-05T10:30:00Z")),
            (4, Some(3), Some(4), N, Some(2.5), Some("abc"), Some(true), Some("2024-02-29T06:00:00Z")),
            (6, Some(3), Some(2), Some(2), Some(7.75), Some("c_d"), Some(true), None),
        ],
    ),
];

/// Returns the statements that create and fill the tables.
pub fn as_sql(time: &str, float: &str) -> String {
    let mut text = String::new();
    for (name, rows) in TABLES {
        let columns: Vec<String> = COLUMNS
            .iter()
            .map(|(name, ty)| {
                let ty = match ty {
                    Type::Int => "bigint",
                    Type::Float => float,
                    Type::Text => "text",
                    Type::Bool => "boolean",
                    Type::Time => time,
                    Type::Json => "json",
                    Type::Decimal | Type::Date => unreachable!("no column has this type"),
                };
                format!("{name} {ty}")
            })
            .collect();
        let _ = writeln!(text, "create table {name} ({});", columns.join(", "));
        for (id, g, x, y, d, s, b, t) in rows {
            let ints = [*g, *x, *y].map(|v| v.map_or("null".into(), |v| v.to_string())).join(", ");
            let quoted = |v: &Option<&str>| v.map_or("null".into(), |v| format!("'{v}'"));
            let (d, b) =
                (d.map_or("null".into(), |v| v.to_string()), b.map_or("null".into(), |v| v.to_string()));
            let (s, t, j) = (quoted(s), quoted(t), quoted(&object(*id)));
            let _ = writeln!(text, "insert into {name} values ({id}, {ints}, {d}, {s}, {b}, {t}, {j});");
        }
    }
    text
}

/// Returns a session over the tables, whose rows are partly in files and partly in memory.
pub async fn session(options: SqlOptions) -> (Arc<Fixture>, Sql) {
    let fixture = Arc::new(Fixture::empty().await);
    for (name, rows) in TABLES {
        let fields = COLUMNS.map(|(name, ty)| {
            let ty = match ty {
                Type::Int => FieldType::Long,
                Type::Float => FieldType::Double,
                Type::Text => FieldType::String,
                Type::Bool => FieldType::Bool,
                Type::Time => FieldType::Time,
                Type::Json => FieldType::Object,
                Type::Decimal | Type::Date => unreachable!("no column has this type"),
            };
            (name, ty)
        });
        let table = fixture.declare(&fixture::stream(name, &fields, None)).await;
        let rows: Vec<String> = rows
            .iter()
            .map(|(id, g, x, y, d, s, b, t)| {
                let j: Option<serde_json::Value> =
                    object(*id).map(|text| serde_json::from_str(text).expect("JSON"));
                serde_json::json!({ "id": id, "g": g, "x": x, "y": y, "d": d, "s": s, "b": b, "t": t, "j": j })
                    .to_string()
            })
            .collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let (stored, recent) = rows.split_at(rows.len() / 2);
        fixture::push(&table, 0, 0, stored);
        fixture::flush(&table).await;
        fixture::push(&table, 1, 1, recent);
    }
    let sql = Sql::new(fixture.clone(), options).unwrap();
    (fixture, sql)
}
