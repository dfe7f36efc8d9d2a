//! A real driver: tokio-postgres, which reads and sends all values in the binary format.

use std::time::{Duration, SystemTime};

use futures::{StreamExt, TryStreamExt};
use tidemill_postgres::PostgresOptions;
use tokio_postgres::error::{ErrorPosition, SqlState};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::fixture::Server;

async fn connect(server: &Server) -> Client {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address.port()).user("ana");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap() });
    client
}

/// Value as its bytes, whatever its type.
struct Bytes(Vec<u8>);

impl<'a> FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_all_types_arrive_in_the_binary_format() {
    let server = Server::start(PostgresOptions::default()).await;
    let client = connect(&server).await;
    let rows = client.query("SELECT types", &[]).await.unwrap();
    let [first, nulls, limits] = rows.as_slice() else { panic!("three rows") };
    assert!((0..nulls.len()).all(|at| nulls.get::<_, Option<Bytes>>(at).is_none()));
    assert!(first.get::<_, bool>("b"));
    assert_eq!((first.get::<_, i16>("i1"), limits.get::<_, i16>("i2")), (-128, i16::MAX));
    assert_eq!((first.get::<_, i32>("i4"), limits.get::<_, i64>("i8")), (-70_000, i64::MIN));
    assert_eq!((first.get::<_, f32>("f4"), limits.get::<_, f32>("f4")), (1.1, f32::INFINITY));
    assert!(first.get::<_, f64>("f8") == -0.1 && limits.get::<_, f64>("f8").is_nan());
    assert_eq!((first.get::<_, &str>("t"), limits.get::<_, &str>("t")), ("hällo\t\\", ""));
    assert_eq!((first.get::<_, &str>("k"), first.get::<_, &[u8]>("y")), ("red", &b"\x00\xffa"[..]));
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_714_557_600_100_000);
    assert_eq!(first.get::<_, SystemTime>("tz"), at);
    assert_eq!(first.get::<_, Vec<Option<i32>>>("li"), [Some(1), None, Some(-3)]);
    assert_eq!(limits.get::<_, Vec<i32>>("li"), [0_i32; 0]);
    let texts = [Some("a b"), Some("null"), None, Some("\"\\"), Some("")];
    assert_eq!(first.get::<_, Vec<Option<&str>>>("lt"), texts);
    assert_eq!(first.get::<_, Bytes>("j").0, r#"{"n":7,"s":"é"}"#.as_bytes());
    assert_eq!(limits.get::<_, Bytes>("j").0, br#"{"n":null,"s":"\""}"#);
    let types: Vec<&str> = first.columns().iter().map(|column| column.type_().name()).collect();
    assert_eq!(
        types.join(" "),
        "bool int2 int2 int4 int8 numeric float4 float8 numeric text text bytea date time timestamp timestamptz timestamptz interval \
         interval _int4 _text json text"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_parameters_arrive_in_the_binary_format() {
    let server = Server::start(PostgresOptions::default()).await;
    let client = connect(&server).await;
    let statement =
        client.prepare("SELECT echo int8 int4 float8 bool text timestamptz unknown int8").await.unwrap();
    let names: Vec<&str> = statement.params().iter().map(Type::name).collect();
    assert_eq!(names, ["int8", "int4", "float8", "bool", "text", "timestamptz", "text", "int8"]);
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_500_000);
    let rows = client
        .query(&statement, &[&i64::MIN, &7_i32, &f64::NEG_INFINITY, &true, &"é'\"", &at, &"x", &None::<i64>])
        .await
        .unwrap();
    let values: Vec<Option<&str>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(values[..5], ["-9223372036854775808", "7", "-inf", "true", "\"é'\\\"\""].map(Some));
    assert!(values[5].unwrap().contains("1970-01-01T00:00:01.5"), "{values:?}");
    assert_eq!(values[6..], [Some("\"x\""), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_stream_and_portals_take_some_of_them() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut client = connect(&server).await;
    let rows = client.query_raw("SELECT rows 100000", [0_i64; 0]).await.unwrap();
    let sum = rows.try_fold(0_i64, async |sum, row| Ok(sum + row.get::<_, i64>(0))).await.unwrap();
    assert_eq!(sum, 4_999_950_000);
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT rows 2500", &[]).await.unwrap();
    let mut counts = vec![];
    loop {
        let rows = transaction.query_portal(&portal, 1_000).await.unwrap();
        counts.push(rows.len());
        if rows.len() < 1_000 {
            assert_eq!(rows.last().unwrap().get::<_, i64>(0), 2_499);
            break;
        }
    }
    assert_eq!(counts, [1_000, 1_000, 500]);
    transaction.commit().await.unwrap();
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_in_a_pipeline_do_not_disturb_each_other() {
    let server = Server::start(PostgresOptions::default()).await;
    let client = connect(&server).await;
    let (first, failed, last) = tokio::join!(
        client.query("SELECT rows 3", &[]),
        client.query("SELECT fail 2", &[]),
        client.query("SELECT rows 4", &[]),
    );
    assert_eq!((first.unwrap().len(), last.unwrap().len()), (3, 4));
    assert_eq!(failed.unwrap_err().code(), Some(&SqlState::OUT_OF_MEMORY));
    let error = client.query("SELECT missing", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code(), error.hint()), (&SqlState::UNDEFINED_TABLE, Some("Did you mean `rows`?")));
    assert_eq!(error.position(), Some(&ErrorPosition::Original(8)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_cancels_and_copies() {
    let server = Server::start(PostgresOptions::default()).await;
    let client = connect(&server).await;
    let token = client.cancel_token();
    let cancelled = tokio::select! {
        failed = client.query("SELECT wait", &[]) => failed.unwrap_err(),
        () = async {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                token.cancel_query(NoTls).await.unwrap();
            }
        } => unreachable!(),
    };
    assert_eq!(cancelled.code(), Some(&SqlState::QUERY_CANCELED));
    let copied = client.copy_out("COPY (SELECT rows 3000) TO STDOUT").await.unwrap();
    let text: Vec<u8> = copied.map(|piece| piece.unwrap().to_vec()).collect::<Vec<_>>().await.concat();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("0\trow 0\n1\trow 1\n") && text.lines().count() == 3_000);
    let rows = client.simple_query("SELECT rows 2; SHOW server_version").await.unwrap();
    assert_eq!(rows.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count(), 3);
}
