//! Transactions on documents: what they see, what they write, and what a restart leaves of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bson::raw::RawDocument;
use bson::{doc, rawdoc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::{DocumentCommand, FindOptions, IndexSpec};
use tidemill_engine::{App, DocumentSnapshot, Engine, Transaction};
use tidemill_types::{Result, Value};

use crate::quiet;

pub const ACCOUNTS: i32 = 12;
pub const BALANCE: i32 = 100;

fn open(dir: &Path, partitions: u32) -> Engine {
    let mut app = quiet(App::from_rules("bank", "entity Account key id; entity Transfer key id;"));
    app.settings.partitions = partitions;
    Engine::open(dir, Some(app)).unwrap()
}

fn bytes(doc: &bson::Document) -> bytes::Bytes {
    bson::RawDocumentBuf::try_from(doc).unwrap().into_bytes().into()
}

fn insert(collection: &str, docs: &[bson::Document]) -> DocumentCommand {
    let docs = docs.iter().map(bytes).collect();
    DocumentCommand::Insert { collection: collection.into(), docs, ordered: true }
}

fn add(id: i32, amount: i32) -> DocumentCommand {
    DocumentCommand::Update {
        collection: "Account".into(),
        filter: bytes(&doc! { "_id": id }),
        update: bytes(&doc! { "$inc": { "balance": amount } }),
        multi: false,
        upsert: false,
        upsert_id: None,
    }
}

fn delete(id: i32) -> DocumentCommand {
    DocumentCommand::Delete { collection: "Account".into(), filter: bytes(&doc! { "_id": id }), multi: false }
}

pub fn open_accounts(engine: &Engine) {
    let accounts: Vec<_> = (0..ACCOUNTS).map(|id| doc! { "_id": id, "balance": BALANCE }).collect();
    engine.write_documents(insert("Account", &accounts), None).unwrap();
}

fn balance(documents: &DocumentSnapshot, id: i32) -> Option<i32> {
    let found = documents.get("Account", &Value::Int(id.into())).unwrap()?;
    Some(RawDocument::from_bytes(&found).unwrap().get_i32("balance").unwrap())
}

pub fn total(documents: &DocumentSnapshot) -> i32 {
    (0..ACCOUNTS).filter_map(|id| balance(documents, id)).sum()
}

/// Moves an amount between two accounts, and writes down that it did.
pub fn transfer(engine: &Engine, id: &str, from: i32, to: i32, amount: i32) -> Result<()> {
    let mut transaction = engine.begin_transaction().unwrap();
    transaction.write(add(from, -amount))?;
    transaction.write(add(to, amount))?;
    transaction.write(insert("Transfer", &[doc! { "_id": id }]))?;
    transaction.commit(None, None)
}

#[test]
fn a_transaction_reads_its_snapshot_and_its_own_writes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 3);
    open_accounts(&engine);
    let mut transaction = engine.begin_transaction().unwrap();
    engine.write_documents(add(1, 50), None).unwrap();
    assert_eq!(balance(transaction.documents(), 1), Some(100), "as it was at the start");
    transaction.write(add(2, 7)).unwrap();
    transaction.write(insert("Account", &[doc! { "_id": 100, "balance": 1 }])).unwrap();
    transaction.write(delete(3)).unwrap();
    let seen = |documents: &DocumentSnapshot| [2, 3, 100].map(|id| balance(documents, id));
    assert_eq!(seen(transaction.documents()), [Some(107), None, Some(1)]);
    let rich = rawdoc! { "balance": { "$gt": 100 } };
    let found = transaction.documents().find("Account", &rich, &FindOptions::default()).unwrap();
    assert_eq!(found.len(), 1, "account 2, and not account 1, which another writer has changed");
    assert_eq!(
        seen(&engine.document_snapshot().unwrap()),
        [Some(100), Some(100), None],
        "nobody else sees it"
    );
    transaction.commit(None, None).unwrap();
    assert_eq!(seen(&engine.document_snapshot().unwrap()), [Some(107), None, Some(1)]);
    assert_eq!(engine.count_documents("Account", &rawdoc! {}).unwrap(), 12);
}

