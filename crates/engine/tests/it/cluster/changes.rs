//! Change streams that are read at several nodes in turn.

use std::collections::BTreeMap;

use bson::raw::RawDocument;
use bson::{Document, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::{DocBytes, DocumentCommand};
use tidemill_engine::{ChangeEvent, ChangePosition, ChangeScope, ChangeStart, ChangeStream, Engine};
use tidemill_types::ErrorKind;

use super::{Shared, wait_for_owners, wait_until, wait_until_spread};

const DOCUMENTS: i32 = 24;

fn bytes(document: &Document) -> DocBytes {
    bson::serialize_to_vec(document).unwrap().into()
}

/// Returns a command that counts a document up, and notes which command did.
fn count_up(id: i32, by: u32) -> DocumentCommand {
    DocumentCommand::Update {
        collection: "Note".into(),
        filter: bytes(&doc! { "_id": id }),
        update: bytes(&doc! { "$inc": { "n": 1 }, "$set": { "by": i64::from(by) } }),
        multi: false,
        upsert: true,
        upsert_id: None,
    }
}

/// A writer, which counts documents up one by one and several together.
struct Writer {
    rng: StdRng,
    commands: u32,
    /// Value of each document.
    written: BTreeMap<i32, i32>,
    /// Number of documents that each transaction has changed.
    together: BTreeMap<u32, usize>,
}

impl Writer {
    fn write(&mut self, engines: &[&Engine], commands: u32) {
        for _ in 0..commands {
            self.commands += 1;
            let engine = engines[self.rng.random_range(0..engines.len())];
            let ids = match self.rng.random_bool(0.2) {
                false => vec![self.rng.random_range(0..DOCUMENTS)],
                true => {
                    let first = self.rng.random_range(0..DOCUMENTS - 3);
                    (first..first + 3).collect()
                }
            };
            if let [id] = ids[..] {
                engine.write_documents(count_up(id, self.commands), None).unwrap();
            } else {
                let mut transaction = engine.begin_transaction().unwrap();
                for id in &ids {
                    transaction.write(count_up(*id, self.commands)).unwrap();
                }
                transaction.commit(None, None).unwrap();
                self.together.insert(self.commands, ids.len());
            }
            ids.iter().for_each(|id| *self.written.entry(*id).or_default() += 1);
        }
    }
}

/// A reader that keeps its position, and checks that it is told each change once and in order.
struct Reader {
    position: ChangePosition,
    known: BTreeMap<i32, i32>,
    /// Commands in the order in which they were told.
    told: Vec<u32>,
}

impl Reader {
    fn from(position: &ChangePosition) -> Self {
        Self { position: position.clone(), known: BTreeMap::new(), told: Vec::new() }
    }

    fn take(&mut self, change: &ChangeEvent, after: &ChangePosition) {
        let document =
            |bytes: &DocBytes| Document::try_from(RawDocument::from_bytes(bytes).unwrap()).unwrap();
        self.position = ChangePosition::from_bytes(&after.to_bytes()).unwrap();
        if change.kind.is_of_collection() {
            return;
        }
        let id = document(change.id.as_ref().unwrap()).get_i32("_id").unwrap();
        let fields = match (&change.document, &change.update) {
            (Some(inserted), _) => document(inserted),
            (None, Some(update)) => document(update).get_document("updatedFields").unwrap().clone(),
            _ => panic!("{change:?}"),
        };
        let n = self.known.entry(id).or_default();
        *n += 1;
        assert_eq!(fields.get_i32("n").unwrap(), *n, "a change of {id} is missing, or told twice");
        self.told.push(fields.get_i64("by").unwrap() as u32);
    }

    /// Reads at an engine until all that was written is known.
    fn read_all(&mut self, engine: &Engine, writer: &Writer) {
        let mut stream = engine.watch(ChangeScope::All, ChangeStart::After(self.position.clone())).unwrap();
        wait_until("all changes are told", || {
            self.read_some(&mut stream, 1000);
            self.known == writer.written
        });
        // what was done together is told together
        let mut last = 0;
        let mut sizes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for by in &self.told {
            let sizes = sizes.entry(*by).or_default();
            match (*by == last, sizes.last_mut()) {
                (true, Some(size)) => *size += 1,
                _ => sizes.push(1),
            }
            last = *by;
        }
        for (by, sizes) in sizes {
            assert_eq!(sizes, [writer.together.get(&by).copied().unwrap_or(1)], "command {by}");
        }
    }

    fn read_some(&mut self, stream: &mut ChangeStream, most: usize) {
        let changes = stream.next(most, usize::MAX).unwrap();
        changes.iter().for_each(|(change, after)| self.take(change, after));
    }
}

#[test]
fn a_stream_is_resumed_at_any_node() {
    follow(&Shared::new());
}

#[test]
fn a_stream_is_resumed_at_any_node_with_some_replicas() {
    follow(&Shared::with_some_replicas());
}

fn follow(shared: &Shared) {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let (a, b, c) = (shared.start("a"), shared.start("b"), shared.start("c"));
    match shared.has_some_replicas {
        true => wait_until_spread(&[&a, &b, &c]),
        false => wait_for_owners(&[&a, &b, &c]),
    }
    let engines = [&a.engine, &b.engine, &c.engine];
    let mut writer = Writer {
        rng: StdRng::seed_from_u64(seed),
        commands: 0,
        written: BTreeMap::new(),
        together: BTreeMap::new(),
    };
    let first = vec![bytes(&doc! { "_id": "first" })];
    let insert = DocumentCommand::Insert { collection: "Note".into(), docs: first, ordered: true };
    a.engine.write_documents(insert, None).unwrap();
    let before = a.engine.now();
    let start = a.engine.watch(ChangeScope::All, ChangeStart::Now).unwrap().position().clone();
    let mut reader = Reader::from(&start);

    // some changes are read at one node, the next ones at another
    for round in 0..12 {
        writer.write(&engines, 10);
        let at = ChangeStart::After(reader.position.clone());
        let mut stream = engines[round % 3].watch(ChangeScope::All, at).unwrap();
        let most = writer.rng.random_range(1..15);
        reader.read_some(&mut stream, most);
        // behind records that have changed nothing it is the same place
        if writer.rng.random_bool(0.3) {
            reader.position = stream.position().clone();
        }
    }
    for engine in engines {
        Reader { position: reader.position.clone(), known: reader.known.clone(), told: reader.told.clone() }
            .read_all(engine, &writer);
    }
    let too_early = b.engine.watch(ChangeScope::All, ChangeStart::At(before)).err().unwrap();
    assert_eq!(too_early.kind(), ErrorKind::NotFound, "{too_early}");

    // one node is lost in the middle of a stream that others go on with
    let mut stream = a.engine.watch(ChangeScope::All, ChangeStart::After(reader.position.clone())).unwrap();
    reader.read_some(&mut stream, 5);
    a.control.set_cut_off(true);
    a.log.set_cut_off(true);
    wait_for_owners(&[&b, &c]);
    writer.write(&[&b.engine, &c.engine], 40);
    reader.read_all(&b.engine, &writer);

    // a new node has the whole history
    for node in [&b, &c] {
        wait_until("a checkpoint is taken", || node.engine.checkpoint().is_ok());
    }
    let d = shared.start("d");
    wait_for_owners(&[&b, &c, &d]);
    writer.write(&[&b.engine, &c.engine, &d.engine], 20);
    reader.read_all(&c.engine, &writer);
    Reader::from(&start).read_all(&d.engine, &writer);

    // a position of another log is not taken for one of this
    let foreign = [&[1][..], &start.to_bytes()[1..]].concat();
    let foreign = ChangePosition::from_bytes(&foreign).unwrap();
    let refused = d.engine.watch(ChangeScope::All, ChangeStart::After(foreign)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let beyond = [&start.to_bytes()[..1], &[0x7f; 48]].concat();
    let beyond = ChangePosition::from_bytes(&beyond).unwrap();
    let refused = d.engine.watch(ChangeScope::All, ChangeStart::After(beyond)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}
