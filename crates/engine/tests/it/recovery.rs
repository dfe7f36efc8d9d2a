use std::path::{Path, PathBuf};

use tidemill_engine::{App, Engine, EventSelector};
use tidemill_types::ErrorKind;

use crate::{app, document, ledger, open, rows, send};

fn orders(from: usize, n: usize) -> String {
    (from..from + n)
        .map(|i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, (i % 4) * 50))
        .collect()
}

/// Returns the facts that must not depend on restarts.
fn facts(engine: &Engine) -> String {
    // events for other partitions are appended asynchronously by a partition's owner: wait for them, too
    engine.wait_idle();
    let counts: Vec<String> =
        ["Order", "Big", "Audit"].iter().map(|s| format!("{s}={}", rows(engine, s))).collect();
    let rules: Vec<String> =
        engine.rules().unwrap().iter().map(|r| format!("{}={}", r.name, r.fired)).collect();
    format!(
        "{}{counts:?} {rules:?} {} {}",
        ledger(engine),
        document(engine, "Total", "big"),
        document(engine, "Total", "small")
    )
}

const EXPECTED: &str = "Order 1000=1000+0+0\nBig 500=500+0+0\nAudit 1000=1000+0+0\n\
    [\"Order=1000\", \"Big=500\", \"Audit=1000\"] [\"Count=0\", \"BigOne=500\", \"SmallOne=500\", \"Audited=998\", \"FirstAudit=2\"] \
    {\"_id\":\"big\",\"id\":\"big\",\"n\":500} {\"_id\":\"small\",\"id\":\"small\",\"n\":500}";

#[test]
fn restarts_of_every_kind_change_nothing() {
    for plan in ["", "flush", "checkpoint", "flush checkpoint", "stop", "checkpoint flush", "stop flush"] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        send(&engine, "Order", &orders(0, 300));
        if plan.starts_with("flush") {
            engine.flush().unwrap();
        } else if plan.starts_with("checkpoint") {
            engine.checkpoint().unwrap();
        } else if plan.starts_with("stop") {
            engine.stop().unwrap();
        }
        engine.abandon();
        drop(engine);
        let engine = open(dir.path());
        assert_eq!(engine.recovery.warnings, Vec::<String>::new(), "{plan}");
        send(&engine, "Order", &orders(300, 300));
        if plan.ends_with("flush") {
            engine.flush().unwrap();
        } else if plan.ends_with("checkpoint") {
            engine.checkpoint().unwrap();
        }
        engine.abandon();
        drop(engine);
        let engine = open(dir.path());
        send(&engine, "Order", &orders(600, 400));
        assert_eq!(facts(&engine), EXPECTED, "{plan}");
        engine.stop().unwrap();
        drop(engine);
        let engine = open(dir.path());
        assert_eq!(engine.recovery.records, 0, "a stop leaves nothing to replay");
        assert_eq!(facts(&engine), EXPECTED, "{plan}");
        let again = send(&engine, "Order", &orders(0, 1000));
        assert_eq!(again.duplicates, Some(1000), "ids are remembered over restarts");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    send(&engine, "Order", &orders(0, 500));
    engine.checkpoint().unwrap();
    send(&engine, "Order", &orders(500, 500));
    engine.stop().unwrap();
    drop(engine);
    let mut damaged = 0;
    for path in checkpoints(dir.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0);
    let engine = open(dir.path());
    assert_eq!(engine.recovery.warnings.len(), damaged, "{:?}", engine.recovery.warnings);
    assert!(engine.recovery.warnings[0].contains("went back to"), "{:?}", engine.recovery.warnings);
    assert_eq!(facts(&engine), EXPECTED);
}

/// Returns the latest checkpoint of each partition that has at least two.
fn checkpoints(dir: &Path) -> Vec<PathBuf> {
    let mut latest = Vec::new();
    for partition in std::fs::read_dir(dir.join("checkpoints")).unwrap() {
        let files = std::fs::read_dir(partition.unwrap().path()).unwrap().map(|f| f.unwrap().path());
        let mut files: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == "ckpt")).collect();
        files.sort();
        if files.len() > 1 {
            latest.extend(files.pop());
        }
    }
    latest
}

