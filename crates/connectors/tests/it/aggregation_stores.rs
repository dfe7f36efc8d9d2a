//! Aggregations of apps with `@store`, in an engine that crashes, against the same app without a store.

use std::path::Path;
use std::sync::Arc;

use tidemill_engine::{App, BodyFormat, Engine, ManualClock, SendOptions};
use tidemill_flow::registry::Connectors;
use tidemill_types::Timestamp;

use crate::mongodb_store::Server as MongoServer;
use crate::rdbms::database::{TestDatabase, databases};

/// 2024-02-28 23:55:00, shortly before a day ends.
const START: i64 = 1_709_164_500_000;

/// Granularities, and the ends of the names of their tables.
const UNITS: [(&str, &str); 4] = [("sec", "SECONDS"), ("min", "MINUTES"), ("hour", "HOURS"), ("day", "DAYS")];

fn queries(store: &str) -> String {
    format!(
        "define stream Trades (symbol string, price double, volume int, buyer string, at long);
         {store}
         define aggregation TradeAgg from Trades
         select symbol, avg(price) as avgPrice, sum(volume) as total, count() as trades, max(price) as high,
                min(volume) as smallest, distinctCount(buyer) as buyers, price as last, sum(volume) * 2 as twice
         group by symbol aggregate by at every sec ... day;
         from Trades select symbol insert into Seen;"
    )
}

fn open(data: &Path, store: &str) -> Engine {
    let catalog = Arc::new(tidemill_connectors::catalog());
    let mut app = App::from_texts("trades", None, &[("trades.siddhi", &queries(store))])
        .with_connectors(Connectors::Catalog(catalog));
    app.settings.partitions = 2;
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    Engine::open(data, Some(app)).unwrap_or_else(|e| panic!("{e}"))
}

