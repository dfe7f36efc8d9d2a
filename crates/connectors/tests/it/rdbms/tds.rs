//! The wire protocol of SQL Server, against Microsoft's mock of a server. It takes every login, answers `SELECT 1`, and
//! takes all other statements and requests with parameters without executing them.

use tidemill_connect::runtime;
use tidemill_relational::{DatabaseConnection, DatabaseUrl, DbError, DbErrorKind, Param};
use tidemill_types::{FieldType, Timestamp, Value};

use super::servers::{Server, Servers};

async fn connect(server: &Server, parameters: &str) -> Result<DatabaseConnection, DbError> {
    let url = format!("jdbc:sqlserver://{};databaseName=test;{parameters}", server.at);
    DatabaseConnection::connect(&DatabaseUrl::parse(&url).unwrap(), Some("tidemill"), Some("tidemill")).await
}

#[test]
fn a_mock_of_sql_server_understands_requests() {
    let servers = Servers::start_these("tds", &["tds"]);
    let Some(server) = servers.databases.first() else { return };
    let authority = format!("serverCertificate={}", servers.file("tds/tls/ca.pem").display());
    runtime().block_on(async {
        let mut db = connect(server, &format!("encrypt=strict;{authority}")).await.unwrap();
        db.begin().await.unwrap();
        let found = db.query("SELECT 1", &[], &[FieldType::Int]).await.unwrap();
        assert!(matches!(found.as_slice(), [row] if matches!(row.as_slice(), [Value::Int(1)])));
        let long = "ж".repeat(100_000);
        let values = [
            (FieldType::Bool, Value::Bool(true)),
            (FieldType::Int, Value::Int(-1)),
            (FieldType::Long, Value::Int(i64::MIN)),
            (FieldType::Float, Value::Float(0.5)),
            (FieldType::Double, Value::Missing),
            (FieldType::String, Value::str(&long)),
            (FieldType::Time, Value::Time(Timestamp(1_700_000_000_123_456))),
        ];
        let params: Vec<Param<'_>> =
            values.iter().map(|(ty, value)| Param { ty: *ty, value: value.clone() }).collect();
        let sql = "INSERT INTO t VALUES (@P1, @P2, @P3, @P4, @P5, @P6, @P7)";
        assert_eq!(db.execute(sql, &params).await.unwrap(), 0);
        db.commit().await.unwrap();
        db.close().await;
        // the certificate is checked in any case
        let e = connect(server, "encrypt=strict;trustServerCertificate=true").await.err().unwrap();
        assert_eq!(e.kind, DbErrorKind::Invalid, "{e}");
        assert!(e.to_string().contains("TLS: the server's certificate was rejected"), "{e}");
    });
}
