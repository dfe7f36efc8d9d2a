//! Several data directories that write to one place.

use std::path::Path;
use std::sync::Arc;

use tidemill_connect::runtime;
use tidemill_engine::{App, BodyFormat, Engine, SendOptions};
use tidemill_flow::Connectors;
use tidemill_relational::{DatabaseConnection, DatabaseUrl};
use tidemill_types::{FieldType, Value};

/// Returns the numbers of a table.
fn numbers(url: &str, table: &str) -> Vec<i64> {
    let rows = runtime().block_on(async {
        let mut db =
            DatabaseConnection::connect(&DatabaseUrl::parse(url).unwrap(), None, None).await.unwrap();
        db.query(&format!("SELECT n FROM {table} ORDER BY n"), &[], &[FieldType::Long]).await.unwrap()
    });
    let number = |row: Vec<Value<'static>>| match row[0] {
        Value::Int(n) => n,
        _ => panic!("{row:?}"),
    };
    rows.into_iter().map(number).collect()
}

#[test]
fn events_of_another_directory_are_other_events() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("jdbc:sqlite:{}", dir.path().join("shared.db").display());
    let queries = format!(
        "@sink(type='rdbms', jdbc.url='{url}', table.name='sent')
         define stream S (n long);
         @store(type='rdbms', jdbc.url='{url}') define table Stored (n long);
         from S select n insert into Stored;"
    );
    let run = |data: &str, first: i64| {
        let app = App::from_texts("same", None, &[("same.siddhi", &queries)]);
        let app = app.with_connectors(Connectors::Catalog(Arc::new(tidemill_connectors::catalog())));
        let engine = Engine::open(Path::new(&dir.path().join(data)), Some(app)).unwrap();
        let rows: String = (first..first + 3).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        let options = SendOptions { wait: true, ..SendOptions::default() };
        engine.send_json("S", rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
        crate::helpers::wait_until("the sink has delivered", || engine.sinks()[0].waiting == 0);
        engine.stop().unwrap();
    };
    run("one", 10);
    run("two", 20);
    run("one", 30);
    let all = [10, 11, 12, 20, 21, 22, 30, 31, 32];
    assert_eq!(numbers(&url, "sent"), all);
    assert_eq!(numbers(&url, "Stored"), all);
}
