//! Events of machines, about 180 bytes each as text.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Field, FieldType, StreamSchema, Timestamp};

/// Columns of the table, with their types in both databases.
pub const COLUMNS: &str = "id bigint NOT NULL PRIMARY KEY, machine varchar(20), sensor varchar(20), value double precision, \
     low double precision, high double precision, state integer, quality integer, lot bigint, unit varchar(10), \
     message varchar(100)";
/// Names of the columns.
pub const NAMES: &str = "id, machine, sensor, value, low, high, state, quality, lot, unit, message";

/// Value of a sensor.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: i64,
    pub machine: String,
    pub sensor: String,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub state: i32,
    pub quality: i32,
    pub lot: i64,
    pub unit: String,
    pub message: String,
}

/// Numbers that look random and are the same on every run.
fn mixed(n: usize, seed: usize) -> u64 {
    let mut x = (n as u64).wrapping_add((seed as u64) << 32).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn event(id: usize, seed: usize) -> Event {
    let random = mixed(id, seed);
    let value = (random % 1_000_000) as f64 / 1000.0;
    Event {
        id: id as i64,
        machine: format!("press-line-{:04}", random % 500),
        sensor: format!("temperature-{:03}", random / 500 % 200),
        value,
        low: value - 12.5,
        high: value + 12.5,
        state: (random >> 20) as i32 % 8,
        quality: 192,
        lot: 20_240_501_000 + (random % 900) as i64,
        unit: "celsius".into(),
        message: format!(
            "value {value:.3} within limits of lot {:05}, inspected by station 7",
            random % 90_000
        ),
    }
}

/// Returns events with the ids from 0 on.
pub fn events(count: usize, seed: usize) -> Vec<Event> {
    (0..count).map(|id| event(id, seed)).collect()
}

/// Returns new values of `count` rows that are spread over a table of `rows`, each once.
pub fn updates(rows: usize, count: usize, seed: usize) -> Vec<Event> {
    // a step without a common divisor with the number of rows meets each row once
    let mut step = rows * 618 / 1000 + 1;
    while divisor(step, rows) != 1 {
        step += 1;
    }
    (0..count.min(rows)).map(|n| event((n * step) % rows, seed)).collect()
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl Event {
    /// Writes the event as COPY and LOAD DATA read it. No text needs escapes.
    pub fn write_text(&self, out: &mut String) {
        let Self { id, machine, sensor, value, low, high, state, quality, lot, unit, message } = self;
        // writing to a string cannot fail
        let _ = writeln!(
            out,
            "{id}\t{machine}\t{sensor}\t{value:?}\t{low:?}\t{high:?}\t{state}\t{quality}\t{lot}\t{unit}\t{message}"
        );
    }
}

/// Returns the stream of the events.
pub fn schema() -> Arc<StreamSchema> {
    let types = [
        FieldType::Long,
        FieldType::String,
        FieldType::String,
        FieldType::Double,
        FieldType::Double,
        FieldType::Double,
        FieldType::Int,
        FieldType::Int,
        FieldType::Long,
        FieldType::String,
        FieldType::String,
    ];
    let fields = NAMES.split(", ").zip(types).map(|(name, ty)| Field::new(name, ty)).collect();
    Arc::new(StreamSchema { name: "Readings".into(), fields, key: None, id: vec![], time: None })
}

/// Returns a batch as the engine has it.
pub fn batch(events: &[Event]) -> anyhow::Result<RecordBatch> {
    let mut builder = BatchBuilder::new(schema());
    for event in events {
        let text = |text: &String| FieldValue::Text(text.as_str().into());
        let values = [
            FieldValue::Int(event.id),
            text(&event.machine),
            text(&event.sensor),
            FieldValue::Float(event.value),
            FieldValue::Float(event.low),
            FieldValue::Float(event.high),
            FieldValue::Int(event.state.into()),
            FieldValue::Int(event.quality.into()),
            FieldValue::Int(event.lot),
            text(&event.unit),
            text(&event.message),
        ];
        builder.push_values(&values, Timestamp(0))?;
    }
    Ok(builder.finish())
}
