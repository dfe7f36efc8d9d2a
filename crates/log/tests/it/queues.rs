//! Queues: comparison with a model, crashes, failing disks, moving and truncation.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_log::queue::{ItemId, QueueOptions, Queues};
use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogOptions, MemoryLog};
use tidemill_types::{ErrorKind, Offset, Timestamp};

use crate::basics::{P, options};
use tidemill_log::sim_disk::{Crash, SimDisk};

fn small() -> QueueOptions {
    QueueOptions { compact_bytes_min: 3000, clock: || Timestamp(0), ..QueueOptions::default() }
}

fn log_on(disk: &SimDisk) -> Arc<LocalLog> {
    Arc::new(LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options()).unwrap().0)
}

fn put(queues: &Queues, name: &str, items: &[&[u8]]) {
    let mut tx = queues.begin();
    items.iter().for_each(|i| tx.put(name, i).unwrap());
    assert_eq!(tx.commit(Durability::Fsync).unwrap(), items.len() as u64);
    assert!(tx.is_empty());
}

fn take(queues: &Queues, name: &str, max: usize) -> Vec<Vec<u8>> {
    queues.take(name, max).into_iter().map(|(_, b)| b.to_vec()).collect()
}

fn ids(taken: &[(ItemId, bytes::Bytes)]) -> Vec<ItemId> {
    taken.iter().map(|(id, _)| *id).collect()
}

#[test]
fn uncommitted_puts_are_never_seen() {
    let log: Arc<dyn GroupLog> = Arc::new(MemoryLog::new(1));
    let queues = Queues::open(Arc::clone(&log), P, small()).unwrap();
    let mut tx = queues.begin();
    tx.put("a", b"1").unwrap();
    assert_eq!(take(&queues, "a", 9), Vec::<Vec<u8>>::new());
    drop(tx);
    assert_eq!(queues.begin().commit(Durability::Fsync).unwrap(), 0);
    assert_eq!(log.end(P), Offset(0));
    let mut tx = queues.begin();
    tx.put("a", b"1").unwrap();
    tx.put("b", b"2").unwrap();
    tx.put("a", b"3").unwrap();
    assert_eq!((tx.len(), tx.commit(Durability::Os).unwrap()), (3, 3));
    assert_eq!(queues.names(), ["a", "b"]);
    assert_eq!(take(&queues, "a", 9), [b"1", b"3"]);
    assert_eq!(take(&queues, "b", 9), [b"2"]);
    assert_eq!(queues.len("a"), 2);
}

#[test]
fn taken_items_come_back_by_nack_and_by_reopening_only() {
    let log: Arc<dyn GroupLog> = Arc::new(MemoryLog::new(1));
    let queues = Queues::open(Arc::clone(&log), P, small()).unwrap();
    put(&queues, "q", &[b"1", b"2", b"3", b"4"]);
    let taken = queues.take("q", 3);
    assert_eq!(take(&queues, "q", 9), [b"4"]);
    queues.nack(&ids(&taken[..2])).unwrap();
    let error = queues.nack(&ids(&taken[1..2])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("item 0/1 cannot be given back: it is not taken"), "{error}");
    assert_eq!(take(&queues, "q", 1), [b"1"]);
    queues.ack(&ids(&taken[1..2])).unwrap();
    assert_eq!(take(&queues, "q", 9), Vec::<Vec<u8>>::new());
    let queues = Queues::open(log, P, small()).unwrap();
    assert_eq!(queues.len("q"), 3);
    let taken = queues.take("q", 9);
    assert_eq!(taken.iter().map(|t| &t.1[..]).collect::<Vec<_>>(), [b"1", b"3", b"4"]);
    // In any order, twice, and including acknowledged ones.
    let mut back = ids(&taken);
    back.reverse();
    queues.ack(&back).unwrap();
    queues.ack(&back).unwrap();
    assert!(queues.is_empty("q") && queues.names().is_empty() && queues.bytes() == 0);
}

