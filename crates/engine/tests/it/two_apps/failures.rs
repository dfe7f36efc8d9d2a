//! Failures of one app in a process, and the other app, which has to work as if it were alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Stored,
};
use tidemill_engine::{BodyFormat, Engine, EngineBuilder, Health, Process, SendOptions};
use tidemill_log::sim_disk::SimDisk;
use tidemill_types::ErrorKind;
use tidemill_zones::sim_store::FaultyStore;
use url::Url;

use super::{Connected, PATIENCE, process, until};
use crate::transactions::{open_accounts, transfer};
use crate::{rows, send};

/// An app whose disk, tables and systems outside are values of the test.
struct Devices {
    app: Connected,
    disk: SimDisk,
    store: Arc<FaultyStore>,
    dir: tempfile::TempDir,
}

impl Devices {
    fn new(name: &'static str) -> Self {
        let store = FaultyStore::over(Arc::new(InMemory::new()));
        Self { app: Connected::new(name), disk: SimDisk::default(), store, dir: tempfile::tempdir().unwrap() }
    }

    fn builder(&self) -> EngineBuilder {
        self.builder_with(self.store.clone())
    }

    fn builder_with(&self, store: Arc<dyn ObjectStore>) -> EngineBuilder {
        let mut app = self.app.app("");
        app.settings.send_timeout = tidemill_types::Duration(1_000);
        app.settings.tail_bytes = Some(64 << 10);
        app.settings.inbox_bytes = Some(64 << 10);
        app.settings.zones.retry_attempts = 1;
        app.settings.zones.retry_backoff_ms = 0;
        Engine::builder(self.dir.path())
            .disk(Arc::new(self.disk.clone()))
            .table_store(store, Url::parse("memory:///tables").unwrap())
            .app(app)
    }

    /// Returns the latest checkpoints of all partitions.
    fn checkpoints(&self) -> BTreeMap<String, String> {
        let files =
            self.disk.names().into_iter().filter(|path| path.extension().is_some_and(|e| e == "ckpt"));
        let named = files.map(|path| {
            let partition = path.parent().unwrap().display().to_string();
            (partition, path.file_name().unwrap().to_string_lossy().into_owned())
        });
        let mut latest = BTreeMap::new();
        for (partition, name) in named {
            let known: &mut String = latest.entry(partition).or_default();
            *known = name.max(known.clone());
        }
        latest
    }
}

fn events(n: f64) -> String {
    (0..40).map(|key| format!("{{\"k\":\"k{key}\",\"n\":{n}}}\n")).collect()
}

/// Does with an app all that its users do, and finds no trace of the other one.
fn check_unaffected(engine: &Engine, devices: &Devices, process: &Process, when: &str) {
    let (before, delivered) = (rows(engine, "Out"), devices.app.outside.outbox.lock().len());
    let checkpoints = devices.checkpoints();
    let reply = send(engine, "In", &events(60.0));
    assert_eq!(rows(engine, "Out"), before + 40, "{when}");
    assert_eq!(rows(engine, "Large"), rows(engine, "Out"), "{when}");
    let event = reply.events.unwrap()[0].clone().unwrap().parse().unwrap();
    let why = engine.why(Some("Big"), &event).unwrap();
    assert!(why[0].to_string().contains("Big fired"), "{when}: {}", why[0]);
    let queries = engine.queries().unwrap();
    let emitted = queries.iter().find(|query| query.name == "pass").unwrap().emitted;
    assert_eq!(emitted, rows(engine, "In"), "{when}");
    transfer(engine, when, 1, 2, 1).unwrap();
    engine.checkpoint().unwrap();
    let after = devices.checkpoints();
    assert_eq!(after.len(), 3);
    assert!(checkpoints.iter().all(|(partition, last)| after[partition] != *last), "{when}: {after:?}");
    let outside = &devices.app.outside;
    let all_delivered = || outside.outbox.lock().len() == delivered + 40;
    until(when, all_delivered, || format!("{:?}", engine.sinks()));
    let healthy = Health { ready: true, problems: vec![] };
    assert_eq!(engine.health(), healthy, "{when}");
    let apps = process.apps();
    assert_eq!(apps.iter().find(|app| app.name == "works").unwrap().health, healthy, "{when}");
}

