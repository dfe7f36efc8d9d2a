use super::*;
use crate::batch::Kind;
use crate::expr::{Comparison, Node};
use tidemill_lang::{FileId, Span};

fn table(primary_key: Vec<usize>, indexes: Vec<usize>) -> Table {
    let attributes = vec![("k".to_owned(), FieldType::Long), ("v".to_owned(), FieldType::Double)];
    let span = Span::new(FileId(0), 0, 0);
    Table::new(catalog::Table { name: "T".into(), attributes, primary_key, indexes, span })
}

fn row(k: i64, v: f64) -> Vec<Value> {
    vec![Value::Long(k), Value::Double(v)]
}

fn equals(column: usize, ty: FieldType, value: Value) -> Expr {
    let constant = Expr::constant(value, ty);
    let column = Expr::column(ROW, column, ty);
    Expr { node: Node::Compare(Comparison::Eq, Box::new(column), Box::new(constant)), ty: FieldType::Bool }
}

fn found(table: &Table, on: &Expr) -> Vec<RowId> {
    let rows = [None];
    table.matching(Some(on), &Frame { rows: &rows, time: 0, now: 0, host: &NoHost }).unwrap()
}

#[test]
fn a_full_table_says_so() {
    let mut table = table(vec![], vec![]).with_rows_max(2);
    assert_eq!(table.insert(row(1, 1.0)), Ok(true));
    assert_eq!(table.insert(row(1, 1.0)), Ok(true));
    assert_eq!(table.insert(row(2, 1.0)), Err(Failure("table `T` has 2 rows, the most it may".into())));
}

#[test]
fn keys_and_indexes_find_what_a_scan_finds() {
    let mut plain = table(vec![], vec![]);
    let mut keyed = table(vec![0], vec![1]);
    for i in 0..1000 {
        let v = [0.0, -0.0, f64::NAN, 2.5][i as usize % 4];
        plain.insert(row(i, v)).unwrap();
        keyed.insert(row(i, v)).unwrap();
    }
    for v in [0.0, -0.0, f64::NAN, 2.5, 7.0] {
        let on = equals(1, FieldType::Double, Value::Double(v));
        assert_eq!(found(&plain, &on), found(&keyed, &on), "{v}");
    }
    let on = equals(0, FieldType::Long, Value::Int(77));
    assert_eq!((found(&plain, &on), found(&keyed, &on)), (vec![77], vec![77]));
    let on = equals(0, FieldType::Long, Value::Null);
    assert_eq!((found(&plain, &on), found(&keyed, &on)), (vec![], vec![]));
}

#[test]
fn places_are_given_back() {
    let mut table = table(vec![0], vec![1]);
    for k in 0..10 {
        table.insert(row(k, 0.0)).unwrap();
    }
    let mut event = Batch::new([FieldType::Double]);
    let set = vec![(1, Expr::column(EVENT, 0, FieldType::Double))];
    let action = Action::Update { on: equals(0, FieldType::Long, Value::Long(3)), set, insert: None };
    for i in 0..20_000 {
        event.columns[0].truncate(0);
        event.columns[0].push(Value::Double(f64::from(i)));
        (event.times, event.kinds) = (vec![0], vec![Kind::Current]);
        table.apply(&action, &event, 0).unwrap();
    }
    assert!(table.used < 3 * SEGMENT_ROWS, "{}", table.used);
    assert_eq!(found(&table, &equals(1, FieldType::Double, Value::Double(19_999.0))), [3]);
    assert_eq!(found(&table, &equals(1, FieldType::Double, Value::Double(0.0))).len(), 9);
}
