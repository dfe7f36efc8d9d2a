//! Test tables: a stream with real files and a real tail, documents of every type, system tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    Array, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field as ArrowField, Schema};
use bson::{Bson, doc};
use bytes::Bytes;
use object_store::ObjectStore;
use parking_lot::{Mutex, RwLock};
use tidemill_access::Principal;
use tidemill_database::{
    AppendReceipt, AppendRequest, ClientSession, OpenStream, QueryRequest, SessionSetting,
};
use tidemill_sql::{Moment, Sql, SqlOptions, SystemTable, Tables};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{EventId, Field, FieldType, Offset, PartitionId, StreamSchema, Timestamp};
use tidemill_zones::sim_store::FaultyStore;
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, Zones, ZonesOptions};
use url::Url;

/// Location of the rows of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Tail,
    Tablets,
    Both,
}

impl State {
    pub const ALL: [Self; 3] = [Self::Tail, Self::Tablets, Self::Both];
}

pub struct Fixture {
    pub zones: Zones,
    pub streams: RwLock<BTreeMap<String, Arc<Table>>>,
    pub collections: RwLock<BTreeMap<String, Vec<Bytes>>>,
    /// Store that queries read from.
    pub store: Arc<FaultyStore>,
    rejected: Arc<Table>,
    /// Number of calls of `collections`.
    pub listings: AtomicUsize,
    /// Streams and collections of each moment that was taken, and of each other snapshot of a table.
    pub taken: Mutex<Vec<Vec<String>>>,
    /// Number of records that were appended, and ids of their events.
    appended: AtomicUsize,
    seen: Mutex<BTreeSet<String>>,
    _dir: tempfile::TempDir,
}

impl Tables for Fixture {
    fn streams(&self) -> Vec<String> {
        self.streams.read().keys().cloned().collect()
    }

    fn stream(&self, name: &str) -> tidemill_types::Result<Option<TableSnapshot>> {
        self.taken.lock().push(vec![name.to_owned()]);
        Ok(self.streams.read().get(name).map(|t| t.snapshot()))
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.streams.read().get(name).cloned()
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> tidemill_types::Result<Moment> {
        self.taken.lock().push(streams.iter().chain(collections).map(ToString::to_string).collect());
        let (tables, documents) = (self.streams.read(), self.collections.read());
        Ok(Moment {
            streams: streams.iter().map(|name| tables.get(*name).map(|t| t.snapshot())).collect(),
            collections: collections.iter().map(|name| documents.get(*name).cloned()).collect(),
        })
    }

    fn collections(&self) -> Vec<String> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        self.collections.read().keys().cloned().collect()
    }

    fn collection(&self, name: &str) -> tidemill_types::Result<Option<Vec<Bytes>>> {
        self.taken.lock().push(vec![name.to_owned()]);
        Ok(self.collections.read().get(name).cloned())
    }

    fn system_tables(&self) -> Vec<String> {
        vec!["ledger".into(), "rejected".into()]
    }

    fn system(&self, name: &str) -> tidemill_types::Result<Option<SystemTable>> {
        match name {
            "ledger" => Ok(Some(SystemTable::Rows(ledger()))),
            "rejected" => Ok(Some(SystemTable::Events(self.rejected.snapshot()))),
            _ => Ok(None),
        }
    }

    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> tidemill_types::Result<Rewritten> {
        let table = self.stored(stream).expect("a declared stream");
        tokio::runtime::Handle::current().block_on(async {
            flush(&table).await;
            table.rewrite(rewriter).await
        })
    }

    fn open_stream(&self, name: &str) -> tidemill_types::Result<Option<OpenStream>> {
        let stream = self.stored(name).map(|table| table.stream().clone());
        Ok(stream.map(|schema| OpenStream { schema, clock: Arc::new(|| NOW) }))
    }

    /// Stores events in partition 0, each request as a record. An event whose id was seen is dropped.
    fn append(&self, request: AppendRequest) -> tidemill_types::Result<AppendReceipt> {
        let accepted = request.events.len() as u64;
        let rows = request.events.into_rows()?;
        let mut stored = vec![];
        for bad in rows.rejected {
            let row =
                serde_json::json!({"stream": bad.stream, "reason": bad.message, "raw": bad.text}).to_string();
            let offset = self.appended.fetch_add(1, Ordering::Relaxed) as u64;
            push(&self.rejected, 0, 1_000 + offset, &[&row]);
        }
        for (stream, batch) in rows.rows.parts {
            let offset = 1_000 + self.appended.fetch_add(1, Ordering::Relaxed) as u64;
            let mut seen = self.seen.lock();
            let mut is_new = |row: usize| {
                let id: Vec<String> = stream
                    .id
                    .iter()
                    .map(|at| tidemill_types::row_value(&batch, *at, row).to_string())
                    .collect();
                let has_id = stream.id.iter().any(|at| batch.column(*at).is_valid(row));
                !has_id || seen.insert(format!("{} {id:?}", stream.name))
            };
            let kept: BooleanArray = (0..batch.num_rows()).map(|row| Some(is_new(row))).collect();
            let mut next = 0;
            stored.extend(kept.iter().map(|kept| {
                kept.filter(|kept| *kept).map(|_| {
                    next += 1;
                    EventId { partition: PartitionId(0), offset: Offset(offset), row: next - 1 }
                })
            }));
            let batch = arrow::compute::filter_record_batch(&batch, &kept).unwrap();
            push_batch(&self.stored(&stream.name).unwrap(), 0, offset, &batch);
        }
        Ok(AppendReceipt { accepted, stored: request.reports_stored.then_some(stored) })
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        (self.zones.root_url().clone(), self.store.clone())
    }
}

