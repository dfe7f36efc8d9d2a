//! Several events with one time, and events without: hot data and rows give the answer of the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::tables::{START, Sessions, Shape, answer, points, sorted};
use crate::fixture;

/// Key, time field, time and number of an event.
type Event = (i32, Option<i64>, i64, i32);
/// An event with its partition, offset and row in the log.
type PlacedEvent = ((i32, u64, usize), Event);

fn batch(events: &[Event]) -> RecordBatch {
    let rows = events.len();
    let ats = TimestampMicrosecondArray::from_iter(events.iter().map(|e| e.1)).with_timezone("UTC");
    let times = TimestampMicrosecondArray::from_iter_values(events.iter().map(|e| e.2)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(events.iter().map(|e| e.0))),
        Arc::new(ats),
        Arc::new(Float64Array::from(vec![None; rows])),
        Arc::new(Int32Array::from_iter_values(events.iter().map(|e| e.3))),
        Arc::new(Int64Array::from(vec![None; rows])),
        Arc::new(StringArray::from(vec![None::<&str>; rows])),
        Arc::new(times),
        Arc::new(StringArray::from(vec![None::<&str>; rows])),
    ];
    RecordBatch::try_new(points(Some(0)).batch_schema(), columns).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_decides_between_events_with_one_time() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for lacks_times in [false, true] {
        let shape = Shape { seed: 1, keys: 5, span: 3_600_000_000, lacks_times, not_finite: false };
        let sessions = Sessions::open(shape, fixture::options()).await;
        // by key: the events in the order of partition, offset and row
        let mut log: BTreeMap<i32, Vec<PlacedEvent>> = BTreeMap::new();
        for offset in 0..40_u64 {
            let partition: u32 = rng.random_range(0..2);
            let events: Vec<Event> = (0..rng.random_range(1..60))
                .map(|_| {
                    let time = START + rng.random_range(0..3) * 1_000_000;
                    let at = Some(time).filter(|_| !lacks_times || rng.random_bool(0.3));
                    (rng.random_range(1..=5), at, time, rng.random_range(0..1_000_000))
                })
                .collect();
            fixture::push_batch(&sessions.table, partition, offset, &batch(&events));
            for (row, event) in events.into_iter().enumerate() {
                log.entry(event.0).or_default().push(((partition as i32, offset, row), event));
            }
            if rng.random_bool(0.2) {
                fixture::flush(&sessions.table).await;
            }
            if offset % 10 < 8 {
                continue;
            }
            let expected = |pick: &dyn Fn(&[PlacedEvent]) -> Option<i32>| {
                let value = |n: Option<i32>| n.map_or_else(|| "null".to_owned(), |n| n.to_string());
                let mut lines: Vec<String> =
                    log.iter().map(|(k, all)| format!("{k}|{}", value(pick(all)))).collect();
                lines.sort();
                lines
            };
            let last = expected(&|all| all.iter().max_by_key(|(place, e)| (e.2, *place)).map(|(_, e)| e.3));
            let first = expected(&|all| all.iter().min_by_key(|(place, e)| (e.2, *place)).map(|(_, e)| e.3));
            let known = |all: &[((i32, u64, usize), Event)]| -> Vec<((i32, u64, usize), Event)> {
                all.iter().filter(|(_, e)| e.1.is_some()).copied().collect()
            };
            let last_at = expected(&|all| {
                known(all).into_iter().max_by_key(|(place, e)| (e.1, *place)).map(|(_, e)| e.3)
            });
            let first_at = expected(&|all| {
                known(all).into_iter().min_by_key(|(place, e)| (e.1, *place)).map(|(_, e)| e.3)
            });
            for (query, expected) in [
                ("select k, last(n, _time) from Points group by k", &last),
                ("select p.k, last(p.n, p._time) from Points p group by p.k", &last),
                ("select k, n from latest('Points')", &last),
                ("select k, first(n, _time) from Points group by k", &first),
                ("select k, last(n, at) from Points group by k", &last_at),
                ("select k, first(n, at) from Points group by k", &first_at),
                ("select k, last(n, at) filter (where n >= 0) from Points group by k", &last_at),
            ] {
                for (name, session) in [("hot", &sessions.hot), ("cold", &sessions.cold)] {
                    let found = sorted(&answer(session, query).await);
                    assert_eq!(&found, expected, "SEED={seed}, {name}, lacks_times {lacks_times}: {query}");
                }
            }
        }
    }
}
