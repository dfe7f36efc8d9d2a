//! A store of an app that does not answer for an hour: only the queries that need it wait. The store is a value of the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use tidemill_connect::{
    Catalog, OptionError, OptionSpec, Options, RefusedRow, StoreContext, StoreExpr, StoreMonitor, StoreType,
    StoreUpdate, TableStore, WritePosition,
};
use tidemill_engine::{App, BodyFormat, Clock, Engine, ManualClock, SendOptions};
use tidemill_flow::Connectors;
use tidemill_types::{Error, ErrorKind, Result, Timestamp};

use crate::{quiet, rows, send};

/// In partition 0: queries over the store, and a table in memory. In every partition: totals by key.
const PRICES: &str = "
    define stream Orders (k string, n double);
    @store(type='elsewhere') define table Prices (k string, price double);
    define table Seen (k string, n double);
    @info(name='priced') from Orders join Prices on Orders.k == Prices.k
    select Orders.k as k, Orders.n * Prices.price as total insert into Priced;
    @info(name='seen') from Priced select k, total as n update or insert into Seen on Seen.k == k;
";
const TOTALS: &str = "
    @key('k') define stream In (k string, n double);
    @info(name='totals') from In select k, sum(n) as total group by k insert into Totals;
";
const RULES: &str = "
    entity Account key id;
    event In { k: string, n: double } key k;
";

/// Time that a caller may take beside an outage, on a machine that is busy with other tests.
const PROMPT: Duration = Duration::from_secs(20);

/// The other system: every key has the price 2.
#[derive(Default)]
struct Elsewhere {
    is_down: AtomicBool,
    /// Calls that were answered.
    answered: AtomicUsize,
}

#[derive(Clone)]
struct ElsewhereType(Arc<Elsewhere>);

struct ElsewhereTable {
    system: Arc<Elsewhere>,
    monitor: Arc<StoreMonitor>,
}

impl ElsewhereTable {
    /// Waits as stores do.
    fn until_reached(&self) -> Result<()> {
        while self.system.is_down.load(Ordering::Acquire) {
            if self.monitor.is_stopped() {
                return Err(Error::unavailable("elsewhere is down"));
            }
            self.monitor.report("Prices", Some("elsewhere is down".into()));
            thread::sleep(Duration::from_millis(1));
        }
        self.monitor.report("Prices", None);
        self.system.answered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl StoreType for ElsewhereType {
    fn name(&self) -> &'static str {
        "elsewhere"
    }

    fn summary(&self) -> &'static str {
        "Keeps prices."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn create(
        &self,
        _: &Options,
        context: &StoreContext,
    ) -> std::result::Result<Box<dyn TableStore>, OptionError> {
        Ok(Box::new(ElsewhereTable { system: self.0.clone(), monitor: context.monitor.clone() }))
    }
}

impl TableStore for ElsewhereTable {
    fn find(
        &mut self,
        _: Option<&StoreExpr>,
        parameters: &RecordBatch,
        _: Option<usize>,
    ) -> Result<RecordBatch> {
        self.until_reached()?;
        let key = match parameters.num_columns() {
            0 => "all".to_owned(),
            _ => tidemill_types::row_value(parameters, 0, 0).to_string().trim_matches('"').to_owned(),
        };
        let columns: [(&str, ArrayRef); 2] = [
            ("k", Arc::new(StringArray::from(vec![key]))),
            ("price", Arc::new(Float64Array::from(vec![2.0]))),
        ];
        Ok(RecordBatch::try_from_iter(columns).unwrap())
    }

    fn insert(&mut self, _: &RecordBatch, _: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        self.until_reached().map(|()| vec![])
    }

    fn delete(
        &mut self,
        _: Option<&StoreExpr>,
        _: &RecordBatch,
        _: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        self.until_reached().map(|()| vec![])
    }

