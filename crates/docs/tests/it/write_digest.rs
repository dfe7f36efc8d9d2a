//! The digest of what a record writes.

use bson::rawdoc;
use tidemill_docs::{CollectionSpec, DocBytes, DocumentCommand, Store, StoreLimits, TransactionWrites};
use tidemill_types::Timestamp;

fn bytes(document: bson::RawDocumentBuf) -> DocBytes {
    document.into_bytes().into()
}

fn insert(ids: &[i64]) -> DocumentCommand {
    let docs = ids.iter().map(|id| bytes(rawdoc! { "_id": *id, "n": 0 })).collect();
    DocumentCommand::Insert { collection: "A".into(), docs, ordered: true }
}

fn update(filter: bson::RawDocumentBuf, n: i64) -> DocumentCommand {
    DocumentCommand::Update {
        collection: "A".into(),
        filter: bytes(filter),
        update: bytes(rawdoc! { "$set": { "n": n } }),
        multi: true,
        upsert: false,
        upsert_id: None,
    }
}

fn delete(filter: bson::RawDocumentBuf) -> DocumentCommand {
    DocumentCommand::Delete { collection: "A".into(), filter: bytes(filter), multi: true }
}

/// Returns a store with two documents that computes digests.
fn store() -> Store {
    let mut store = Store::new(StoreLimits::default());
    store.digest_writes(true);
    store.create_collection(&CollectionSpec::new("A")).unwrap();
    record(&mut store, &[insert(&[1, 2])]);
    store
}

/// Applies commands as one record, and returns its digest.
fn record(store: &mut Store, commands: &[DocumentCommand]) -> Option<u128> {
    store.set_record(7, Timestamp(9));
    for command in commands {
        // what is refused changes nothing
        let _ = store.apply(command, Timestamp(9));
    }
    store.write_digest()
}

fn digest(commands: &[DocumentCommand]) -> Option<u128> {
    record(&mut store(), commands)
}

#[test]
fn each_write_counts() {
    let all = [
        digest(&[insert(&[3])]),
        digest(&[insert(&[4])]),
        digest(&[insert(&[3, 4])]),
        digest(&[insert(&[4, 3])]),
        digest(&[update(rawdoc! { "_id": 1_i64 }, 5)]),
        digest(&[update(rawdoc! { "_id": 2_i64 }, 5)]),
        digest(&[update(rawdoc! { "_id": 1_i64 }, 6)]),
        digest(&[update(rawdoc! {}, 5)]),
        digest(&[delete(rawdoc! { "_id": 1_i64 })]),
        digest(&[delete(rawdoc! {})]),
        digest(&[DocumentCommand::Drop { collection: "A".into() }]),
        digest(&[DocumentCommand::CreateCollection(CollectionSpec::new("B"))]),
        digest(&[DocumentCommand::Rename { collection: "A".into(), to: "B".into(), drop_target: false }]),
    ];
    let distinct: std::collections::BTreeSet<u128> = all.iter().flatten().copied().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
}

#[test]
fn what_writes_nothing_has_no_digest() {
    assert_eq!(digest(&[]), None);
    assert_eq!(
        digest(&[insert(&[1]), update(rawdoc! { "_id": 9_i64 }, 1), delete(rawdoc! { "n": 7 })]),
        None
    );
    let mut off = store();
    off.digest_writes(false);
    assert_eq!(record(&mut off, &[insert(&[3])]), None);
}

#[test]
fn a_history_of_changes_makes_no_difference() {
    for commands in [
        [insert(&[3]), delete(rawdoc! {})],
        [update(rawdoc! {}, 1), DocumentCommand::Drop { collection: "A".into() }],
    ] {
        let mut collecting = store();
        collecting.collect_changes(true);
        assert_eq!(record(&mut collecting, &commands), digest(&commands));
    }
}

#[test]
fn what_is_rolled_back_does_not_count() {
    let mut store = store();
    let mut fork = Store::fork(&store.snapshot());
    fork.apply(&update(rawdoc! { "_id": 1_i64 }, 5), Timestamp(9)).unwrap();
    let writes = TransactionWrites::of_changes(fork.take_changes());
    store.set_record(7, Timestamp(9));
    store.check_commit(&writes, u64::MAX).unwrap();
    assert_eq!(store.write_digest(), None, "a vote writes nothing");
    store.commit(&writes, u64::MAX, Timestamp(9)).unwrap();
    assert_eq!(store.write_digest(), digest(&[update(rawdoc! { "_id": 1_i64 }, 5)]));
}
