//! The stream functions `rdbms:query` and `rdbms:cud`, in apps that run, with each database.

use std::path::Path;
use std::sync::Arc;

use tidemill_engine::{App, BodyFormat, Engine, SendOptions};
use tidemill_flow::registry::Connectors;

use crate::rdbms::database::databases;

const QUERIES: &str = "
    define stream Setup (k string);
    define stream Orders (customer string, amount int);
    define stream Asks (customer string);
    define table Written (customer string, n int);
    define table Found (customer string, total long, times int);

    from Setup#rdbms:cud('SHOP', 'CREATE TABLE orders (customer text, amount integer CHECK (amount < 100))')
    select k as customer, numRecords as n insert into Written;
    from Orders#rdbms:cud('SHOP', \"INSERT INTO orders VALUES (?, ?)\", customer, amount)
    select customer, numRecords as n insert into Written;
    from Orders[amount == 7]#rdbms:cud('SHOP', 'DELETE FROM orders WHERE customer = ?', customer)
    select 'deleted' as customer, numRecords as n insert into Written;
    from Asks#rdbms:query('SHOP', 'total long, times int',
      'SELECT SUM(amount), COUNT(*) FROM orders WHERE customer LIKE ? GROUP BY customer ORDER BY customer', customer)
    select customer, total, times insert into Found;
";

fn sqlite(dir: &Path) -> String {
    format!("jdbc:sqlite:{}", dir.join("shop.db").display())
}

fn write_app(dir: &Path, url: &str, queries: &str) -> App {
    std::fs::create_dir_all(dir.join("app")).unwrap();
    let settings = format!(
        "[datasources.SHOP]\nurl = '{url}'\nusername = 'tidemill'\npassword = 'tidemill'\nmaxPoolSize = '5'\n\
         [settings]\npartitions = 3\n"
    );
    std::fs::write(dir.join("app/app.toml"), settings).unwrap();
    std::fs::write(dir.join("app/shop.siddhi"), queries).unwrap();
    let catalog = Arc::new(tidemill_connectors::catalog());
    App::read(&dir.join("app"), &[]).unwrap().with_connectors(Connectors::Catalog(catalog))
}

fn send(engine: &Engine, stream: &str, rows: &str) {
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    let reply = engine.send_json(stream, rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
    assert_eq!(reply.rejected, []);
}

fn rows(engine: &Engine, query: &str) -> Vec<String> {
    engine.wait_idle();
    let found = engine.query_on_demand(None, query).unwrap();
    found.into_iter().map(|row| serde_json::Value::Array(row).to_string()).collect()
}

#[test]
fn statements_are_executed_once_and_rows_become_events() {
    let dir = tempfile::tempdir().unwrap();
    execute_once(dir.path(), &sqlite(dir.path()));
    for db in databases() {
        db.run("DROP TABLE IF EXISTS orders");
        let dir = tempfile::tempdir().unwrap();
        execute_once(dir.path(), &db.url);
    }
}

fn execute_once(dir: &Path, url: &str) {
    let app = write_app(dir, url, QUERIES);
    let engine = Engine::open(&dir.join("data"), Some(app.clone())).unwrap();
    send(&engine, "Setup", "{\"k\":\"setup\"}\n");
    send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":1}\n{\"customer\":\"bob\",\"amount\":2}\n");
    send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":100}\n{\"customer\":\"ann\",\"amount\":3}\n");
    send(&engine, "Asks", "{\"customer\":\"%\"}\n{\"customer\":\"nobody\"}\n");
    let found = r#"["%",4,2]"#;
    assert_eq!(
        rows(&engine, "from Found select *"),
        [found, r#"["%",2,1]"#],
        "{url}: an event for each row, none without"
    );
    send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":7}\n");
    let written = rows(&engine, "from Written select *");
    assert_eq!(
        written,
        [
            r#"["setup",0]"#,
            r#"["ann",1]"#,
            r#"["bob",1]"#,
            r#"["ann",1]"#,
            r#"["ann",1]"#,
            r#"["deleted",3]"#
        ],
        "the amount of 100 is refused"
    );
    let query = engine.queries().unwrap().into_iter().find(|query| query.last_error.is_some()).unwrap();
    assert!(query.last_error.unwrap().to_lowercase().contains("constraint"), "the database says why");
    engine.abandon();
    drop(engine);
    // the whole log is applied again
    let engine = Engine::open(&dir.join("data"), Some(app)).unwrap();
    send(&engine, "Asks", "{\"customer\":\"bob\"}\n{\"customer\":\"ann\"}\n");
    let all = rows(&engine, "from Found select *");
    assert_eq!(all.last().map(String::as_str), Some(r#"["bob",2,1]"#), "nothing is written twice: {all:?}");
}

#[test]
fn wrong_calls_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (call, message) in [
        ("rdbms:cud('SHOPS', 'DELETE FROM t')", "app.toml has no datasource `SHOPS`. Did you mean `SHOP`?"),
        ("rdbms:cud('SHOP')", "expected rdbms:cud(datasource, statement, parameter, …)"),
        ("rdbms:query('SHOP', 'a nothing', 'SELECT 1')", "must be a list such as 'name string, age int'"),
        ("rdbms:query('SHOP', 'a int', 7)", "the statement has the type int"),
    ] {
        let queries = format!("define stream S (k string); from S#{call} select k insert into T;");
        let app = write_app(dir.path(), &sqlite(dir.path()), &queries);
        let refused = tidemill_engine::compile(&app).err().unwrap().to_string();
        assert!(refused.contains(message), "{refused}");
    }
}
