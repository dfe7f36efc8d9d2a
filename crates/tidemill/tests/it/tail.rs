//! `SELECT … FROM tail('stream')` over the wires: new rows as they are stored, until somebody ends the statement.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::pin::Pin;

use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::{StreamExt, TryStreamExt};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage, SimpleQueryRow};
use tonic::transport::Endpoint;

use crate::postgres::{World, refused};
use crate::{interrupt, run};

/// Rows of a statement of the simple protocol, as they come.
struct Rows(Pin<Box<tokio_postgres::SimpleQueryStream>>);

impl Rows {
    /// Starts a statement, and waits until it has begun: the columns come before the first row.
    async fn start(client: &Client, text: &str) -> Self {
        let mut rows = Self(Box::pin(client.simple_query_raw(text).await.unwrap()));
        match rows.0.next().await {
            Some(Ok(SimpleQueryMessage::RowDescription(_))) => rows,
            Some(Err(error)) => panic!("{text}: {error:?}"),
            _ => panic!("{text}: expected columns"),
        }
    }

    /// Waits for the next row; `None` at the end.
    async fn next(&mut self) -> Result<Option<SimpleQueryRow>, Error> {
        match self.0.next().await {
            Some(Ok(SimpleQueryMessage::Row(row))) => Ok(Some(row)),
            Some(Ok(_)) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    /// Waits for rows. Returns their values.
    async fn take(&mut self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            let row = self.next().await.unwrap().expect("the rows have no end");
            let values = (0..row.len()).map(|at| row.get(at).unwrap_or("null"));
            found.push(values.collect::<Vec<_>>().join("|"));
        }
        found
    }

    /// Takes rows until the statement ends with an error.
    async fn failure(&mut self) -> Error {
        loop {
            match self.next().await {
                Ok(row) => assert!(row.is_some(), "the statement has ended without an error"),
                Err(error) => return error,
            }
        }
    }
}

/// Stores events.
fn send(world: &World, rows: &str) {
    let url = format!("{}/api/v1/streams/Reading?wait=true", world.serving.base);
    let request = ureq::post(url).header("authorization", format!("Bearer {}", world.serving.token));
    let mut reply = request.header("content-type", "application/x-ndjson").send(rows).unwrap();
    let body = reply.body_mut().read_to_string().unwrap();
    assert!(body.contains("\"rejected\":[]"), "{body}");
}

fn reading(id: &str, speed: f64) -> String {
    format!("{{\"id\":\"{id}\",\"device\":\"d\",\"speed\":{speed}}}\n")
}

#[test]
fn new_rows_are_filtered_and_projected_until_they_are_cancelled() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        let text = "SELECT upper(id) AS id, speed * 2 AS twice FROM tail('Reading') WHERE speed > 1";
        let mut rows = Rows::start(&client, text).await;
        send(&world, &(reading("e", 0.5) + &reading("f", 2.0)));
        assert_eq!(rows.take(1).await, ["F|4"]);
        send(&world, &(reading("g", 3.0) + &reading("f", 2.0) + &reading("h", 4.5)));
        let mut found = rows.take(2).await;
        found.sort();
        assert_eq!(found, ["G|6", "H|9"]);
        let listed = "SELECT caller, phase, rows FROM system.statements WHERE statement LIKE '%twice%' AND statement NOT LIKE '%system%'";
        let other = world.client("admin", &world.serving.token).await.unwrap();
        let row = other.query_one(listed, &[]).await.unwrap();
        assert_eq!((row.get(0), row.get(1), row.get(2)), ("admin", "running", 3_i64));
        client.cancel_token().cancel_query(NoTls).await.unwrap();
        assert_eq!(rows.failure().await.code(), Some(&SqlState::QUERY_CANCELED));
        drop(rows);
        // the connection is as before, and the statement has ended
        client.simple_query("SET statement_timeout = '50ms'").await.unwrap();
        let error = client.query("SELECT id FROM tail('Reading')", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
        client.simple_query("RESET statement_timeout").await.unwrap();
    });
    // a client that leaves ends its statement; its connection ends with the runtime
    let leaving = tokio::runtime::Runtime::new().unwrap();
    let rows = leaving.block_on(async {
        let client = world.client("admin", &world.serving.token).await.unwrap();
        Rows::start(&client, "SELECT id AS left FROM tail('Reading')").await
    });
    drop(rows);
    leaving.shutdown_background();
    world.runtime.block_on(async {
        let running = "SELECT count(*) FROM system.statements WHERE ended IS NULL AND statement LIKE '%tail(%' AND statement NOT LIKE '%system%'";
        while client.query_one(running, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn rows_behind_a_position_come_first_and_a_limit_ends_them() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        let ids = async |text: &str| {
            let rows = client.query(text, &[]).await.unwrap_or_else(|e| panic!("{text}: {e:?}"));
            let mut ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids("SELECT id FROM tail('Reading', 'start') LIMIT 3").await, ["a", "b", "c"]);
        assert_eq!(ids("SELECT id FROM tail('events.Reading', 'start') OFFSET 1 LIMIT 2").await.len(), 2);
        assert_eq!(ids("SELECT id FROM (SELECT id, lanes FROM tail('Reading', 'start') LIMIT 3) t WHERE lanes = 2").await, ["a"]);
        assert!(ids("SELECT id FROM tail('Reading') LIMIT 0").await.is_empty());
        // with values: the limit and the condition
        let text = "SELECT id FROM tail('Reading', 'start') WHERE lanes = $1 LIMIT 1";
        let row = client.query_one(text, &[&-7_i32]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "c");
        // behind each row are the others of its partition, and all of the partitions that the position does not name
        let places = "SELECT _partition || '-' || _offset || '-' || _row, id FROM \"Reading\" ORDER BY _partition, _offset, _row";
        let places = client.query(places, &[]).await.unwrap();
        let all: Vec<String> = places.iter().map(|row| row.get(0)).collect();
        let positions = all.join(",");
        let mut rows = Rows::start(&client, &format!("SELECT id FROM tail('Reading', '{positions}')")).await;
        send(&world, &reading("e", 1.0));
        assert_eq!(rows.take(1).await, ["e"]);
        client.cancel_token().cancel_query(NoTls).await.unwrap();
        rows.failure().await;
        drop(rows);
        let last: &str = places.last().unwrap().get(1);
        let but_last = all[..all.len() - 1].join(",");
        let text = format!("SELECT id FROM tail('Reading', '{but_last}') WHERE id <> 'e' LIMIT 1");
        assert_eq!(ids(&text).await, [last]);
    });
}

