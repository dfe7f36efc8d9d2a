//! Digests of effects as operators see them, and what has to be the same for two nodes to have the same.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use tidemill_docs::DocumentCommand;
use tidemill_engine::Engine;

use crate::{app, document, send};

/// Returns digest, first and last offset of each partition; nothing without a digest.
fn digests(engine: &Engine) -> Vec<(String, i64, i64)> {
    engine.wait_idle();
    let table = engine.system_table("partitions").unwrap().unwrap();
    let number = |name: &str| table.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    let (since, upto, applied) = (number("digest_since"), number("digest_upto"), number("applied"));
    let digests = table.column_by_name("digest").unwrap().as_string::<i32>();
    let of_row = |(row, digest): (usize, Option<&str>)| {
        assert_eq!(upto.value(row), if digest.is_some() { applied.value(row) } else { 0 });
        digest.map(|digest| (digest.to_owned(), since.value(row), upto.value(row)))
    };
    digests.iter().enumerate().filter_map(of_row).collect()
}

fn open(dir: &Path, with_digests: bool) -> Engine {
    let builder = Engine::builder(dir).app(app());
    if with_digests { builder.effect_digests() } else { builder }.open().unwrap()
}

#[test]
fn digests_are_in_system_partitions_and_survive_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), true);
    let partitions = engine.system_table("partitions").unwrap().unwrap().num_rows();
    let orders = |from: usize| -> String {
        let order =
            |i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 7, i % 2 * 100);
        (from..from + 40).map(order).collect()
    };
    send(&engine, "Order", &orders(0));
    let first = digests(&engine);
    assert_eq!(first.len(), partitions);
    assert!(first.iter().all(|(digest, since, _)| digest.len() == 32 && *since == 0), "{first:?}");
    engine.checkpoint().unwrap();
    send(&engine, "Order", &orders(20));
    let second = digests(&engine);
    assert!(first.iter().zip(&second).any(|(a, b)| a.0 != b.0));
    engine.abandon();
    drop(engine);

    // from a checkpoint and the log
    let engine = open(dir.path(), true);
    assert_eq!(digests(&engine), second);
    engine.stop().unwrap();
    drop(engine);

    // without digests for a while: then they begin anew
    let engine = open(dir.path(), false);
    send(&engine, "Order", &orders(60));
    assert_eq!(digests(&engine), []);
    engine.stop().unwrap();
    drop(engine);
    let engine = open(dir.path(), true);
    let anew = digests(&engine);
    assert!(anew.iter().all(|(_, since, upto)| *since > 0 && since == upto), "{anew:?}");
}

/// A replay has to refuse what the first run refused, so a record is applied with the memory for documents that the engine had then.
#[test]
fn a_record_is_applied_with_the_limits_of_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let open = |documents_bytes: u64| {
        let mut app = app();
        app.settings.partitions = 1;
        app.settings.documents_bytes = Some(documents_bytes);
        Engine::open(dir.path(), Some(app)).unwrap()
    };
    let insert = |engine: &Engine, id: &str, bytes: usize| {
        let doc = bson::rawdoc! { "_id": id, "id": id, "text": "x".repeat(bytes) };
        let docs = vec![doc.into_bytes().into()];
        engine.write_documents(
            DocumentCommand::Insert { collection: "Customer".into(), docs, ordered: true },
            None,
        )
    };
    let engine = open(20_000);
    insert(&engine, "small", 1_000).unwrap();
    let refused = insert(&engine, "large", 50_000).unwrap();
    assert_eq!(refused.errors.len(), 1, "{refused:?}");
    engine.abandon();
    drop(engine);

    // the record of the large document is replayed, and there would be room for it now
    let engine = open(1 << 20);
    assert_eq!(document(&engine, "Customer", "large"), "none");
    assert_ne!(document(&engine, "Customer", "small"), "none");
    assert_eq!(insert(&engine, "larger", 60_000).unwrap().errors, []);
    engine.abandon();
    drop(engine);

    // nothing is replayed with other limits when they stay
    let engine = open(1 << 20);
    assert_eq!(document(&engine, "Customer", "large"), "none");
    assert_ne!(document(&engine, "Customer", "larger"), "none");
}
