//! SQLite as sink and as a table of an app.

use std::path::Path;
use std::sync::Arc;

use tidemill_connect::{ConnectorConfig, ConnectorContext, ConnectorSink, PartitionEpochs, runtime};
use tidemill_relational::{
    ArithmeticOperator, Column, CompareOperator, DatabaseConnection, DatabaseUrl, Expression,
    RelationalTable, StoreOptions, TableName, TableRow, TableSchema,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{EventId, FieldType, Offset, PartitionId, StreamSchema, Timestamp, Value};

use super::database::{batch, deliver, deliver_in, ids, int, stream, text};
use super::{numbered, reasons, rows};

fn url(dir: &Path) -> String {
    format!("jdbc:sqlite:{}", dir.join("app.db").display())
}

fn sink(dir: &Path, table: &str, schema: &Arc<StreamSchema>, options: &[(&str, &str)]) -> ConnectorSink {
    let url = url(dir);
    let usual = [("jdbc.url", url.as_str()), ("table.name", table), ("jdbc.driver.name", "org.sqlite.JDBC")];
    let options =
        usual.iter().chain(options).map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let config = ConnectorConfig { kind: "rdbms".into(), options, mapper: None };
    let context = ConnectorContext {
        name: format!("test/{table}"),
        writer: format!("test/{table}"),
        app: "test".into(),
        schema: schema.clone(),
        dir: dir.into(),
        mapper: None,
        shares_partitions: false,
    };
    crate::helpers::catalog().open_sink(&config, &context).unwrap_or_else(|e| panic!("{e}"))
}

fn table(dir: &Path, name: &str, columns: &[(&str, FieldType)], primary_key: &[usize]) -> RelationalTable {
    let columns = columns.iter().map(|(name, ty)| Column::new(*name, *ty)).collect();
    let name = TableName::parse(name).unwrap();
    let schema = TableSchema { name, columns, primary_key: primary_key.to_vec(), indexes: vec![vec![1]] };
    let options = StoreOptions::check(&[("jdbc.url".into(), url(dir))], schema).unwrap();
    RelationalTable::open(options, "test/table").unwrap()
}

fn everything(table: &RelationalTable) -> Vec<String> {
    let show = |row: &TableRow| row.iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
    let mut rows: Vec<String> = table.find(&Expression::And(vec![]), &[]).unwrap().iter().map(show).collect();
    rows.sort();
    rows
}

#[test]
fn values_of_all_types_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [
        ("b", FieldType::Bool),
        ("i", FieldType::Int),
        ("l", FieldType::Long),
        ("f", FieldType::Float),
        ("d", FieldType::Double),
        ("s", FieldType::String),
        ("t", FieldType::Time),
        ("o", FieldType::Object),
    ];
    let odd = "tab\t newline\n return\r backslash\\ \\N quote' \" nul\0 ж";
    let value = |n: i64, x: f64, s: &str, t: i64| {
        let float = FieldValue::Float;
        vec![
            FieldValue::Bool(n > 0),
            int(n),
            int(i64::MIN),
            float(x),
            float(x),
            text(s),
            FieldValue::Time(Timestamp(t)),
            text("17"),
        ]
    };
    let values =
        [value(1, 0.1, odd, 1_700_000_000_123_456), value(0, -2.0, "", -1), vec![FieldValue::Missing; 8]];
    for (name, chunk) in [("together", 3), ("alone", 1)] {
        let schema = stream(&fields);
        let mut sink = sink(dir.path(), name, &schema, &[]);
        for (offset, chunk) in values.chunks(chunk).enumerate() {
            let ids = ids(offset as u64, chunk.len());
            assert_eq!(deliver(&mut sink, &batch(&schema, chunk), &ids).unwrap(), []);
        }
        sink.close();
        let found = everything(&table(dir.path(), name, &fields, &[]));
        let shown = Value::str(odd).to_string();
        let expected = [
            "false|0|-9223372036854775808|-2|-2|\"\"|1969-12-31T23:59:59.999999Z|\"17\"".to_owned(),
            "missing|missing|missing|missing|missing|missing|missing|missing".into(),
            format!(
                "true|1|-9223372036854775808|0.10000000149011612|0.1|{shown}|2023-11-14T22:13:20.123456Z|\"17\""
            ),
        ];
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn positions_of_an_earlier_release_get_epochs() {
    let dir = tempfile::tempdir().unwrap();
    let create = "CREATE TABLE tidemill_position (sink varchar(255) NOT NULL, log_partition integer NOT NULL, \
         log_offset bigint NOT NULL, log_row integer NOT NULL, batch bigint NOT NULL, refused text NOT NULL, \
         PRIMARY KEY (sink, log_partition))";
    let insert = "INSERT INTO tidemill_position VALUES ('test/moved', 0, 0, 1, 1, '')";
    runtime().block_on(async {
        let url = DatabaseUrl::parse(&url(dir.path())).unwrap();
        let mut db = DatabaseConnection::connect(&url, None, None).await.unwrap();
        db.run(create).await.unwrap();
        db.run(insert).await.unwrap();
        db.close().await;
    });
    let own = |epoch| PartitionEpochs::from([(PartitionId(0), epoch)]);
    let mut present = sink(dir.path(), "moved", &numbered(), &[]);
    // row 1 of the record 0 was written before
    deliver_in(&mut present, &own(7), &rows(&[(2, "b"), (3, "c")]), &[ids(0, 2)[1], ids(1, 1)[0]]).unwrap();
    let mut former = sink(dir.path(), "moved", &numbered(), &[]);
    let known = former.connect(&own(6), std::future::pending()).unwrap().unwrap();
    assert_eq!((known.later_owners, known.delivered[&PartitionId(0)]), (own(7), ids(1, 1)[0]));
    let error = deliver_in(&mut former, &own(6), &rows(&[(4, "d")]), &ids(2, 1)).unwrap_err();
    assert!(error.to_string().contains("another connection writes as `test/moved`"), "{error}");
    let fields = [("k", FieldType::Int), ("v", FieldType::String)];
    assert_eq!(everything(&table(dir.path(), "moved", &fields, &[0])), ["3|\"c\""]);
    // a process whose partitions do not move writes whatever the epoch was
    present.close();
    let mut alone = sink(dir.path(), "moved", &numbered(), &[]);
    deliver_in(&mut alone, &own(0), &rows(&[(4, "d")]), &ids(2, 1)).unwrap();
    let known = former.connect(&own(6), std::future::pending()).unwrap().unwrap();
    assert_eq!((known.later_owners, known.delivered[&PartitionId(0)]), (own(7), ids(2, 1)[0]));
    alone.close();
    former.close();
}

#[test]
fn all_operations_write_and_refuse_rows() {
    let dir = tempfile::tempdir().unwrap();
    let schema = numbered();
    let mut offset = 0;
    let mut write = |operation: &str, values: &[(i64, &str)]| {
        let mut sink = sink(dir.path(), "ops", &schema, &[("operation", operation), ("key", "k")]);
        let refused = deliver(&mut sink, &rows(values), &ids(offset, values.len())).unwrap();
        offset += 1;
        sink.close();
        reasons(&refused)
    };
    let fields = [("k", FieldType::Int), ("v", FieldType::String)];
    let found = || everything(&table(dir.path(), "ops", &fields, &[0])).join(" ").replace('"', "");
    assert!(write("insert", &[(1, "a"), (2, "b"), (3, "c")]).is_empty());
    assert!(write("update", &[(1, "x"), (9, "y"), (1, "z"), (2, "q")]).is_empty());
    assert!(write("upsert", &[(3, "u"), (4, "new"), (3, "w")]).is_empty());
    assert_eq!(found(), "1|z 2|q 3|w 4|new");
    assert!(write("upsert", &[(5, "alone")]).is_empty() && write("update", &[(4, "alone")]).is_empty());
    assert!(
        write("delete", &[(1, ""), (7, ""), (3, "")]).is_empty() && write("delete", &[(2, "")]).is_empty()
    );
    let refused = write("insert", &[(6, "f"), (4, "again"), (7, "g")]);
    assert_eq!(refused, ["1: UNIQUE constraint failed: ops.k (1555)"]);
    assert_eq!(found(), "4|alone 5|alone 6|f 7|g");
    let floats = stream(&[("x", FieldType::Double)]);
    let mut sink = sink(dir.path(), "floats", &floats, &[]);
    let values = batch(&floats, &[vec![FieldValue::Float(f64::NAN)], vec![FieldValue::Float(1.0)]]);
    let refused = deliver(&mut sink, &values, &ids(0, 2)).unwrap();
    let reason = "0: column `x`: SQLite has no `NaN`; columns of floats take finite numbers and NULL";
    assert_eq!(reasons(&refused), [reason]);
}

/// A text may be empty, also if it is all that a row has.
#[test]
fn empty_rows_are_rows() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [("s", FieldType::String), ("n", FieldType::Int)];
    let schema = stream(&fields[..1]);
    let mut sink = sink(dir.path(), "empty", &schema, &[]);
    let values = batch(&schema, &[vec![text("")], vec![text("")], vec![text("a")]]);
    assert_eq!(deliver(&mut sink, &values, &ids(0, 3)).unwrap(), []);
    drop(sink);
    let schema = TableSchema {
        name: TableName::parse("empty").unwrap(),
        columns: vec![Column::new("s", FieldType::String)],
        primary_key: vec![],
        indexes: vec![],
    };
    let options = StoreOptions::check(&[("jdbc.url".into(), url(dir.path()))], schema).unwrap();
    assert_eq!(everything(&RelationalTable::open(options, "test").unwrap()), ["\"\"", "\"\"", "\"a\""]);
}

/// Events that come again are not written twice, and several sinks write to the same file at once.
#[test]
fn events_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let schema = numbered();
    std::thread::scope(|scope| {
        for name in ["first", "second", "third"] {
            let (dir, schema) = (dir.path(), &schema);
            scope.spawn(move || {
                for offset in [0, 1, 1, 0, 2] {
                    let mut sink = sink(dir, name, schema, &[]);
                    let values: Vec<Vec<FieldValue>> =
                        (0..100).map(|k| vec![int(offset * 100 + k), text("v")]).collect();
                    deliver(&mut sink, &batch(schema, &values), &ids(offset as u64, 100)).unwrap();
                    sink.close();
                }
            });
        }
    });
    for name in ["first", "second", "third"] {
        let fields = [("k", FieldType::Int), ("v", FieldType::String)];
        assert_eq!(everything(&table(dir.path(), name, &fields, &[])).len(), 300, "{name}");
    }
}