fn ledger() -> RecordBatch {
    let schema = Schema::new(vec![
        ArrowField::new("stream", DataType::Utf8, false),
        ArrowField::new("received", DataType::Int64, false),
    ]);
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["TakeOffEvent", "Landing"])),
        Arc::new(Int64Array::from(vec![12, 0])),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// Creates a fixture and its session, with the small streams `TakeOffEvent` and `Landing`.
pub async fn sql(state: State, options: SqlOptions) -> (Arc<Fixture>, Sql) {
    let fixture = Arc::new(Fixture::open(state).await);
    let sql = Sql::new(fixture.clone(), options).unwrap();
    (fixture, sql)
}

pub fn options() -> SqlOptions {
    SqlOptions { target_partitions: 2, ..SqlOptions::default() }
}

impl Fixture {
    pub async fn open(state: State) -> Self {
        let fixture = Self::empty().await;
        fixture.take_offs(state).await;
        let landing = stream("Landing", &[("flight", FieldType::Int), ("Gate", FieldType::String)], None);
        fixture.declare(&landing).await;
        let push = |n, json| push(&fixture.rejected, 0, n, json);
        push(
            0,
            &[
                r#"{"stream":"TakeOffEvent","reason":"field `flight`: expected int","raw":"{\"flight\":\"x\"}"}"#,
            ],
        );
        *fixture.collections.write() = collections();
        fixture
    }

    pub async fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // a path that must be escaped in URLs
        let place = dir.path().join("my tables");
        let zones = Zones::open(place.to_str().unwrap(), 1, ZonesOptions::default(), &[]).await.unwrap();
        let texts =
            [("stream", FieldType::String), ("reason", FieldType::String), ("raw", FieldType::String)];
        let rejected = zones.table(&stream("rejected", &texts, None), 1).await.unwrap();
        Self {
            store: FaultyStore::over(zones.object_store()),
            zones,
            streams: RwLock::default(),
            collections: RwLock::default(),
            rejected,
            listings: AtomicUsize::new(0),
            taken: Mutex::default(),
            appended: AtomicUsize::new(0),
            seen: Mutex::default(),
            _dir: dir,
        }
    }

    /// Opens the table of a stream with two partitions.
    pub async fn declare(&self, schema: &Arc<StreamSchema>) -> Arc<Table> {
        let table = self.zones.table(schema, 2).await.unwrap();
        self.streams.write().insert(schema.name.clone(), table.clone());
        table
    }

    /// Adds twelve rows. If some are in files, the first four were written before the stream had `gate`.
    async fn take_offs(&self, state: State) {
        let fields = [
            ("carrier", FieldType::String),
            ("flight", FieldType::Int),
            ("origin", FieldType::String),
            ("sched", FieldType::Time),
            ("actual", FieldType::Time),
            ("distance", FieldType::Double),
            ("on_time", FieldType::Bool),
            ("meta", FieldType::Object),
            ("gate", FieldType::String),
        ];
        let rows = take_off_rows();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        if state != State::Tail {
            let old = self.declare(&stream("TakeOffEvent", &fields[..8], Some(4))).await;
            push(&old, 0, 0, &rows[..4]);
            flush(&old).await;
        }
        let table = self.declare(&stream("TakeOffEvent", &fields, Some(4))).await;
        if state == State::Tail {
            push(&table, 0, 0, &rows[..4]);
        }
        push(&table, 1, 0, &rows[4..8]);
        if state != State::Tail {
            flush(&table).await;
        }
        push(&table, 0, 1, &rows[8..10]);
        push(&table, 1, 1, &rows[10..]);
        if state == State::Tablets {
            flush(&table).await;
        }
    }
}

