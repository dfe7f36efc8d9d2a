//! Tests that rows of an aggregate's query become documents.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray,
    TimestampMillisecondArray,
};
use bson::Document;
use tidemill_rules::Program;
use tidemill_types::{Duration, Timestamp};

const RULES: &str = r#"
event E { id: string, n: int, t: time, u: time } key id time t;
entity Insight key name replicated;
entity Source key id replicated;
rule A every 90 sec {
  aggregate { e: E(); s: Source(id == e.id); } over 1 hour
  groupby { e.id }
  do {
    insert Insight {
      name: e.id, count: count(), at: min(e.t), delay: avg(e.t - e.u), inner: { any: max(s.x), list: [sum(e.n), max(s.y)] }, when: max(s.z)
    };
  }
}
"#;

fn program() -> Program {
    Program::from_texts([("app.rules", RULES)]).unwrap_or_else(|e| panic!("{e}"))
}

fn batch(name: ArrayRef) -> RecordBatch {
    let ints = |values: [Option<i64>; 2]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    let columns: Vec<ArrayRef> = vec![
        name,
        ints([Some(3), Some(4)]),
        ints([Some(1_357_034_400_123_456), None]),
        ints([Some(90_000_000), Some(1_500)]),
        Arc::new(StringViewArray::from(vec![Some("text"), None])),
        ints([Some(7), None]),
        Arc::new(Float64Array::from(vec![Some(2.5), None])),
        Arc::new(TimestampMillisecondArray::from(vec![Some(1_357_034_400_123), None])),
    ];
    let named = columns.into_iter().enumerate().map(|(i, c)| (format!("c{i}"), c, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

#[test]
fn rows_become_documents() {
    let program = program();
    let aggregate = &program.aggregates()[0];
    assert_eq!(
        (aggregate.every, aggregate.over),
        (Some(Duration::seconds(90)), Some(Duration::seconds(3600)))
    );
    assert_eq!(
        (aggregate.source.as_str(), &aggregate.streams, &aggregate.collections),
        ("E", &vec!["E".to_owned()], &vec!["Source".to_owned()])
    );
    let insert = &aggregate.inserts[0];
    assert_eq!(insert.entity, "Insight");
    let batch = batch(Arc::new(StringArray::from(vec!["a", "b"])));
    let first = insert.document(&batch, 0).unwrap().unwrap();
    let date = bson::DateTime::from_millis(1_357_034_400_123);
    let expected = bson::doc! {
        "_id": "a", "name": "a", "count": 3, "at": date, "delay": 90_000,
        "inner": { "any": "text", "list": [7, 2.5] }, "when": date,
    };
    assert_eq!(Document::try_from(first.as_ref()).unwrap(), expected);
    let second = insert.document(&batch, 1).unwrap().unwrap();
    let expected = bson::doc! { "_id": "b", "name": "b", "count": 4, "delay": 1.5, "inner": { "list": [] } };
    assert_eq!(Document::try_from(second.as_ref()).unwrap(), expected);
}

#[test]
fn rows_without_a_key_are_left_out() {
    let program = program();
    let insert = &program.aggregates()[0].inserts[0];
    let batch = batch(Arc::new(StringArray::from(vec![None, Some("b")])));
    assert!(insert.document(&batch, 0).unwrap().is_none());
    assert!(insert.document(&batch, 1).unwrap().is_some());
}

#[test]
fn columns_of_other_types_are_an_error() {
    let program = program();
    let insert = &program.aggregates()[0].inserts[0];
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let named = (0..8).map(|i| (format!("c{i}"), flags.clone()));
    let batch = RecordBatch::try_from_iter(named).unwrap();
    let error = insert.document(&batch, 0).unwrap_err();
    assert_eq!(error.message(), "internal error: expected a time, found a column of type Boolean");
    let error = insert.document(&batch.project(&[0]).unwrap(), 0).unwrap_err();
    assert_eq!(error.message(), "internal error: the result has 1 columns, the rule refers to column 1");
}

#[test]
fn over_counts_back_from_now() {
    let program = program();
    let sql = program.aggregates()[0].inserts[0].sql_at(Timestamp::parse("2013-01-01T01:00:00Z").unwrap());
    assert!(
        sql.contains(r#""$e"."_time" > arrow_cast(1356998400000000, 'Timestamp(Microsecond, Some("UTC"))')"#),
        "{sql}"
    );
}
