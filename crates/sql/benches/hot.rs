//! The thirteen queries of the IoT benchmark over a generated day of 100 trucks, a row every 10 seconds in each of two
//! tables: milliseconds from rows, from hot data, with kept plans, and prepared.
//!
//! `cargo bench -p tidemill-sql --bench hot`; `TABLETS=8` cuts each table into eight tablets and a tail of the same size.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use bytes::Bytes;
use object_store::ObjectStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_sql::{Sql, SqlOptions, SystemTable, Tables};
use tidemill_types::{Field, FieldType, Offset, PartitionId, StreamSchema};
use tidemill_zones::{Table, TableSnapshot, Zones, ZonesOptions};
use url::Url;

const TRUCKS: i32 = 100;
/// 2016-01-01, in microseconds.
const START: i64 = 1_451_606_400_000_000;
const TICK: i64 = 10_000_000;
const TICKS: i64 = 8_640;
const ROWS_PER_BATCH: usize = 10_000;

struct Events {
    zones: Zones,
    tables: BTreeMap<String, Arc<Table>>,
}

impl Tables for Events {
    fn streams(&self) -> Vec<String> {
        self.tables.keys().cloned().collect()
    }

    fn stream(&self, name: &str) -> tidemill_types::Result<Option<TableSnapshot>> {
        Ok(self.tables.get(name).map(|t| t.snapshot()))
    }

    fn collections(&self) -> Vec<String> {
        vec![]
    }

    fn collection(&self, _: &str) -> tidemill_types::Result<Option<Vec<Bytes>>> {
        Ok(None)
    }

    fn system_tables(&self) -> Vec<String> {
        vec![]
    }

    fn system(&self, _: &str) -> tidemill_types::Result<Option<SystemTable>> {
        Ok(None)
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        (self.zones.root_url().clone(), self.zones.object_store())
    }
}

/// Columns of a table in arrival order: keys and times, then one column a field.
struct Columns {
    keys: Vec<Option<i32>>,
    times: Vec<i64>,
    values: Vec<Vec<Option<f64>>>,
}

/// Generates a table: each truck has a value of its own that drifts; a tenth of the rows is missing, some have no key,
/// some values are null. `largest` has the upper bound of each field.
fn columns(rng: &mut StdRng, largest: &[f64]) -> Columns {
    let mut state = vec![vec![0.0_f64; largest.len()]; TRUCKS as usize];
    let mut out = Columns { keys: vec![], times: vec![], values: vec![vec![]; largest.len()] };
    for tick in 0..TICKS {
        for (truck, values) in state.iter_mut().enumerate() {
            for (value, largest) in values.iter_mut().zip(largest) {
                *value = (*value + rng.random_range(-0.1..0.11) * largest).clamp(0.0, *largest).round();
            }
            if rng.random_bool(0.1) {
                continue;
            }
            out.keys.push(Some(truck as i32 + 1).filter(|_| rng.random_bool(0.999)));
            out.times.push(START + tick * TICK);
            for (column, value) in out.values.iter_mut().zip(values) {
                column.push(Some(*value).filter(|_| rng.random_bool(0.98)));
            }
        }
    }
    out
}

fn stream(name: &str, key: usize, time: Option<usize>, fields: &[(&str, FieldType)]) -> Arc<StreamSchema> {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: name.into(), fields, key: Some(key), id: vec![], time })
}

fn times(values: Vec<i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
}

fn push(table: &Table, offset: u64, mut columns: Vec<ArrayRef>, time: Vec<i64>) {
    let rows = time.len();
    columns.push(times(time));
    columns.push(Arc::new(StringArray::from(vec![None::<&str>; rows])));
    columns.push(times(vec![START; rows]));
    columns.push(Arc::new(Int32Array::from(vec![0; rows])));
    columns.push(Arc::new(Int64Array::from(vec![offset as i64; rows])));
    columns.push(Arc::new(Int32Array::from_iter_values(0..rows as i32)));
    let batch = RecordBatch::try_new(table.schema().clone(), columns).expect("the columns of the table");
    table.push(PartitionId(0), Offset(offset), batch).expect("an open table");
}