#[test]
fn a_dropped_transaction_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 2);
    open_accounts(&engine);
    let mut dropped = engine.begin_transaction().unwrap();
    dropped.write(add(1, 5)).unwrap();
    drop(dropped);
    assert_eq!(balance(&engine.document_snapshot().unwrap(), 1), Some(100));
    transfer(&engine, "t", 1, 2, 5).expect("the lock on account 1 is released");
}

/// Returns MongoDB's code of the error of a conflict.
fn conflict(done: Result<impl Sized>) -> Option<i32> {
    done.err().and_then(|e| e.document_code())
}

#[test]
fn the_second_writer_of_a_document_fails() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 2);
    open_accounts(&engine);
    let mut first = engine.begin_transaction().unwrap();
    let mut second = engine.begin_transaction().unwrap();
    first.write(add(1, 1)).unwrap();
    assert_eq!(conflict(second.write(add(1, 2))), Some(112), "another transaction is about to write it");
    assert!(second.commit(None, None).is_err(), "a transaction that failed cannot be committed");
    let mut third = engine.begin_transaction().unwrap();
    first.commit(None, None).unwrap();
    assert_eq!(conflict(third.write(add(1, 2))), Some(112), "it has been changed since the third began");
    // a write outside of a transaction goes first
    let writes: [fn(&mut Transaction); 3] = [
        |t| drop(t.write(add(4, 1)).unwrap()),
        |t| drop(t.write(delete(4)).unwrap()),
        |t| {
            t.write(delete(4)).unwrap();
            t.write(insert("Account", &[doc! { "_id": 4, "balance": 9 }])).unwrap();
        },
    ];
    for write in writes {
        for partitions in [&[4][..], &[4, 5, 6, 7]] {
            let mut late = engine.begin_transaction().unwrap();
            write(&mut late);
            for other in &partitions[1..] {
                late.write(add(*other, 1)).unwrap();
            }
            engine.write_documents(add(4, 1), None).unwrap();
            assert_eq!(conflict(late.commit(None, None)), Some(112));
        }
    }
    let documents = engine.document_snapshot().unwrap();
    assert_eq!((balance(&documents, 1), balance(&documents, 4)), (Some(101), Some(106)));
    assert_eq!([5, 6, 7].map(|id| balance(&documents, id)), [Some(100); 3], "all or nothing");
}

#[test]
fn a_document_that_came_and_went_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 1);
    open_accounts(&engine);
    let mut late = engine.begin_transaction().unwrap();
    engine.write_documents(insert("Account", &[doc! { "_id": 50 }]), None).unwrap();
    engine.write_documents(delete(50), None).unwrap();
    let done = late.write(insert("Account", &[doc! { "_id": 50 }])).and_then(|_| late.commit(None, None));
    assert_eq!(conflict(done), Some(112));
}

#[test]
fn a_unique_value_moves_between_documents() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 1);
    let index = IndexSpec { unique: true, ..IndexSpec::ascending("seat") };
    engine
        .write_documents(DocumentCommand::CreateIndex { collection: "Account".into(), index }, None)
        .unwrap();
    let seats = [doc! { "_id": 1, "seat": "a" }, doc! { "_id": 2, "seat": "b" }];
    engine.write_documents(insert("Account", &seats), None).unwrap();
    let sit = |id: i32, seat: &str| DocumentCommand::Update {
        collection: "Account".into(),
        filter: bytes(&doc! { "_id": id }),
        update: bytes(&doc! { "$set": { "seat": seat } }),
        multi: false,
        upsert: false,
        upsert_id: None,
    };
    let mut swap = engine.begin_transaction().unwrap();
    for (id, seat) in [(1, "aisle"), (2, "a"), (1, "b")] {
        let done = swap.write(sit(id, seat)).unwrap();
        assert!(done.errors.is_empty());
    }
    swap.commit(None, None).unwrap();
    let documents = engine.document_snapshot().unwrap();
    let seat = |id: i64| {
        let found = documents.get("Account", &Value::Int(id)).unwrap().unwrap();
        RawDocument::from_bytes(&found).unwrap().get_str("seat").unwrap().to_owned()
    };
    assert_eq!((seat(1), seat(2)), ("b".to_owned(), "a".to_owned()));
    // a seat that somebody else has taken meanwhile
    let mut late = engine.begin_transaction().unwrap();
    late.write(sit(1, "window")).unwrap();
    engine.write_documents(sit(2, "window"), None).unwrap();
    assert_eq!(conflict(late.commit(None, None)), Some(11000));
}

