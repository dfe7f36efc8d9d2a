//! Tables of apps that live in a database.

use tidemill_relational::{
    ArithmeticOperator, CompareOperator, Expression, RelationalTable, StoreOptions, TableName, TableRow,
    TableSchema,
};
use tidemill_types::{ErrorKind, EventId, FieldType, Offset, PartitionId, Timestamp, Value};

use super::database::{TestDatabase, all_databases, databases};
use super::servers::Servers;

const COLUMNS: [(&str, FieldType); 4] = [
    ("symbol", FieldType::String),
    ("price", FieldType::Double),
    ("volume", FieldType::Long),
    ("open", FieldType::Bool),
];

fn schema(name: &str, columns: &[(&str, FieldType)], primary_key: &[usize]) -> TableSchema {
    let column = |(name, ty): &(&str, FieldType)| tidemill_relational::Column::new(*name, *ty);
    TableSchema {
        name: TableName::parse(name).unwrap(),
        columns: columns.iter().map(column).collect(),
        primary_key: primary_key.to_vec(),
        indexes: vec![vec![2]],
    }
}

fn options(db: &TestDatabase, schema: TableSchema) -> StoreOptions {
    let mut given = db.options();
    given.push(("jdbc.driver.name".into(), "org.postgresql.Driver".into()));
    given.push(("field.length".into(), "symbol:10".into()));
    StoreOptions::check(&given, schema).unwrap()
}

/// Opens an empty table.
fn open(db: &TestDatabase, name: &str, primary_key: &[usize]) -> RelationalTable {
    db.drop_table(name);
    RelationalTable::open(options(db, schema(name, &COLUMNS, primary_key)), &format!("test/{name}")).unwrap()
}

fn text(text: &str) -> Value<'static> {
    Value::Str(text.to_owned().into())
}

fn stock(symbol: &str, price: f64, volume: i64) -> TableRow {
    vec![text(symbol), Value::Float(price), Value::Int(volume), Value::Bool(volume > 100)]
}

fn event(offset: u64, row: u32) -> Option<EventId> {
    Some(EventId { partition: PartitionId(2), offset: Offset(offset), row })
}

fn everything() -> Expression {
    Expression::And(vec![])
}

fn by_symbol() -> Expression {
    Expression::column_is(0, 0, FieldType::String)
}

fn param(index: usize) -> Expression {
    Expression::Parameter(index, COLUMNS[index].1)
}

/// Returns all rows as texts, ordered.
fn rows(table: &RelationalTable) -> Vec<String> {
    let mut rows: Vec<String> = table.find(&everything(), &[]).unwrap().iter().map(show).collect();
    rows.sort();
    rows
}

fn show(row: &TableRow) -> String {
    row.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ").replace('"', "")
}

