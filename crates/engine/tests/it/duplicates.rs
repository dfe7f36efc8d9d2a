//! The first of several events with the same id is stored, however far apart they are.

use std::collections::BTreeSet;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_engine::{App, Engine};

use crate::{quiet, send};

const RULES: &str = "
    event Timed { sensor: string, at: time, value: long } key sensor id sensor, at time at;
    event Numbered { n: long, value: long } id n;
    event Copy { n: long, value: long } id n;
    rule CopyEach { when { e: Numbered(); } then { emit Copy { n: e.n, value: e.value }; } }
";

/// Opens an engine that has 40 ids of a stream and partition in memory.
fn open(dir: &Path) -> Engine {
    let mut app = quiet(App::from_rules("duplicates", RULES));
    app.settings.dedupe_ids = 40;
    Engine::open(dir, Some(app)).unwrap()
}

#[test]
fn duplicates_are_found_near_and_far_and_across_restarts() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path());
    let (mut sent, mut different) = (0_u64, BTreeSet::new());
    for round in 0..60 {
        let mut timed = String::new();
        let mut numbered = String::new();
        for _ in 0..50 {
            let last = different.last().copied().unwrap_or(0);
            let n: u64 = match random.random_range(0..20) {
                0 => random.random_range(0..=last),
                1 => last,
                _ => last + 1,
            };
            different.insert(n);
            sent += 1;
            timed += &format!("{{\"sensor\":\"s{}\",\"at\":{},\"value\":{sent}}}\n", n % 7, 1_000 * n);
            numbered += &format!("{{\"n\":{n},\"value\":{sent}}}\n");
        }
        send(&engine, "Timed", &timed);
        send(&engine, "Numbered", &numbered);
        match round % 10 {
            3 => engine.flush().unwrap(),
            5 => engine.checkpoint().unwrap(),
            7 => {
                // replayed from the checkpoint, with files that are newer than it
                engine.abandon();
                drop(engine);
                engine = open(dir.path());
            }
            9 => {
                engine.consolidate().unwrap();
                engine.stop().unwrap();
                drop(engine);
                engine = open(dir.path());
            }
            _ => {}
        }
    }
    engine.wait_idle();
    for stream in ["Timed", "Numbered", "Copy"] {
        let info = engine.stream(stream).unwrap();
        let different = different.len() as u64;
        assert_eq!(info.ledger.stored, different, "{stream}: {:?}", info.ledger);
        assert!(info.balances(), "{stream}: {info:?}");
        if stream != "Copy" {
            assert_eq!(info.ledger.duplicate, sent - different, "{stream}");
        }
    }
    engine.checkpoint().unwrap();
    let files = walk(&dir.path().join("ids"));
    assert!(files > 3, "{files} files with ids");
    engine.stop().unwrap();
}

fn walk(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}

#[test]
fn missing_files_with_ids_are_made_again_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let rows: String = (0..300).map(|n| format!("{{\"n\":{n},\"value\":1}}\n")).collect();
    send(&engine, "Numbered", &rows);
    engine.wait_idle();
    engine.checkpoint().unwrap();
    send(&engine, "Numbered", "{\"n\":1000,\"value\":1}\n");
    engine.checkpoint().unwrap();
    engine.stop().unwrap();
    drop(engine);
    std::fs::remove_dir_all(dir.path().join("ids")).unwrap();
    let engine = open(dir.path());
    let warnings = engine.recovery.warnings.join("\n");
    assert!(warnings.contains(".ids") && warnings.contains("from the whole log"), "{warnings}");
    send(&engine, "Numbered", "{\"n\":7,\"value\":2}\n{\"n\":1000,\"value\":2}\n{\"n\":1001,\"value\":2}\n");
    let counts = engine.stream("Numbered").unwrap().ledger;
    assert_eq!((counts.stored, counts.duplicate), (302, 2));
    engine.stop().unwrap();
}