/// Returns the only file of the log of a partition.
fn log_file(dir: &Path, partition: u32) -> PathBuf {
    let files = std::fs::read_dir(dir.join(format!("log/p{partition:05}"))).unwrap();
    files.map(|file| file.unwrap().path()).find(|file| file.extension().is_some_and(|e| e == "seg")).unwrap()
}

/// Two crashes: the first one takes the record of a transaction from one log, after the second one the other log has it still.
#[test]
fn partitions_do_not_wait_for_records_that_a_crash_has_taken() {
    let dir = tempfile::tempdir().unwrap();
    let log_bytes = || [0, 1].map(|p| log_file(dir.path(), p).metadata().unwrap().len());
    /// Moves money between accounts of both partitions. Returns how large the logs were before.
    fn transfer_over_both(engine: &Engine, name: &str, log_bytes: impl Fn() -> [u64; 2]) -> [u64; 2] {
        for id in 1..ACCOUNTS {
            let before = log_bytes();
            transfer(engine, &format!("{name}{id}"), 0, id, 1).unwrap();
            let after = log_bytes();
            if after[0] > before[0] && after[1] > before[1] {
                return before;
            }
        }
        panic!("all accounts are in one partition");
    }
    let engine = open(dir.path(), 2);
    open_accounts(&engine);
    let before = transfer_over_both(&engine, "lost", log_bytes);
    let transfers = engine.document_snapshot().unwrap().len("Transfer").unwrap().unwrap();
    engine.abandon();
    drop(engine);
    let log = std::fs::File::options().write(true).open(log_file(dir.path(), 1)).unwrap();
    log.set_len(before[1]).unwrap();
    let engine = open(dir.path(), 2);
    let documents = engine.document_snapshot().unwrap();
    assert_eq!(total(&documents), ACCOUNTS * BALANCE);
    assert_eq!(documents.len("Transfer").unwrap().unwrap(), transfers - 1, "the last one is lost in both");
    transfer_over_both(&engine, "kept", log_bytes);
    let transfers = engine.document_snapshot().unwrap().len("Transfer").unwrap().unwrap();
    engine.abandon();
    drop(engine);
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = dir.path().to_owned();
    std::thread::spawn(move || sender.send(open(&path, 2)).is_ok());
    let engine = receiver.recv_timeout(Duration::from_secs(60)).expect("the engine starts");
    let documents = engine.document_snapshot().unwrap();
    assert_eq!(total(&documents), ACCOUNTS * BALANCE);
    assert_eq!(documents.len("Transfer").unwrap().unwrap(), transfers);
}

/// Which documents an ordered insert stores is decided by the logs of its partitions: a restart decides alike, and if one of the logs
/// has lost its part, nothing of it is there.
#[test]
fn an_ordered_insert_is_decided_by_the_logs() {
    let dir = tempfile::tempdir().unwrap();
    let stored = |engine: &Engine| {
        let mut ids: Vec<i32> = engine
            .document_snapshot()
            .unwrap()
            .documents("Account")
            .unwrap()
            .unwrap()
            .iter()
            .map(|d| RawDocument::from_bytes(d).unwrap().get_i32("_id").unwrap())
            .collect();
        ids.sort_unstable();
        ids
    };
    let accounts = |ids: std::ops::Range<i32>| ids.map(|id| doc! { "_id": id }).collect::<Vec<_>>();
    let mut expected = Vec::new();
    for round in 0..3 {
        let engine = open(dir.path(), 3);
        assert_eq!(stored(&engine), expected, "round {round}");
        let first = 100 * round;
        engine.write_documents(insert("Account", &accounts(first + 20..first + 21)), None).unwrap();
        let outcome = engine.write_documents(insert("Account", &accounts(first..first + 40)), None).unwrap();
        assert_eq!((outcome.inserted, outcome.errors.len()), (20, 1));
        assert_eq!((outcome.errors[0].index, outcome.errors[0].error.code()), (20, 11000));
        expected.extend(first..=first + 20);
        assert_eq!(stored(&engine), expected);
        if round == 1 {
            engine.checkpoint().unwrap();
        }
        engine.abandon();
    }
    let log_bytes = || (0..3).map(|p| log_file(dir.path(), p).metadata().unwrap().len()).collect::<Vec<_>>();
    let engine = open(dir.path(), 3);
    let before = log_bytes();
    let outcome = engine.write_documents(insert("Account", &accounts(500..540)), None).unwrap();
    assert_eq!(outcome.inserted, 40);
    assert!(log_bytes().iter().zip(&before).all(|(after, before)| after > before));
    engine.abandon();
    drop(engine);
    let log = std::fs::File::options().write(true).open(log_file(dir.path(), 1)).unwrap();
    log.set_len(before[1]).unwrap();
    assert_eq!(stored(&open(dir.path(), 3)), expected);
}

