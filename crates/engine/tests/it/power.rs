//! Power failures: any data that the log did not sync may be lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_engine::{App, BodyFormat, Durability, Engine, SendOptions};
use tidemill_log::sim_disk::{Crash, SimDisk};

use crate::{quiet, rows};

/// Three hops, each most likely into another partition. Each hop counts in a document how often it received
/// the event.
const RULES: &str = "
    event A { id: string, a: string, b: string, c: string, d: string } key a id id;
    event B { b: string, c: string, d: string } key b;
    event C { c: string, d: string } key c;
    event D { d: string } key d;
    entity SeenB key id;
    entity SeenC key id;
    entity SeenD key id;
    relation B.seen(): SeenB by b;
    relation C.seen(): SeenC by c;
    relation D.seen(): SeenD by d;
    rule AtoB { when { e: A(); } then { emit B { b: e.b, c: e.c, d: e.d }; } }
    rule BtoC { when { e: B(); } then { emit C { c: e.c, d: e.d }; } }
    rule CtoD { when { e: C(); } then { emit D { d: e.d }; } }
    rule AgainB priority 1 { when { e: B(); s: e.seen(); } then { update s.n += 1; } }
    rule AgainC priority 1 { when { e: C(); s: e.seen(); } then { update s.n += 1; } }
    rule AgainD priority 1 { when { e: D(); s: e.seen(); } then { update s.n += 1; } }
    rule FirstB { when { e: B(); not e.seen(); } then { insert SeenB { id: e.b, n: 1 }; } }
    rule FirstC { when { e: C(); not e.seen(); } then { insert SeenC { id: e.c, n: 1 }; } }
    rule FirstD { when { e: D(); not e.seen(); } then { insert SeenD { id: e.d, n: 1 }; } }
";

/// Number of failures; `TIDEMILL_FAILURES` overrides it.
const FAILURES: usize = 15;

#[test]
fn power_failures_lose_and_double_nothing_acknowledged_as_fsync() {
    let seed = std::env::var("TIDEMILL_SEED").map_or(20_261_122, |s| s.parse().unwrap());
    let failures = std::env::var("TIDEMILL_FAILURES").map_or(FAILURES, |s| s.parse().unwrap());
    println!("TIDEMILL_SEED={seed} TIDEMILL_FAILURES={failures}");
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut disk = SimDisk::default();
    let mut world = World::default();
    for failure in 0..failures {
        let stop = disk.ops() + rng.random_range(20..400);
        disk.stop_at(stop, StdRng::seed_from_u64(rng.random()));
        // the power failure may occur during the start itself
        if let Ok(engine) = open(dir.path(), &disk) {
            let problems = problems(&engine);
            // a background write may meet the power failure as soon as the engine is open
            assert!(problems.is_empty() || disk.ops() > stop, "failure {failure}: {problems:?}");
            world.send_until_failure(&engine, &mut rng, || disk.ops() > stop);
            engine.abandon();
        }
        let crash = if rng.random_bool(0.7) { Crash::Power } else { Crash::Kill };
        disk = disk.after_crash(crash, &mut rng);
        if failure % 5 == 4 {
            let engine = open(dir.path(), &disk).unwrap();
            world.check(&engine, failure);
            if rng.random_bool(0.5) {
                engine.stop().unwrap();
            } else {
                engine.abandon();
            }
        }
    }
    println!("{} events acknowledged as fsync, {} events in all", world.fsync.len(), world.next);
}

fn open(dir: &Path, disk: &SimDisk) -> tidemill_types::Result<Engine> {
    let mut app = App::from_rules("hops", RULES);
    app.settings.partitions = 4;
    app.settings.segment_bytes = 16 << 10;
    // checkpoints are on the machine's real disk, whose free space must not affect this test
    app.settings.reserve_bytes = 0;
    Engine::builder(dir).app(quiet(app)).disk(Arc::new(disk.clone())).open()
}

#[derive(Default)]
struct World {
    next: usize,
    fsync: Vec<usize>,
}

impl World {
    fn send_until_failure(&mut self, engine: &Engine, rng: &mut StdRng, failed: impl Fn() -> bool) {
        while !failed() {
            let (from, n) = (self.next, rng.random_range(1..6));
            self.next += n;
            let lines: String = (from..from + n)
                .map(|i| {
                    format!(
                        "{{\"id\":\"{i}\",\"a\":\"a{i}\",\"b\":\"b{i}\",\"c\":\"c{i}\",\"d\":\"d{i}\"}}\n"
                    )
                })
                .collect();
            let durability = [Durability::Fsync, Durability::Os, Durability::Memory][rng.random_range(0..3)];
            let options =
                SendOptions { durability: Some(durability), origin: "test".into(), ..SendOptions::default() };
            match engine.send_json("A", lines.as_bytes(), BodyFormat::Ndjson, &options) {
                Ok(_) if durability == Durability::Fsync => self.fsync.extend(from..from + n),
                Ok(_) => {}
                Err(_) => return,
            }
            match rng.random_range(0..20) {
                // either may hit the failing disk
                0 => drop(engine.flush()),
                1 => drop(engine.checkpoint()),
                _ => {}
            }
        }
    }

    fn check(&self, engine: &Engine, failure: usize) {
        engine.wait_idle();
        let stored = rows(engine, "A");
        for hop in ["B", "C", "D"] {
            let seen = seen(engine, &format!("Seen{hop}"));
            let doubled: Vec<_> = seen.iter().filter(|(_, n)| **n != 1).collect();
            assert!(doubled.is_empty(), "failure {failure}: {hop} has these more than once: {doubled:?}");
            let prefix = hop.to_lowercase();
            let lost: Vec<_> =
                self.fsync.iter().filter(|i| !seen.contains_key(&format!("{prefix}{i}"))).collect();
            assert!(lost.is_empty(), "failure {failure}: {hop} lacks what follows from {lost:?}");
            assert_eq!(seen.len() as u64, stored, "failure {failure}: {hop} follows from A one to one");
            assert_eq!(rows(engine, hop), stored, "failure {failure}: {hop}");
        }
        for stream in engine.streams().unwrap() {
            assert!(
                stream.ledger.balances(),
                "failure {failure}: {} {:?}",
                stream.schema.name,
                stream.ledger
            );
        }
        assert_eq!(problems(engine), Vec::<String>::new(), "failure {failure}");
    }
}

/// Returns the engine's problems, except for an unfinished write that was cut at a log's end, which loses no
/// acknowledged event.
fn problems(engine: &Engine) -> Vec<String> {
    let mut problems = engine.health().problems;
    problems.retain(|p| !p.contains("was cut at byte"));
    problems
}

/// Returns how often each event was counted, by key.
fn seen(engine: &Engine, collection: &str) -> BTreeMap<String, i64> {
    let documents = engine.collection_documents(collection).unwrap().unwrap_or_default();
    let count = |bytes: &tidemill_docs::DocBytes| {
        let doc = bson::Document::from_reader(bytes.as_ref()).unwrap();
        let n = doc.get("n").map(|n| n.to_string().parse().unwrap()).unwrap_or_default();
        (doc.get_str("id").unwrap().to_owned(), n)
    };
    documents.iter().map(count).collect()
}