/// Returns twelve rows. Row `n` departs an hour after row `n - 1`; the first four have no gate.
fn take_off_rows() -> Vec<String> {
    let rows = (0..12).map(|n| {
        let carrier = ["UA", "AA", "B6", "DL"][n % 4];
        let flight = 100 + n * 7 % 11;
        let origin = ["EWR", "JFK", "LGA"][n % 3];
        let late = [0, 45, 3, 130, 7][n % 5];
        let hour = 5 + n;
        let actual = format!("2013-01-01T{:02}:{:02}:00Z", hour + late / 60, late % 60);
        let mut row = format!(
            r#"{{"carrier":"{carrier}","flight":{flight},"origin":"{origin}","sched":"2013-01-01T{hour:02}:00:00Z","actual":"{actual}","on_time":{},"meta":{{"n":{n},"tags":["t{}"],"name":"flight {n}"}}"#,
            late < 15,
            n % 2,
        );
        if n != 5 {
            row += &format!(r#","distance":{}.5"#, 100 * n);
        }
        if n > 3 {
            row += &format!(r#","gate":"G{n}""#);
        }
        if n == 8 {
            row += r#","tail":"N8","age":3"#;
        }
        row + "}"
    });
    rows.collect()
}

/// Returns the request for a statement of a session of PostgreSQL's clients.
pub fn request_of_session(text: &str) -> QueryRequest {
    let setting = |(name, value): (&str, &str)| SessionSetting {
        name: name.to_owned(),
        value: value.to_owned(),
        default: Some(value.to_owned()),
    };
    let settings = [("search_path", "events, docs, system"), ("server_version_num", "150000")];
    let session = ClientSession { process: 7, settings: settings.map(setting).to_vec() };
    QueryRequest::new(text, "test", Principal::system()).with_session(Some(Arc::new(session)))
}

pub fn stream(name: &str, fields: &[(&str, FieldType)], time: Option<usize>) -> Arc<StreamSchema> {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: name.into(), fields, key: Some(0), id: vec![], time })
}

/// Stream without rows and with a field of each type.
pub fn sensor() -> Arc<StreamSchema> {
    let fields = [
        ("id", FieldType::String),
        ("n", FieldType::Int),
        ("big", FieldType::Long),
        ("ratio", FieldType::Float),
        ("Speed", FieldType::Double),
        ("ok", FieldType::Bool),
        ("at", FieldType::Time),
        ("meta", FieldType::Object),
    ];
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: "Sensor".into(), fields, key: Some(0), id: vec![0], time: Some(6) })
}

/// Time of reception of every row.
pub const NOW: Timestamp = Timestamp(1_357_100_000_000_000);

pub fn push(table: &Table, partition: u32, offset: u64, rows: &[&str]) {
    let mut builder = BatchBuilder::new(table.stream().clone());
    for row in rows {
        builder.push_json(row.as_bytes(), NOW).unwrap();
    }
    push_batch(table, partition, offset, &builder.finish());
}

pub fn push_batch(table: &Table, partition: u32, offset: u64, batch: &RecordBatch) {
    let rows = batch.num_rows();
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(TimestampMicrosecondArray::from(vec![NOW.0; rows]).with_timezone("UTC")));
    columns.push(Arc::new(Int32Array::from(vec![partition as i32; rows])));
    columns.push(Arc::new(Int64Array::from(vec![offset as i64; rows])));
    columns.push(Arc::new(Int32Array::from_iter_values(0..rows as i32)));
    let batch = RecordBatch::try_new(table.schema().clone(), columns).unwrap();
    assert_eq!(table.push(PartitionId(partition), Offset(offset), batch).unwrap(), rows);
}

pub async fn flush(table: &Table) {
    let all = [(PartitionId(0), Offset(u32::MAX.into())), (PartitionId(1), Offset(u32::MAX.into()))];
    table.flush(&all).await.unwrap();
}

pub fn bytes(document: &bson::Document) -> Bytes {
    bson::serialize_to_vec(document).unwrap().into()
}

fn collections() -> BTreeMap<String, Vec<Bytes>> {
    let date = bson::DateTime::from_millis;
    let flights = [
        doc! { "_id": "UA100", "carrier": "UA", "late": 3_i32, "avg": 1_i32, "at": date(1_357_020_000_000),
        "departed": true, "gate": { "name": "A1", "since": date(0) }, "tags": ["x", 1_i32], "mixed": 1_i32 },
        doc! { "_id": "AA107", "carrier": "AA", "late": 4_000_000_000_i64, "avg": 2.5, "at": date(1_357_020_000_500),
        "departed": false, "mixed": "one", "ref": bson::oid::ObjectId::from_bytes([0xab; 12]) },
        doc! { "_id": "B6103", "carrier": Bson::Null, "mixed": { "deep": [true] }, "nothing": Bson::Null,
        "price": "12.50".parse::<bson::Decimal128>().unwrap(), "text": "a \"quote\", and\na line" },
    ];
    let ids =
        [doc! { "_id": bson::oid::ObjectId::from_bytes([1; 12]), "n": 1 }, doc! { "_id": "two", "n": 2 }];
    BTreeMap::from([
        ("flights".into(), flights.iter().map(bytes).collect()),
        ("ids".into(), ids.iter().map(bytes).collect()),
        ("Landing".into(), vec![]),
        ("empty".into(), vec![]),
    ])
}
