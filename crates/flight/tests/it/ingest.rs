//! Events that clients send.

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::{
    CommandStatementIngest, DoPutUpdateResult, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{FlightData, FlightDescriptor};
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tidemill_flight::FlightOptions;
use tonic::Code;

use crate::fixture::{Client, Server, assert_refused, numbers};
use crate::login::{TOKEN, access};

fn append(table: &str) -> CommandStatementIngest {
    CommandStatementIngest {
        table: table.to_owned(),
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Fail as i32,
            if_exists: TableExistsOption::Append as i32,
        }),
        ..CommandStatementIngest::default()
    }
}

async fn messages(path: &str, batches: Vec<RecordBatch>) -> Vec<FlightData> {
    let descriptor = FlightDescriptor::new_path(path.split('/').map(str::to_owned).collect());
    let encoder = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(descriptor));
    encoder.build(stream::iter(batches.into_iter().map(Ok))).try_collect().await.unwrap()
}

/// Puts batches to a path. Returns the numbers of events that the replies tell.
async fn put(
    client: &mut Client,
    path: &str,
    batches: Vec<RecordBatch>,
) -> Result<Vec<i64>, arrow_flight::error::FlightError> {
    let messages = messages(path, batches).await;
    let replies = client.do_put(stream::iter(messages)).await?;
    let count =
        |reply: arrow_flight::PutResult| DoPutUpdateResult::decode(reply.app_metadata).unwrap().record_count;
    replies.map_ok(count).map_err(Into::into).try_collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_sent_by_the_ingest_command() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let batches = stream::iter([Ok(numbers(0, 10)), Ok(numbers(10, 11))]);
    assert_eq!(client.execute_ingest(append("Readings"), batches).await.unwrap(), 11);
    assert_eq!(server.sent.lock().concat(), (0..11).collect::<Vec<i64>>());
    let batches = stream::iter([Ok(numbers(0, 1))]);
    let missing = client.execute_ingest(append("Others"), batches).await;
    assert_refused(missing, Code::NotFound, "there is no stream `Others`");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_streams_do_not_have_are_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let with_option = |if_exists: TableExistsOption| {
        let options = TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Create as i32,
            if_exists: if_exists as i32,
        };
        CommandStatementIngest { table_definition_options: Some(options), ..append("Readings") }
    };
    for (command, part) in [
        (with_option(TableExistsOption::Replace), "TABLE_EXISTS_OPTION_REPLACE"),
        (with_option(TableExistsOption::Fail), "mode=\"append\""),
        (CommandStatementIngest { table_definition_options: None, ..append("Readings") }, "UNSPECIFIED"),
        (CommandStatementIngest { temporary: true, ..append("Readings") }, "temporary"),
        (CommandStatementIngest { transaction_id: Some("t".into()), ..append("Readings") }, "transactions"),
        (CommandStatementIngest { schema: Some("docs".to_owned()), ..append("Readings") }, "schema `events`"),
        (
            CommandStatementIngest { catalog: Some("other".to_owned()), ..append("Readings") },
            "catalog `other`",
        ),
        (
            CommandStatementIngest {
                options: [("a".to_owned(), "b".to_owned())].into(),
                ..append("Readings")
            },
            "option `a`",
        ),
    ] {
        let refused = client.execute_ingest(command, stream::iter([Ok(numbers(0, 1))])).await;
        assert_refused(refused, Code::Unimplemented, part);
    }
    assert!(server.sent.lock().is_empty());
    let accepted = CommandStatementIngest {
        schema: Some("events".to_owned()),
        catalog: Some("tidemill".to_owned()),
        ..with_option(TableExistsOption::Append)
    };
    assert_eq!(client.execute_ingest(accepted, stream::iter([Ok(numbers(0, 2))])).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_names_a_stream_and_each_part_is_acknowledged() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let told = put(&mut client, "Readings", vec![numbers(0, 5), numbers(5, 7)]).await.unwrap();
    assert!(told.is_sorted() && told.last() == Some(&7), "{told:?}");
    let large: Vec<RecordBatch> = (0..20).map(|at| numbers(at * 20_000, (at + 1) * 20_000)).collect();
    let told = put(&mut client, "Readings", large).await.unwrap();
    assert!(told.len() > 1 && told.last() == Some(&400_000), "{told:?}");
    assert_eq!(server.sent.lock().concat().len(), 400_007);
    // a schema without batches
    let messages = messages("Readings", vec![numbers(0, 1)]).await;
    let mut replies = client.do_put(stream::iter(messages[..1].to_vec())).await.unwrap();
    let only = DoPutUpdateResult::decode(replies.next().await.unwrap().unwrap().app_metadata).unwrap();
    assert_eq!(only.record_count, 0);
    assert_refused(
        put(&mut client, "events/Readings", vec![numbers(0, 1)]).await,
        Code::InvalidArgument,
        "2 parts",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_comes_while_the_client_sends() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    let mut sent = messages("Readings", vec![numbers(0, 3), numbers(3, 9)]).await.into_iter();
    for message in sent.by_ref().take(2) {
        sender.unbounded_send(message).unwrap();
    }
    let mut replies = client.do_put(receiver).await.unwrap();
    let count =
        |reply: arrow_flight::PutResult| DoPutUpdateResult::decode(reply.app_metadata).unwrap().record_count;
    assert_eq!(count(replies.next().await.unwrap().unwrap()), 3);
    sent.for_each(|message| sender.unbounded_send(message).unwrap());
    assert_eq!(count(replies.next().await.unwrap().unwrap()), 9);
    drop(sender);
    assert!(replies.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_rows_are_an_error_that_says_what_was_accepted() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let batches = stream::iter([Ok(numbers(-2, 3))]);
    let rejected = client.execute_ingest(append("Readings"), batches).await;
    assert_refused(
        rejected,
        Code::InvalidArgument,
        "2 of the last 5 rows were rejected, and are in system.rejected; 3 events were accepted. row 0: -2 is negative; row 1:",
    );
    assert_eq!(server.sent.lock().concat(), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_to_write_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (access, token) = access(&dir, &["read"]);
    let options =
        FlightOptions { token: Some(TOKEN.to_owned()), access: Some(access), ..FlightOptions::default() };
    let server = Server::with(options).await;
    let mut client = server.client().await;
    client.set_token(token);
    for stream in ["Readings", "Others"] {
        let refused = put(&mut client, stream, vec![numbers(0, 1)]).await;
        assert_refused(
            refused,
            Code::PermissionDenied,
            &format!("tidemill users grant ana write stream:{stream}"),
        );
    }
    assert!(server.sent.lock().is_empty());
}
