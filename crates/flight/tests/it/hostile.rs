//! Clients that send what is wrong, too much, or too slowly.

use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandPreparedStatementQuery, CommandStatementQuery, CommandStatementSubstraitPlan, ProstMessageExt,
    TicketStatementQuery,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, Ticket};
use futures::{StreamExt, stream};
use prost::Message;
use tidemill_flight::FlightOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use crate::fixture::{Server, query, show};

#[tokio::test(flavor = "multi_thread")]
async fn bad_commands_tickets_and_actions_are_refused_with_what_was_expected() {
    let server = Server::start().await;
    let mut client = FlightServiceClient::new(server.channel().await);
    let query = CommandStatementQuery { query: "SELECT rows 1".to_owned(), transaction_id: None };
    let substrait = CommandStatementSubstraitPlan::default().as_any().encode_to_vec();
    let handle =
        CommandPreparedStatementQuery { prepared_statement_handle: "none".into() }.as_any().encode_to_vec();
    let ticket = TicketStatementQuery { statement_handle: "none".into() }.as_any().encode_to_vec();
    for (command, code, part) in [
        (b"\xff\xff".to_vec(), Code::InvalidArgument, "google.protobuf.Any"),
        (vec![], Code::Unimplemented, "is not one of Flight SQL"),
        (substrait, Code::Unimplemented, "Substrait"),
        (handle, Code::NotFound, "no such prepared statement"),
        (ticket.clone(), Code::InvalidArgument, "returns no rows"),
    ] {
        let refused = client.get_flight_info(FlightDescriptor::new_cmd(command)).await.unwrap_err();
        assert!(refused.code() == code && refused.message().contains(part), "{refused}");
    }
    for (bytes, part) in [
        (b"".to_vec(), "is not one of Flight SQL"),
        (b"\x0a".to_vec(), "google.protobuf.Any"),
        (ticket, "not one of this server"),
        (query.as_any().encode_to_vec(), "is not a ticket"),
        (b"{}".to_vec(), "sql_query"),
    ] {
        let refused = client.do_get(Ticket::new(bytes)).await.unwrap_err();
        assert!(refused.message().contains(part), "{refused}");
    }
    for (name, body, code, part) in [
        ("Nothing", "", Code::Unimplemented, "expected one of CreatePreparedStatement"),
        ("CreatePreparedStatement", "\u{7f}", Code::InvalidArgument, "ActionCreatePreparedStatementRequest"),
        ("CancelFlightInfo", "", Code::InvalidArgument, "no FlightInfo"),
        ("CancelFlightInfo", "\u{7f}", Code::InvalidArgument, "CancelFlightInfoRequest"),
        ("BeginTransaction", "", Code::Unimplemented, "no transactions"),
    ] {
        let refused = client.do_action(Action::new(name, body.to_owned())).await.unwrap_err();
        assert!(refused.code() == code && refused.message().contains(part), "{name}: {refused}");
    }
    let exchange = client.do_exchange(stream::iter([FlightData::default()])).await.unwrap_err();
    assert!(exchange.message().contains("DoGet"), "{exchange}");
    for (message, part) in [
        (None, "no message"),
        (Some(FlightData::default()), "no descriptor"),
        (Some(FlightData::new().with_descriptor(FlightDescriptor::new_cmd("x"))), "google.protobuf.Any"),
        (
            Some(
                FlightData::new().with_descriptor(FlightDescriptor::new_cmd(query.as_any().encode_to_vec())),
            ),
            "not a command of DoPut",
        ),
    ] {
        let refused = client.do_put(stream::iter(message)).await.unwrap_err();
        assert!(refused.message().contains(part), "{refused}");
    }
    let path = FlightDescriptor::new_path(vec!["Readings".to_owned()]);
    let message = FlightData::new().with_descriptor(path).with_data_header("x").with_data_body("y");
    let mut replies = client.do_put(stream::iter([message])).await.unwrap().into_inner();
    let refused = replies.next().await.unwrap().unwrap_err();
    assert!(refused.message().contains("message 0 is not one of Arrow IPC"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_options_are_the_catalog() {
    let server = Server::start().await;
    let mut client = FlightServiceClient::new(server.channel().await);
    let mut act = async |name: &str, body: &[u8]| {
        let reply = client.do_action(Action::new(name, body.to_vec())).await;
        reply.unwrap().into_inner().next().await.unwrap().unwrap().body
    };
    // a map of one text in each of these
    let option = |name: &str, value: &str| {
        let value = [&[0x0a, value.len() as u8], value.as_bytes()].concat();
        let entry = [&[0x0a, name.len() as u8], name.as_bytes(), &[0x12, value.len() as u8], &value].concat();
        [&[0x0a, entry.len() as u8], &entry[..]].concat()
    };
    let catalog = option("catalog", "tidemill");
    assert_eq!(act("GetSessionOptions", b"").await, catalog);
    assert_eq!(act("SetSessionOptions", &catalog).await, "");
    let error = |name: &str, kind: u8| {
        let entry = [&[0x0a, name.len() as u8], name.as_bytes(), &[0x12, 2, 8, kind]].concat();
        [&[0x0a, entry.len() as u8], &entry[..]].concat()
    };
    assert_eq!(act("SetSessionOptions", &option("catalog", "other")).await, error("catalog", 2));
    assert_eq!(act("SetSessionOptions", &option("nothing", "x")).await, error("nothing", 1));
    // there was no handshake
    assert_eq!(act("CloseSession", b"").await, [8, 3][..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_grpc_is_refused() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut reply = vec![];
    // the connection is closed
    let _ = stream.read_to_end(&mut reply).await;
    let mut client = server.client().await;
    assert_eq!(show(&query(&mut client, "SELECT rows 1").await.unwrap()), ["0|row 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_calls_have_limits() {
    let options = FlightOptions { message_bytes_max: 100_000, calls_max: 2, ..FlightOptions::default() };
    let server = Server::with(options).await;
    let mut client = server.client().await;
    let long = query(&mut client, &"x".repeat(100_001)).await;
    crate::fixture::assert_refused(long, Code::ResourceExhausted, "at most 100000");
    let info = client.execute("SELECT wait".to_owned(), None).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let (first, second) =
        (client.do_get(ticket.clone()).await.unwrap(), client.do_get(ticket).await.unwrap());
    let third = query(&mut client, "SELECT rows 1").await;
    crate::fixture::assert_refused(third, Code::ResourceExhausted, "2 calls are under way");
    drop((first, second));
    while query(&mut client, "SELECT rows 1").await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_in_a_message_is_given_up() {
    let options = FlightOptions {
        transfer_timeout: Duration::from_millis(50),
        idle_timeout: Duration::from_millis(50),
        ..FlightOptions::default()
    };
    let server = Server::with(options).await;
    let mut client = FlightServiceClient::new(server.channel().await);
    let late = client.do_put(stream::pending()).await.unwrap_err();
    assert!(late.code() == Code::DeadlineExceeded && late.message().contains("nothing for 50ms"), "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_headers_and_calls_that_are_given_up_end_no_other_call() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.set_header("x-long", "x".repeat(20 << 10));
    assert!(query(&mut client, "SELECT rows 1").await.is_err());
    // a hundred calls at once, given up before their answer
    let channel = server.channel().await;
    let mut client = FlightSqlServiceClient::new(channel.clone());
    let info = client.execute("SELECT wait".to_owned(), None).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    for _ in 0..100 {
        let mut other = FlightSqlServiceClient::new(channel.clone());
        let ticket = ticket.clone();
        let call = tokio::spawn(async move { other.do_get(ticket).await.map(drop) });
        tokio::task::yield_now().await;
        call.abort();
    }
    assert_eq!(show(&query(&mut client, "SELECT rows 1").await.unwrap()), ["0|row 0"]);
    server.all_ended().await;
}
