//! Two apps in one process, whose streams, collections, tables, rules and queries have equal names.

mod failures;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::DocumentCommand;
use tidemill_engine::{App, Engine, ManualClock, Process, ProcessLimits, Transaction};
use tidemill_types::{ErrorKind, Result};

use crate::blocked::{Gate, registry};
use crate::connectors::outside::Outside;
use crate::transactions::{ACCOUNTS, BALANCE, open_accounts, total, transfer};
use crate::{document, quiet, rows, send};

const RULES: &str = "
    entity Account key id;
    entity Transfer key id;
    entity Best key k;
    event In { k: string, n: double } key k;
    event Large { k: string, n: double } key k;
    rule Big { when { i: In(n >= 50); } then { emit Large { k: i.k, n: i.n }; upsert Best { k: i.k, n: i.n }; } }
";
const QUERIES: &str = "
    @key('k') define stream In (k string, n double);
    @sink(type='outside') @key('k') define stream Out (k string, n double);
    @key('k') partition with (k of In) begin @info(name='pass') from In select k, own:pass(n) as n insert into Out; end;
";
const TABLE: &str = "
    define stream Move (k string, n double);
    define table Last (k string, n double);
    @info(name='last') from Move select k, n update or insert into Last on Last.k == k;
";
/// Added by the changed app.
const MORE_RULES: &str = "
    event Small { k: string } key k;
    rule Few { when { i: In(n < 50); } then { emit Small { k: i.k }; } }
";

/// Memory of a process with room for two apps.
const MEMORY: u64 = 1 << 30;
const SHARE: u64 = 512 << 20;
/// Time limit of waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// An app with the systems that it is connected with.
struct Connected {
    name: &'static str,
    gate: Arc<Gate>,
    outside: Arc<Outside>,
}

impl Connected {
    fn new(name: &'static str) -> Self {
        Self { name, gate: Arc::default(), outside: Outside::new() }
    }

    fn app(&self, more_rules: &str) -> App {
        let files = [("pass.siddhi", QUERIES), ("table.siddhi", TABLE)];
        let mut app = quiet(App::from_texts(self.name, Some(&format!("{RULES}{more_rules}")), &files));
        app.settings.partitions = 3;
        app.settings.memory = Some(SHARE);
        app.with_registry(registry(&self.gate)).with_connectors(self.outside.catalog())
    }
}

fn process() -> Arc<Process> {
    Process::new(ProcessLimits::of_memory(MEMORY)).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool, state: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: {}", state());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Acknowledged work of an app.
struct Model {
    rng: StdRng,
    events: u64,
    large: u64,
    small: u64,
    best: BTreeMap<String, f64>,
    moves: u64,
    last: BTreeMap<String, f64>,
    transfers: u64,
    counts_small: bool,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            events: 0,
            large: 0,
            small: 0,
            best: BTreeMap::new(),
            moves: 0,
            last: BTreeMap::new(),
            transfers: 0,
            counts_small: false,
        }
    }

    /// Sends some events, or makes a transfer.
    fn work(&mut self, engine: &Engine) {
        match self.rng.random_range(0..4) {
            0 => {
                let from = self.rng.random_range(0..ACCOUNTS);
                let to = (from + self.rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
                transfer(engine, &format!("t{}", self.transfers), from, to, self.rng.random_range(1..9))
                    .unwrap();
                self.transfers += 1;
            }
            1 => {
                let (k, n) = (format!("k{}", self.rng.random_range(0..5)), self.random_number());
                send(engine, "Move", &format!("{{\"k\":\"{k}\",\"n\":{n}}}"));
                self.moves += 1;
                self.last.insert(k, n);
            }
            _ => {
                let mut events = String::new();
                for _ in 0..self.rng.random_range(1..20) {
                    let (k, n) = (format!("k{}", self.rng.random_range(0..9)), self.random_number());
                    events += &format!("{{\"k\":\"{k}\",\"n\":{n}}}\n");
                    self.events += 1;
                    if n >= 50.0 {
                        self.large += 1;
                        self.best.insert(k, n);
                    } else {
                        self.small += u64::from(self.counts_small);
                    }
                }
                send(engine, "In", &events);
            }
        }
    }

    fn random_number(&mut self) -> f64 {
        f64::from(self.rng.random_range(1..100))
    }

    /// Compares all that the engine has with the model.
    fn check(&self, engine: &Engine) {
        engine.wait_idle();
        let has = ["In", "Out", "Large", "Move"].map(|stream| rows(engine, stream));
        assert_eq!(has, [self.events, self.events, self.large, self.moves]);
        if self.counts_small {
            assert_eq!(rows(engine, "Small"), self.small);
        }
        for (k, n) in &self.best {
            assert!(document(engine, "Best", k).contains(&format!("\"n\":{n:?}")), "{k} {n}");
        }
        let collections = engine.collections().unwrap();
        let count = |name: &str| collections.iter().find(|c| c.name == name).map_or(0, |c| c.documents);
        assert_eq!(
            [count("Best"), count("Transfer"), count("Account")],
            [self.best.len() as u64, self.transfers, ACCOUNTS as u64]
        );
        assert_eq!(total(&engine.document_snapshot().unwrap()), ACCOUNTS * BALANCE);
        let last = engine.query_on_demand(None, "from Last select k, n").unwrap();
        assert_eq!(last.len(), self.last.len());
        assert_eq!(engine.health().problems, Vec::<String>::new());
    }
}

