//! Nodes in this process: sessions over the same files, which send each other fragments as bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::ObjectStore;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_database::{AppendReceipt, AppendRequest, OpenStream};
use tidemill_sql::{Moment, Nodes, Sql, SqlOptions, SystemTable, Tables};
use tidemill_types::{Error, FieldType, Result, StreamSchema};
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, TabletKeys};
use url::Url;

use crate::fixture::{self, Fixture};

/// Name of the node that gets the statements.
pub const OWN: &str = "n1";

/// What becomes of the fragments of a node.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It cannot be called.
    Away,
    /// It is lost after as many replies.
    LostAfter(usize),
    /// Its replies end after as many, as if they were all.
    CutAfter(usize),
    /// Its first reply comes with a changed byte at this place.
    Flipped(usize),
    /// It gets a fragment whose version has another first character.
    OtherVersion,
}

/// The nodes of a cluster, as one of them sees them.
#[derive(Default)]
pub struct TestNodes {
    others: Mutex<BTreeMap<String, Arc<Sql>>>,
    faults: Mutex<BTreeMap<String, Fault>>,
    /// Nodes that got a fragment, in order.
    pub called: Mutex<Vec<String>>,
}

impl TestNodes {
    pub fn set_fault(&self, node: &str, fault: Fault) {
        self.faults.lock().insert(node.to_owned(), fault);
    }

    pub fn other(&self, node: &str) -> Arc<Sql> {
        self.others.lock()[node].clone()
    }
}

impl Nodes for TestNodes {
    fn own_name(&self) -> String {
        OWN.to_owned()
    }

    fn other_names(&self) -> Vec<String> {
        self.others.lock().keys().cloned().collect()
    }

    fn run(&self, node: &str, fragment: Bytes, _: Duration) -> BoxStream<'static, Result<Bytes>> {
        self.called.lock().push(node.to_owned());
        let (other, fault) = (self.other(node), self.faults.lock().get(node).cloned());
        let lost = || stream::iter([Err(Error::unavailable("the connection has ended"))]);
        match fault {
            None => other.run_fragment(&fragment),
            Some(Fault::Away) => lost().boxed(),
            Some(Fault::LostAfter(replies)) => {
                other.run_fragment(&fragment).take(replies).chain(lost()).boxed()
            }
            Some(Fault::CutAfter(replies)) => other.run_fragment(&fragment).take(replies).boxed(),
            Some(Fault::Flipped(at)) => {
                let flipped = move |(i, reply): (usize, Result<Bytes>)| match i {
                    0 => reply.map(|bytes| with_flipped(&bytes, at)),
                    _ => reply,
                };
                other.run_fragment(&fragment).enumerate().map(flipped).boxed()
            }
            // tag and length of the version come first
            Some(Fault::OtherVersion) => other.run_fragment(&with_flipped(&fragment, 2)),
        }
    }
}

fn with_flipped(bytes: &Bytes, at: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes.into()
}

/// Tables of a node that gets statements.
pub struct TablesOfNode {
    fixture: Arc<Fixture>,
    nodes: Arc<TestNodes>,
    keys: Option<TabletKeys>,
}

impl Tables for TablesOfNode {
    fn streams(&self) -> Vec<String> {
        self.fixture.streams()
    }

    fn stream(&self, name: &str) -> Result<Option<TableSnapshot>> {
        self.fixture.stream(name)
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.fixture.stored(name)
    }

    fn collections(&self) -> Vec<String> {
        self.fixture.collections()
    }

    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        self.fixture.collection(name)
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        self.fixture.moment(streams, collections)
    }

    fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        self.fixture.aggregation_schema(name, per)
    }

    fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        self.fixture.aggregation_rows(name, per, within)
    }

    fn system_tables(&self) -> Vec<String> {
        self.fixture.system_tables()
    }

    fn system(&self, name: &str) -> Result<Option<SystemTable>> {
        self.fixture.system(name)
    }

    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        self.fixture.rewrite(stream, rewriter)
    }

    fn open_stream(&self, name: &str) -> Result<Option<OpenStream>> {
        self.fixture.open_stream(name)
    }

    fn append(&self, request: AppendRequest) -> Result<AppendReceipt> {
        self.fixture.append(request)
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        self.fixture.object_store()
    }

    fn tablet_keys(&self) -> Option<TabletKeys> {
        self.keys.clone()
    }

    fn nodes(&self) -> Option<Arc<dyn Nodes>> {
        Some(self.nodes.clone())
    }
}

/// Three nodes, and one that is alone.
pub struct TestCluster {
    pub fixture: Arc<Fixture>,
    pub nodes: Arc<TestNodes>,
    /// Session of the node that gets the statements, which distributes each scan.
    pub sql: Sql,
    /// Session of a node that executes them alone.
    pub alone: Sql,
}

