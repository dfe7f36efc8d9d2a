//! Tests that know no language of a database: what is written comes back through the same connection.

use tidemill_relational::{Column, Expression, RelationalTable, StoreOptions, TableName, TableSchema};
use tidemill_types::decode::FieldValue;
use tidemill_types::{FieldType, Timestamp, Value};

use super::database::{Kind, TestDatabase, all_databases, batch, deliver, ids, int, stream, text};

/// A column of each type.
pub const COLUMNS: [(&str, FieldType); 8] = [
    ("b", FieldType::Bool),
    ("i", FieldType::Int),
    ("l", FieldType::Long),
    ("f", FieldType::Float),
    ("d", FieldType::Double),
    ("s", FieldType::String),
    ("t", FieldType::Time),
    ("o", FieldType::Object),
];

fn table(db: &TestDatabase, name: &str) -> RelationalTable {
    let schema = TableSchema {
        name: TableName::parse(name).unwrap(),
        columns: COLUMNS.iter().map(|(name, ty)| Column::new(*name, *ty)).collect(),
        primary_key: vec![],
        indexes: vec![],
    };
    let options = StoreOptions::check(&db.options(), schema).unwrap();
    RelationalTable::open(options, &format!("test/{name} (table)")).unwrap()
}

/// Returns the rows as texts, ordered by the column `i`; of long strings their length.
fn found(table: &RelationalTable) -> Vec<String> {
    let mut rows = table.find(&Expression::And(vec![]), &[]).unwrap();
    rows.sort_by_key(|row| match row[1] {
        Value::Int(n) => n,
        _ => i64::MAX,
    });
    let show = |value: &Value<'_>| match value {
        Value::Str(text) if text.len() > 1000 => format!("{} characters", text.chars().count()),
        Value::Str(text) => text.to_string(),
        Value::Float(x) => format!("{x:?}"),
        other => other.to_string(),
    };
    rows.iter().map(|row| row.iter().map(show).collect::<Vec<_>>().join("|")).collect()
}

#[test]
fn values_of_all_types_come_back() {
    let schema = stream(&COLUMNS);
    let value = |b, i, l, f, d, s: &str, t, o: &str| {
        let (f, d) = (FieldValue::Float(f), FieldValue::Float(d));
        vec![FieldValue::Bool(b), int(i), int(l), f, d, text(s), FieldValue::Time(Timestamp(t)), text(o)]
    };
    let (first, last) = (-62_135_596_800_000_000, 253_402_300_799_999_999);
    let odd = "tab\t newline\n return\r backslash\\ \\N quote' \" 😀 ñ";
    let huge = "ж".repeat(100_000);
    let values = [
        value(false, i32::MIN.into(), i64::MIN, f32::MIN.into(), -1e100, odd, first, "\"text\""),
        value(true, 0, 0, 0.0, 1e-100, &huge, 0, "null"),
        value(true, 1, 2, 0.1, 0.1, "plain", 1_700_000_000_123_456, "{\"a\": 1}"),
        value(true, 2, i64::MAX, 1.5, -0.25, "x", last, "17"),
        vec![FieldValue::Missing; 8],
    ];
    for db in all_databases() {
        // one row goes another way than several, so both are tried; a long text changes the way, too
        for (name, chunk) in [("p_together", 5), ("p_alone", 1), ("p_some", 3)] {
            db.drop_table(name);
            let mut sink = db.sink(name, &schema, &[("field.length", "s:10000000")]);
            for (offset, chunk) in values.chunks(chunk).enumerate() {
                let refused = deliver(&mut sink, &batch(&schema, chunk), &ids(offset as u64, chunk.len()));
                assert_eq!(refused.unwrap(), [], "{}", db.url);
            }
            sink.close();
            let expected = [
                format!(
                    "false|-2147483648|-9223372036854775808|-3.4028234663852886e38|-1e100|{odd}|0001-01-01T00:00:00Z|\"text\""
                ),
                "true|0|0|0.0|1e-100|100000 characters|1970-01-01T00:00:00Z|null".into(),
                "true|1|2|0.10000000149011612|0.1|plain|2023-11-14T22:13:20.123456Z|{\"a\": 1}".into(),
                "true|2|9223372036854775807|1.5|-0.25|x|9999-12-31T23:59:59.999999Z|17".into(),
                ["missing"; 8].join("|"),
            ];
            assert_eq!(found(&table(&db, name)), expected, "{} {name}", db.url);
        }
    }
}

#[test]
fn texts_that_look_equal_are_told_apart() {
    let schema = stream(&[("k", FieldType::String), ("v", FieldType::String)]);
    for db in all_databases() {
        db.drop_table("alike");
        let mut sink = db.sink("alike", &schema, &[("operation", "upsert"), ("key", "k")]);
        let keys = ["a", "A", "ä", "a ", "a"];
        let values: Vec<_> =
            keys.iter().enumerate().map(|(n, k)| vec![text(k), text(&n.to_string())]).collect();
        assert_eq!(deliver(&mut sink, &batch(&schema, &values), &ids(0, 5)).unwrap(), []);
        sink.close();
        let mut rows = db.rows("SELECT k, v FROM alike");
        rows.sort();
        // these ignore blanks at the end of texts, so the last of `a` and `a ` wins
        let expected: &[&str] = match db.kind {
            Kind::MariaDb | Kind::SqlServer => &["A|1", "a|4", "ä|2"],
            Kind::Postgres | Kind::Oracle => &["A|1", "a |3", "a|4", "ä|2"],
        };
        assert_eq!(rows, expected, "{}", db.url);
    }
}