#[test]
fn explanations_survive_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let explain = |engine: &Engine, id: &str| {
        engine.wait_idle();
        let event = EventSelector::Fields(vec![("id".into(), id.into())]);
        engine.why(Some("BigOne"), &event).map(|all| all.iter().map(ToString::to_string).collect::<String>())
    };
    let engine = open(dir.path());
    send(&engine, "Order", &orders(0, 100));
    let (fired, not) = (explain(&engine, "o3").unwrap(), explain(&engine, "o4").unwrap());
    assert!(fired.contains("BigOne fired") && not.contains("amount >= 100"), "{fired}{not}");
    engine.checkpoint().unwrap();
    send(&engine, "Order", &orders(100, 100));
    let later = explain(&engine, "o103").unwrap();
    engine.abandon();
    drop(engine);
    // traces before the checkpoint come from its file, later ones from the log
    let engine = open(dir.path());
    assert_eq!(engine.recovery.warnings, Vec::<String>::new());
    for (id, expected) in [("o3", &fired), ("o4", &not), ("o103", &later)] {
        assert_eq!(&explain(&engine, id).unwrap(), expected);
    }
    engine.stop().unwrap();
    drop(engine);
    let damaged = files(dir.path(), "why");
    assert!(!damaged.is_empty());
    for path in &damaged {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let engine = open(dir.path());
    let warnings = &engine.recovery.warnings;
    assert!(
        !warnings.is_empty()
            && warnings.iter().all(|w| w.contains("the checksum of the section does not match")),
        "{warnings:?}"
    );
    assert_eq!(rows(&engine, "Order"), 200, "nothing but explanations is lost");
    engine.stop().unwrap();
    drop(engine);
    let changed = crate::RULES.replace("amount >= 100", "amount >= 150");
    let engine = Engine::open(dir.path(), Some(App::from_rules("shop", &changed))).unwrap();
    assert_eq!(explain(&engine, "o103").unwrap_err().kind(), ErrorKind::NotFound, "other rules saw it");
}

/// Returns all files with an extension in the checkpoint directories.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let partitions = std::fs::read_dir(dir.join("checkpoints")).unwrap().map(|p| p.unwrap().path());
    partitions
        .flat_map(|p| std::fs::read_dir(p).unwrap().map(|f| f.unwrap().path()))
        .filter(|f| f.extension().is_some_and(|e| e == extension))
        .collect()
}

#[test]
fn the_log_is_replayed_under_the_rules_it_was_written_for() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    send(&engine, "Order", &orders(0, 100));
    engine.wait_idle();
    engine.abandon();
    drop(engine);
    let changed = crate::RULES.replace("amount >= 100", "amount >= 150");
    let engine = Engine::open(dir.path(), Some(App::from_rules("shop", &changed))).unwrap();
    assert_eq!(rows(&engine, "Big"), 50, "the first hundred were big from 100 on");
    send(&engine, "Order", &orders(100, 100));
    engine.catch_up().unwrap();
    assert_eq!(rows(&engine, "Big"), 75, "the second hundred from 150 on");
    drop(engine);
    let error = Engine::open(dir.path(), Some(App::from_rules("shop", "event X {"))).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(rows(&open(dir.path()), "Order"), 200, "a wrong app costs nothing");
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let _engine = open(dir.path());
    let error = Engine::open(dir.path(), Some(app())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(&format!("process {} has", std::process::id())), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(Engine::open(empty.path(), None).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn tables_ahead_of_their_log_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    send(&engine, "Order", &orders(0, 100));
    engine.flush().unwrap();
    engine.abandon();
    drop(engine);
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    let error = Engine::open(dir.path(), Some(app())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("but the log ends at 0 in "), "{text}");
    assert!(text.contains("/log/p0000") && text.contains(".seg; restore the log"), "{text}");
}

#[test]
fn a_task_may_be_the_last_owner_of_an_engine() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Engine::open(dir.path(), Some(App::from_rules("docs", "entity Customer key id;"))).unwrap();
    let engine = open();
    let docs = vec![bson::serialize_to_vec(&bson::doc! { "id": "a" }).unwrap().into()];
    let command =
        tidemill_docs::DocumentCommand::Insert { collection: "Customer".into(), docs, ordered: true };
    engine.write_documents(command, None).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(async { tokio::spawn(async move { drop(engine) }).await }).unwrap();
    assert_eq!(open().collections().unwrap()[0].documents, 1);
}