#[test]
fn clients_that_want_some_rows_get_those_that_are_there() {
    let world = World::new();
    let mut client = world.admin();
    world.runtime.block_on(async {
        let transaction = client.transaction().await.unwrap();
        let statement = transaction.prepare("SELECT id FROM tail('Reading', 'start')").await.unwrap();
        let portal = transaction.bind(&statement, &[]).await.unwrap();
        let mut found: Vec<String> = Vec::new();
        while found.len() < 3 {
            let rows = transaction.query_portal(&portal, 100).await.unwrap();
            assert!(!rows.is_empty(), "a portal without an end has waited for a row");
            found.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        }
        found.sort();
        assert_eq!(found, ["a", "b", "c"]);
        send(&world, &reading("e", 1.0));
        let rows = transaction.query_portal(&portal, 100).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["e"]);
        transaction.simple_query("DECLARE c CURSOR FOR SELECT id FROM tail('Reading')").await.unwrap();
        send(&world, &reading("f", 1.0));
        let fetched = transaction.query("FETCH 100 FROM c", &[]).await.unwrap();
        assert_eq!(fetched.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["f"]);
        send(&world, &reading("g", 1.0));
        let moved = transaction.execute("MOVE 100 FROM c", &[]).await.unwrap();
        assert_eq!(moved, 1);
        send(&world, &reading("h", 1.0));
        let fetched = transaction.query("FETCH FROM c", &[]).await.unwrap();
        assert_eq!(fetched[0].get::<_, &str>(0), "h");
        transaction.simple_query("CLOSE c").await.unwrap();
        transaction.commit().await.unwrap();
        // rows of a copy come as they are stored, too
        let mut copied =
            Box::pin(client.copy_out("COPY (SELECT id FROM tail('Reading')) TO STDOUT").await.unwrap());
        send(&world, &reading("i", 1.0));
        assert_eq!(copied.next().await.unwrap().unwrap(), "i\n");
    });
}

