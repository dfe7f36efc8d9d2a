//! Events that are written by SQL: over PostgreSQL's protocol, HTTP and Flight SQL.

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_flight::sql::client::FlightSqlServiceClient;
use bytes::{BufMut, BytesMut};
use futures::SinkExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::SystemTime;
use tokio_postgres::error::{ErrorPosition, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};
use tonic::transport::Endpoint;

use crate::postgres::{World, refused};
use crate::tidemill;

async fn ids(client: &Client, condition: &str) -> Vec<String> {
    let query = format!("SELECT id FROM events.\"Reading\" WHERE {condition} ORDER BY id");
    client.query(&query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Number of rows that a statement of one message has changed.
async fn changed(client: &Client, text: &str) -> u64 {
    let messages = client.simple_query(text).await.unwrap();
    match messages.last() {
        Some(SimpleQueryMessage::CommandComplete(count)) => *count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_driver_inserts_with_the_types_of_the_columns() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        let text = "INSERT INTO events.\"Reading\" (id, device, speed, lanes, at) VALUES ($1, $2, $3, $4 + 1, $5)";
        let statement = client.prepare(text).await.unwrap();
        assert_eq!(statement.params(), [Type::TEXT, Type::TEXT, Type::FLOAT8, Type::INT8, Type::TIMESTAMPTZ]);
        assert!(statement.columns().is_empty());
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_714_557_600_123);
        for (id, lanes) in [("n1", Some(1_i64)), ("n2", None)] {
            let count = client.execute(&statement, &[&id, &"dev", &2.5_f64, &lanes, &at]).await.unwrap();
            assert_eq!(count, 1);
        }
        // what was answered is there for the next statement
        let rows = client.query("SELECT lanes, at, speed FROM events.\"Reading\" WHERE device = 'dev' ORDER BY id", &[]).await.unwrap();
        assert_eq!((rows[0].get::<_, i32>(0), rows[0].get::<_, SystemTime>(1)), (2, at));
        assert_eq!((rows[1].get::<_, Option<i32>>(0), rows[1].get::<_, f64>(2)), (None, 2.5));
        // the address is that of the stored event, and the time that of the reader
        let text = "INSERT INTO \"Reading\" AS r (id, device, at) VALUES ('n3', 'd9', '2024-05-01T12:00:00Z'), ('n1', 'dev', NULL), ('n4', 'd8', '2024-05-02') RETURNING r.id, _partition, _offset, _row, _time";
        let returned = client.query(text, &[]).await.unwrap();
        assert_eq!(returned.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>(), ["n3", "n4"]);
        for row in &returned {
            let read = "SELECT id, _partition, _offset, _row, _time FROM events.\"Reading\" WHERE id = $1";
            let read = client.query_one(read, &[&row.get::<_, &str>(0)]).await.unwrap();
            let cells = |row: &tokio_postgres::Row| -> (String, i32, i64, i32, SystemTime) {
                (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))
            };
            assert_eq!(cells(row), cells(&read));
        }
        // events whose id was seen: dropped, and not counted if the statement asks
        assert_eq!(changed(&client, "INSERT INTO \"Reading\" (id, device) VALUES ('n1', 'dev'), ('n5', 'dev') ON CONFLICT (id) DO NOTHING").await, 1);
        assert_eq!(changed(&client, "INSERT INTO \"Reading\" (id, device) VALUES ('n1', 'dev'), ('n6', 'dev')").await, 2);
        let text = "INSERT INTO \"Reading\" (id, device, lanes) SELECT 'copy of ' || id, device, lanes + $1 FROM \"Reading\" WHERE id = ANY(ARRAY['n1', 'n3'])";
        let count = client.execute(text, &[&10_i32]).await.unwrap();
        assert_eq!(count, 2);
        assert_eq!(ids(&client, "id LIKE '%n_'").await, ["copy of n1", "copy of n3", "n1", "n2", "n3", "n4", "n5", "n6"]);
    });
}

