//! Tables of apps in InfluxDB, as `@store(type='influxdb')` makes them, on a real server.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_connect::{
    StoreArithmetic, StoreComparison, StoreConfig, StoreContext, StoreExpr, StoreMonitor, StoreUpdate,
    TableStore, all_values,
};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{ErrorKind, Field, FieldType, StreamSchema, Timestamp, Value};

use crate::helpers::{free_port, wait_until};
use crate::servers;

const COLUMNS: [(&str, FieldType); 5] = [
    ("symbol", FieldType::String),
    ("volume", FieldType::Long),
    ("price", FieldType::Double),
    ("note", FieldType::String),
    ("time", FieldType::Long),
];
const SYMBOL: usize = 0;
const VOLUME: usize = 1;
const PRICE: usize = 2;
const NOTE: usize = 3;
const TIME: usize = 4;

/// Symbol, volume, price, note and time; `None` for null.
type Row<'t> = (Option<&'t str>, Option<i64>, Option<f64>, Option<&'t str>, i64);

fn schema(columns: &[(&str, FieldType)]) -> Arc<StreamSchema> {
    let fields = columns.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: "T".into(), fields, key: None, id: vec![], time: None })
}

fn batch(rows: &[Row<'_>]) -> RecordBatch {
    let mut batch = BatchBuilder::new(schema(&COLUMNS));
    for (symbol, volume, price, note, time) in rows {
        let text = |of: &Option<&str>| of.map_or(FieldValue::Missing, |of| FieldValue::Text(of.into()));
        let cells = [
            text(symbol),
            volume.map_or(FieldValue::Missing, FieldValue::Int),
            price.map_or(FieldValue::Missing, FieldValue::Float),
            text(note),
            FieldValue::Int(*time),
        ];
        batch.push_values(&cells, Timestamp(0)).unwrap();
    }
    batch.finish()
}

/// Parameters with one row.
fn given(values: &[Value<'static>]) -> RecordBatch {
    let (mut fields, mut cells) = (vec![], vec![]);
    for (number, value) in values.iter().enumerate() {
        let (ty, cell) = match value {
            Value::Int(n) => (FieldType::Long, FieldValue::Int(*n)),
            Value::Float(x) => (FieldType::Double, FieldValue::Float(*x)),
            Value::Str(text) => (FieldType::String, FieldValue::Text(text.to_string())),
            Value::Bool(flag) => (FieldType::Bool, FieldValue::Bool(*flag)),
            _ => (FieldType::String, FieldValue::Missing),
        };
        fields.push(Field::new(format!("p{number}"), ty));
        cells.push(cell);
    }
    let schema = StreamSchema { name: "p".into(), fields, key: None, id: vec![], time: None };
    let mut batch = BatchBuilder::new(Arc::new(schema));
    batch.push_values(&cells, Timestamp(0)).unwrap();
    batch.finish()
}

fn text(text: &str) -> Value<'static> {
    Value::Str(text.to_owned().into())
}

fn compare(operator: StoreComparison, column: usize, parameter: usize) -> StoreExpr {
    StoreExpr::Compare(
        operator,
        Box::new(StoreExpr::Column(column)),
        Box::new(StoreExpr::Parameter(parameter)),
    )
}

fn eq(column: usize, parameter: usize) -> StoreExpr {
    compare(StoreComparison::Eq, column, parameter)
}

fn and(left: StoreExpr, right: StoreExpr) -> StoreExpr {
    StoreExpr::And(Box::new(left), Box::new(right))
}

fn or(left: StoreExpr, right: StoreExpr) -> StoreExpr {
    StoreExpr::Or(Box::new(left), Box::new(right))
}

fn not(inner: StoreExpr) -> StoreExpr {
    StoreExpr::Not(Box::new(inner))
}

fn is_null(column: usize) -> StoreExpr {
    StoreExpr::IsNull(Box::new(StoreExpr::Column(column)))
}

fn try_open(
    columns: &[(&str, FieldType)],
    indexes: &[usize],
    primary_key: &[usize],
    options: &[(&str, &str)],
    monitor: &Arc<StoreMonitor>,
) -> Result<Box<dyn TableStore>, String> {
    let context = StoreContext {
        table: "Stock Table,x".into(),
        writer: "stocks.siddhi".into(),
        schema: schema(columns),
        primary_key: primary_key.into(),
        indexes: indexes.into(),
        special_indexes: vec![],
        long_texts: vec![],
        monitor: monitor.clone(),
    };
    let options = options.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let config = StoreConfig { kind: "influxdb".into(), options };
    tidemill_connectors::catalog().create_store(&config, &context).map_err(|e| e.to_string())
}

/// A table in a database of its own.
struct Table {
    _server: servers::SharedServer,
    store: Box<dyn TableStore>,
}

impl Table {
    fn open() -> Option<Self> {
        let server = servers::shared("influxdb")?;
        let database = uuid::Uuid::new_v4().simple().to_string();
        let options = [("url", server.address("SERVERS_INFLUXDB")), ("database", &*database)];
        let store = try_open(&COLUMNS, &[SYMBOL, TIME], &[], &options, &Arc::default()).unwrap();
        Some(Self { _server: server, store })
    }

    fn insert(&mut self, rows: &[Row<'_>]) -> Vec<(usize, String)> {
        let refused = self.store.insert(&batch(rows), None).unwrap();
        refused.into_iter().map(|of| (of.row, of.reason)).collect()
    }

    /// Returns rows as `symbol volume price note time`, in order of time.
    fn find(&mut self, condition: Option<&StoreExpr>, parameters: &[Value<'static>]) -> Vec<String> {
        let found = self.store.find(condition, &given(parameters), None).unwrap();
        rows_of(&found)
    }

    fn all(&mut self) -> Vec<String> {
        self.find(None, &[])
    }

    /// Returns the times of the rows that satisfy a condition.
    fn times(&mut self, condition: &StoreExpr, parameters: &[Value<'static>]) -> Vec<i64> {
        let found = self.store.find(Some(condition), &given(parameters), None).unwrap();
        let time = |row: &Vec<Value<'static>>| match row[TIME] {
            Value::Int(ms) => ms,
            ref other => panic!("{other:?}"),
        };
        all_values(&found).iter().map(time).collect()
    }

    fn refusal(&mut self, condition: &StoreExpr, parameters: &[Value<'static>]) -> String {
        let error = self.store.find(Some(condition), &given(parameters), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }
}

fn rows_of(found: &RecordBatch) -> Vec<String> {
    let cell = |value: &Value<'static>| match value {
        Value::Missing | Value::Null => "null".to_owned(),
        Value::Str(text) => text.to_string(),
        value => value.to_string(),
    };
    all_values(found)
        .iter()
        .map(|row| row.iter().take(COLUMNS.len()).map(cell).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Three rows; the last one has nothing but a volume.
const ROWS: [Row<'static>; 3] = [
    (Some("a"), Some(5), Some(1.5), Some("it's"), 1000),
    (Some("b"), Some(6), Some(-2.25), Some("x"), 2000),
    (None, Some(i64::MAX), None, None, 3000),
];

#[test]
fn rows_come_back_as_they_were_written() {
    let Some(mut table) = Table::open() else { return };
    assert_eq!(table.all(), Vec::<String>::new(), "a database that is not there is made");
    assert_eq!(table.insert(&ROWS), []);
    let expected = ["a 5 1.5 it's 1000", "b 6 -2.25 x 2000", &format!("null {} null null 3000", i64::MAX)];
    assert_eq!(table.all(), expected);
    // a write that is repeated writes the same points
    assert_eq!(table.insert(&ROWS), []);
    assert_eq!(table.all(), expected);
    let strange = r#"a,b =c"d\e"#;
    table.insert(&[(Some(strange), Some(1), None, Some("l1\nl2 \"q\" \\"), 4000)]);
    let found = table.find(Some(&eq(SYMBOL, 0)), &[text(strange)]);
    assert_eq!(found, [format!("{strange} 1 null l1\nl2 \"q\" \\ 4000")]);
    let limited = table.store.find(None, &given(&[]), Some(2)).unwrap();
    assert_eq!(limited.num_rows(), 2);
}

#[test]
fn conditions_hold_as_in_siddhiql() {
    let Some(mut table) = Table::open() else { return };
    table.insert(&ROWS);
    use StoreComparison::{Ge, Gt, Le, Lt, Ne};
    let mut check = |condition: StoreExpr, parameters: &[Value<'static>], expected: &[i64]| {
        assert_eq!(table.times(&condition, parameters), expected, "{condition:?}");
    };
    check(eq(SYMBOL, 0), &[text("a")], &[1000]);
    check(compare(Ne, SYMBOL, 0), &[text("a")], &[2000]);
    check(not(eq(SYMBOL, 0)), &[text("a")], &[2000, 3000]);
    check(not(compare(Ne, SYMBOL, 0)), &[text("a")], &[1000, 3000]);
    check(is_null(SYMBOL), &[], &[3000]);
    check(not(is_null(SYMBOL)), &[], &[1000, 2000]);
    check(eq(SYMBOL, 0), &[Value::Missing], &[]);
    check(not(eq(SYMBOL, 0)), &[Value::Missing], &[1000, 2000, 3000]);
    check(compare(Gt, VOLUME, 0), &[Value::Int(5)], &[2000, 3000]);
    check(eq(VOLUME, 0), &[Value::Int(i64::MAX)], &[3000]);
    check(compare(Lt, PRICE, 0), &[Value::Int(0)], &[2000]);
    check(compare(Ge, PRICE, 0), &[Value::Float(1.5)], &[1000]);
    check(compare(Ne, PRICE, 0), &[Value::Float(1.5)], &[2000]);
    check(eq(NOTE, 0), &[text("it's")], &[1000]);
    check(compare(Ne, NOTE, 0), &[text("it's")], &[2000]);
    check(
        and(compare(Ge, TIME, 0), compare(Lt, TIME, 1)),
        &[Value::Int(1000), Value::Int(3000)],
        &[1000, 2000],
    );
    check(not(compare(Gt, TIME, 0)), &[Value::Int(2000)], &[1000, 2000]);
    check(or(eq(SYMBOL, 0), eq(VOLUME, 1)), &[text("a"), Value::Int(6)], &[1000, 2000]);
    check(
        and(or(eq(SYMBOL, 0), is_null(SYMBOL)), compare(Le, TIME, 1)),
        &[text("a"), Value::Int(2000)],
        &[1000],
    );
    check(or(StoreExpr::Parameter(0), eq(SYMBOL, 1)), &[Value::Bool(true), text("z")], &[1000, 2000, 3000]);
    check(and(StoreExpr::Parameter(0), eq(SYMBOL, 1)), &[Value::Bool(false), text("a")], &[]);
    // another column before the parameter, and the text of an injection
    check(eq(SYMBOL, 0), &[text("' OR '' = '")], &[]);
    check(eq(NOTE, 0), &[text("x' OR \"volume\" > 0 OR \"note\" = 'x")], &[]);
}

#[test]
fn what_influxdb_does_not_evaluate_is_refused() {
    let Some(mut table) = Table::open() else { return };
    table.insert(&ROWS);
    use StoreComparison::{Gt, Ne};
    let sum = StoreExpr::Arithmetic(
        StoreArithmetic::Add,
        Box::new(StoreExpr::Column(VOLUME)),
        Box::new(StoreExpr::Parameter(0)),
    );
    let computed = StoreExpr::Compare(Gt, Box::new(sum), Box::new(StoreExpr::Parameter(0)));
    for (condition, parameter, expected) in [
        (computed, Value::Int(1), "computed value"),
        (not(eq(VOLUME, 0)), Value::Int(1), "may be null"),
        (is_null(PRICE), Value::Int(1), "without an index"),
        (compare(Gt, SYMBOL, 0), text("a"), "only `==` and `!=`"),
        (compare(Gt, NOTE, 0), text("a"), "an order of texts"),
        (compare(Ne, TIME, 0), Value::Int(1), "`!=` with `time`"),
        (or(eq(TIME, 0), eq(SYMBOL, 0)), Value::Int(1), "one side of `or`"),
        (eq(TIME, 0), Value::Int(i64::MAX), "outside of what it has"),
    ] {
        let found = table.refusal(&condition, &[parameter]);
        assert!(found.contains("InfluxDB does not evaluate") && found.contains(expected), "{found}");
    }
}

#[test]
fn rows_that_are_no_points_are_refused_and_others_written() {
    let Some(mut table) = Table::open() else { return };
    let rows = [
        (Some("a"), Some(1), None, None, 1000),
        (Some(""), Some(2), None, None, 1000),
        (Some("c"), None, None, None, 1000),
        (Some("d"), Some(4), Some(f64::NAN), None, 1000),
        (Some("e"), Some(5), None, None, i64::MAX),
        (Some("f\n"), Some(6), None, None, 1000),
        (Some("g"), Some(7), None, None, 1000),
    ];
    let refused = table.insert(&rows);
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2, 3, 4, 5], "{refused:?}");
    assert_eq!(table.all(), ["a 1 null null 1000", "g 7 null null 1000"]);
}

#[test]
fn rows_are_deleted_by_tags_times_and_fields() {
    let Some(mut table) = Table::open() else { return };
    let delete = |table: &mut Table, condition: Option<StoreExpr>, parameters: &[Value<'static>]| {
        assert_eq!(table.store.delete(condition.as_ref(), &given(parameters), None).unwrap(), []);
    };
    delete(&mut table, Some(eq(SYMBOL, 0)), &[text("a")]);
    table.insert(&ROWS);
    table.insert(&[(Some("a"), Some(9), None, None, 9000)]);
    delete(&mut table, Some(and(eq(SYMBOL, 0), eq(TIME, 1))), &[text("a"), Value::Int(9000)]);
    assert_eq!(table.all().len(), 3);
    delete(&mut table, Some(compare(StoreComparison::Gt, VOLUME, 0)), &[Value::Int(6)]);
    assert_eq!(table.all(), ["a 5 1.5 it's 1000", "b 6 -2.25 x 2000"]);
    delete(&mut table, Some(eq(SYMBOL, 0)), &[text("b")]);
    assert_eq!(table.all(), ["a 5 1.5 it's 1000"]);
    delete(&mut table, None, &[]);
    assert_eq!(table.all(), Vec::<String>::new());
}

#[test]
fn rows_are_updated_and_inserted_if_there_are_none() {
    let Some(mut table) = Table::open() else { return };
    table.insert(&ROWS);
    let set = |column: usize, x: StoreExpr| StoreUpdate { condition: eq(SYMBOL, 0), set: vec![(column, x)] };
    let none: Vec<String> = vec![];
    let mut update = |change: &StoreUpdate, parameters: &[Value<'static>], insert: Option<&RecordBatch>| {
        let refused = table.store.update(change, &given(parameters), insert, None);
        refused.map(|all| all.into_iter().map(|of| of.reason).collect::<Vec<_>>())
    };
    let price = set(PRICE, StoreExpr::Parameter(1));
    assert_eq!(update(&price, &[text("a"), Value::Float(7.0)], None).unwrap(), none);
    assert_eq!(update(&price, &[text("z"), Value::Float(7.0)], None).unwrap(), none);
    let new = batch(&[(Some("z"), Some(1), Some(2.0), None, 5000)]);
    for _ in 0..2 {
        assert_eq!(update(&price, &[text("z"), Value::Float(8.0)], Some(&new)).unwrap(), none);
    }
    let refused = update(&price, &[text("b"), Value::Missing], None).unwrap();
    assert!(refused.len() == 1 && refused[0].contains("`price` cannot become null"), "{refused:?}");
    // another time is another point: the old one goes
    assert_eq!(
        update(&set(TIME, StoreExpr::Parameter(1)), &[text("b"), Value::Int(2500)], None).unwrap(),
        none
    );
    let own = StoreExpr::Arithmetic(
        StoreArithmetic::Add,
        Box::new(StoreExpr::Column(VOLUME)),
        Box::new(StoreExpr::Parameter(1)),
    );
    let error = update(&set(VOLUME, own), &[text("a"), Value::Int(1)], None).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("count twice"), "{error}");
    let expected = [
        "a 5 7 it's 1000",
        "b 6 -2.25 x 2500",
        &format!("null {} null null 3000", i64::MAX),
        "z 1 8 null 5000",
    ];
    assert_eq!(table.all(), expected);
}

#[test]
fn wrong_tables_and_options_are_told() {
    let open = |columns: &[(&str, FieldType)], indexes: &[usize], key: &[usize], options: &[(&str, &str)]| {
        try_open(columns, indexes, key, options, &Arc::default()).err().unwrap_or_default()
    };
    let database = [("database", "d")];
    let no_time = [("symbol", FieldType::String), ("price", FieldType::Double)];
    let text_time = [("time", FieldType::String), ("price", FieldType::Double)];
    for (found, expected) in [
        (open(&no_time, &[0], &[], &database), "needs a column `time long`"),
        (open(&text_time, &[], &[], &database), "define it as `time long`"),
        (open(&COLUMNS, &[SYMBOL, PRICE], &[], &database), "`price` cannot have an index"),
        (open(&COLUMNS, &[SYMBOL], &[SYMBOL], &database), "`@primaryKey` must name"),
        (open(&COLUMNS[3..], &[0], &[], &database), "without an index"),
        (
            open(&COLUMNS, &[], &[], &[("database", "d"), ("url", "tcp://u:hunter2@h")]),
            "expected `http://host:8086`",
        ),
        (
            open(&COLUMNS, &[], &[], &[("database", "d"), ("password", "hunter2")]),
            "a password needs `username`",
        ),
    ] {
        assert!(found.contains(expected) && !found.contains("hunter2"), "{found}");
    }
    assert_eq!(open(&COLUMNS, &[SYMBOL, TIME], &[SYMBOL, TIME], &database), "");
}

#[test]
fn calls_wait_for_a_server_that_is_away_and_for_a_login() {
    let Some(server) = servers::shared("influxdb") else { return };
    let away = format!("http://127.0.0.1:{}", free_port());
    let wrong = server.address("SERVERS_INFLUXDB").replace(":tidemill@", ":hunter2@");
    for (url, expected) in [(&away, "no answer"), (&wrong, "401")] {
        let monitor: Arc<StoreMonitor> = Arc::default();
        let options = [("url", &**url), ("database", "d")];
        let mut store = try_open(&COLUMNS, &[SYMBOL], &[], &options, &monitor).unwrap();
        let waiting = std::thread::spawn(move || store.insert(&batch(&ROWS), None).unwrap_err());
        wait_until("the problem is told", || !monitor.problems().is_empty());
        let problems = format!("{:?}", monitor.problems());
        assert!(problems.contains(expected) && !problems.contains("hunter2"), "{problems}");
        monitor.stop();
        assert_eq!(waiting.join().unwrap().kind(), ErrorKind::Unavailable);
    }
}
