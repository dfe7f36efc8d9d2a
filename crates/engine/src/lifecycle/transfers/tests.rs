//! Starts on the log of a cluster that ends in the middle of transactions.

use std::path::Path;

use bson::oid::ObjectId;
use bson::rawdoc;
use tidemill_docs::{DocumentCommand, FindOptions};
use tidemill_log::{LocalLog, Log, LogOptions};

use super::*;
use crate::Engine;
use crate::app::App;
use crate::commit::TransactionPart;

const PARTITIONS: u32 = 3;

fn open(dir: &Path) -> Engine {
    let mut app = App::from_rules("notes", "entity Note key id;");
    app.settings.partitions = PARTITIONS;
    Engine::open(dir, Some(app)).unwrap()
}

fn notes(engine: &Engine) -> Vec<i32> {
    let documents = engine.document_snapshot().unwrap();
    let found = documents.find("Note", rawdoc! {}.as_ref(), &FindOptions::default()).unwrap();
    let id = |doc: &Bytes| bson::raw::RawDocument::from_bytes(doc).unwrap().get_i32("_id").unwrap();
    let mut ids: Vec<i32> = found.iter().map(id).collect();
    ids.sort_unstable();
    ids
}

/// Returns the parts of an ordered insert of a note into each of the partitions 1 and 2, before it is ordered.
fn parts(note: i32) -> Vec<TransactionPart> {
    let participants = vec![PartitionId(1), PartitionId(2)];
    let part = |place: u32| {
        let docs = vec![rawdoc! { "_id": note + place as i32 }.into_bytes().into()];
        let insert = DocumentCommand::Insert { collection: "Note".into(), docs, ordered: true };
        TransactionPart {
            id: ObjectId::from_bytes([note as u8; 12]),
            order: 0,
            participants: participants.clone(),
            since: Offset(0),
            writes: insert.to_bytes().unwrap(),
            session: None,
            places: Some(vec![place]),
            cause: None,
        }
    };
    (0..2).map(part).collect()
}

/// Appends transactions as the first partition of a cluster orders them. Of each only the parts `arrived` are in the logs of the
/// participants.
fn append(dir: &Path, transactions: &[(i32, &[usize])]) {
    let (log, _) = LocalLog::open(dir.join("log"), LogOptions::new(PARTITIONS)).unwrap();
    let append = |id: PartitionId, entry: &Entry| {
        let payload = Bytes::from(entry::EntryEncoder::default().encode(entry).unwrap());
        log.append(id, payload.into(), Durability::Fsync).unwrap().wait().unwrap()
    };
    let mut last = 0;
    for (note, arrived) in transactions {
        let ordering = append(PartitionId(0), &Entry::OrderTransaction(parts(*note)));
        last = entry::next_order(last, ordering.time);
        let emitted = entry::ordered_parts(parts(*note), last, (PartitionId(0), ordering.offset));
        arrived.iter().for_each(|at| _ = append(emitted[*at].target, &emitted[*at].entry));
    }
}

#[test]
fn a_start_sends_the_parts_of_transactions_that_a_cluster_had_not_sent() {
    for arrived in [&[0_usize, 1][..], &[0], &[1], &[]] {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).stop().unwrap();
        append(dir.path(), &[(10, &[0, 1]), (20, arrived), (30, &[])]);
        for start in 0..2 {
            let engine = open(dir.path());
            assert_eq!(engine.recovery.warnings, Vec::<String>::new());
            assert_eq!(notes(&engine), [10, 11, 20, 21, 30, 31], "{arrived:?}, start {start}");
            engine.stop().unwrap();
        }
        // transactions of the process that is alone now
        let engine = open(dir.path());
        let docs = (40..60).map(|id| rawdoc! { "_id": id }.into_bytes().into()).collect();
        let insert = DocumentCommand::Insert { collection: "Note".into(), docs, ordered: true };
        assert_eq!(engine.write_documents(insert, None).unwrap().inserted, 20);
        assert_eq!(notes(&engine).len(), 26);
    }
}
