//! Tables of apps, as `@store(type='rdbms')` makes them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_connect::{
    StoreArithmetic, StoreComparison, StoreConfig, StoreContext, StoreExpr, StoreMonitor, StoreUpdate,
    TableStore, WritePosition,
};
use tidemill_types::{ErrorKind, FieldType, Offset, PartitionId, StreamSchema, Value, row_value};

use super::database::{TestDatabase, all_databases, batch, databases, int, stream, text};
use crate::helpers::{free_port, wait_until};

fn schema() -> Arc<StreamSchema> {
    stream(&[("symbol", FieldType::String), ("volume", FieldType::Long)])
}

fn open(db: &TestDatabase, name: &str, monitor: &Arc<StoreMonitor>) -> Box<dyn TableStore> {
    let options = db.options();
    let context = StoreContext {
        table: name.into(),
        writer: "stocks.siddhi".into(),
        schema: schema(),
        primary_key: vec![0],
        indexes: vec![1],
        special_indexes: vec![],
        long_texts: vec![],
        monitor: monitor.clone(),
    };
    let config = StoreConfig { kind: "rdbms".into(), options };
    tidemill_connectors::catalog().create_store(&config, &context).unwrap()
}

fn pairs(values: &[(&str, i64)]) -> RecordBatch {
    let rows: Vec<Vec<_>> = values.iter().map(|(symbol, volume)| vec![text(symbol), int(*volume)]).collect();
    batch(&schema(), &rows)
}

fn at(offset: u64, call: u32) -> Option<WritePosition> {
    Some(WritePosition { partition: PartitionId(0), offset: Offset(offset), call })
}

fn compare(operator: StoreComparison, column: usize, parameter: usize) -> StoreExpr {
    let (left, right) = (StoreExpr::Column(column), StoreExpr::Parameter(parameter));
    StoreExpr::Compare(operator, Box::new(left), Box::new(right))
}

fn found(store: &mut Box<dyn TableStore>, condition: Option<&StoreExpr>, given: (&str, i64)) -> Vec<String> {
    let rows = store.find(condition, &pairs(&[given]), None).unwrap();
    let cell = |column, row| match row_value(&rows, column, row) {
        Value::Str(text) => text.to_string(),
        value => value.to_string(),
    };
    let mut rows: Vec<String> =
        (0..rows.num_rows()).map(|row| format!("{} {}", cell(0, row), cell(1, row))).collect();
    rows.sort();
    rows
}

#[test]
fn the_database_finds_and_changes_rows() {
    for db in all_databases() {
        db.drop_table("app_stocks");
        let mut store = open(&db, "app_stocks", &Arc::default());
        let refused = store.insert(&pairs(&[("A", 1), ("B", 2), ("A", 3), ("C", 4)]), at(1, 0)).unwrap();
        assert_eq!(refused.iter().map(|refused| refused.row).collect::<Vec<_>>(), [2], "{refused:?}");
        assert_eq!(found(&mut store, None, ("", 0)), ["A 1", "B 2", "C 4"]);
        let by_key = compare(StoreComparison::Eq, 0, 0);
        assert_eq!(found(&mut store, Some(&by_key), ("B", 0)), ["B 2"]);
        let more = compare(StoreComparison::Ge, 1, 1);
        assert_eq!(found(&mut store, Some(&more), ("", 2)), ["B 2", "C 4"]);
        let limited = store.find(None, &pairs(&[("", 0)]), Some(1)).unwrap();
        assert_eq!(limited.num_rows(), 1);

        let sum = StoreExpr::Arithmetic(
            StoreArithmetic::Add,
            Box::new(StoreExpr::Column(1)),
            Box::new(StoreExpr::Parameter(1)),
        );
        let change = StoreUpdate { condition: by_key.clone(), set: vec![(1, sum)] };
        let events = pairs(&[("A", 10), ("none", 1), ("A", 20)]);
        assert_eq!(store.update(&change, &events, None, at(2, 0)).unwrap(), []);
        assert_eq!(found(&mut store, Some(&by_key), ("A", 0)), ["A 31"]);

        // whole rows are replaced at once, others row by row: the results are the same
        let replace = StoreUpdate { condition: by_key.clone(), set: vec![(1, StoreExpr::Parameter(1))] };
        for (offset, change) in [(3, &replace), (4, &change)] {
            let events = pairs(&[("D", 5), ("B", 7), ("D", 6)]);
            assert_eq!(store.update(change, &events, Some(&events), at(offset, 0)).unwrap(), []);
        }
        assert_eq!(found(&mut store, Some(&more), ("", 7)), ["A 31", "B 14", "D 17"]);

        assert_eq!(store.delete(Some(&by_key), &pairs(&[("A", 0), ("D", 0)]), at(5, 0)).unwrap(), []);
        assert_eq!(found(&mut store, None, ("", 0)), ["B 14", "C 4"]);
    }
}

#[test]
fn a_record_that_is_applied_again_changes_nothing() {
    for db in all_databases() {
        db.drop_table("app_again");
        for _ in 0..2 {
            let mut store = open(&db, "app_again", &Arc::default());
            for call in 0..2 {
                let symbol = ["A", "B"][call as usize];
                assert_eq!(store.insert(&pairs(&[(symbol, 1)]), at(7, call)).unwrap(), []);
            }
            assert_eq!(found(&mut store, None, ("", 0)), ["A 1", "B 1"]);
        }
    }
}

#[test]
fn a_call_waits_for_the_database_until_it_is_stopped() {
    let Some(mut db) = databases().into_iter().next() else { return };
    // no one listens there
    db.url = format!("jdbc:postgresql://127.0.0.1:{}/tidemill", free_port());
    let monitor = Arc::new(StoreMonitor::default());
    let mut store = open(&db, "app_down", &monitor);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.insert(&pairs(&[("A", 1)]), at(0, 0)));
        wait_until("the problem is told", || monitor.problems().contains_key("app_down"));
        assert!(!waiting.is_finished());
        monitor.stop();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    });
}