/// Clients move money between accounts while others add it up, and the engine is stopped without warning again and again.
#[test]
fn money_is_neither_lost_nor_made() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    for partitions in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), partitions);
        open_accounts(&engine);
        drop(engine);
        let (done, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
        for round in 0..4 {
            let engine = open(dir.path(), partitions);
            assert_eq!(total(&engine.document_snapshot().unwrap()), ACCOUNTS * BALANCE);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for client in 0..3 {
                    let (engine, stop, done, unknown) = (&engine, &stop, &done, &unknown);
                    scope.spawn(move || {
                        let mut rng = StdRng::seed_from_u64(seed * 1000 + round * 10 + client);
                        for n in 0..200 {
                            let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
                            let id = format!("{round}-{client}-{n}");
                            match transfer(engine, &id, from, to, rng.random_range(1..20)) {
                                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                                Err(e) if e.document_code() == Some(112) => {}
                                Err(_) => drop(unknown.fetch_add(1, Ordering::Relaxed)),
                            }
                            if client == 0 && n == 60 {
                                engine.checkpoint().unwrap();
                            }
                            if client == 0 && n == 150 {
                                engine.abandon();
                            }
                        }
                        stop.store(true, Ordering::Relaxed);
                    });
                }
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(total(&engine.document_snapshot().unwrap()), ACCOUNTS * BALANCE);
                }
            });
        }
        let engine = open(dir.path(), partitions);
        let documents = engine.document_snapshot().unwrap();
        assert_eq!(total(&documents), ACCOUNTS * BALANCE);
        let transfers = documents.len("Transfer").unwrap().unwrap();
        let (done, unknown) = (done.into_inner(), unknown.into_inner());
        println!(
            "{partitions} partitions: {done} transfers, {unknown} with unknown outcome, {transfers} stored"
        );
        assert!(done > 100 && (done..=done + unknown).contains(&transfers));
    }
}

/// A write that takes more steps than a record may is refused, changes nothing, and is refused again when the log is read.
#[test]
fn a_write_that_takes_too_many_steps_is_refused_again_by_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    let update = |filter: bson::Document| DocumentCommand::Update {
        collection: "text".into(),
        filter: bytes(&filter),
        update: bytes(&doc! { "$set": { "changed": true } }),
        multi: true,
        upsert: false,
        upsert_id: None,
    };
    let engine = open(dir.path(), 1);
    // each takes about a million steps of an expression that looks around, which are counted before they are taken
    let texts: Vec<_> = (0..20).map(|id| doc! { "_id": id, "t": "a".repeat(60_000) }).collect();
    engine.write_documents(insert("text", &texts), None).unwrap();
    let looks_around = || doc! { "t": { "$regex": "(?<!a)b" } };
    let few = doc! { "$and": [{ "_id": { "$in": (0..5).collect::<Vec<_>>() } }, looks_around()] };
    assert_eq!(engine.write_documents(update(few), None).unwrap().matched, 0);
    let nothing = doc! { "$nor": [looks_around()] };
    let refused = engine.write_documents(update(nothing), None).unwrap_err();
    assert_eq!(refused.document_code(), Some(146), "{refused}");
    assert!(refused.to_string().contains("steps"), "{refused}");
    engine.write_documents(update(doc! { "_id": 7 }), None).unwrap();
    let changed = |engine: &Engine| engine.count_documents("text", &rawdoc! { "changed": true }).unwrap();
    assert_eq!(changed(&engine), 1);
    engine.abandon();
    drop(engine);
    assert_eq!(changed(&open(dir.path(), 1)), 1);
}