/// Sends trades of a symbol: second, volume and buyer of each.
fn send(engine: &Engine, symbol: &str, trades: impl IntoIterator<Item = (i64, i32, &'static str)>) {
    let row = |(second, volume, buyer): (i64, i32, &str)| {
        let (at, price) = (START + second * 1000, f64::from(volume) / 4.0);
        format!(
            "{{\"symbol\":\"{symbol}\",\"price\":{price},\"volume\":{volume},\"buyer\":\"{buyer}\",\"at\":{at}}}\n"
        )
    };
    let body: String = trades.into_iter().map(row).collect();
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    let reply = engine.send_json("Trades", body.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
    assert_eq!(reply.rejected, []);
}

fn rows(engine: &Engine, query: &str) -> Vec<String> {
    engine.wait_idle();
    let found = engine.query_on_demand(None, query).unwrap();
    let mut rows: Vec<String> =
        found.into_iter().map(|row| serde_json::Value::Array(row).to_string()).collect();
    rows.sort();
    rows
}

/// Checks that two engines find the same, and that nothing has failed.
fn assert_same(engine: &Engine, model: &Engine, when: &str) {
    let end = START + 400_000;
    for (unit, _) in UNITS {
        for query in [
            format!("from TradeAgg within {START}L - 100000000L, {end}L per '{unit}' select *"),
            format!("from TradeAgg within {}L, {}L per '{unit}' select *", START + 3000, START + 64_000),
            format!("from TradeAgg on symbol == 'B' within {START}L, {end}L per '{unit}' select *"),
        ] {
            let found = rows(engine, &query);
            assert!(!found.is_empty(), "{when}: {query}");
            assert_eq!(found, rows(model, &query), "{when}: {query}");
        }
    }
    for query in engine.queries().unwrap() {
        assert_eq!(query.last_error, None, "{when}: {}", query.name);
    }
}

/// Runs an app with a store and one without through the same events and crashes. `tables` is called when all is over and the
/// engine is stopped.
fn run(store: &str) {
    let (dir, model_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut engine = open(dir.path(), store);
    let model = open(model_dir.path(), "");
    let both = |engine: &Engine, symbol: &str, trades: &[(i64, i32, &'static str)]| {
        for engine in [engine, &model] {
            send(engine, symbol, trades.iter().copied());
        }
    };
    // more seconds than memory keeps beside the store
    for second in 0..200 {
        both(&engine, "A", &[(second, 1, "ann"), (second, 3, "bob")]);
        both(&engine, "B", &[(second, 5, "ann")]);
    }
    assert_same(&engine, &model, "in order");
    // late: the first second is only in the store, second 190 in memory as well, and second -4000 is nowhere
    both(&engine, "A", &[(0, 7, "cid"), (190, 9, "cid"), (0, 2, "ann")]);
    both(&engine, "C", &[(0, 100, "dan"), (-4000, 200, "dan")]);
    assert_same(&engine, &model, "late");
    engine.abandon();
    drop(engine);
    // the whole log is applied again
    engine = open(dir.path(), store);
    assert_same(&engine, &model, "after a crash");
    engine.checkpoint().unwrap();
    both(&engine, "A", &[(0, 11, "eve"), (300, 4, "ann"), (2, 11, "eve")]);
    assert_same(&engine, &model, "after a checkpoint");
    engine.abandon();
    drop(engine);
    engine = open(dir.path(), store);
    assert_same(&engine, &model, "after a crash behind a checkpoint");
    both(&engine, "A", &[(0, 13, "fay"), (301, 4, "ann")]);
    assert_same(&engine, &model, "late again");
    engine.stop().unwrap();
    model.abandon();
}

fn rdbms(url: &str, extra: &str) -> String {
    format!("@store(type='rdbms', jdbc.url='{url}', username='tidemill', password='tidemill'{extra})")
}

/// Checks what other programs read of what [`run`] has stored.
fn check_tables(db: &TestDatabase, prefix: &str) {
    let first = format!(
        "SELECT symbol, total, trades, smallest, buyers, twice, agg_sum_price, agg_count_price, agg_set_buyer \
         FROM {prefix}_SECONDS WHERE AGG_TIMESTAMP = {START} ORDER BY symbol"
    );
    let rows: Vec<String> = db.rows(&first).iter().map(|row| row.replace(".0|", "|")).collect();
    assert_eq!(
        rows,
        [
            r#"A|37|6|1|5|74|9.25|6|["ann","bob","cid","eve","fay"]"#,
            r#"B|5|1|5|1|10|1.25|1|["ann"]"#,
            r#"C|100|1|100|1|200|25|1|["dan"]"#,
        ]
    );
    // 200 seconds of two symbols, one of a third, and two that are not all closed
    assert_eq!(db.rows(&format!("SELECT count(*) FROM {prefix}_SECONDS WHERE symbol = 'B'")), ["200"]);
    assert_eq!(db.rows(&format!("SELECT count(*) FROM {prefix}_SECONDS WHERE symbol = 'A'")), ["201"]);
    let minutes = format!("SELECT total FROM {prefix}_MINUTES WHERE symbol = 'B' ORDER BY AGG_TIMESTAMP");
    assert_eq!(db.rows(&minutes), ["300", "300", "300", "100"]);
    let of = |table: &str, symbol: &str| {
        db.rows(&format!(
            "SELECT total FROM {prefix}_{table} WHERE symbol = '{symbol}' ORDER BY AGG_TIMESTAMP"
        ))
    };
    assert_eq!(of("HOURS", "C"), ["200", "100"]);
    assert_eq!(of("DAYS", "B"), ["1000"], "the day is over since the first trade of the next one");
}

#[test]
fn buckets_are_rows_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let db = TestDatabase::file(&dir.path().join("trades.db"));
    run(&rdbms(&db.url, ""));
    check_tables(&db, "TradeAgg");
}

#[test]
fn buckets_are_rows_in_databases() {
    for db in databases() {
        let positions = db.try_rows("SELECT count(*) FROM tidemill_position").is_ok();
        for (_, table) in UNITS {
            db.run(&format!("DROP TABLE IF EXISTS aggregated_{table}"));
            if positions {
                let sink = format!("trades.siddhi/TradeAgg_{table}");
                db.run(&format!("DELETE FROM tidemill_position WHERE sink = '{sink}'"));
            }
        }
        run(&rdbms(&db.url, ", table.name='aggregated', field.length='symbol:20'"));
        check_tables(&db, "aggregated");
    }
}

#[test]
fn buckets_are_documents_in_mongodb() {
    let server = MongoServer::start();
    run(&format!("@store(type='mongodb', mongodb.uri='{}', collection.name='trades')", server.uri()));
    let of_b = |table: &str| {
        let found = server.documents(table);
        found.iter().filter(|row| matches!(row.get_str("symbol"), Ok("B"))).count()
    };
    assert_eq!((of_b("trades_SECONDS"), of_b("trades_MINUTES")), (200, 4));
}

#[test]
fn buckets_are_documents_of_the_engine() {
    run("@store(type='documents', collection='trades')");
}

#[test]
fn old_rows_are_purged() {
    let dir = tempfile::tempdir().unwrap();
    let db = TestDatabase::file(&dir.path().join("trades.db"));
    let clock = Arc::new(ManualClock::default());
    let at = |second: i64| clock.set(Timestamp((START + second * 1000) * 1000));
    at(0);
    let purge = "@purge(enable='true', interval='10 sec', @retentionPeriod(sec='120 sec', min='120 min'))";
    let text = queries(&format!("{} {purge}", rdbms(&db.url, "")));
    let catalog = Arc::new(tidemill_connectors::catalog());
    let app = App::from_texts("trades", None, &[("trades.siddhi", &text)])
        .with_connectors(Connectors::Catalog(catalog));
    let engine = Engine::builder(dir.path().join("data")).app(app).clock(clock.clone()).open().unwrap();
    for second in 0..60 {
        send(&engine, "A", [(second, 1, "ann")]);
    }
    let stored = || db.rows("SELECT count(*) FROM TradeAgg_SECONDS");
    engine.wait_idle();
    assert_eq!(stored(), ["59"]);
    at(155);
    crate::helpers::wait_until("old rows are deleted", || stored() != ["59"]);
    // at second 150 those before second 30 are older than 120 seconds
    crate::helpers::wait_until("rows before second 30 are deleted", || stored() == ["29"]);
    engine.stop().unwrap();
}

/// Tables of the store are tried, with all others, by `tidemill check --connect`, and left out without connections.
#[test]
fn stores_are_checked_and_left_out() {
    let store = "@store(type='rdbms', jdbc.url='jdbc:h2:./trades')";
    let catalog = Arc::new(tidemill_connectors::catalog());
    let app = App::from_texts("trades", None, &[("trades.siddhi", &queries(store))]);
    let refused =
        tidemill_engine::compile(&app.clone().with_connectors(Connectors::Catalog(catalog.clone())));
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("jdbc:sqlite:./trades.db"), "{refused}");
    let redis = queries("@store(type='redis', nodes='localhost:6379')");
    let app_of_redis = App::from_texts("trades", None, &[("trades.siddhi", &redis)]);
    let refused =
        tidemill_engine::compile(&app_of_redis.with_connectors(Connectors::Catalog(catalog.clone())));
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("error[F0731]: the store `redis` cannot keep an aggregation"), "{refused}");
    assert!(refused.contains("write type='documents' or type='mongodb' or type='rdbms'"), "{refused}");
    let dir = tempfile::tempdir().unwrap();
    let ignored = app.with_connectors(Connectors::Ignored(catalog));
    let engine = Engine::open(dir.path(), Some(ignored)).unwrap();
    send(&engine, "A", [(0, 1, "ann"), (1, 1, "ann")]);
    let query = format!("from TradeAgg within {START}L, {}L per 'sec' select total", START + 60_000);
    assert_eq!(rows(&engine, &query), ["[1]", "[1]"]);
    engine.stop().unwrap();
}
