//! State in an object store, from which another machine goes on.

use std::path::Path;

use tidemill_engine::{Engine, TakeOver};
use tidemill_types::{Error, ErrorKind};

use crate::{app, document, ledger, rows, send};

/// A machine has a directory of its own; tables and state are in a directory that stands for a store.
fn start(machine: &Path, store: &Path, condition: TakeOver) -> Result<Engine, Error> {
    let mut app = app();
    app.settings.tables = Some(store.join("tables").display().to_string());
    let state = format!("file://{}", store.join("state").display());
    Engine::builder(machine).state(&state, condition).app(app).open()
}

fn orders(from: u64, n: u64) -> String {
    let order = |i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, (i % 4) * 50);
    (from..from + n).map(order).collect()
}

fn checked(engine: &Engine, orders: u64) -> String {
    assert_eq!(engine.recovery.warnings, [""; 0]);
    engine.wait_idle();
    assert_eq!((rows(engine, "Order"), rows(engine, "Audit")), (orders, orders), "{}", ledger(engine));
    document(engine, "Total", "small")
}

fn count(total: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(total).unwrap()["n"].as_u64().unwrap()
}

#[test]
fn another_machine_goes_on_where_one_has_stopped() {
    let root = tempfile::tempdir().unwrap();
    let (store, machines) = (root.path().join("store"), ["a", "b", "c"].map(|name| root.path().join(name)));
    let mut sent = 0;
    // back to the first one, whose directory is older than the state then
    for machine in [&machines[0], &machines[1], &machines[2], &machines[0]] {
        let engine = start(machine, &store, TakeOver::Lossless).unwrap();
        if sent > 0 {
            assert!(count(&checked(&engine, sent)) > 0);
        }
        send(&engine, "Order", &orders(sent, 100));
        // repetitions are known on every machine
        send(&engine, "Order", &orders(0, 50));
        sent += 100;
        engine.checkpoint().unwrap();
        send(&engine, "Order", &orders(sent, 10));
        sent += 10;
        checked(&engine, sent);
        engine.stop().unwrap();
        engine.stop().unwrap();
    }
    // versions that are not needed any more are removed
    let versions = std::fs::read_dir(store.join("state/p00000/versions")).unwrap().count();
    assert!(versions <= 4, "{versions} versions");
}

#[test]
fn a_machine_that_has_not_stopped_keeps_its_state_unless_told_otherwise() {
    let root = tempfile::tempdir().unwrap();
    let (store, a, b) = (root.path().join("store"), root.path().join("a"), root.path().join("b"));
    let first = start(&a, &store, TakeOver::Lossless).unwrap();
    send(&first, "Order", &orders(0, 100));
    first.checkpoint().unwrap();
    send(&first, "Order", &orders(100, 7));

    let refused = start(&b, &store, TakeOver::Lossless).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert!(refused.to_string().contains("--state-take-over"), "{refused}");
    assert!(!b.join("meta.json").exists(), "nothing is changed");

    let second = start(&b, &store, TakeOver::Always).unwrap();
    checked(&second, 100);
    send(&second, "Order", &orders(200, 5));
    checked(&second, 105);
    second.checkpoint().unwrap();
    // the former one publishes nothing any more
    let fenced = first.checkpoint().unwrap_err();
    assert!(matches!(fenced.kind(), ErrorKind::Conflict | ErrorKind::Unavailable), "{fenced}");
    first.abandon();
    second.stop().unwrap();
    // nor may it go on when it is started again
    drop(first);
    let again = start(&a, &store, TakeOver::Lossless).unwrap();
    checked(&again, 105);
    again.stop().unwrap();
}

#[test]
fn wrong_places_of_the_state_are_told() {
    let root = tempfile::tempdir().unwrap();
    let (store, a, b) = (root.path().join("store"), root.path().join("a"), root.path().join("b"));
    let state = format!("file://{}", store.join("state").display());
    let inside = Engine::builder(&a).app(app()).state(&state, TakeOver::Lossless).open().err().unwrap();
    assert!(inside.to_string().contains("by the setting tables"), "{inside}");

    start(&a, &store, TakeOver::Lossless).unwrap().stop().unwrap();
    // a directory with an app of its own
    let other = root.path().join("other");
    start(&b, &other, TakeOver::Lossless).unwrap().stop().unwrap();
    let foreign = start(&b, &store, TakeOver::Lossless).err().unwrap();
    assert_eq!(foreign.kind(), ErrorKind::Invalid, "{foreign}");
    assert!(foreign.to_string().contains("name an empty directory"), "{foreign}");

    let broken = root.path().join("c");
    for file in std::fs::read_dir(store.join("state/p00001/files")).unwrap().map(|dir| dir.unwrap().path()) {
        std::fs::remove_dir_all(file).unwrap();
    }
    let missing = start(&broken, &store, TakeOver::Lossless).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::Corrupt, "{missing}");
    let place = Engine::builder(&broken).state("s4://nowhere", TakeOver::Lossless).open().err().unwrap();
    assert_eq!(place.kind(), ErrorKind::Invalid, "{place}");
}