#[test]
fn a_slow_client_gets_every_row_once_and_in_order() {
    let world = World::new();
    let (slow, other) = (world.admin(), world.admin());
    world.runtime.block_on(async {
        let text = "SELECT _partition, _offset, _row, id, device FROM tail('Reading') WHERE id LIKE 'n%'";
        let mut rows = Rows::start(&slow, text).await;
        // more requests than batches that wait, and more bytes than sockets hold
        let (requests, rows_of_request) = (150, 100);
        let device = "d".repeat(2_000);
        for request in 0..requests {
            let row = |n| format!("{{\"id\":\"n{request}-{n}\",\"device\":\"{device}\"}}\n");
            send(&world, &(0..rows_of_request).map(row).collect::<String>());
        }
        let mut last: BTreeMap<String, (i64, i32)> = BTreeMap::new();
        let mut ids = std::collections::HashSet::new();
        while ids.len() < requests * rows_of_request {
            let row = rows.next().await.unwrap().expect("the rows have no end");
            let at = (row.get(1).unwrap().parse().unwrap(), row.get(2).unwrap().parse().unwrap());
            let before = last.insert(row.get(0).unwrap().to_owned(), at);
            assert!(before.is_none_or(|before| before < at), "{before:?} {at:?}");
            assert!(ids.insert(row.get(3).unwrap().to_owned()), "{:?} came twice", row.get(3));
        }
        // what comes now is new
        send(&world, "{\"id\":\"next\",\"device\":\"d\"}\n");
        assert_eq!(rows.next().await.unwrap().unwrap().get(3), Some("next"));
        // rows that were left out were read from the table
        let read = "SELECT count(*) FROM system.statements WHERE statement LIKE 'SELECT * FROM events.\"Reading\" WHERE _partition%'";
        assert!(other.query_one(read, &[]).await.unwrap().get::<_, i64>(0) > 0, "no row was left out");
    });
}

#[test]
fn rights_that_are_revoked_and_a_stop_end_it() {
    let world = World::new();
    let data = world.data();
    let add = ["users", "add", "ana", "--grant", "read stream:Reading", "--data", &data];
    let output = crate::tidemill(&add).env("TIDEMILL_PASSWORD", "of ana 123").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    world.runtime.block_on(async {
        // the server looks at the file of users once a second
        let ana = loop {
            match world.client("ana", "of ana 123").await {
                Ok(ana) => break ana,
                Err(error) => assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD)),
            }
        };
        let error = ana.simple_query("SELECT * FROM tail('Readings')").await.unwrap_err();
        assert_eq!(refused(&error).code(), &SqlState::UNDEFINED_TABLE, "{error:?}");
        let mut rows = Rows::start(&ana, "SELECT id FROM tail('Reading')").await;
        send(&world, &reading("e", 1.0));
        assert_eq!(rows.take(1).await, ["e"]);
        run(&["users", "revoke", "ana", "read", "stream:Reading", "--data", &data], 0);
        let error = rows.failure().await;
        assert_eq!(refused(&error).code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{error:?}");
        let admin = world.client("admin", &world.serving.token).await.unwrap();
        let mut rows = Rows::start(&admin, "SELECT id FROM tail('Reading')").await;
        interrupt(world.serving.pid());
        let error = rows.failure().await;
        assert!(refused(&error).message().contains("the server stops"), "{error:?}");
    });
}

