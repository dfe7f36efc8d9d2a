use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use tidemill_docs::CollectionSpec;
use tidemill_log::sim_disk::SimDisk;
use tidemill_types::column;
use tidemill_types::decode::BatchBuilder;

use super::*;
use crate::app::App;
use crate::checkpoint::{self, FrozenImage};
use crate::digest::Digest;
use crate::directory::partitioning::Partitioning;
use crate::queries::compile::compile_app_for;

const RULES: &str = "
    event Order { id: string, customer: string, amount: long } key customer id id;
    event Big { id: string, customer: string } key customer;
    entity Customer key id;
    relation Order.who(): Customer by customer;
    rule Count priority 2 { when { o: Order(); c: o.who(); } then { update c.orders += 1; } }
    rule First priority 1 { when { o: Order(); not o.who(); } then { insert Customer { id: o.customer, orders: 1 }; } }
    rule BigOne { when { o: Order(amount >= 50); } then { emit Big { id: o.id, customer: o.customer }; } }
";
const QUERIES: &str = "
    define stream Order (id string, customer string, amount long);
    from Order#window.timeBatch(1 sec) select UUID() as id, count() as n insert into Counts;
";

fn deployment() -> Deployment {
    let app = App::from_texts("t", Some(RULES), &[("t.siddhi", QUERIES)]);
    let compiled = compile_app_for(&app, Partitioning::new(1)).unwrap();
    let partitioner = compiled.queries.partitioner(&compiled.program, 1);
    Deployment::new(app, compiled, partitioner)
}