    fn update(
        &mut self,
        _: &StoreUpdate,
        _: &RecordBatch,
        _: Option<&RecordBatch>,
        _: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        self.until_reached().map(|()| vec![])
    }
}

fn app(system: &Arc<Elsewhere>) -> App {
    let files = [("prices.siddhi", PRICES), ("totals.siddhi", TOTALS)];
    let mut app = quiet(App::from_texts("outage", Some(RULES), &files));
    app.settings.partitions = 4;
    let mut catalog = Catalog::default();
    catalog.add_store(ElsewhereType(system.clone()));
    app.with_connectors(Connectors::Catalog(Arc::new(catalog)))
}

fn events(n: usize) -> String {
    (0..40).map(|key| format!("{{\"k\":\"k{key}\",\"n\":{n}}}\n")).collect()
}

/// Sends events without waiting until they are applied.
fn append(engine: &Engine, stream: &str, rows: &str) {
    let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
    engine.send_json(stream, rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
}

/// Returns the result of `call`, which must not wait for the store.
fn promptly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = call();
    assert!(start.elapsed() < PROMPT, "{what} took {:?}", start.elapsed());
    done
}

/// Returns the names of the newest checkpoints of the partitions from 1 on.
fn checkpoints(dir: &std::path::Path) -> BTreeMap<u32, String> {
    let newest = |partition: u32| {
        let dir = dir.join(format!("checkpoints/p{partition:05}"));
        let names =
            std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".ckpt")).max().unwrap()
    };
    (1..4).map(|partition| (partition, newest(partition))).collect()
}

#[test]
fn an_hour_without_a_store_is_noticed_by_its_own_queries_only() {
    let dir = tempfile::tempdir().unwrap();
    let (system, clock) = (Arc::new(Elsewhere::default()), Arc::new(ManualClock::default()));
    let engine = Engine::builder(dir.path()).app(app(&system)).clock(clock.clone()).open().unwrap();
    send(&engine, "Orders", "{\"k\":\"a\",\"n\":1}\n");
    send(&engine, "In", &events(1));
    engine.checkpoint().unwrap();
    let found = engine.query_on_demand(None, "from Seen select k, n").unwrap();
    assert_eq!(format!("{found:?}"), "[[String(\"a\"), Number(2.0)]]");

    system.is_down.store(true, Ordering::Release);
    // a reader is told, and the owner has not met the outage yet
    let error = promptly("a query of the store", || engine.query_on_demand(None, "from Prices select k"))
        .unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Unavailable, "elsewhere is down"));
    append(&engine, "Orders", "{\"k\":\"b\",\"n\":3}\n");
    let waits = || engine.why_query(None, "priced", None).unwrap()[0].waits_for.clone();
    while waits().is_none() {
        thread::sleep(Duration::from_millis(1));
    }

    let begin = clock.now();
    let mut totals = rows(&engine, "Totals");
    for minute in 1..=60 {
        clock.set(Timestamp(begin.0 + minute * 60_000_000));
        if minute % 10 != 0 {
            continue;
        }
        let before = checkpoints(dir.path());
        append(&engine, "In", &events(minute as usize));
        // those of partition 0 wait behind the order
        while rows(&engine, "Totals") == totals {
            thread::sleep(Duration::from_millis(1));
        }
        totals = rows(&engine, "Totals");
        let error = promptly("a checkpoint", || engine.checkpoint()).unwrap_err();
        assert!(error.message().starts_with("partition 0: is at the record"), "{error}");
        while checkpoints(dir.path()).iter().any(|(partition, newest)| before[partition] == *newest) {
            // an owner may not have come to its events at the first try
            thread::sleep(Duration::from_millis(10));
            _ = engine.checkpoint();
        }
        let why = promptly("why", || engine.why_query(None, "priced", None)).unwrap();
        let [why] = &why[..] else { panic!("{why:?}") };
        let text = why.to_string();
        assert!(text.contains("`priced` emits nothing now: partition 0: record"), "{text}");
        assert!(text.contains("table Prices: elsewhere is down"), "{text}");
        let all =
            promptly("why of a query in every partition", || engine.why_query(None, "totals", None)).unwrap();
        let waiting: Vec<u32> =
            all.iter().filter(|why| why.waits_for.is_some()).map(|why| why.partition).collect();
        assert_eq!((all.len(), waiting), (4, vec![0]));
        let error =
            promptly("a query of the partition", || engine.query_on_demand(None, "from Seen select k"));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("It is applied when the system answers"), "{error}");
        promptly("documents", || engine.document_snapshot().unwrap().len("Account").unwrap());
        promptly("metrics", || engine.metrics());
    }

    system.is_down.store(false, Ordering::Release);
    engine.wait_idle();
    assert_eq!([rows(&engine, "In"), rows(&engine, "Totals")], [280, 280]);
    let found = engine.query_on_demand(None, "from Seen select k, n").unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    engine.checkpoint().unwrap();
    let answered = system.answered.load(Ordering::Relaxed);
    assert_eq!(answered, 2, "each order asks once");
    // the jobs that have told the problems run again
    while !engine.health().problems.is_empty() {
        clock.set(Timestamp(clock.now().0 + 3_600_000_000));
        thread::sleep(Duration::from_millis(5));
    }
}
