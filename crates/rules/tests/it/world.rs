//! An in-memory partition for tests.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use bson::raw::RawDocument;
use serde_json::Value as Json;
use tidemill_docs::{DocBytes, Store, StoreLimits};
use tidemill_rules::{Effects, ExecutionContext, Executor, Program, Route, StreamPart, Trace, TraceLimits};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Offset, PartitionId, StreamSchema, Timestamp, partition_of_key};

/// Time of events without `_time`.
pub const NOW: Timestamp = Timestamp(946_684_800_000_000);

pub struct World {
    pub store: Store,
    pub executor: Executor,
    pub trace: Trace,
    pub partitions: u32,
    pub records: u64,
    seen: HashSet<String>,
}

struct Partition<'w> {
    store: &'w mut Store,
    seen: &'w mut HashSet<String>,
    partitions: u32,
}

impl ExecutionContext for Partition<'_> {
    fn store(&mut self) -> &mut Store {
        self.store
    }

    fn store_ref(&self) -> &Store {
        self.store
    }

    fn route(&self, _stream: usize, key: Option<&str>) -> Route {
        match key.map(|k| partition_of_key(k.as_bytes(), self.partitions)) {
            Some(p) if p.0 != 0 => Route::Remote(p),
            _ => Route::Local,
        }
    }

    fn admit(&mut self, stream: usize, id: &[FieldValue]) -> bool {
        self.seen.insert(format!("{stream} {id:?}"))
    }
}

impl World {
    pub fn new(program: &Program) -> Self {
        let mut store = Store::new(StoreLimits::default());
        for spec in program.collections() {
            store.create_collection(spec).unwrap();
        }
        Self {
            store,
            executor: Executor::new(program),
            trace: Trace::new(TraceLimits::default()),
            partitions: 1,
            records: 0,
            seen: HashSet::new(),
        }
    }

    pub fn insert(&mut self, program: &Program, entity: &str, json: &str) {
        let Json::Object(object) = serde_json::from_str(json).unwrap() else {
            panic!("not an object: {json}")
        };
        let key = program.entity_key(entity).unwrap();
        let mut doc = bson::Document::new();
        doc.insert("_id", bson::Bson::try_from(object[key].clone()).unwrap());
        for (name, value) in object {
            doc.insert(name, bson::Bson::try_from(value).unwrap());
        }
        let bytes = DocBytes::from(bson::RawDocumentBuf::try_from(&doc).unwrap().into_bytes());
        self.store.require(entity).unwrap().insert(bytes).unwrap();
    }

    pub fn apply(&mut self, program: &Program, parts: &[StreamPart<'_>], order: Option<&[u16]>) -> Effects {
        let at = (PartitionId(0), Offset(self.records));
        self.records += 1;
        let mut host =
            Partition { store: &mut self.store, seen: &mut self.seen, partitions: self.partitions };
        self.executor.apply(program, &mut host, parts, order, at, &mut self.trace).unwrap()
    }

    pub fn events(&mut self, program: &Program, stream: &str, rows: &[&str]) -> Effects {
        let batch = batch(&program.streams()[program.stream_index(stream).unwrap()], rows);
        let stream = program.stream_index(stream).unwrap();
        let keep: Option<&BooleanBuffer> = None;
        self.apply(program, &[StreamPart { stream, batch: &batch, keep }], None)
    }

    pub fn documents(&self, entity: &str) -> Vec<Json> {
        let docs = self.store.collection(entity).unwrap();
        docs.iter()
            .map(|d| tidemill_rules::expr::value::document_json(RawDocument::from_bytes(d.as_ref()).unwrap()))
            .collect()
    }
}

pub fn batch(schema: &Arc<StreamSchema>, rows: &[&str]) -> RecordBatch {
    let mut builder = BatchBuilder::new(schema.clone());
    for row in rows {
        let mut json: Json = serde_json::from_str(row).unwrap();
        let time = json.as_object_mut().unwrap().remove("_time");
        let now = time.map_or(NOW, |t| Timestamp::parse(t.as_str().unwrap()).unwrap());
        builder.push_json(json.to_string().as_bytes(), now).unwrap();
    }
    builder.finish()
}

/// Context for calls that fail before they access the partition.
pub struct Nowhere;

impl ExecutionContext for Nowhere {
    fn store(&mut self) -> &mut Store {
        unreachable!("nothing is written")
    }

    fn store_ref(&self) -> &Store {
        unreachable!("nothing is read")
    }

    fn route(&self, _stream: usize, _key: Option<&str>) -> Route {
        Route::Local
    }

    fn admit(&mut self, _stream: usize, _id: &[FieldValue]) -> bool {
        true
    }
}