/// Orders of one record; each has an amount by which it is a big one.
fn orders(deployment: &Deployment, ids: &[&str]) -> Entry {
    let stream = deployment.stream("Order").unwrap().clone();
    let mut builder = BatchBuilder::new(stream.clone());
    for id in ids {
        let json = format!(r#"{{"id":"{id}","customer":"c","amount":60}}"#);
        builder.push_json(json.as_bytes(), Timestamp(1)).unwrap();
    }
    let parts = vec![(stream, builder.finish())];
    let source = Some(SourcePosition { name: "file".into(), position: 9, epoch: None });
    Entry::Events(Events { source, parts, ..Events::default() })
}

fn command(command: &DocumentCommand) -> Entry {
    Entry::Command(command.to_bytes().unwrap())
}

/// A log of records of several kinds, with their times in microseconds. Some commands are refused.
fn records(deployment: &Deployment) -> Vec<(i64, Entry)> {
    let document = |id: i64| bson::rawdoc! { "_id": id, "n": 1 }.into_bytes().into();
    let insert = DocumentCommand::Insert {
        collection: "Note".into(),
        docs: vec![document(1), document(2)],
        ordered: true,
    };
    let delete = DocumentCommand::Delete {
        collection: "Note".into(),
        filter: bson::rawdoc! { "n": 1 }.into_bytes().into(),
        multi: true,
    };
    vec![
        (1_000_000, orders(deployment, &["a", "b"])),
        (1_500_000, command(&DocumentCommand::CreateCollection(CollectionSpec::new("Note")))),
        (1_600_000, orders(deployment, &["b", "c", "c"])),
        (1_700_000, command(&insert)),
        (1_800_000, command(&insert)),
        (2_700_000, Entry::Tick { jumps: Vec::new() }),
        (2_800_000, command(&delete)),
        (2_900_000, command(&DocumentCommand::Drop { collection: "Absent".into() })),
    ]
}

fn state(deployment: &Deployment) -> PartitionState {
    let mut state = PartitionState::new(deployment, PartitionId(0)).unwrap();
    state.compute_digest(true);
    state
}

fn digest(state: &PartitionState) -> Digest {
    state.digest.as_ref().unwrap().digest()
}

/// Applies the records from `state.next` on, and returns the digest after each.
fn apply_all(
    deployment: &Deployment,
    state: &mut PartitionState,
    records: &[(i64, Entry)],
    wants_reply: bool,
) -> Vec<Digest> {
    let from = state.next.0 as usize;
    let mut digests = Vec::new();
    for (offset, (time, entry)) in (from as u64..).zip(&records[from..]) {
        let record =
            LogEntry { offset: Offset(offset), time: Timestamp(*time), entry: entry.clone(), decision: None };
        apply(deployment, state, record, wants_reply, false).unwrap();
        digests.push(digest(state));
    }
    digests
}

/// Writes a checkpoint of `state` and reads it again.
fn through_checkpoint(deployment: &Deployment, state: &PartitionState) -> PartitionState {
    let (disk, dir) = (SimDisk::default(), Path::new("/checkpoints"));
    let image = FrozenImage::new(state, &deployment.queries, &[]).unwrap().serialise().unwrap();
    let path = image.save(&disk, dir, false).unwrap();
    checkpoint::load(&disk, &path, deployment, PartitionId(0), Offset(0)).unwrap().state
}

#[test]
fn a_digest_depends_on_the_log_alone() {
    let deployment = deployment();
    let records = records(&deployment);
    let expected = apply_all(&deployment, &mut state(&deployment), &records, false);
    let distinct: std::collections::BTreeSet<u128> = expected.iter().map(|digest| digest.value).collect();
    assert_eq!(distinct.len(), records.len());

    let answered = apply_all(&deployment, &mut state(&deployment), &records, true);
    assert_eq!(answered, expected, "with callers that wait");

    let mut collecting = state(&deployment);
    collecting.store.collect_changes(true);
    let collected = apply_all(&deployment, &mut collecting, &records, false);
    assert_eq!(collected, expected, "with a history of changes");

    for at in 0..records.len() {
        let mut before = state(&deployment);
        apply_all(&deployment, &mut before, &records[..at], true);
        let mut after = through_checkpoint(&deployment, &before);
        after.compute_digest(true);
        assert_eq!(
            apply_all(&deployment, &mut after, &records, false),
            expected[at..],
            "from a checkpoint at {at}"
        );
    }
}

#[test]
fn a_digest_tells_other_effects() {
    let deployment = deployment();
    let records = records(&deployment);
    let expected = apply_all(&deployment, &mut state(&deployment), &records, false);
    let differs_from = |changed: &dyn Fn(&mut PartitionState), at: usize| {
        let mut state = state(&deployment);
        apply_all(&deployment, &mut state, &records[..at], false);
        changed(&mut state);
        let found = apply_all(&deployment, &mut state, &records, false);
        let first = (at..).zip(&found).find(|(n, digest)| **digest != expected[*n]);
        first.map(|(n, _)| n)
    };
    assert_eq!(differs_from(&|_| {}, 1), None);
    // an id that is not known any more: the duplicate of record 2 is stored
    assert_eq!(
        differs_from(&|state| *state.dedupe.get_mut("Order").unwrap() = crate::dedupe::Dedupe::new(9), 1),
        Some(2)
    );
    // a document that is missing: record 7 deletes one less
    let remove = DocumentCommand::Delete {
        collection: "Note".into(),
        filter: bson::rawdoc! { "_id": 1 }.into_bytes().into(),
        multi: false,
    };
    let lose = |state: &mut PartitionState| drop(state.store.apply(&remove, Timestamp(0)).unwrap());
    assert_eq!(differs_from(&lose, 5), Some(6));
    // another position of a source
    let advance =
        |state: &mut PartitionState| _ = Arc::make_mut(&mut state.sources).insert("file".into(), 10);
    assert_eq!(differs_from(&advance, 1), Some(2));
}

#[test]
fn the_digest_begins_where_it_is_switched_on() {
    let deployment = deployment();
    let records = records(&deployment);
    let mut without = PartitionState::new(&deployment, PartitionId(0)).unwrap();
    for (offset, (time, entry)) in (0..).zip(&records[..3]) {
        let record =
            LogEntry { offset: Offset(offset), time: Timestamp(*time), entry: entry.clone(), decision: None };
        apply(&deployment, &mut without, record, false, false).unwrap();
    }
    assert!(without.digest.is_none());
    let mut loaded = through_checkpoint(&deployment, &without);
    assert!(loaded.digest.is_none());
    loaded.compute_digest(true);
    assert_eq!(digest(&loaded), Digest { since: Offset(3), value: 0 });
    // switched off for a while, it begins again
    loaded.compute_digest(false);
    apply(
        &deployment,
        &mut loaded,
        LogEntry { offset: Offset(3), time: Timestamp(0), entry: records[3].1.clone(), decision: None },
        false,
        false,
    )
    .unwrap();
    loaded.compute_digest(true);
    assert_eq!(digest(&loaded).since, Offset(4));
}

#[test]
fn the_time_of_a_record_never_goes_back() {
    let deployment = deployment();
    let mut state = state(&deployment);
    let received = |state: &mut PartitionState, offset: u64, time: i64, id: &str| {
        let entry = orders(&deployment, &[id]);
        let record = LogEntry { offset: Offset(offset), time: Timestamp(time), entry, decision: None };
        let applied = apply(&deployment, state, record, false, false).unwrap();
        let times = applied.rows[0].1.column_by_name(column::RECEIVED).unwrap().clone();
        times.as_primitive::<TimestampMicrosecondType>().value(0)
    };
    assert_eq!(received(&mut state, 0, 5_000_000, "a"), 5_000_000);
    assert_eq!(received(&mut state, 1, 4_000_000, "b"), 5_000_000);
    let mut state = through_checkpoint(&deployment, &state);
    assert_eq!(received(&mut state, 2, 4_500_000, "c"), 5_000_000, "after a restart");
    assert_eq!(received(&mut state, 3, 6_000_000, "d"), 6_000_000);
}

#[test]
fn records_of_former_readers_do_not_count() {
    let deployment = deployment();
    let mut state = state(&deployment);
    let read_by = |epoch, id: &str, position| {
        let Entry::Events(events) = orders(&deployment, &[id]) else { panic!() };
        let source = Some(SourcePosition { name: "topic#0".into(), position, epoch });
        Entry::Events(Events { source, ..events })
    };
    let load_by = |epoch, id: i64, position| Entry::LoadDocuments {
        source: Some(SourcePosition { name: "documents".into(), position, epoch }),
        collection: "Customer".into(),
        documents: bson::rawdoc! { "_id": id }.into_bytes().into(),
    };
    let stored = |state: &mut PartitionState, entry: Entry| {
        let record = LogEntry { offset: state.next, time: Timestamp(1), entry, decision: None };
        let applied = apply(&deployment, state, record, true, false).unwrap();
        applied.reply.unwrap().unwrap().stored.len()
    };
    assert_eq!(stored(&mut state, read_by(Some(7), "a", 1)), 1, "before a claim");
    assert_eq!(stored(&mut state, Entry::ClaimSources { epoch: 9 }), 0);
    let before = digest(&state);
    assert_eq!(stored(&mut state, read_by(Some(7), "b", 2)), 0, "of the former reader");
    assert_ne!(digest(&state), before);
    stored(&mut state, load_by(Some(8), 1, 5));
    assert_eq!(state.sources.get("topic#0"), Some(&1), "the next reader begins there");
    assert_eq!(
        (state.sources.get("documents"), state.store.collection("Note").map(|c| c.len())),
        (None, None)
    );
    assert_eq!(stored(&mut state, read_by(Some(9), "b", 2)), 1);
    // a claim of a former one that comes late takes nothing back, nor does a restart
    stored(&mut state, Entry::ClaimSources { epoch: 8 });
    let mut state = through_checkpoint(&deployment, &state);
    state.compute_digest(true);
    assert_eq!(stored(&mut state, read_by(Some(8), "c", 3)), 0);
    stored(&mut state, load_by(Some(9), 1, 5));
    assert_eq!(state.sources.get("documents"), Some(&5));
    // sources of a caller take no turns
    assert_eq!(stored(&mut state, read_by(None, "c", 4)), 1);
}