#[test]
fn failures_of_one_app_are_not_noticed_by_the_other() {
    let process = process();
    let (broken, works) = (Devices::new("breaks"), Devices::new("works"));
    let fails = broken.builder().process(&process).open().unwrap();
    let engine = works.builder().process(&process).open().unwrap();
    [&fails, &engine].into_iter().for_each(open_accounts);
    send(&fails, "In", &events(1.0));
    let append = |rows: &str| {
        let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
        fails.send_json("In", rows.as_bytes(), BodyFormat::Ndjson, &options)
    };
    let problems = || {
        let apps = process.apps();
        apps.into_iter().find(|app| app.name == "breaks").unwrap().health.problems.join("; ")
    };
    let has_problem = |problem: &str| until(problem, || problems().contains(problem), problems);
    check_unaffected(&engine, &works, &process, "before");

    broken.app.outside.is_down.store(true, Ordering::Relaxed);
    append(&events(2.0)).unwrap();
    has_problem("app breaks: sink");
    check_unaffected(&engine, &works, &process, "a sink is down");

    // a partition that stops applying, and one that stays at a record
    append("{\"k\":\"k0\",\"n\":-1}").unwrap();
    has_problem("app breaks: apply");
    append("{\"k\":\"k1\",\"n\":0}").unwrap();
    let gate = &broken.app.gate;
    until("a record waits", || gate.is_reached.load(Ordering::Acquire), problems);
    fails.checkpoint().unwrap_err();
    check_unaffected(&engine, &works, &process, "partitions are blocked");

    broken.store.down.store(true, Ordering::SeqCst);
    let full = loop {
        if let Err(e) = append(&events(3.0)) {
            break e;
        }
    };
    assert_eq!(full.kind(), ErrorKind::LimitReached, "{full}");
    fails.checkpoint().unwrap_err();
    check_unaffected(&engine, &works, &process, "the backlog is full");

    broken.disk.set_room(Some(broken.disk.used()));
    broken.disk.fail_syncs(u32::MAX);
    append(&events(4.0)).unwrap_err();
    check_unaffected(&engine, &works, &process, "the disk is broken");

    // it cannot be closed in order, and that is its own affair as well
    gate.set_open();
    fails.abandon();
    drop(fails);
    assert_eq!(process.apps().len(), 1);
    check_unaffected(&engine, &works, &process, "the other one has ended");
    engine.stop().unwrap();
    drop(engine);

    // both open alone
    let alone = works.builder().open().unwrap();
    let kept = rows(&alone, "Out");
    assert_eq!((kept % 40, kept, alone.health().problems), (0, rows(&alone, "Large"), vec![]));
    alone.stop().unwrap();
}

/// A store whose puts are not answered while it is silent.
#[derive(Debug)]
struct SilentStore {
    inner: InMemory,
    is_silent: AtomicBool,
    /// Puts that wait for an answer.
    waiting: AtomicU64,
    /// Puts for which nothing ended the silence in time.
    given_up: AtomicU64,
}

impl std::fmt::Display for SilentStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SilentStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for SilentStore {
    async fn put_opts(&self, at: &Location, payload: PutPayload, options: PutOptions) -> Stored<PutResult> {
        let end = Instant::now() + PATIENCE;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.is_silent.load(Ordering::SeqCst) && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if self.is_silent.swap(false, Ordering::SeqCst) {
            self.given_up.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Location,
        options: PutMultipartOptions,
    ) -> Stored<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Location, options: GetOptions) -> Stored<GetResult> {
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        places: BoxStream<'static, Stored<Location>>,
    ) -> BoxStream<'static, Stored<Location>> {
        self.inner.delete_stream(places)
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Stored<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Stored<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Location, to: &Location, options: CopyOptions) -> Stored<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[test]
fn a_store_that_does_not_answer_holds_up_its_app_only() {
    let process = process();
    let store = Arc::new(SilentStore {
        inner: InMemory::new(),
        is_silent: AtomicBool::new(false),
        waiting: AtomicU64::new(0),
        given_up: AtomicU64::new(0),
    });
    let (waits, works) = (Devices::new("waits"), Devices::new("works"));
    let waiting = waits.builder_with(store.clone()).process(&process).open().unwrap();
    let engine = works.builder().process(&process).open().unwrap();
    [&waiting, &engine].into_iter().for_each(open_accounts);
    send(&waiting, "In", &events(1.0));
    store.is_silent.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| waiting.checkpoint());
        until("a put", || store.waiting.load(Ordering::SeqCst) > 0, String::new);
        for round in ["once", "again"] {
            check_unaffected(&engine, &works, &process, round);
        }
        // events of the app itself are accepted and applied
        send(&waiting, "In", &events(2.0));
        store.is_silent.store(false, Ordering::SeqCst);
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(store.given_up.load(Ordering::SeqCst), 0, "nothing has waited for the store");
    assert_eq!(rows(&waiting, "Out"), 80);
    waiting.stop().unwrap();
    engine.stop().unwrap();
}