#[test]
fn rows_are_found_by_conditions() {
    for db in all_databases() {
        let table = open(&db, "found", &[0]);
        let mut all = vec![stock("A", 1.5, 50), stock("B", 2.5, 200), stock("C", 3.5, 300)];
        all.push(vec![text("D"), Value::Missing, Value::Missing, Value::Missing]);
        assert_eq!(table.insert(&all, None).unwrap().refused, []);
        let find = |condition: &Expression, params: &[Value<'static>]| {
            let mut found: Vec<String> = table
                .find(condition, params)
                .unwrap()
                .iter()
                .map(|row| row[0].to_string().replace('"', ""))
                .collect();
            found.sort();
            found.join(" ")
        };
        let compare = |column, operator, parameter| {
            Expression::compare(Expression::Column(column), operator, param(parameter))
        };
        assert_eq!(rows(&table)[..2], ["A 1.5 50 false", "B 2.5 200 true"]);
        assert_eq!(find(&by_symbol(), &[text("B")]), "B");
        assert_eq!(find(&by_symbol(), &[text("b")]), "", "upper and lower case differ");
        assert_eq!(find(&by_symbol(), &[Value::Missing]), "");
        let dear = compare(1, CompareOperator::Greater, 1);
        assert_eq!(find(&dear, &[Value::Missing, Value::Float(2.0)]), "B C");
        // the comparison with a missing value is false, so its negation is true
        assert_eq!(
            find(&Expression::Not(Box::new(dear.clone())), &[Value::Missing, Value::Float(2.0)]),
            "A D"
        );
        let open = Expression::Column(3);
        assert_eq!(
            find(&Expression::And(vec![dear.clone(), open.clone()]), &[Value::Missing, Value::Float(3.0)]),
            "C"
        );
        let missing = Expression::IsNull(Box::new(Expression::Column(1)));
        assert_eq!(find(&Expression::Or(vec![missing, by_symbol()]), &[text("A")]), "A D");
        // volume / 100 == 2, without the fraction
        let hundreds = Expression::Arithmetic(
            Box::new(Expression::Column(2)),
            ArithmeticOperator::Divide,
            Box::new(Expression::Constant(Value::Int(100), FieldType::Int)),
        );
        let two = Expression::Constant(Value::Int(2), FieldType::Int);
        assert_eq!(find(&Expression::compare(hundreds, CompareOperator::Equal, two), &[]), "B");
        // price % 1 == 0.5, and a division by zero is not an error
        let remainder = |divisor: f64| {
            let divisor = Expression::Constant(Value::Float(divisor), FieldType::Double);
            let half = Expression::Constant(Value::Float(0.5), FieldType::Double);
            let price = Box::new(Expression::Column(1));
            let remainder = Expression::Arithmetic(price, ArithmeticOperator::Remainder, Box::new(divisor));
            Expression::compare(remainder, CompareOperator::Equal, half)
        };
        assert_eq!((find(&remainder(1.0), &[]), find(&remainder(0.0), &[])), ("A B C".into(), String::new()));
        let sets: Vec<TableRow> = ["C", "none", "A"].iter().map(|s| vec![text(s)]).collect();
        let each = table.find_each(&by_symbol(), &sets).unwrap();
        assert_eq!(each.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(table.contains_each(&by_symbol(), &sets).unwrap(), [true, false, true]);
        assert!(table.contains(&everything(), &[]).unwrap());
        let e = table.find(&by_symbol(), &[]).unwrap_err();
        assert!(e.to_string().ends_with("parameter 0 has no value; there are 0"), "{e}");
    }
}

#[test]
fn rows_are_changed_in_order() {
    for db in all_databases() {
        // few rows are written by statements of their own, many by a temporary table: the results are the same
        for repeat in [1, 20] {
            let table = open(&db, "changed", &[0]);
            table.insert(&[stock("A", 1.0, 1), stock("B", 2.0, 2), stock("C", 3.0, 3)], None).unwrap();
            let many =
                |rows: &[TableRow]| -> Vec<TableRow> { (0..repeat).flat_map(|_| rows.to_vec()).collect() };
            let set = [(1, param(1)), (2, param(2))];
            let changes = many(&[stock("A", 9.0, 9), stock("none", 0.0, 0), stock("A", 10.0, 10)]);
            table.update(&by_symbol(), &set, &changes, None).unwrap();
            assert_eq!(rows(&table), ["A 10 10 false", "B 2 2 false", "C 3 3 false"]);
            // a new value that is computed from the old one counts each row
            let plus = Expression::Arithmetic(
                Box::new(Expression::Column(2)),
                ArithmeticOperator::Add,
                Box::new(param(2)),
            );
            table.update(&by_symbol(), &[(2, plus)], &many(&[stock("B", 0.0, 5)]), None).unwrap();
            assert_eq!(rows(&table)[1], format!("B 2 {} false", 2 + 5 * repeat));
            let all = [(1, param(1)), (2, param(2)), (3, param(3))];
            let upserts = many(&[stock("D", 4.0, 4), stock("B", 7.0, 700), stock("D", 5.0, 5)]);
            table.upsert(&by_symbol(), &all, &upserts, None).unwrap();
            assert_eq!(rows(&table)[1..], ["B 7 700 true", "C 3 3 false", "D 5 5 false"]);
            // only one column is changed, and rows are new once
            let upserts = many(&[stock("E", 1.0, 500), stock("B", 8.0, 1), stock("E", 2.0, 1)]);
            table.upsert(&by_symbol(), &all[..1], &upserts, None).unwrap();
            assert_eq!(rows(&table)[1..], ["B 8 700 true", "C 3 3 false", "D 5 5 false", "E 2 500 true"]);
            table.delete(&by_symbol(), &many(&[stock("B", 0.0, 0), stock("none", 0.0, 0)]), None).unwrap();
            let missing = vec![vec![Value::Missing]; repeat];
            table.delete(&by_symbol(), &missing, None).unwrap();
            assert_eq!(rows(&table), ["A 10 10 false", "C 3 3 false", "D 5 5 false", "E 2 500 true"]);
            let cheap = Expression::compare(Expression::Column(1), CompareOperator::Less, param(1));
            table.delete(&cheap, &many(&[stock("", 4.0, 0)]), None).unwrap();
            assert_eq!(rows(&table), ["A 10 10 false", "D 5 5 false"]);
        }
    }
}

#[test]
fn bad_rows_are_refused_alone() {
    for db in all_databases() {
        let table = open(&db, "refusing", &[0]);
        let long = "longer than ten";
        let refused =
            |written: tidemill_relational::Written| written.refused.iter().map(|r| r.row).collect::<Vec<_>>();
        let all = [stock("A", 1.0, 1), stock(long, 2.0, 2), stock("A", 3.0, 3), stock("B", 4.0, 4)];
        assert_eq!(refused(table.insert(&all, None).unwrap()), [1, 2]);
        let set = [(0, param(0))];
        let at = Expression::column_is(2, 2, FieldType::Long);
        let changes = [stock("C", 0.0, 1), stock(long, 0.0, 4), stock("D", 0.0, 4)];
        assert_eq!(refused(table.update(&at, &set, &changes, None).unwrap()), [1]);
        assert_eq!(
            refused(table.upsert(&at, &set, &[stock("E", 5.0, 5), stock(long, 6.0, 6)], None).unwrap()),
            [1]
        );
        assert_eq!(rows(&table), ["C 1 1 false", "D 4 4 false", "E 5 5 false"]);
    }
}

#[test]
fn an_event_is_applied_once() {
    for db in all_databases() {
        let table = open(&db, "once", &[]);
        assert_eq!(table.positions().unwrap(), []);
        let one = [stock("A", 1.0, 1)];
        assert!(!table.insert(&one, event(5, 0)).unwrap().was_written);
        // another call for the same record has the next number
        assert!(!table.insert(&one, event(5, 1)).unwrap().was_written);
        drop(table);
        let again =
            || RelationalTable::open(options(&db, schema("once", &COLUMNS, &[])), "test/once").unwrap();
        let table = again();
        assert_eq!(table.positions().unwrap(), [event(5, 1).unwrap()]);
        for (offset, row) in [(4, 0), (5, 0), (5, 1)] {
            assert!(table.insert(&one, event(offset, row)).unwrap().was_written);
            assert!(table.delete(&everything(), &[vec![]], event(offset, row)).unwrap().was_written);
        }
        assert!(!table.insert(&one, event(6, 0)).unwrap().was_written);
        assert_eq!(rows(&table).len(), 3);
        // of two that are open at once, the second notices the first, and its event is applied already
        let rival = again();
        table.insert(&one, event(7, 0)).unwrap();
        assert!(rival.insert(&one, event(7, 0)).unwrap().was_written);
        assert_eq!(rows(&rival).len(), 4);
    }
}

#[test]
fn existing_tables_of_other_types_are_used() {
    let columns = [
        ("Id", FieldType::String),
        ("Amount", FieldType::Double),
        ("Count", FieldType::Long),
        ("At", FieldType::Time),
        ("Data", FieldType::Object),
    ];
    for db in databases() {
        db.drop_table("foreign_types");
        db.run(db.pick(
            "CREATE TABLE foreign_types (id uuid PRIMARY KEY, amount numeric(10,2), count numeric(20), at timestamp, data jsonb)",
            "CREATE TABLE foreign_types (id uuid PRIMARY KEY, amount decimal(10,2), count decimal(20), at datetime(6), data json)",
        ));
        let mut schema = schema("foreign_types", &columns, &[0]);
        schema.indexes.clear();
        let mut options = options_without_lengths(&db, schema);
        options.creates_table = false;
        let table = RelationalTable::open(options, "test/foreign_types").unwrap();
        let id = "00000000-0000-0000-0000-000000000001";
        let time = Value::Time(Timestamp(1_700_000_000_123_456));
        let row = vec![text(id), Value::Float(1.25), Value::Int(1 << 60), time, text("{\"a\": 1}")];
        for rows in [1, 9] {
            let set: Vec<_> = (1..5).map(|c| (c, Expression::Parameter(c, columns[c].1))).collect();
            let condition = Expression::column_is(0, 0, FieldType::String);
            table.upsert(&condition, &set, &vec![row.clone(); rows], None).unwrap();
            let found = table.find(&condition, &row[..1]).unwrap();
            assert_eq!(found.iter().map(show).collect::<Vec<_>>(), [show(&row)], "{}", db.url);
            table.update(&condition, &set[..1], &vec![row.clone(); rows], None).unwrap();
            table.delete(&condition, &vec![row.clone(); rows], None).unwrap();
            assert_eq!(table.find(&Expression::And(vec![]), &[]).unwrap().len(), 0);
        }
    }
}

fn options_without_lengths(db: &TestDatabase, schema: TableSchema) -> StoreOptions {
    StoreOptions::check(&db.options(), schema).unwrap()
}

#[test]
fn a_restarted_server_is_found_again() {
    let servers = Servers::start("restarted");
    for server in &servers.databases {
        let db = TestDatabase::of(server);
        let table = open(&db, "restarted", &[0]);
        table.insert(&[stock("A", 1.0, 1)], event(0, 0)).unwrap();
        servers.kill(server);
        let e = table.insert(&[stock("B", 1.0, 1)], event(1, 0)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        servers.restart(server);
        table.insert(&[stock("B", 1.0, 1)], event(1, 0)).unwrap();
        // the connection is lost while it is idle
        servers.kill(server);
        servers.restart(server);
        table.insert(&[stock("C", 1.0, 1)], event(2, 0)).unwrap();
        servers.kill(server);
        servers.restart(server);
        assert_eq!(rows(&table).len(), 3);
    }
}
