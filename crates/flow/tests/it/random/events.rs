//! Random events for the streams of a random app.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value as Json, json};
use tidemill_flow::replay::{Event, Input};
use tidemill_types::FieldType;

use super::expr::Names;

const INPUTS: usize = 60;

/// Returns single events in order, some late, with `t` at their times; time sometimes advances without an
/// event.
pub fn alone(rng: &mut StdRng, streams: &[(String, Names)], count: usize) -> Vec<Input> {
    let mut now = 1000;
    let all = (0..count).flat_map(|_| one_by_one(&input(rng, streams, &mut now)));
    let mut all: Vec<Input> = all.take(count).collect();
    for input in &mut all {
        let Input::Event { stream, timestamp, data } = input else { continue };
        let Some((_, columns)) = streams.iter().find(|(name, _)| name == stream) else { continue };
        columns
            .iter()
            .zip(data)
            .filter(|((name, _), _)| name == "t")
            .for_each(|(_, t)| *t = json!(timestamp));
    }
    all
}

/// Returns inputs in order: single events and batches, some late; time sometimes advances without an event.
pub fn generate(rng: &mut StdRng, streams: &[(String, Names)]) -> Vec<Input> {
    let mut now = 1000;
    (0..INPUTS).map(|_| input(rng, streams, &mut now)).collect()
}

fn input(rng: &mut StdRng, streams: &[(String, Names)], now: &mut i64) -> Input {
    *now += *[0, 1, 50, 400, 700, 1000, 2500].choose(rng).unwrap();
    let (stream, columns) = streams.choose(rng).unwrap();
    let event = |rng: &mut StdRng, timestamp| Event {
        timestamp,
        data: columns.iter().map(|(_, ty)| value(rng, *ty)).collect(),
    };
    match rng.random_range(0..10) {
        0 => Input::Clock { timestamp: *now },
        1..4 => {
            let count = rng.random_range(1..6);
            let events = (0..count).map(|i| event(rng, *now - 2 + i)).collect();
            Input::Events { stream: stream.clone(), events }
        }
        _ => {
            let late = if rng.random_bool(0.1) { rng.random_range(0..1500) } else { 0 };
            let Event { timestamp, data } = event(rng, *now - late);
            Input::Event { stream: stream.clone(), timestamp, data }
        }
    }
}

fn value(rng: &mut StdRng, ty: FieldType) -> Json {
    if rng.random_bool(0.08) {
        return Json::Null;
    }
    let n: i32 = if rng.random_bool(0.02) { i32::MAX } else { rng.random_range(-4..10) };
    match ty {
        FieldType::Int => json!(n),
        FieldType::Long if rng.random_bool(0.02) => json!(i64::MIN),
        FieldType::Long => json!(n),
        FieldType::Float | FieldType::Double if rng.random_bool(0.02) => json!("NaN"),
        FieldType::Float | FieldType::Double => json!(f64::from(n) / 4.0),
        FieldType::Bool => json!(n > 2),
        _ => json!(["a", "b", "c", "", "ü"].choose(rng).unwrap()),
    }
}

/// Splits a call into one call per event.
pub fn one_by_one(input: &Input) -> Vec<Input> {
    match input {
        Input::Events { stream, events } => {
            let one = |e: &Event| Input::Event {
                stream: stream.clone(),
                timestamp: e.timestamp,
                data: e.data.clone(),
            };
            events.iter().map(one).collect()
        }
        other => vec![other.clone()],
    }
}

/// Groups outputs by stream, in order.
pub fn by_stream(outputs: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in outputs {
        let read: Json = serde_json::from_str(text).expect("an output");
        let stream = read["stream"].as_str().unwrap_or_default().to_owned();
        all.entry(stream).or_default().push(text.clone());
    }
    all
}
