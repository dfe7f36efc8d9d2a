//! A PostgreSQL that is stopped while an app has a table in it: only the queries that need it wait.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidemill_engine::{App, BodyFormat, Engine, SendOptions};
use tidemill_flow::Connectors;
use tidemill_types::ErrorKind;

use super::database::TestDatabase;
use super::servers::Servers;
use crate::helpers::wait_until;

const PRICES: &str = "
    define stream Orders (k string, n int);
    @store(type='rdbms', jdbc.url='URL', username='tidemill', password='tidemill', table.name='outage_prices')
    @PrimaryKey('k') define table Prices (k string, price int);
    define table Seen (k string, total int);
    @info(name='learned') from Orders select k, n as price update or insert into Prices set Prices.price = price on Prices.k == k;
    @info(name='priced') from Orders join Prices on Orders.k == Prices.k
    select Orders.k as k, Orders.n * Prices.price as total insert into Priced;
    from Priced select k, total update or insert into Seen on Seen.k == k;
";
const TOTALS: &str = "
    @key('k') define stream In (k string, n int);
    @info(name='totals') from In select k, sum(n) as total group by k insert into Totals;
";

/// Time that a caller may take beside an outage, on a machine that is busy with other tests.
const PROMPT: Duration = Duration::from_secs(30);

fn app(db: &TestDatabase) -> App {
    let files = [("prices.siddhi", &*PRICES.replace("URL", &db.url)), ("totals.siddhi", TOTALS)];
    let mut app = App::from_texts("outage", None, &files);
    app.settings.partitions = 4;
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    app.with_connectors(Connectors::Catalog(Arc::new(tidemill_connectors::catalog())))
}

fn append(engine: &Engine, stream: &str, rows: &str) {
    let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
    engine.send_json(stream, rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
}

fn stored(engine: &Engine, stream: &str) -> u64 {
    engine.stream(stream).unwrap().ledger.stored
}

fn promptly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = call();
    assert!(start.elapsed() < PROMPT, "{what} took {:?}", start.elapsed());
    done
}

/// Returns how many partitions have got a checkpoint that is none of `before`, and the names of all.
fn checkpoints(dir: &Path, before: &[String]) -> (usize, Vec<String>) {
    let mut all = Vec::new();
    for partition in 0..4 {
        let files = std::fs::read_dir(dir.join(format!("checkpoints/p{partition:05}"))).into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let newest = names.filter(|name| name.ends_with(".ckpt")).max();
        all.extend(newest.map(|name| format!("{partition}/{name}")));
    }
    (all.iter().filter(|name| !before.contains(name)).count(), all)
}

#[test]
fn a_stopped_database_keeps_its_own_queries_waiting_only() {
    let servers = Servers::start_these("outage", &["postgres"]);
    let Some(server) = servers.databases.first() else { return };
    let db = TestDatabase::of(server);
    db.run("DROP TABLE IF EXISTS outage_prices");
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(&db))).unwrap();
    let keys = |n: usize| -> String { (0..40).map(|k| format!("{{\"k\":\"k{k}\",\"n\":{n}}}\n")).collect() };
    append(&engine, "Orders", "{\"k\":\"a\",\"n\":3}\n");
    append(&engine, "In", &keys(1));
    engine.wait_idle();
    engine.checkpoint().unwrap();
    assert_eq!(stored(&engine, "Priced"), 1);

    servers.kill(server);
    append(&engine, "Orders", "{\"k\":\"b\",\"n\":5}\n");
    let waiting = || engine.why_query(None, "priced", None).unwrap()[0].waits_for.clone().unwrap_or_default();
    wait_until("the owner waits for the database", || waiting().contains("table Prices:"));
    let (_, mut before) = checkpoints(dir.path(), &[]);
    for round in 2..5 {
        let totals = stored(&engine, "Totals");
        append(&engine, "In", &keys(round));
        wait_until("the other partitions apply their events", || stored(&engine, "Totals") > totals);
        wait_until("the other partitions have a checkpoint", || {
            let error = promptly("a checkpoint", || engine.checkpoint()).unwrap_err();
            assert!(error.message().starts_with("partition 0: is at the record"), "{error}");
            checkpoints(dir.path(), &before).0 == 3
        });
        before = checkpoints(dir.path(), &[]).1;
        let why = promptly("why", || engine.why_query(None, "totals", None)).unwrap();
        assert_eq!(why.iter().filter(|why| why.waits_for.is_none()).count(), 3);
        let asked =
            promptly("a query of the partition", || engine.query_on_demand(None, "from Seen select k"));
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Unavailable);
        promptly("documents", || engine.document_snapshot().map(drop)).unwrap();
        thread::sleep(Duration::from_millis(500));
    }

    servers.restart(server);
    engine.wait_idle();
    assert_eq!(
        [stored(&engine, "Orders"), stored(&engine, "Priced"), stored(&engine, "Totals")],
        [2, 2, 160]
    );
    let found = engine.query_on_demand(None, "from Seen select k, total").unwrap();
    assert_eq!(format!("{found:?}"), r#"[[String("a"), Number(9)], [String("b"), Number(25)]]"#);
    assert_eq!(db.rows("SELECT k || price::text FROM outage_prices ORDER BY 1"), ["a3", "b5"]);
    engine.checkpoint().unwrap();
    engine.stop().unwrap();
}