#[test]
fn rows_that_do_not_fit_refuse_the_statement_or_are_kept() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        for (text, code, position) in [
            (
                "INSERT INTO \"Reading\" (id, lanes) VALUES ('x', 1), ('y', 'many')",
                SqlState::INVALID_TEXT_REPRESENTATION,
                Some(58),
            ),
            (
                "INSERT INTO \"Reading\" (id, lanes) VALUES ('x', 3000000000)",
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                Some(48),
            ),
            (
                "INSERT INTO \"Reading\" (id, at) VALUES ('x', 'soon')",
                SqlState::INVALID_DATETIME_FORMAT,
                Some(45),
            ),
            ("INSERT INTO \"Reading\" (id, lane) VALUES ('x', 1)", SqlState::UNDEFINED_COLUMN, Some(28)),
            ("INSERT INTO \"Reading\" (id, _offset) VALUES ('x', 1)", SqlState::GENERATED_ALWAYS, Some(28)),
            ("INSERT INTO \"Reading\" (id) VALUES ('x', 1)", SqlState::SYNTAX_ERROR, Some(41)),
            ("INSERT INTO \"Readings\" (id) VALUES ('x')", SqlState::UNDEFINED_TABLE, Some(13)),
            ("INSERT INTO system.statements (id) VALUES ('x')", SqlState::WRONG_OBJECT_TYPE, Some(13)),
            (
                "INSERT INTO \"Reading\" (id) VALUES ('x') ON CONFLICT (lanes) DO NOTHING",
                SqlState::INVALID_COLUMN_REFERENCE,
                Some(54),
            ),
            (
                "INSERT INTO \"Reading\" (id) VALUES ('x') ON CONFLICT (id) DO UPDATE SET lanes = 1",
                SqlState::FEATURE_NOT_SUPPORTED,
                None,
            ),
        ] {
            let error = client.simple_query(text).await.unwrap_err();
            let error = refused(&error);
            assert_eq!(error.code(), &code, "{text}: {error:?}");
            assert_eq!(error.position(), position.map(ErrorPosition::Original).as_ref(), "{text}: {error:?}");
        }
        assert!(ids(&client, "id IN ('x', 'y')").await.is_empty());
        client.simple_query("SET tidemill.bad_rows = 'keep'").await.unwrap();
        assert_eq!(
            changed(&client, "INSERT INTO \"Reading\" (id, lanes) VALUES ('x', 1), ('y', 'many')").await,
            1
        );
        let kept = "SELECT reason, raw, origin FROM system.rejected WHERE stream = 'Reading'";
        let kept = client.query_one(kept, &[]).await.unwrap();
        let reason = kept.get::<_, &str>(0);
        assert!(reason.contains("expected int") && reason.contains("\"many\""), "{reason}");
        let raw: Value = serde_json::from_str(kept.get(1)).unwrap();
        assert_eq!((raw, kept.get::<_, &str>(2)), (json!({"id": "y", "lanes": "many"}), "postgres:1"));
        assert_eq!(ids(&client, "id IN ('x', 'y')").await, ["x"]);
    });
}

#[test]
fn a_transaction_is_stored_as_a_whole_or_not_at_all() {
    let world = World::new();
    let (mut client, other) = (world.admin(), world.admin());
    world.runtime.block_on(async {
        let insert = "INSERT INTO \"Reading\" (id, device) VALUES ($1, 'tx')";
        let transaction = client.transaction().await.unwrap();
        for id in ["t1", "t2"] {
            assert_eq!(transaction.execute(insert, &[&id]).await.unwrap(), 1);
        }
        assert!(ids(&other, "device = 'tx'").await.is_empty());
        let sink = transaction.copy_in("COPY \"Reading\" (id, device) FROM STDIN").await.unwrap();
        futures::pin_mut!(sink);
        sink.send(bytes::Bytes::from_static(b"t3\ttx\nt4\ttx\n")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 2);
        transaction.commit().await.unwrap();
        assert_eq!(ids(&other, "device = 'tx'").await, ["t1", "t2", "t3", "t4"]);
        let transaction = client.transaction().await.unwrap();
        transaction.execute(insert, &[&"t5"]).await.unwrap();
        transaction.rollback().await.unwrap();
        let mut transaction = client.transaction().await.unwrap();
        transaction.execute(insert, &[&"t6"]).await.unwrap();
        let inner = transaction.savepoint("s").await.unwrap();
        inner.execute(insert, &[&"t7"]).await.unwrap();
        inner.rollback().await.unwrap();
        transaction.commit().await.unwrap();
        // one that has failed does not commit
        let transaction = client.transaction().await.unwrap();
        transaction.execute(insert, &[&"t8"]).await.unwrap();
        transaction
            .batch_execute("INSERT INTO \"Reading\" (id, lanes) VALUES ('t9', 'x')")
            .await
            .unwrap_err();
        transaction.commit().await.ok();
        assert_eq!(ids(&other, "device = 'tx'").await, ["t1", "t2", "t3", "t4", "t6"]);
    });
}

/// Rows of the binary format of `COPY`.
fn binary_rows(rows: std::ops::Range<i32>) -> BytesMut {
    let mut out = BytesMut::new();
    for row in rows {
        let id = format!("c{row:06}");
        out.put_i16(3);
        out.put_i32(id.len() as i32);
        out.put_slice(id.as_bytes());
        out.put_i32(4);
        out.put_i32(row);
        out.put_i32(8);
        out.put_f64(f64::from(row) / 2.0);
    }
    out
}

