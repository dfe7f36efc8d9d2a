//! Backups of a cluster, and what is made of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidemill_engine::simulation::SharedLog;
use tidemill_engine::{App, Engine, restore, verify_backup};
use tidemill_log::{Durability, Log, NewRecord, Record, Subscription, Ticket};
use tidemill_types::{ErrorKind, Offset, PartitionId, Result};

use super::{Shared, TestNode, orders, wait_for_owners, wait_until, wait_until_spread};
use crate::transactions::{ACCOUNTS, BALANCE, open_accounts, total, transfer};
use crate::{RULES, backups, quiet, rows, send};

/// Accounts and transfers beside the orders, and states that are replaced all the time.
fn app() -> App {
    let rules = format!("{RULES}\nentity Account key id; entity Transfer key id;");
    let mut app = quiet(App::from_rules("shop", &rules));
    app.settings.segment_bytes = 64 << 10;
    app.settings.dedupe_ids = 128;
    app.settings.checkpoint_interval = tidemill_types::Duration::parse("50ms").unwrap();
    app
}

fn transfer_is_there(engine: &Engine, id: &str) -> bool {
    engine.get_document("Transfer", &id.into()).unwrap().is_some()
}

/// Checks that all follows from the orders that are there, and that transactions are whole. Returns the number of orders.
fn check_consistent(engine: &Engine, at_least: u64) -> u64 {
    let n = backups::check_consistent(engine, at_least);
    assert_eq!(total(&engine.document_snapshot().unwrap()), ACCOUNTS * BALANCE);
    n
}

/// Returns the files that hold what was published, by all backups of the nodes.
fn holds(shared: &Shared) -> usize {
    std::fs::read_dir(shared.root.path().join("state/holds")).map_or(0, Iterator::count)
}

#[test]
fn a_backup_of_a_cluster_under_load_has_what_any_node_acknowledged() {
    backup_under_load(&Shared::new());
}

#[test]
fn a_backup_of_nodes_with_some_replicas_has_what_any_node_acknowledged() {
    backup_under_load(&Shared::with_some_replicas());
}

fn backup_under_load(shared: &Shared) {
    let nodes = ["a", "b", "c"].map(|name| shared.try_start(name, name, app()).unwrap());
    match shared.has_some_replicas {
        true => wait_until_spread(&nodes.each_ref()),
        false => wait_for_owners(&nodes.each_ref()),
    }
    open_accounts(&nodes[0].engine);
    let place = |name: String| shared.root.path().join(name);
    let done = AtomicBool::new(false);
    // of each node: orders, and transfers
    let sent: [AtomicU64; 3] = Default::default();
    let committed: [AtomicU64; 3] = Default::default();
    let acknowledged = || {
        let load = |counts: &[AtomicU64; 3]| counts.each_ref().map(|count| count.load(Ordering::Acquire));
        (load(&sent), load(&committed))
    };
    let backups: Vec<([u64; 3], [u64; 3])> = std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        for (at, node) in nodes.iter().enumerate() {
            let (sent, committed, done) = (&sent[at], &committed[at], &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let from = sent.load(Ordering::Acquire);
                    send(&node.engine, "Order", &orders(from + 1_000_000 * at as u64, 10));
                    sent.fetch_add(10, Ordering::AcqRel);
                }
            });
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let n = committed.load(Ordering::Acquire);
                    let (from, to) = (n as i32 % ACCOUNTS, (n as i32 * 5 + 1 + at as i32) % ACCOUNTS);
                    match transfer(&node.engine, &format!("t{at}-{n}"), from, to, 1) {
                        Ok(()) => _ = committed.fetch_add(1, Ordering::AcqRel),
                        Err(e) if e.kind() == ErrorKind::Conflict => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
        let backup = |number: usize| {
            let target = 20 * (number as u64 + 1);
            wait_until("there is some work", || {
                let (sent, committed) = acknowledged();
                sent.iter().all(|n| *n >= target * 5) && committed.iter().all(|n| *n >= target / 4)
            });
            let before = acknowledged();
            let report = nodes[number].engine.backup(place(format!("backup{number}"))).unwrap();
            assert_eq!(report.cluster.as_deref(), Some("test"));
            before
        };
        (0..2).map(backup).collect()
    });
    assert_eq!(holds(shared), 0, "a backup that has ended holds nothing");
    for (number, (sent, committed)) in backups.into_iter().enumerate() {
        let (backup, copy) = (place(format!("backup{number}")), place(format!("copy{number}")));
        let found = verify_backup(&backup).unwrap();
        assert!(found.is_sound(), "{:#?}", found.damaged);
        restore(&backup, &copy).unwrap();
        let engine = Engine::open(&copy, None).unwrap();
        let stored = check_consistent(&engine, sent.iter().sum());
        for (at, n) in committed.into_iter().enumerate() {
            (0..n).for_each(|n| assert!(transfer_is_there(&engine, &format!("t{at}-{n}")), "t{at}-{n}"));
        }
        // ids of events are known
        for (at, n) in sent.into_iter().enumerate() {
            let again = send(&engine, "Order", &orders(1_000_000 * at as u64, n));
            assert_eq!(again.duplicates, Some(n));
        }
        transfer(&engine, "after", 1, 2, 3).unwrap();
        assert_eq!(check_consistent(&engine, 0), stored);
        drop(engine);
        // also after another start
        assert_eq!(check_consistent(&Engine::open(&copy, None).unwrap(), 0), stored);
        check_fallback(&backup, &place(format!("fallback{number}")), sent.iter().sum());
    }
}

