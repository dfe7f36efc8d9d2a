//! Statements without parameters: their columns, rows, errors and cancellation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{Any, CommandStatementQuery, ProstMessageExt};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor, FlightInfo,
    IpcMessage, Ticket,
};
use arrow_schema::{DataType, Schema};
use futures::StreamExt;
use prost::Message;
use tidemill_flight::FlightOptions;
use tonic::Code;

use crate::fixture::{Client, Server, assert_refused, fetch, query, refused, show};

#[tokio::test(flavor = "multi_thread")]
async fn rows_have_the_columns_that_were_announced() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let info = client.execute("SELECT types".to_owned(), None).await.unwrap();
    let announced = info.clone().try_decode_schema().unwrap();
    let types: Vec<String> = announced.fields().iter().map(|field| field.data_type().to_string()).collect();
    assert_eq!(types, ["Int64", "Utf8", "Utf8", "Timestamp(µs, \"UTC\")"]);
    let rows = fetch(&mut client, info.clone()).await.unwrap();
    assert_eq!(rows[0].schema().as_ref(), &announced);
    assert_eq!(
        show(&rows),
        [
            "1|a text that is longer than a view|x|2024-05-01T10:00:00.123456Z",
            "NULL|NULL|NULL|NULL",
            "-1|é|x|1970-01-01T00:00:00Z"
        ]
    );
    // a ticket of a query may be used again
    assert_eq!(fetch(&mut client, info).await.unwrap(), rows);
    assert_eq!(
        query(&mut client, "SELECT rows 2500").await.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(),
        2_500
    );
    let none = query(&mut client, "SELECT rows 0").await.unwrap();
    assert!(none.iter().all(|batch| batch.num_rows() == 0));
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_and_the_text_of_the_database() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let failed = query(&mut client, "SELECT missing").await;
    assert_refused(failed, Code::NotFound, "there is no table `missing`. Did you mean `rows`?");
    assert_refused(query(&mut client, "SELECT x").await, Code::InvalidArgument, "line 1, column 8");
    assert_refused(query(&mut client, " \n").await, Code::InvalidArgument, "expected SQL");
    assert_refused(query(&mut client, "SELECT echo int8").await, Code::InvalidArgument, "has 1 parameters");
    // after the first rows
    assert_refused(query(&mut client, "SELECT fail 10").await, Code::ResourceExhausted, "more memory");
    let transaction = client.execute("SELECT rows 1".to_owned(), Some("t".into())).await;
    assert_refused(transaction, Code::Unimplemented, "there are no transactions");
    assert_refused(query(&mut client, "SELECT panic").await, Code::Internal, "defect");
    assert_eq!(show(&query(&mut client, "SELECT rows 1").await.unwrap()), ["0|row 0"]);
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_once_for_a_ticket() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.execute_update("DELETE 7".to_owned(), None).await.unwrap(), 7);
    let info = client.execute("DELETE 3".to_owned(), None).await.unwrap();
    assert!(info.schema.is_empty() && server.changes.load(Ordering::SeqCst) == 1);
    assert_eq!(show(&fetch(&mut client, info.clone()).await.unwrap()), ["3"]);
    assert_refused(fetch(&mut client, info).await, Code::Aborted, "has been made");
    assert_eq!(server.changes.load(Ordering::SeqCst), 2);
    let wrong = client.execute_update("SELECT rows 1".to_owned(), None).await;
    assert_refused(wrong, Code::InvalidArgument, "expected INSERT, DELETE or UPDATE");
}

