//! Prepared statements.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Int64Array, ListArray, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use arrow_schema::DataType;
use tonic::Code;

use crate::fixture::{Server, assert_refused, fetch, show};

fn row(columns: Vec<ArrayRef>) -> RecordBatch {
    let named = columns.into_iter().enumerate().map(|(at, column)| (format!("${}", at + 1), column, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_prepared_bound_executed_and_closed() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut statement =
        client.prepare("SELECT echo int8 text timestamptz unknown bool".to_owned(), None).await.unwrap();
    let types =
        statement.parameter_schema().unwrap().fields().iter().map(|field| field.data_type().to_string());
    assert_eq!(types.collect::<Vec<_>>(), ["Int64", "Utf8", "Timestamp(ms, \"UTC\")", "Utf8", "Boolean"]);
    assert_eq!(statement.dataset_schema().unwrap().field(0).name(), "value");
    assert_refused(statement.execute().await, Code::InvalidArgument, "no values were bound");
    let decimal = Decimal128Array::from(vec![-12_345_i128]).with_precision_and_scale(10, 2).unwrap();
    let values: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![7])),
        Arc::new(StringArray::from(vec![None::<&str>])),
        Arc::new(TimestampMicrosecondArray::from(vec![1_714_557_600_000_000]).with_timezone("UTC")),
        Arc::new(decimal),
        Arc::new(BooleanArray::from(vec![true])),
    ];
    statement.set_parameters(row(values.clone())).unwrap();
    for _ in 0..3 {
        let info = statement.execute().await.unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        assert_eq!(show(&rows), ["7", "NULL", "2024-05-01T10:00:00Z", "\"-123.45\"", "true"]);
    }
    statement.set_parameters(row(values[..2].to_vec())).unwrap();
    assert_refused(statement.execute().await, Code::InvalidArgument, "has 5 parameters");
    let other = statement.clone();
    statement.close().await.unwrap();
    other.clone().close().await.unwrap();
    assert_refused({ other }.execute().await, Code::NotFound, "Prepare it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_of_the_values_that_were_bound() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut statement = client.prepare("SELECT echo int8".to_owned(), None).await.unwrap();
    let number = |n: i64| row(vec![Arc::new(Int64Array::from(vec![n]))]);
    statement.set_parameters(number(1)).unwrap();
    let first = statement.execute().await.unwrap();
    statement.set_parameters(number(2)).unwrap();
    let second = statement.execute().await.unwrap();
    assert_refused(fetch(&mut client, first).await, Code::Aborted, "other values were bound");
    assert_eq!(show(&fetch(&mut client, second).await.unwrap()), ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_values_is_a_run() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut statement = client.prepare("SELECT same $1".to_owned(), None).await.unwrap();
    // the type of the column depends on the value
    assert_eq!(statement.dataset_schema().unwrap().field(0).data_type(), &DataType::Null);
    statement.set_parameters(row(vec![Arc::new(Int64Array::from(vec![3, 1, 2]))])).unwrap();
    let info = statement.execute().await.unwrap();
    assert!(info.schema.is_empty());
    assert_eq!(show(&fetch(&mut client, info).await.unwrap()), ["3", "1", "2"]);
    statement.set_parameters(row(vec![Arc::new(Int64Array::from(vec![Some(3), None]))])).unwrap();
    let info = statement.execute().await.unwrap();
    assert_refused(fetch(&mut client, info).await, Code::InvalidArgument, "row 2 of its values");
    let kinds: DictionaryArray<Int32Type> = vec!["a"].into_iter().collect();
    statement.set_parameters(row(vec![Arc::new(kinds)])).unwrap();
    // the client of the crate sends values in place of dictionaries
    let info = statement.execute().await.unwrap();
    assert_eq!(show(&fetch(&mut client, info).await.unwrap()), ["\"a\""]);
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    statement.set_parameters(row(vec![Arc::new(list)])).unwrap();
    assert_refused(statement.execute().await, Code::InvalidArgument, "row 1, parameter $1: a value of type");
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_prepared_without_columns() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut statement = client.prepare("DELETE 4".to_owned(), None).await.unwrap();
    assert!(statement.dataset_schema().unwrap().fields().is_empty());
    assert_eq!(statement.execute_update().await.unwrap(), 4);
    let info = statement.execute().await.unwrap();
    assert_eq!(show(&fetch(&mut client, info).await.unwrap()), ["4"]);
    assert_eq!(server.changes.load(Ordering::SeqCst), 2);
    let mut query = client.prepare("SELECT rows 1".to_owned(), None).await.unwrap();
    assert_refused(query.execute_update().await, Code::InvalidArgument, "expected INSERT, DELETE or UPDATE");
    assert_refused(client.prepare("SELECT x".to_owned(), None).await, Code::InvalidArgument, "line 1");
    assert_refused(
        client.prepare("SELECT rows 1".to_owned(), Some("t".into())).await,
        Code::Unimplemented,
        "transactions",
    );
}
