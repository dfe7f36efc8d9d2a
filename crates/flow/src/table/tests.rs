use super::*;
use crate::columns::batch::EventKind;
use crate::expr::{Comparison, Node};
use tidemill_lang::{FileId, Span};

fn table(primary_key: Vec<usize>, indexes: Vec<usize>) -> MemoryTable {
    let attributes = vec![("k".to_owned(), FieldType::Long), ("v".to_owned(), FieldType::Double)];
    let span = Span::new(FileId(0), 0, 0);
    MemoryTable::new(catalog::CatalogTable {
        name: "T".into(),
        attributes,
        primary_key,
        indexes,
        special_indexes: vec![],
        long_texts: vec![],
        store: None,
        span,
    })
}

fn row(k: i64, v: f64) -> Vec<Value> {
    vec![Value::Long(k), Value::Double(v)]
}

fn equals(column: usize, ty: FieldType, value: Value) -> Expr {
    let constant = Expr::constant(value, ty);
    let column = Expr::column(ROW, column, ty);
    Expr { node: Node::Compare(Comparison::Eq, Box::new(column), Box::new(constant)), ty: FieldType::Bool }
}

fn found(table: &MemoryTable, on: &Expr) -> Vec<u32> {
    let rows = [None];
    let on = TableSearch::new(Some(on.clone()), ROW, table.plan());
    table.matching_rows(&on, &Frame { rows: &rows, time: 0, now: 0, host: &NoContext }).unwrap().to_vec()
}

#[test]
fn a_full_table_says_so() {
    let mut table = table(vec![], vec![]).with_rows_max(2);
    assert_eq!(table.insert(row(1, 1.0)), Ok(true));
    assert_eq!(table.insert(row(1, 1.0)), Ok(true));
    assert_eq!(table.insert(row(2, 1.0)), Err(EvalError::limit("table `T`", 2, "rows")));
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
    let event = |k: i64| {
        let mut event = Batch::new([FieldType::Long, FieldType::Double]);
        event.columns[0].push(Value::Long(k));
        event.columns[1].push(Value::Double(k as f64));
        (event.times, event.kinds) = (vec![0], vec![EventKind::Current]);
        event
    };
    let on = Expr {
        node: Node::Compare(
            Comparison::Eq,
            Box::new(Expr::column(ROW, 0, FieldType::Long)),
            Box::new(Expr::column(EVENT, 0, FieldType::Long)),
        ),
        ty: FieldType::Bool,
    };
    let delete = TableAction::Delete(TableSearch::new(Some(on), ROW, table.plan()));
    for k in 0..50_000 {
        table.apply_rows(&TableAction::Insert, &event(k), 0).unwrap();
        if k >= 10 {
            table.apply_rows(&delete, &event(k - 10), 0).unwrap();
        }
    }
    assert_eq!(table.len(), 10);
    assert!(table.rows.indexes().last().unwrap() < 3 * rows::SEGMENT_ROWS as u32);
    let on = equals(1, FieldType::Double, Value::Double(49_995.0));
    assert_eq!(found(&table, &on).len(), 1);
    let keys: Vec<Value> = (0..10).map(|i| table.rows(0).columns[0].get(i)).collect();
    assert_eq!(format!("{keys:?}"), format!("{:?}", (49_990..50_000).map(Value::Long).collect::<Vec<_>>()));
}

#[test]
fn texts_are_replaced_where_they_lie() {
    let attributes = vec![("k".to_owned(), FieldType::Long), ("t".to_owned(), FieldType::String)];
    let span = Span::new(FileId(0), 0, 0);
    let plan = catalog::CatalogTable {
        name: "T".into(),
        attributes,
        primary_key: vec![0],
        indexes: vec![],
        special_indexes: vec![],
        long_texts: vec![],
        store: None,
        span,
    };
    let mut table = MemoryTable::new(plan);
    for k in 0..100 {
        table.insert(vec![Value::Long(k), Value::text("four")]).unwrap();
    }
    let set = vec![(1, Expr::column(EVENT, 1, FieldType::String))];
    let on = Expr {
        node: Node::Compare(
            Comparison::Eq,
            Box::new(Expr::column(ROW, 0, FieldType::Long)),
            Box::new(Expr::column(EVENT, 0, FieldType::Long)),
        ),
        ty: FieldType::Bool,
    };
    let on = TableSearch::new(Some(on), ROW, table.plan());
    let action = TableAction::Update { on, set, insert: false };
    let mut events = Batch::new([FieldType::Long, FieldType::String]);
    for (k, text) in [(3, "five5"), (4, "vier"), (3, "drei"), (5, ""), (6, "")] {
        events.columns[0].push(Value::Long(k));
        events.columns[1].push(if k == 6 { Value::Null } else { Value::text(text) });
        events.times.push(0);
        events.kinds.push(EventKind::Current);
    }
    table.apply_rows(&action, &events, 0).unwrap();
    let rows = table.rows(0);
    let texts: Vec<String> = (2..8).map(|i| rows.columns[1].get(i).to_string()).collect();
    assert_eq!(texts, ["four", "drei", "vier", "", "null", "four"]);
}

#[test]
fn replaced_texts_are_copied_as_they_are() {
    let mut texts = Column::new(FieldType::String);
    ["one", "two", "three"].into_iter().for_each(|text| texts.push(Value::text(text)));
    texts.set(0, &Value::text("eleven"));
    texts.set(1, &Value::text("2.0"));
    let mut copy = Column::new(FieldType::String);
    copy.extend_range(&texts, 0..3);
    copy.gather(&texts, &[0, 2]);
    let found: Vec<String> = (0..5).map(|i| copy.get(i).to_string()).collect();
    assert_eq!(found, ["eleven", "2.0", "three", "eleven", "three"]);
}