#[test]
fn tables_of_apps_compute() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [("symbol", FieldType::String), ("volume", FieldType::Long), ("price", FieldType::Double)];
    let table = table(dir.path(), "stocks", &fields, &[0]);
    let row = |symbol: &str, volume: i64, price: f64| -> TableRow {
        vec![Value::Str(symbol.to_owned().into()), Value::Int(volume), Value::Float(price)]
    };
    let event = |offset| Some(EventId { partition: PartitionId(0), offset: Offset(offset), row: 0 });
    let all: Vec<TableRow> = (0..20).map(|n| row(&format!("s{n}"), n, n as f64 + 0.5)).collect();
    assert!(table.insert(&all, event(1)).unwrap().refused.is_empty());
    assert!(table.insert(&all, event(1)).unwrap().was_written);
    let parameter = |index: usize| Expression::Parameter(index, fields[index].1);
    let by_symbol = Expression::column_is(0, 0, FieldType::String);
    // one by one, and by a temporary table
    let add = Expression::Arithmetic(
        Box::new(Expression::Column(1)),
        ArithmeticOperator::Add,
        Box::new(parameter(1)),
    );
    table.update(&by_symbol, &[(1, add)], &all, event(2)).unwrap();
    table
        .update(&by_symbol, &[(2, parameter(2))], &[row("s3", 0, 7.25), row("none", 0, 1.0)], event(3))
        .unwrap();
    table.update(&by_symbol, &[(2, parameter(2))], &vec![row("s4", 0, 8.25); 10], event(4)).unwrap();
    let set = [(1, parameter(1)), (2, parameter(2))];
    table.upsert(&by_symbol, &set, &[row("s5", 1, 1.5), row("new", 2, 2.5)], event(5)).unwrap();
    table
        .delete(&by_symbol, &(6..20).map(|n| row(&format!("s{n}"), 0, 0.0)).collect::<Vec<_>>(), event(6))
        .unwrap();
    let found = everything(&table).join(" ").replace('"', "");
    assert_eq!(found, "new|2|2.5 s0|0|0.5 s1|2|1.5 s2|4|2.5 s3|6|7.25 s4|8|8.25 s5|1|1.5");
    // 7.25 % 2 = 1.25 and 6 / 4 = 1
    let constant = |value, ty| Box::new(Expression::Constant(value, ty));
    let remainder = Expression::Arithmetic(
        Box::new(Expression::Column(2)),
        ArithmeticOperator::Remainder,
        constant(Value::Float(2.0), FieldType::Double),
    );
    let quotient = Expression::Arithmetic(
        Box::new(Expression::Column(1)),
        ArithmeticOperator::Divide,
        constant(Value::Int(4), FieldType::Int),
    );
    let condition = Expression::And(vec![
        Expression::compare(
            remainder,
            CompareOperator::Equal,
            *constant(Value::Float(1.25), FieldType::Double),
        ),
        Expression::compare(quotient, CompareOperator::Equal, *constant(Value::Int(1), FieldType::Int)),
    ]);
    let found = table.find(&condition, &[]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0][0].to_string(), "\"s3\"");
    assert!(table.contains(&by_symbol, &row("s1", 0, 0.0)).unwrap());
    assert!(!table.contains(&by_symbol, &row("S1", 0, 0.0)).unwrap());
}