#[test]
fn copies_arrive_in_all_formats() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        // more rows than one record of the log has
        let sink = client
            .copy_in("COPY events.\"Reading\" (id, lanes, speed) FROM STDIN (FORMAT binary)")
            .await
            .unwrap();
        futures::pin_mut!(sink);
        sink.send(bytes::Bytes::from_static(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0")).await.unwrap();
        for start in (0..40_000).step_by(1_000) {
            sink.send(binary_rows(start..start + 1_000).freeze()).await.unwrap();
        }
        sink.send(bytes::Bytes::from_static(b"\xff\xff")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 40_000);
        let row = client
            .query_one(
                "SELECT count(*), sum(lanes), sum(speed) FROM \"Reading\" WHERE id LIKE 'c%' AND lanes >= 0",
                &[],
            )
            .await
            .unwrap();
        assert_eq!(
            (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, f64>(2)),
            (40_000, 799_980_000, 399_990_000.0)
        );
        // a row at the end that does not fit: nothing of all is stored
        let sink = client.copy_in("COPY \"Reading\" (id, lanes) FROM STDIN CSV").await.unwrap();
        futures::pin_mut!(sink);
        for row in 0..20_000 {
            sink.feed(bytes::Bytes::from(format!("v{row},{row}\n"))).await.unwrap();
        }
        sink.send(bytes::Bytes::from_static(b"last,x\n")).await.ok();
        let error = sink.finish().await.unwrap_err();
        let error = refused(&error);
        assert_eq!(error.code(), &SqlState::INVALID_TEXT_REPRESENTATION);
        assert_eq!(error.where_(), Some("COPY Reading, line 20001, column lanes"));
        assert!(ids(&client, "id LIKE 'v%'").await.is_empty());
        client.simple_query("SET tidemill.copy_atomic = off").await.unwrap();
        let sink = client.copy_in("COPY \"Reading\" (id, lanes) FROM STDIN CSV").await.unwrap();
        futures::pin_mut!(sink);
        for row in 0..20_000 {
            sink.feed(bytes::Bytes::from(format!("v{row},{row}\n"))).await.unwrap();
        }
        sink.send(bytes::Bytes::from_static(b"last,x\n")).await.ok();
        let error = sink.finish().await.unwrap_err();
        let hint = refused(&error).hint().unwrap_or_default().to_owned();
        let stored = ids(&client, "id LIKE 'v%'").await.len();
        assert!(
            stored > 0 && hint.starts_with(&format!("{stored} rows before it were stored")),
            "{stored}: {hint}"
        );
    });
}

#[test]
fn psql_copies_a_file_in() {
    let world = World::new();
    std::fs::write(world.dir.path().join("in.csv"), "id,lanes\np1,4\np2,\n").unwrap();
    let arguments = [
        "-X",
        "-c",
        "\\copy events.\"Reading\" (id, lanes) FROM 'in.csv' CSV HEADER",
        "-c",
        "INSERT INTO \"Reading\" (id) VALUES ('p3') RETURNING id",
    ];
    let Some((out, err, is_done)) = world.program("psql", &arguments) else { return };
    assert!(
        is_done && out.starts_with("COPY 2\n") && out.contains(" p3\n") && out.ends_with("INSERT 0 1\n"),
        "{out}{err}"
    );
    let client = world.admin();
    assert_eq!(world.runtime.block_on(ids(&client, "id LIKE 'p%'")), ["p1", "p2", "p3"]);
}