#[test]
fn two_apps_with_equal_names_work_side_by_side() {
    let seed = std::env::var("TIDEMILL_SEED").map_or(20_261_129, |s| s.parse().unwrap());
    println!("TIDEMILL_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let (process, apps) = (process(), ["shop", "fleet"].map(Connected::new));
    let [shop_dir, fleet_dir] = ["shop", "fleet"].map(|name| dir.path().join(name));
    let open = |dir: &Path, app: App| Engine::builder(dir).app(app).process(&process).open();
    let shop = open(&shop_dir, apps[0].app("")).unwrap();
    let fleet = open(&fleet_dir, apps[1].app("")).unwrap();
    [&shop, &fleet].into_iter().for_each(open_accounts);
    let [mut of_shop, mut of_fleet] = [seed, seed + 1].map(Model::new);
    let (is_over, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let steps_from_now = |wanted: u64| {
        let now = steps.load(Ordering::Relaxed);
        until("the other app works", || steps.load(Ordering::Relaxed) >= now + wanted, String::new);
    };
    let shop = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                of_fleet.work(&fleet);
                steps.fetch_add(1, Ordering::Relaxed);
            }
        });
        (0..60).for_each(|_| of_shop.work(&shop));
        of_shop.check(&shop);
        // closed, and gone for a while
        shop.stop().unwrap();
        assert_eq!(process.apps().iter().map(|app| app.name.as_str()).collect::<Vec<_>>(), ["fleet"]);
        steps_from_now(20);
        drop(shop);
        // deployed with a changed app
        let shop = open(&shop_dir, apps[0].app(MORE_RULES)).unwrap();
        of_shop.counts_small = true;
        (0..60).for_each(|_| of_shop.work(&shop));
        shop.checkpoint().unwrap();
        // ended without a stop
        shop.abandon();
        steps_from_now(20);
        drop(shop);
        let shop = Engine::builder(&shop_dir).app(apps[0].app(MORE_RULES)).process(&process).open().unwrap();
        (0..20).for_each(|_| of_shop.work(&shop));
        is_over.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        shop
    });
    of_shop.check(&shop);
    of_fleet.check(&fleet);
    let delivered = [0, 1].map(|app: usize| apps[app].outside.outbox.lock().len() as u64);
    assert!(delivered[0] >= of_shop.events, "each app has sinks of its own");
    assert_eq!(delivered[1], of_fleet.events, "an app that was never closed delivers once");
    shop.stop().unwrap();
    fleet.stop().unwrap();
    assert!(process.apps().is_empty());
    // each directory opens alone, too
    for ((dir, app), model) in [(&shop_dir, apps[0].app(MORE_RULES)), (&fleet_dir, apps[1].app(""))]
        .into_iter()
        .zip([&of_shop, &of_fleet])
    {
        let engine = Engine::open(dir, Some(app)).unwrap();
        assert_eq!(engine.recovery.warnings, Vec::<String>::new());
        model.check(&engine);
        engine.stop().unwrap();
    }
}