#[test]
fn it_is_refused_where_something_waits_for_the_end() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        for (text, code, part) in [
            ("SELECT count(*) FROM tail('Reading')", SqlState::FEATURE_NOT_SUPPORTED, "without an end"),
            ("SELECT * FROM tail('Readings')", SqlState::UNDEFINED_TABLE, "Did you mean"),
            (
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM tail('Reading')",
                SqlState::FEATURE_NOT_SUPPORTED,
                "REPEATABLE READ",
            ),
        ] {
            let error = client.simple_query(text).await.unwrap_err();
            let error = refused(&error);
            assert!(error.message().contains(part), "{text}: {error:?}");
            assert_eq!(error.code(), &code, "{text}: {error:?}");
            client.simple_query("ROLLBACK").await.unwrap();
        }
    });
}

#[test]
fn http_and_flight_have_it_too() {
    let world = World::new();
    let bearer = format!("Bearer {}", world.serving.token);
    let agent =
        ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let ask = |form: &str, text: &str| {
        let url = format!("{}/api/v1/sql?{form}", world.serving.base);
        agent
            .post(url)
            .header("authorization", &bearer)
            .header("content-type", "text/plain")
            .send(text)
            .unwrap()
    };
    let text = "SELECT id, speed FROM tail('Reading') WHERE speed > 1";
    // the head comes before the first row
    let mut reply = ask("format=ndjson", text);
    assert_eq!(reply.status(), 200);
    send(&world, &reading("e", 2.0));
    let mut lines = BufReader::new(reply.body_mut().as_reader()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "{\"id\":\"e\",\"speed\":2.0}");
    send(&world, &(reading("f", 0.0) + &reading("g", 3.0)));
    assert_eq!(lines.next().unwrap().unwrap(), "{\"id\":\"g\",\"speed\":3.0}");
    let mut ended = ask("format=csv", "SELECT id FROM tail('Reading', 'start') LIMIT 2");
    assert_eq!(ended.body_mut().read_to_string().unwrap().lines().count(), 3);
    for (form, part) in [
        ("format=table", "is written at the end"),
        ("format=parquet", "at the end"),
        ("page_rows=2", "no pages"),
    ] {
        let mut refused = ask(form, text);
        let body = refused.body_mut().read_to_string().unwrap();
        assert!(refused.status() == 400 && body.contains(part), "{form}: {body}");
    }
    world.runtime.block_on(async {
        let endpoint = Endpoint::new(world.serving.base.clone()).unwrap();
        let mut client = FlightSqlServiceClient::new(endpoint.connect().await.unwrap());
        client.set_token(world.serving.token.clone());
        let info = client.execute(text.to_owned(), None).await.unwrap();
        let mut batches = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        // until the statement has begun, rows are not new
        let base = world.serving.base.clone();
        let (bearer, agent) = (bearer.clone(), agent.clone());
        let sender = tokio::task::spawn_blocking(move || {
            for n in 0..1_000 {
                let url = format!("{base}/api/v1/streams/Reading?wait=true");
                let row = reading(&format!("s{n}"), 9.0);
                let request = agent.post(url).header("authorization", &bearer);
                request.header("content-type", "application/x-ndjson").send(&row).unwrap();
            }
        });
        let batch = batches.next().await.unwrap().unwrap();
        assert!(crate::flight::show(&[batch])[0].starts_with('s'));
        drop(batches);
        sender.await.unwrap();
        let info =
            client.execute("SELECT id FROM tail('Reading', 'start') LIMIT 2".to_owned(), None).await.unwrap();
        let all: Vec<_> = client
            .do_get(info.endpoint[0].ticket.clone().unwrap())
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert_eq!(crate::flight::show(&all).len(), 2);
    });
}