async fn cancel(client: &mut Client, info: &FlightInfo) -> CancelStatus {
    let request = CancelFlightInfoRequest { info: Some(info.clone()) };
    let action = Action::new("CancelFlightInfo", request.encode_to_vec());
    let result = client.do_action(action).await.unwrap().next().await.unwrap().unwrap();
    CancelFlightInfoResult::decode(result.body).unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_runs_is_cancelled_by_its_flight() {
    let server = Server::start().await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    let info = client.execute("SELECT wait".to_owned(), None).await.unwrap();
    assert_eq!(cancel(&mut other, &info).await, CancelStatus::NotCancellable);
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    assert_eq!(rows.next().await.unwrap().unwrap().num_rows(), 1);
    assert_eq!(cancel(&mut other, &info).await, CancelStatus::Cancelled);
    assert_refused(rows.next().await.unwrap(), Code::Cancelled, "cancelled by its client");
    server.all_ended().await;
    // the older action
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    rows.next().await.unwrap().unwrap();
    let request = arrow_flight::sql::ActionCancelQueryRequest { info: info.encode_to_vec().into() };
    let action = Action::new("CancelQuery", request.as_any().encode_to_vec());
    let result = other.do_action(action).await.unwrap().next().await.unwrap().unwrap();
    let any = Any::decode(result.body).unwrap();
    let result: arrow_flight::sql::ActionCancelQueryResult = any.unpack().unwrap().unwrap();
    assert_eq!(result.result, CancelStatus::Cancelled as i32);
    assert_eq!(refused(rows.next().await.unwrap()).code(), Code::Cancelled);
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_its_statement() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let info = client.execute("SELECT wait".to_owned(), None).await.unwrap();
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    rows.next().await.unwrap().unwrap();
    drop(rows);
    server.all_ended().await;
    // with its connection
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    rows.next().await.unwrap().unwrap();
    drop((rows, client));
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_rows_loses_its_statement_and_hears_so() {
    let options = FlightOptions { transfer_timeout: Duration::from_millis(100), ..FlightOptions::default() };
    let server = Server::with(options).await;
    let mut client = server.client().await;
    let info = client.execute("SELECT wide 60000".to_owned(), None).await.unwrap();
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    server.all_ended().await;
    // what is on its way comes, and then the error instead of an end
    let last = loop {
        match rows.next().await.expect("no end without an error") {
            Ok(_) => {}
            failed => break failed,
        }
    };
    assert_refused(last, Code::DeadlineExceeded, "has taken no rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_and_polls_are_answered_at_once() {
    let server = Server::start().await;
    let mut client = FlightServiceClient::new(server.channel().await);
    let command = CommandStatementQuery { query: "SELECT rows 1".to_owned(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    let schema = client.get_schema(descriptor.clone()).await.unwrap().into_inner();
    let schema = Schema::try_from(IpcMessage(schema.schema)).unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
    let polled = client.poll_flight_info(descriptor.clone()).await.unwrap().into_inner();
    assert!(polled.flight_descriptor.is_none() && polled.info.unwrap().flight_descriptor == Some(descriptor));
    let path =
        client.get_flight_info(FlightDescriptor::new_path(vec!["Readings".to_owned()])).await.unwrap_err();
    assert!(path.code() == Code::Unimplemented && path.message().contains("SELECT * FROM events"), "{path}");
    let listed = client.list_flights(arrow_flight::Criteria::default()).await.unwrap_err();
    assert!(listed.message().contains("CommandGetTables"), "{listed}");
    let actions: Vec<_> =
        client.list_actions(arrow_flight::Empty {}).await.unwrap().into_inner().collect().await;
    assert_eq!(actions.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_of_influxdb_are_queries() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.set_header("database", "any");
    let ticket = |text: &str| Ticket::new(text.to_owned());
    let sql = r#"{"database": "any", "sql_query": "SELECT rows 2", "query_type": "sql"}"#;
    let rows: Vec<_> = client.do_get(ticket(sql)).await.unwrap().map(Result::unwrap).collect().await;
    assert_eq!(show(&rows), ["0|row 0", "1|row 1"]);
    let influxql = r#"{"database": "any", "sql_query": "SHOW MEASUREMENTS", "query_type": "influxql"}"#;
    assert_refused(client.do_get(ticket(influxql)).await, Code::Unimplemented, "InfluxQL");
    let parameters = r#"{"sql_query": "SELECT echo int8", "query_type": "sql"}"#;
    assert_refused(client.do_get(ticket(parameters)).await, Code::InvalidArgument, "1 parameters");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_runs_and_refuses_the_rest() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let info = client.execute("SELECT wide 60000".to_owned(), None).await.unwrap();
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let first = rows.next().await.unwrap().unwrap().num_rows();
    let stopped = tokio::spawn(server.shutdown(Duration::from_secs(30)));
    let rest: usize =
        rows.map(|batch| batch.unwrap().num_rows()).fold(0, |sum, n| async move { sum + n }).await;
    assert_eq!((first + rest, stopped.await.unwrap()), (60_000, 0));
    assert!(query(&mut client, "SELECT rows 1").await.is_err());
}
