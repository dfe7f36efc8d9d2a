//! Documents expire by the clock of the engine, and stay away after a restart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongodb::bson::doc;
use tidemill_docs::{CollectionSpec, DocumentCommand, IndexSpec};
use tidemill_engine::{App, Engine, ManualClock};
use tidemill_types::Timestamp;

/// 2024-01-01T00:00:00Z in seconds.
const START: i64 = 1_704_067_200;

fn at(second: i64) -> Timestamp {
    Timestamp((START + second) * 1_000_000)
}

fn open(dir: &std::path::Path, clock: &Arc<ManualClock>) -> Engine {
    let mut app = App::from_rules("docs", "entity Customer key id;");
    app.settings.partitions = 2;
    Engine::builder(dir).app(app).clock(clock.clone()).open().unwrap()
}

fn count(engine: &Engine) -> u64 {
    engine.count_documents("visits", &mongodb::bson::rawdoc! {}).unwrap()
}

#[test]
fn documents_expire() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    clock.set(at(0));
    let engine = open(dir.path(), &clock);
    let spec = CollectionSpec {
        indexes: vec![IndexSpec { expire_after_seconds: Some(100), ..IndexSpec::ascending("at") }],
        ..CollectionSpec::new("visits")
    };
    engine.write_documents(DocumentCommand::CreateCollection(spec), None).unwrap();
    let docs = (0..40).map(|n| {
        let time = mongodb::bson::DateTime::from_millis((START + 10 * n) * 1000);
        mongodb::bson::serialize_to_vec(&doc! { "_id": n, "at": time }).unwrap().into()
    });
    let insert = DocumentCommand::Insert { collection: "visits".into(), docs: docs.collect(), ordered: true };
    engine.write_documents(insert, None).unwrap();
    // at 250 seconds those of the first 150 have expired: numbers 0 to 15
    clock.set(at(250));
    let deadline = Instant::now() + Duration::from_secs(120);
    while count(&engine) > 24 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(count(&engine), 24);
    engine.stop().unwrap();
    drop(engine);
    assert_eq!(count(&open(dir.path(), &clock)), 24);
}