#[test]
fn limits_are_told() {
    let log: Arc<dyn GroupLog> = Arc::new(MemoryLog::new(1));
    let options = QueueOptions { items_bytes_max: 2000, ..small() };
    let queues = Queues::open(log, P, options).unwrap();
    let mut tx = queues.begin();
    assert_eq!(tx.put("", b"x").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(tx.put(&"x".repeat(256), b"x").unwrap_err().kind(), ErrorKind::Invalid);
    tx.put("q", &[1; 1500]).unwrap();
    assert_eq!(tx.put("q", &[1; 600]).unwrap_err().kind(), ErrorKind::LimitReached);
    tx.commit(Durability::Memory).unwrap();
    tx.put("q", &[2; 1000]).unwrap();
    let error = tx.commit(Durability::Memory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.message().contains("items_bytes_max"), "{error}");
    // Once there is space, the rejected transaction commits.
    queues.ack(&ids(&queues.take("q", 1))).unwrap();
    assert_eq!(tx.commit(Durability::Memory).unwrap(), 1);
    assert_eq!(take(&queues, "q", 9), [[2; 1000]]);
}

#[test]
fn commit_on_a_failing_disk_is_taken_back_and_can_be_repeated() {
    for full in [true, false] {
        let disk = SimDisk::default();
        let queues = Queues::open(log_on(&disk), P, small()).unwrap();
        put(&queues, "q", &[b"before"]);
        if full {
            disk.set_room(Some(disk.used() + 10));
        } else {
            disk.fail_syncs(1);
        }
        let mut tx = queues.begin();
        tx.put("q", b"1").unwrap();
        tx.put("r", b"2").unwrap();
        for _ in 0..if full { 3 } else { 1 } {
            assert_eq!(tx.commit(Durability::Fsync).unwrap_err().kind(), ErrorKind::Unavailable);
            assert_eq!((tx.len(), queues.len("q"), queues.len("r")), (2, 1, 0));
        }
        disk.set_room(None);
        assert_eq!(tx.commit(Durability::Fsync).unwrap(), 2);
        for again in [false, true] {
            let disk = disk.after_crash(Crash::Power, &mut StdRng::seed_from_u64(1));
            let queues =
                if again { Queues::open(log_on(&disk), P, small()).unwrap() } else { queues.clone() };
            assert_eq!((queues.len("q"), queues.len("r")), (2, 1));
            assert_eq!(take(&queues, "q", 9), [&b"before"[..], b"1"]);
            assert_eq!(take(&queues, "r", 9), [b"2"]);
        }
    }
}

#[test]
fn failed_ack_can_be_repeated_and_is_durable_then() {
    let disk = SimDisk::default();
    let queues = Queues::open(log_on(&disk), P, small()).unwrap();
    put(&queues, "q", &[b"1", b"2"]);
    let taken = ids(&queues.take("q", 1));
    disk.fail_syncs(1);
    assert_eq!(queues.ack(&taken).unwrap_err().kind(), ErrorKind::Unavailable);
    queues.ack(&taken).unwrap();
    let disk = disk.after_crash(Crash::Power, &mut StdRng::seed_from_u64(1));
    assert_eq!(take(&Queues::open(log_on(&disk), P, small()).unwrap(), "q", 9), [b"2"]);
}

#[test]
fn forgotten_items_do_not_keep_the_log() {
    let disk = SimDisk::default();
    let log = log_on(&disk);
    let queues = Queues::open(Arc::clone(&log) as Arc<dyn GroupLog>, P, small()).unwrap();
    put(&queues, "forgotten", &[b"never taken", &[9; 100]]);
    put(&queues, "held", &[b"gone", b"taken", b"later"]);
    let held = queues.take("held", 2);
    queues.ack(&[held[0].0]).unwrap();
    for round in 0..300_u32 {
        put(&queues, "busy", &[&[1; 100], &round.to_le_bytes()]);
        let taken = queues.take("busy", 10);
        assert_eq!(taken.len(), 2);
        queues.ack(&ids(&taken)).unwrap();
        assert!(disk.used() < 20_000, "round {round}: {} bytes", disk.used());
    }
    assert!(log.start(P) > Offset(200));
    // Items keep their ids when they are moved: taken ones stay taken, returned ones are available.
    assert_eq!(take(&queues, "held", 9), [b"later"]);
    queues.nack(&[held[1].0]).unwrap();
    for round in 0..300_u32 {
        put(&queues, "busy", &[&[1; 100], &round.to_le_bytes()]);
        queues.ack(&ids(&queues.take("busy", 10))).unwrap();
    }
    assert_eq!(take(&queues, "held", 9), [b"taken"]);
    assert_eq!(queues.len("held"), 2);
    drop((queues, log));
    let queues = Queues::open(log_on(&disk), P, small()).unwrap();
    assert_eq!(take(&queues, "forgotten", 9), [&b"never taken"[..], &[9; 100]]);
    assert_eq!(take(&queues, "held", 9), [b"taken", b"later"]);
    queues.ack(&[held[1].0]).unwrap();
    assert_eq!(queues.len("held"), 1);
}

#[test]
fn foreign_records_are_told() {
    let log = Arc::new(MemoryLog::new(1));
    log.write_and_sync(P, Timestamp(0), &[b"\x09"], Durability::Memory).unwrap();
    let error = Queues::open(log, P, small()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("record 0 of partition 0 is no queue entry: 9 is no kind"), "{error}");
}

/// Expected content of the queues: per queue the items in order, and the taken items with their ids.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<String, VecDeque<Vec<u8>>>,
    taken: Vec<(String, ItemId, Vec<u8>)>,
}