/// Returns options without hot data, which would answer most statements.
pub fn options() -> SqlOptions {
    SqlOptions { hot_bytes: 0, distributed_bytes: 1, ..fixture::options() }
}

impl TestCluster {
    /// Starts nodes over a fixture; the others have `of_others`.
    pub fn over(fixture: Arc<Fixture>, of_others: &SqlOptions) -> Self {
        let nodes = Arc::new(TestNodes::default());
        for name in ["n2", "n3"] {
            let session = Sql::new(fixture.clone(), of_others.clone()).unwrap();
            nodes.others.lock().insert(name.to_owned(), Arc::new(session));
        }
        let tables = TablesOfNode { fixture: fixture.clone(), nodes: nodes.clone(), keys: None };
        let alone = Sql::new(fixture.clone(), SqlOptions { distributed_bytes: 0, ..options() }).unwrap();
        Self { sql: Sql::new(Arc::new(tables), options()).unwrap(), fixture, nodes, alone }
    }

    /// Returns the tables of another session of the node that gets the statements.
    pub fn tables(&self, keys: Option<TabletKeys>) -> TablesOfNode {
        TablesOfNode { fixture: self.fixture.clone(), nodes: self.nodes.clone(), keys }
    }

    /// Starts nodes over the stream `readings`, whose rows are in tablets of all nodes and in the tail.
    pub async fn with_readings(of_others: &SqlOptions) -> Self {
        let cluster = Self::over(Arc::new(Fixture::empty().await), of_others);
        let table = cluster.fixture.declare(&readings()).await;
        let mut rng = rng();
        for offset in 0.. {
            push_readings(&table, &mut rng, offset, 200);
            let plan = cluster.explain("SELECT sum(v) FROM readings").await;
            if offset > 8 && ["n2", "n3"].iter().all(|node| plan.contains(&format!("{node} "))) {
                break;
            }
            fixture::flush(&table).await;
        }
        cluster
    }

    /// Returns the text of `EXPLAIN`.
    pub async fn explain(&self, statement: &str) -> String {
        rows(&self.sql, &format!("EXPLAIN {statement}")).await.unwrap().join("\n")
    }

    /// Checks that a statement has the result that it has on one node. Returns whether nodes have executed parts of it.
    pub async fn check_equal(&self, statement: &str) -> bool {
        let expected = rows(&self.alone, statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        self.nodes.called.lock().clear();
        let found = rows(&self.sql, statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        assert_eq!(found, expected, "{statement}");
        !self.nodes.called.lock().is_empty()
    }
}

/// Stream of measurements.
pub fn readings() -> Arc<StreamSchema> {
    let fields = [
        ("device", FieldType::Int),
        ("at", FieldType::Time),
        ("v", FieldType::Double),
        ("n", FieldType::Long),
        ("label", FieldType::String),
    ];
    fixture::stream("readings", &fields, Some(1))
}

/// Returns a generator of random values, whose seed is printed.
pub fn rng() -> StdRng {
    let seed = rand::rng().random();
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

pub fn push_readings(table: &Table, rng: &mut StdRng, offset: u64, count: usize) {
    let row = |_| {
        let (second, device) = (rng.random_range(0..3600), rng.random_range(0..40));
        let mut row = format!(
            "{{\"device\":{device},\"at\":\"2026-01-01T{:02}:{:02}:{:02}Z\",\"n\":{}",
            offset % 24,
            second / 60,
            second % 60,
            rng.random_range(-5..1_000)
        );
        // some are missing
        if rng.random_bool(0.9) {
            // sums of multiples of a power of 2 are exact in any order
            write!(row, ",\"v\":{}", f64::from(rng.random_range(-80..720)) / 8.0).unwrap();
        }
        if rng.random_bool(0.9) {
            write!(row, ",\"label\":\"{}\"", ["a", "bc", "üñ", ""][rng.random_range(0..4)]).unwrap();
        }
        row + "}"
    };
    let rows: Vec<String> = (0..count).map(row).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    fixture::push(table, u32::try_from(offset % 2).unwrap(), offset, &rows);
}

/// Returns the rows of a result as text, sorted. Numbers have nine digits, as sums depend on the order of their rows.
pub async fn rows(sql: &Sql, statement: &str) -> Result<Vec<String>> {
    let result = sql.query(statement).await?.collect().await?;
    let mut lines = Vec::new();
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| match column.data_type() {
                _ if column.is_null(row) => String::new(),
                DataType::Float64 => {
                    let column = column.as_any().downcast_ref::<arrow::array::Float64Array>().unwrap();
                    format!("{:.8e}", column.value(row))
                }
                _ => {
                    let text = cast(column, &DataType::Utf8).unwrap();
                    text.as_any().downcast_ref::<arrow::array::StringArray>().unwrap().value(row).to_owned()
                }
            });
            lines.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    lines.sort_unstable();
    Ok(lines)
}