/// Returns a command that inserts a document of about `bytes` bytes.
fn insert(id: &str, bytes: usize) -> DocumentCommand {
    let doc = bson::doc! { "_id": id, "text": "x".repeat(bytes) };
    let doc = bson::RawDocumentBuf::try_from(&doc).unwrap().into_bytes().into();
    DocumentCommand::Insert { collection: "Transfer".into(), docs: vec![doc], ordered: true }
}

#[test]
fn open_transactions_of_all_apps_share_one_memory() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ProcessLimits { transactions_bytes: Some(256 << 10), ..ProcessLimits::of_memory(MEMORY) };
    let process = Process::new(limits).unwrap();
    let [shop, fleet] = ["shop", "fleet"].map(|name| {
        let app = Connected::new(name).app("");
        Engine::builder(dir.path().join(name)).app(app).process(&process).open().unwrap()
    });
    let begin = |engine: &Engine, id: &str| -> Result<Transaction> {
        let mut transaction = engine.begin_transaction()?;
        transaction.write(insert(id, 20 << 10))?;
        Ok(transaction)
    };
    let (mut of_shop, mut number) = (vec![], 0);
    let error = loop {
        number += 1;
        assert!(number < 100, "the memory has no limit");
        match begin(&shop, &format!("t{number}")) {
            Ok(transaction) => of_shop.push(transaction),
            Err(e) => break e,
        }
    };
    for error in [error, begin(&fleet, "a").err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("262144 bytes of open transactions of all apps"), "{error}");
    }
    // an app that ends without a stop gives back its memory, and what is committed is its own
    of_shop.pop().unwrap().commit(None, None).unwrap();
    shop.abandon();
    drop((of_shop, shop));
    begin(&fleet, "a").unwrap().commit(None, None).unwrap();
    assert_eq!(fleet.collections().unwrap().iter().map(|c| c.documents).sum::<u64>(), 1);
    fleet.stop().unwrap();
}

fn refusal(opened: Result<Engine>) -> (ErrorKind, String) {
    let error = opened.err().unwrap();
    (error.kind(), error.to_string())
}

#[test]
fn an_app_that_does_not_fit_into_the_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let process = process();
    let of = |name: &str, app: App| Engine::builder(dir.path().join(name)).app(app).process(&process);
    let app = |name: &'static str| Connected::new(name).app("");
    let shop = of("shop", app("shop")).open().unwrap();
    let fleet = of("fleet", app("fleet")).open().unwrap();
    let (kind, message) = refusal(of("third", app("third")).open());
    assert_eq!(kind, ErrorKind::LimitReached);
    assert!(message.contains("of the 1024 MiB of the process 1024 MiB are taken"), "{message}");
    assert!(message.contains("`fleet` 512 MiB, `shop` 512 MiB"), "{message}");
    assert!(!dir.path().join("third").exists(), "nothing is made for an app that is refused");
    let (kind, message) = refusal(of("other", app("shop")).open());
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(message.contains("app `shop` is open in this process already"), "{message}");
    fleet.stop().unwrap();
    let mut greedy = app("third");
    greedy.settings.transactions_bytes = Some(1 << 20);
    assert_eq!(refusal(of("third", greedy).open()).0, ErrorKind::Invalid);
    // a deployed app needs its share as well, and these files have no settings
    let again = Engine::builder(dir.path().join("fleet")).process(&process);
    let (_, message) = refusal(again.open());
    assert!(message.contains("app `fleet`: has no setting memory"), "{message}");
    let third = of("third", app("third")).open().unwrap();
    let (_, message) = refusal(of("third", app("third")).clock(Arc::new(ManualClock::default())).open());
    assert!(message.contains("Process::with_clock"), "{message}");
    third.stop().unwrap();
    shop.stop().unwrap();
}