fn random_work(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    let mut log = log_on(&disk);
    let mut queues = Queues::open(log.clone(), P, small()).unwrap();
    let mut model = Model::default();
    let mut n = 0_u32;
    for _ in 0..300 {
        let name = ["a", "b", "c"][rng.random_range(0..3)];
        match rng.random_range(0..10) {
            0..4 => {
                let mut tx = queues.begin();
                for _ in 0..rng.random_range(1..20) {
                    n += 1;
                    let item = n.to_le_bytes().repeat(rng.random_range(1..20));
                    tx.put(name, &item).unwrap();
                    model.waiting.entry(name.into()).or_default().push_back(item);
                }
                tx.commit(Durability::Fsync).unwrap();
            }
            4..7 => {
                let max = rng.random_range(1..30);
                let waiting = model.waiting.entry(name.into()).or_default();
                for (id, bytes) in queues.take(name, max) {
                    let i = waiting
                        .iter()
                        .position(|w| w[..] == bytes[..])
                        .expect("an item nobody put, or taken twice");
                    waiting.remove(i);
                    model.taken.push((name.into(), id, bytes.to_vec()));
                }
                assert!(waiting.is_empty() || model.taken.len() >= max.min(1));
            }
            7..9 => {
                let some: Vec<_> = (0..model.taken.len()).filter(|_| rng.random_bool(0.8)).collect();
                let done: Vec<_> = some.into_iter().rev().map(|i| model.taken.swap_remove(i)).collect();
                let ids: Vec<ItemId> = done.iter().map(|d| d.1).collect();
                if rng.random_bool(0.8) {
                    queues.ack(&ids).unwrap();
                } else {
                    queues.nack(&ids).unwrap();
                    done.into_iter().for_each(|d| model.waiting.entry(d.0).or_default().push_back(d.2));
                }
            }
            _ if rng.random_bool(0.3) => {
                drop((queues, log));
                log = log_on(&disk);
                queues = Queues::open(log.clone(), P, small()).unwrap();
                for (name, _, item) in model.taken.drain(..) {
                    model.waiting.entry(name).or_default().push_back(item);
                }
            }
            _ => {}
        }
        for (name, waiting) in &model.waiting {
            let taken = model.taken.iter().filter(|t| t.0 == *name).count();
            assert_eq!(queues.len(name), (waiting.len() + taken) as u64);
        }
    }
    for (name, mut waiting) in model.waiting {
        let mut found = take(&queues, &name, usize::MAX);
        found.sort();
        waiting.make_contiguous().sort();
        assert_eq!(waiting, found);
    }
}