/// Checks that a directory from this backup begins with older checkpoints when the newest ones are damaged.
fn check_fallback(backup: &Path, copy: &Path, at_least: u64) {
    restore(backup, copy).unwrap();
    for id in 0..super::PARTITIONS {
        let newest =
            names(&copy.join(format!("checkpoints/p{id:05}"))).into_iter().rfind(|path| is_checkpoint(path));
        let newest = newest.expect("each partition has a checkpoint");
        std::fs::write(newest, b"damaged").unwrap();
    }
    let engine = Engine::open(copy, None).unwrap();
    let warnings = &engine.recovery.warnings;
    let went_back = warnings.iter().filter(|warning| warning.contains("; went back to ")).count();
    assert_eq!(went_back, super::PARTITIONS as usize, "{warnings:#?}");
    backups::check_follows(&engine, at_least);
    assert_eq!(total(&engine.document_snapshot().unwrap()), ACCOUNTS * BALANCE);
    // ids of events are known
    assert_eq!(send(&engine, "Order", &orders(0, 100)).duplicates, Some(100));
}

#[test]
fn an_owner_that_was_a_standby_has_a_checkpoint_to_fall_back_to() {
    let shared = Shared::new();
    let mut app = app();
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    let a = shared.try_start("a", "a", app.clone()).unwrap();
    wait_for_owners(&[&a]);
    open_accounts(&a.engine);
    let mut sent = 0;
    let mut work = |node: &TestNode| {
        send(&node.engine, "Order", &orders(sent, 200));
        sent += 200;
        wait_until("all that rules emit has arrived", || {
            node.engine.catch_up().unwrap();
            rows(&node.engine, "Audit") == sent
        });
        node.engine.checkpoint().unwrap();
    };
    (0..2).for_each(|_| work(&a));
    // the other begins to follow with these checkpoints, and their owner cuts the log behind them
    let b = shared.try_start("b", "b", app).unwrap();
    wait_until("the other follows", || {
        b.engine.cluster_status().unwrap().partitions.iter().all(|one| one.role == "standby")
    });
    (0..4).for_each(|_| work(&a));
    a.control.set_cut_off(true);
    wait_for_owners(&[&b]);
    work(&b);
    let (backup, copy) = (shared.root.path().join("backup"), shared.root.path().join("copy"));
    b.engine.backup(&backup).unwrap();
    let found = verify_backup(&backup).unwrap();
    assert!(found.is_sound(), "{:#?}", found.damaged);
    check_fallback(&backup, &copy, sent);
}