#[test]
fn users_write_what_they_may() {
    let world = World::new();
    let data = world.data();
    for (name, grant) in [
        ("eva", "write stream:Reading"),
        ("ana", "read stream:Reading"),
        ("bob", "read collection:docs.Device"),
    ] {
        let arguments = ["users", "add", name, "--grant", grant, "--data", &data];
        let output = tidemill(&arguments).env("TIDEMILL_PASSWORD", "of us all 123").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    world.runtime.block_on(async {
        let connect = async |name: &str| loop {
            if let Ok(client) = world.client(name, "of us all 123").await {
                break client;
            }
        };
        let (eva, ana, bob) = (connect("eva").await, connect("ana").await, connect("bob").await);
        assert_eq!(changed(&eva, "INSERT INTO \"Reading\" (id) VALUES ('w1')").await, 1);
        let sink = eva.copy_in("COPY \"Reading\" (id) FROM STDIN").await.unwrap();
        futures::pin_mut!(sink);
        sink.send(bytes::Bytes::from_static(b"w2\n")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 1);
        let texts = |table: &str| {
            [format!("INSERT INTO {table} (id) VALUES ('w')"), format!("COPY {table} (id) FROM STDIN")]
        };
        for text in texts("\"Reading\"") {
            let error = ana.simple_query(&text).await.unwrap_err();
            assert_eq!(refused(&error).code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{text}");
        }
        // the same for a stream that is hidden and one that is not there
        for (hidden, missing) in texts("events.\"Reading\"").iter().zip(texts("events.\"Redding\"")) {
            let mut told = vec![];
            for text in [hidden, &missing] {
                let error = bob.simple_query(text).await.unwrap_err();
                let error = refused(&error);
                assert_eq!(error.code(), &SqlState::UNDEFINED_TABLE, "{text}");
                told.push(format!("{} {:?}", error.message(), error.hint()).replace("Redding", "Reading"));
            }
            assert_eq!(told[0], told[1]);
        }
        let admin = world.client("admin", &world.serving.token).await.unwrap();
        assert_eq!(ids(&admin, "id LIKE 'w%'").await, ["w1", "w2"]);
    });
}

#[test]
fn http_and_flight_insert_with_the_same_code() {
    let world = World::new();
    let client = world.admin();
    let post = |body: Value| {
        let agent =
            ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
        let mut reply = agent
            .post(format!("{}/api/v1/sql", world.serving.base))
            .header("authorization", format!("Bearer {}", world.serving.token))
            .header("accept", "application/json")
            .send_json(body)
            .unwrap();
        (reply.status().as_u16(), reply.body_mut().read_json::<Value>().unwrap())
    };
    let text = "INSERT INTO \"Reading\" (id, lanes, at) VALUES ($1, $2, '2024-05-01'), ('h2', 2, $3)";
    let (status, rows) = post(json!({"query": text, "parameters": ["h1", 1, "2024-05-02T00:00:00Z"]}));
    assert_eq!((status, rows), (200, json!([{"inserted": 2}])));
    let (status, rows) = post(
        json!({"query": "INSERT INTO \"Reading\" (id, lanes) VALUES ('h3', 3) RETURNING id, lanes * 2 AS twice"}),
    );
    assert_eq!((status, rows), (200, json!([{"id": "h3", "twice": 6}])));
    let (status, error) = post(json!({"query": "INSERT INTO \"Reading\" (id, lanes) VALUES ('h4', 'x')"}));
    assert!(status == 400 && error.to_string().contains("row 1: field `lanes`: expected int"), "{error}");
    world.runtime.block_on(async {
        let channel = Endpoint::new(world.serving.base.clone()).unwrap().connect().await.unwrap();
        let mut flight = FlightSqlServiceClient::new(channel);
        flight.set_token(world.serving.token.clone());
        let count = flight
            .execute_update("INSERT INTO \"Reading\" (id) VALUES ('f1'), ('f2')".to_owned(), None)
            .await
            .unwrap();
        assert_eq!(count, 2);
        // each row of values is an event, and all of them are checked before the first is stored
        let mut insert = flight
            .prepare("INSERT INTO \"Reading\" (id, lanes) VALUES ($1, $2)".to_owned(), None)
            .await
            .unwrap();
        let values = |ids: [&str; 2], lanes: [i64; 2]| {
            let ids = Arc::new(StringArray::from(ids.to_vec())) as _;
            RecordBatch::try_from_iter([("a", ids), ("b", Arc::new(Int64Array::from(lanes.to_vec())) as _)])
                .unwrap()
        };
        insert.set_parameters(values(["f3", "f4"], [3, 4])).unwrap();
        assert_eq!(insert.execute_update().await.unwrap(), 2);
        insert.set_parameters(values(["f5", "f6"], [5, 1 << 40])).unwrap();
        let error = insert.execute_update().await.unwrap_err().to_string();
        assert!(error.contains("field `lanes`: expected int"), "{error}");
        let info = flight
            .execute("INSERT INTO \"Reading\" (id) VALUES ('f7') RETURNING id, _row".to_owned(), None)
            .await
            .unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let rows: Vec<RecordBatch> =
            futures::TryStreamExt::try_collect(flight.do_get(ticket.clone()).await.unwrap()).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        // a ticket that is used again does not insert again
        assert!(flight.do_get(ticket).await.is_err());
        assert_eq!(
            ids(&client, "id LIKE 'h%' OR id LIKE 'f%'").await,
            ["f1", "f2", "f3", "f4", "f7", "h1", "h2", "h3"]
        );
    });
}