/// Fills a table, in `tablets` tablets; if there are several, the last part stays in the tail.
async fn fill(table: &Table, rows: &Columns, integers: &[usize], tablets: usize) {
    let total = rows.keys.len();
    let parts = if tablets > 1 { tablets + 1 } else { 1 };
    let mut next_flush = total / parts;
    for (offset, from) in (0..total).step_by(ROWS_PER_BATCH).enumerate() {
        let range = from..total.min(from + ROWS_PER_BATCH);
        let mut columns: Vec<ArrayRef> = vec![
            times(rows.times[range.clone()].to_vec()),
            Arc::new(Int32Array::from(rows.keys[range.clone()].to_vec())),
        ];
        for (number, values) in rows.values.iter().enumerate() {
            let values = &values[range.clone()];
            columns.push(match integers.contains(&number) {
                true => Arc::new(values.iter().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
                false => Arc::new(Float64Array::from(values.to_vec())),
            });
        }
        push(table, offset as u64, columns, rows.times[range.clone()].to_vec());
        if range.end >= next_flush && next_flush < total {
            flush(table).await;
            next_flush += total / parts;
        }
    }
    if tablets == 1 {
        flush(table).await;
    }
}

async fn flush(table: &Table) {
    table.flush(&[(PartitionId(0), Offset(u32::MAX.into()))]).await.expect("a flush");
}

async fn open(place: &str, tablets: usize) -> Events {
    use FieldType::{Double, Int, String, Time};
    let zones = Zones::open(place, 1, ZonesOptions::default(), &[]).await.expect("a place for tables");
    let readings = stream(
        "readings",
        1,
        Some(0),
        &[
            ("time", Time),
            ("tags_id", Int),
            ("latitude", Double),
            ("longitude", Double),
            ("elevation", Double),
            ("velocity", Double),
            ("heading", Double),
            ("grade", Double),
            ("fuel_consumption", Double),
        ],
    );
    let fields =
        [("time", Time), ("tags_id", Int), ("fuel_state", Double), ("current_load", Double), ("status", Int)];
    let diagnostics = stream("diagnostics", 1, Some(0), &fields);
    let mut fields = vec![("id", Int)];
    fields.extend(["name", "fleet", "driver", "model", "device_version"].map(|name| (name, String)));
    fields.extend(["load_capacity", "fuel_capacity", "nominal_fuel_consumption"].map(|name| (name, Double)));
    let tags = stream("tags", 0, None, &fields);
    let mut tables = BTreeMap::new();
    for stream in [readings, diagnostics, tags] {
        let table = zones.table(&stream, 1).await.expect("a table");
        tables.insert(stream.name.clone(), table);
    }
    let mut rng = StdRng::seed_from_u64(123);
    let rows = columns(&mut rng, &[90.0, 180.0, 500.0, 100.0, 360.0, 100.0, 50.0]);
    fill(&tables["readings"], &rows, &[], tablets).await;
    let rows = columns(&mut rng, &[1.0, 2_000.0, 5.0]);
    fill(&tables["diagnostics"], &rows, &[2], tablets).await;
    let text = |f: &dyn Fn(i32) -> std::string::String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..TRUCKS).map(f)))
    };
    let number = |x: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![x; TRUCKS as usize])) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(1..=TRUCKS)),
        text(&|n| format!("truck_{n}")),
        text(&|n| ["East", "West", "North", "South"][(n % 4) as usize].into()),
        text(&|n| format!("driver_{}", n % 6)),
        text(&|n| ["F-150", "G-2000", "H-2"][(n % 3) as usize].into()),
        text(&|_| "v1.0".into()),
        number(2_000.0),
        number(200.0),
        number(15.0),
    ];
    push(&tables["tags"], 0, columns, vec![START; TRUCKS as usize]);
    flush(&tables["tags"]).await;
    Events { zones, tables }
}

/// Returns title and text of each query.
fn statements() -> Vec<(&'static str, String)> {
    let cases = include_str!("../tests/plans/iot.slt").split("\nquery\n").collect::<Vec<_>>();
    let titles = cases.iter().map(|case| case.lines().last().unwrap_or_default().trim_start_matches("# "));
    let texts = cases.iter().skip(1).map(|case| case.split("\n----").next().unwrap_or_default().to_owned());
    titles.zip(texts).collect()
}

/// Returns the median of `runs` runs, in milliseconds.
fn median(runs: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

fn main() {
    let tablets = std::env::var("TABLETS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let place = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let events = Arc::new(runtime.block_on(open(&place.path().to_string_lossy(), tablets)));
    let session = |hot_bytes, cached_plans| {
        let options = SqlOptions { hot_bytes, cached_plans, ..SqlOptions::default() };
        Sql::new(events.clone(), options).expect("a session")
    };
    let usual = SqlOptions::default();
    let sessions = [session(0, 0), session(usual.hot_bytes, 0), session(usual.hot_bytes, usual.cached_plans)];
    println!(
        "{:<42} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "ms, median", "rows", "first", "hot", "cached", "prepared"
    );
    for (title, text) in statements() {
        let ask = |session: &Sql| _ = session.query_blocking(&text).expect(title);
        let [rows, hot, cached] = &sessions;
        let first = median(1, || ask(hot));
        ask(rows);
        ask(cached);
        let prepared = cached.prepare_blocking(&text).expect(title);
        let ask_prepared = || _ = prepared.query_blocking().expect(title);
        ask_prepared();
        println!(
            "{title:<42} {:>9.3} {first:>9.3} {:>9.3} {:>9.3} {:>9.4}",
            median(7, || ask(rows)),
            median(31, || ask(hot)),
            median(101, || ask(cached)),
            median(501, ask_prepared),
        );
    }
}