/// A log whose ends are read one after the other, while others work: those of partitions with an even number before that, and the others
/// behind it.
struct SlowEnds {
    log: Arc<SharedLog>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Log for SlowEnds {
    fn latest_ends(&self) -> Result<Vec<Offset>> {
        let mut ends = self.log.latest_ends()?;
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(work) = meanwhile {
            work();
            let later = self.log.latest_ends()?;
            ends.iter_mut().zip(later).skip(1).step_by(2).for_each(|(end, later)| *end = later);
        }
        Ok(ends)
    }

    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn append(&self, id: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket> {
        self.log.append(id, record, durability)
    }

    fn subscribe(&self, id: PartitionId, from: Offset) -> Result<Box<dyn Subscription>> {
        self.log.subscribe(id, from)
    }

    fn sync(&self, id: PartitionId, upto: Offset, durability: Durability) -> Result<()> {
        self.log.sync(id, upto, durability)
    }

    fn read(&self, id: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        self.log.read(id, from, max_bytes)
    }

    fn start(&self, id: PartitionId) -> Offset {
        self.log.start(id)
    }

    fn end(&self, id: PartitionId) -> Offset {
        self.log.end(id)
    }

    fn durable(&self, id: PartitionId) -> Offset {
        self.log.durable(id)
    }

    fn truncate(&self, id: PartitionId, upto: Offset) -> Result<()> {
        self.log.truncate(id, upto)
    }

    fn bytes(&self, id: PartitionId) -> u64 {
        self.log.bytes(id)
    }

    fn flush(&self) -> Result<()> {
        self.log.flush()
    }

    fn close(&self) -> Result<()> {
        self.log.close()
    }
}

#[test]
fn a_cut_through_work_of_others_has_all_causes_and_whole_transactions() {
    let shared = Shared::new();
    let way = Arc::new(SharedLog::new(shared.log.clone()));
    let log = Arc::new(SlowEnds { log: way.clone(), meanwhile: Mutex::default() });
    let mut app = app();
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    let a = Arc::new(shared.try_start_on((way, log.clone()), "a", "a", app.clone()).unwrap());
    let b = Arc::new(shared.try_start("b", "b", app).unwrap());
    wait_for_owners(&[&a, &b]);
    open_accounts(&b.engine);
    send(&b.engine, "Order", &orders(0, 100));
    // states that are newer than the ends are not those of the backup, whose ends are read behind them
    let work = {
        let (a, b) = (a.clone(), b.clone());
        move || {
            send(&b.engine, "Order", &orders(100, 200));
            (0..30).for_each(|n| {
                transfer(&b.engine, &format!("t{n}"), n % ACCOUNTS, (n + 1) % ACCOUNTS, 1).unwrap()
            });
            wait_until("all that rules emit has arrived", || {
                b.engine.catch_up().unwrap();
                rows(&b.engine, "Audit") == 300
            });
            [&a, &b].into_iter().for_each(|node| node.engine.checkpoint().unwrap());
        }
    };
    *log.meanwhile.lock().unwrap() = Some(Box::new(work));
    let (backup, copy) = (shared.root.path().join("backup"), shared.root.path().join("copy"));
    a.engine.backup(&backup).unwrap();
    assert!(log.meanwhile.lock().unwrap().is_none(), "the ends were read");
    let manifest = std::fs::read(backup.join("backup.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let cut = manifest["partitions"].as_array().unwrap().iter().map(|one| one["log_end"].as_u64().unwrap());
    let ends = (0..super::PARTITIONS).map(|id| shared.log.end(PartitionId(id)).0);
    assert!(
        cut.zip(ends).any(|(cut, end)| cut < end),
        "the cut goes through the work: {}",
        manifest["partitions"]
    );
    let found = verify_backup(&backup).unwrap();
    assert!(found.is_sound(), "{:#?}", found.damaged);
    restore(&backup, &copy).unwrap();
    for start in 0..2 {
        let engine = Engine::open(&copy, None).unwrap();
        let stored = check_consistent(&engine, 100);
        let known = (0..30).filter(|n| transfer_is_there(&engine, &format!("t{n}"))).count();
        println!("{stored} orders, {known} transfers");
        transfer(&engine, &format!("after{start}"), 1, 2, 3).unwrap();
    }
}

/// Ends the other threads of a test, also when it fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_that_cannot_be_whole_is_refused_and_leaves_nothing() {
    let shared = Shared::new();
    let node = shared.try_start("a", "a", app()).unwrap();
    wait_for_owners(&[&node]);
    send(&node.engine, "Order", &orders(0, 100));
    let place = |name: &str| shared.root.path().join(name);
    let before = names(shared.root.path());
    let refused = |node: &TestNode| node.engine.backup(place("backup")).unwrap_err();

    // a log that cannot be reached
    node.log.set_cut_off(true);
    let error = refused(&node);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    node.log.set_cut_off(false);
    // no member
    node.control.set_cut_off(true);
    let other = shared.try_start("b", "b", app()).unwrap();
    wait_for_owners(&[&other]);
    let second = shared.try_start("other", "a", app()).unwrap();
    node.control.set_cut_off(false);
    wait_until("the first one is refused", || !node.engine.health().ready);
    let error = refused(&node);
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("not backed up by this node"), "{error}");

    // what is published is damaged
    wait_for_owners(&[&other, &second]);
    let state = place("state/p00000/files");
    let published = || -> Vec<PathBuf> {
        names(&state).iter().flat_map(|epoch| names(epoch)).filter(|file| is_checkpoint(file)).collect()
    };
    wait_until("a checkpoint is published", || !published().is_empty());
    other.engine.stop().unwrap();
    wait_for_owners(&[&second]);
    second.engine.catch_up().unwrap();
    second.engine.checkpoint().unwrap();
    for file in published() {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    let error = refused(&second);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("is damaged"), "{error}");
    // what is published is gone
    published().iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let error = refused(&second);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("replaced before they were copied"), "{error}");
    assert_eq!(holds(&shared), 0);
    let left: Vec<PathBuf> =
        names(shared.root.path()).into_iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(left, [place("b"), place("other")]);
}

fn is_checkpoint(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ckpt")
}

#[test]
fn owners_keep_what_a_backup_holds_and_the_log_behind_it() {
    let shared = Shared::new();
    let mut app = app();
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    let node = shared.try_start("a", "a", app).unwrap();
    wait_for_owners(&[&node]);
    let mut sent = 0;
    let mut checkpoint = || {
        send(&node.engine, "Order", &orders(sent, 100));
        sent += 100;
        node.engine.catch_up().unwrap();
        node.engine.checkpoint().unwrap();
    };
    let state = shared.root.path().join("state");
    let partitions = || (0..super::PARTITIONS).map(PartitionId);
    let versions = || -> Vec<PathBuf> {
        partitions().flat_map(|id| names(&state.join(format!("p{:05}/versions", id.0)))).collect()
    };
    let starts = || partitions().map(|id| shared.log.start(id)).collect::<Vec<_>>();
    (0..4).for_each(|_| checkpoint());
    // by the time of the first of them the owner may have begun to remove the version before the last
    std::fs::create_dir_all(state.join("holds")).unwrap();
    std::fs::write(state.join("holds/backup-0000000000"), "").unwrap();
    checkpoint();
    let (held, begun) = (versions(), starts());
    (0..4).for_each(|_| checkpoint());
    let later = versions();
    assert!(held.iter().all(|version| later.contains(version)), "{held:#?} {later:#?}");
    assert!(later.len() > held.len() + 4, "{later:#?}");
    assert_eq!(starts(), begun);
    std::fs::remove_file(state.join("holds/backup-0000000000")).unwrap();
    checkpoint();
    assert_eq!(versions().len(), 2 * super::PARTITIONS as usize, "{:#?}", versions());
    assert!(starts().iter().zip(&begun).all(|(now, then)| now > then), "{:?}", starts());
}
