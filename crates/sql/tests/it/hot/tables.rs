//! Tables of random events, and comparison of the answers of two sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_sql::{QueryRows, Sql, SqlOptions};
use tidemill_types::{Field, FieldType, StreamSchema};
use tidemill_zones::Table;

use crate::fixture::{self, Fixture};

/// 2020-01-01, in microseconds.
pub const START: i64 = 1_577_836_800_000_000;

/// Shape of a table of random events.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub seed: u64,
    pub keys: i32,
    /// Microseconds between the first and the last event.
    pub span: i64,
    /// Whether some events have no value in the declared time field.
    pub lacks_times: bool,
    /// Whether some numbers are NaN or infinite.
    pub not_finite: bool,
}

impl Shape {
    pub fn random(rng: &mut StdRng) -> Self {
        Self {
            seed: rng.random(),
            keys: [1, 5, 40, 300][rng.random_range(0..4)],
            span: [3_600, 86_400, 40 * 86_400][rng.random_range(0..3)] * 1_000_000,
            lacks_times: rng.random_bool(0.2),
            not_finite: rng.random_bool(0.2),
        }
    }
}

/// Declares `Points`: key `k`, time `at`, and a field of each type of number.
pub fn points(key: Option<usize>) -> Arc<StreamSchema> {
    let fields = [
        ("k", FieldType::Int),
        ("at", FieldType::Time),
        ("v", FieldType::Double),
        ("n", FieldType::Int),
        ("m", FieldType::Long),
        ("s", FieldType::String),
    ];
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: "Points".into(), fields, key, id: vec![], time: Some(1) })
}

/// Returns random events. All values follow from key and time, so that it does not matter which of two events with the
/// same key and time is the latest.
pub fn events(shape: Shape, rng: &mut StdRng, rows: usize) -> RecordBatch {
    let schema = points(Some(0)).batch_schema();
    let (mut keys, mut ats, mut times) = (vec![], vec![], vec![]);
    let (mut vs, mut ns, mut ms, mut ss) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rows {
        let key = Some(rng.random_range(0..=shape.keys)).filter(|k| *k > 0);
        // whole seconds, so that some events have the same key and time
        let time = START + rng.random_range(0..=shape.span) / 1_000_000 * 1_000_000 + 646_325;
        let mut values =
            StdRng::seed_from_u64(shape.seed ^ (time as u64) ^ ((key.unwrap_or(0) as u64) << 40));
        let at = Some(time).filter(|_| !(shape.lacks_times && values.random_bool(0.1)));
        let number = match values.random_range(0..40) {
            0 => None,
            1 if shape.not_finite => Some(f64::NAN),
            2 if shape.not_finite => Some(f64::INFINITY),
            3 => Some(-0.0),
            // eighths, so that a sum is exact in whatever order it is formed
            _ => Some(f64::from(values.random_range(0..1_000)) / 8.0),
        };
        keys.push(key);
        ats.push(at);
        times.push(time);
        vs.push(number);
        ns.push(Some(values.random_range(0..6)).filter(|n| *n < 5));
        ms.push(Some(values.random_range(0..i64::MAX / 4)));
        ss.push(Some(format!("s{}", values.random_range(0..3))).filter(|_| values.random_bool(0.9)));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(keys)),
        Arc::new(TimestampMicrosecondArray::from(ats).with_timezone("UTC")),
        Arc::new(Float64Array::from(vs)),
        Arc::new(Int32Array::from(ns)),
        Arc::new(Int64Array::from(ms)),
        Arc::new(StringArray::from(ss)),
        Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
        Arc::new(StringArray::from(vec![None::<&str>; rows])),
    ];
    RecordBatch::try_new(schema, columns).unwrap()
}

/// A fixture with the table `Points`, the collection `places` with one document for most keys, and two sessions: one
/// that serves hot data, and one that reads rows.
pub struct Sessions {
    pub table: Arc<Table>,
    pub fixture: Arc<Fixture>,
    pub hot: Sql,
    pub cold: Sql,
    offset: u64,
}

impl Sessions {
    pub async fn open(shape: Shape, hot: SqlOptions) -> Self {
        let fixture = Fixture::empty().await;
        let table = fixture.declare(&points(Some(0))).await;
        let place = |k: i32| {
            let area = ["north", "south", "west"][(k % 3) as usize];
            bson::doc! { "_id": k, "area": area, "weight": f64::from(k) / 2.0 }
        };
        let places = (1..=shape.keys).filter(|k| k % 7 != 6).map(|k| fixture::bytes(&place(k)));
        fixture.collections.write().insert("places".into(), places.collect());
        let fixture = Arc::new(fixture);
        let cold = SqlOptions { hot_bytes: 0, cached_plans: 0, ..fixture::options() };
        let sessions = [hot, cold].map(|options| Sql::new(fixture.clone(), options).unwrap());
        let [hot, cold] = sessions;
        Self { table, fixture, hot, cold, offset: 0 }
    }

    /// Pushes random events to a random partition.
    pub fn push(&mut self, shape: Shape, rng: &mut StdRng, rows: usize) {
        let batch = events(shape, rng, rows);
        fixture::push_batch(&self.table, rng.random_range(0..2), self.offset, &batch);
        self.offset += 1;
    }

    /// Declares the table again, with other fields or another key. Its tail must be empty.
    pub async fn declare(&mut self, stream: &Arc<StreamSchema>) {
        self.table = self.fixture.declare(stream).await;
    }

    /// Changes the collections.
    pub fn collections(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<Bytes>>)) {
        change(&mut self.fixture.collections.write());
    }

    /// Asks both sessions and compares the rows, whatever their order.
    pub async fn compare(&self, query: &str, context: &str) {
        let cold = answer(&self.cold, query).await;
        let hot = answer(&self.hot, query).await;
        assert_eq!(sorted(&hot), sorted(&cold), "{context}\n{query}");
    }
}

pub async fn answer(sql: &Sql, query: &str) -> QueryRows {
    let rows = async { sql.query(query).await?.collect().await };
    rows.await.unwrap_or_else(|error| panic!("{error}\n{query}"))
}

/// Returns the rows as sorted text, numbers with nine digits.
pub fn sorted(rows: &QueryRows) -> Vec<String> {
    let mut lines: Vec<String> = rows.batches.iter().flat_map(lines).collect();
    lines.sort();
    lines
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let text = |column: &ArrayRef, row: usize| match column.data_type() {
        _ if column.is_null(row) => "null".to_owned(),
        DataType::Float64 => digits(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => digits(column.as_primitive::<Float32Type>().value(row).into()),
        _ => ArrayFormatter::try_new(column, &FormatOptions::default()).unwrap().value(row).to_string(),
    };
    let line = |row: usize| {
        let cells: Vec<String> = batch.columns().iter().map(|column| text(column, row)).collect();
        cells.join("|")
    };
    (0..batch.num_rows()).map(line).collect()
}

fn digits(x: f64) -> String {
    if x == 0.0 { "0".to_owned() } else { format!("{x:.8e}") }
}