#[test]
fn random_work_agrees_with_the_model() {
    for seed in 0..60 {
        if let Err(panic) = std::panic::catch_unwind(|| random_work(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Every commit is present completely or not at all, acknowledged items are gone, all others are present.
#[test]
fn crashes_lose_no_committed_item_and_bring_no_acknowledged_one_back() {
    for seed in 0..300_u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::default();
        disk.stop_at(rng.random_range(10..400), StdRng::seed_from_u64(seed));
        let queues = match LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options()) {
            Ok((log, _)) => Queues::open(Arc::new(log), P, small()).unwrap(),
            Err(_) => continue,
        };
        let (mut put, mut maybe, mut acked) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..60_u32 {
            let mut tx = queues.begin();
            (0..5_u32).for_each(|i| tx.put("q", &[&n.to_le_bytes()[..], &[i as u8; 60]].concat()).unwrap());
            match tx.commit(Durability::Fsync) {
                Ok(_) => put.push(n),
                Err(_) => maybe.push(n),
            }
            let taken = queues.take("q", 3);
            if rng.random_bool(0.7) && queues.ack(&ids(&taken)).is_ok() {
                acked.extend(taken.into_iter().map(|(_, b)| b.to_vec()));
            } else {
                maybe.extend(taken.iter().map(|(_, b)| u32::from_le_bytes(b[..4].try_into().unwrap())));
            }
        }
        let crash = [Crash::Kill, Crash::Power][rng.random_range(0..2)];
        let disk = disk.after_crash(crash, &mut rng);
        let queues = Queues::open(log_on(&disk), P, small()).unwrap();
        let found = take(&queues, "q", usize::MAX);
        for item in &acked {
            assert!(!found.contains(item), "seed {seed} {crash:?}: an acknowledged item came back");
        }
        for n in put {
            let there = found.iter().filter(|f| f[..4] == n.to_le_bytes()).count();
            let gone = acked.iter().filter(|f| f[..4] == n.to_le_bytes()).count();
            assert!(
                there + gone == 5 || maybe.contains(&n),
                "seed {seed} {crash:?}: {there} + {gone} of commit {n}"
            );
        }
    }
}

#[test]
fn queues_refuse_a_partition_that_is_not_there() {
    let log = Arc::new(MemoryLog::new(1));
    let error = Queues::open(log, tidemill_types::PartitionId(1), small()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn one_large_commit_is_one_record() {
    let dir = tempfile::tempdir().unwrap();
    let options = || LogOptions { background_sync_ms: 0, ..LogOptions::new(1) };
    let log = Arc::new(LocalLog::open(dir.path(), options()).unwrap().0);
    let queues = Queues::open(log.clone(), P, QueueOptions::default()).unwrap();
    let mut tx = queues.begin();
    for i in 0..200_000_u32 {
        tx.put("q", &i.to_le_bytes()).unwrap();
    }
    assert_eq!(tx.commit(Durability::Fsync).unwrap(), 200_000);
    assert_eq!(log.end(P), Offset(1));
    let taken = queues.take("q", 150_000);
    queues.ack(&ids(&taken)).unwrap();
    drop((queues, tx, log));
    let log = Arc::new(LocalLog::open(dir.path(), options()).unwrap().0);
    let queues = Queues::open(log, P, QueueOptions::default()).unwrap();
    let left = take(&queues, "q", usize::MAX);
    assert_eq!((left.len(), &left[0][..]), (50_000, &150_000_u32.to_le_bytes()[..]));
}
