//! Properties of all windows on random input.

use proptest::prelude::*;
use tidemill_flow::Value;

use super::driver::{Driver, Event, Step};

const COLUMNS: &str = "k string, ts long, v int";

/// Windows of every kind over [`COLUMNS`].
const WINDOWS: &[&str] = &[
    "batch()",
    "batch(2)",
    "cron('*/2 * * * * ?')",
    "delay(700)",
    "expression('count() <= 3')",
    "expression('sum(v) < 12 and eventTimestamp(last) - eventTimestamp(first) < 2000')",
    "expressionBatch('last.v - first.v < 5')",
    "expressionBatch('sum(v) < 12', true)",
    "expressionBatch('count() <= 3', false, true)",
    "externalTime(ts, 900)",
    "externalTimeBatch(ts, 1 sec)",
    "externalTimeBatch(ts, 1 sec, 0, 700)",
    "externalTimeBatch(ts, 1 sec, ts, 700)",
    "frequent(2, k)",
    "frequent(3)",
    "length(0)",
    "length(3)",
    "lengthBatch(0)",
    "lengthBatch(3)",
    "lengthBatch(3, true)",
    "lossyFrequent(0.3, 0.25, k)",
    "session(800L)",
    "session(800L, k)",
    "session(800L, k, 500L)",
    "sort(3, v)",
    "sort(3, k, 'desc', v)",
    "time(900)",
    "timeBatch(900)",
    "timeBatch(900, 100)",
    "timeBatch(900, true)",
    "timeLength(900, 2)",
    "unique:ever(k)",
    "unique:externalTimeBatch(k, ts, 1 sec, 0, 700)",
    "unique:first(k, v)",
    "unique:firstLengthBatch(k, 2)",
    "unique:firstTimeBatch(k, 900)",
    "unique:length(k, 2)",
    "unique:lengthBatch(k, 2)",
    "unique:time(k, 900)",
    "unique:timeBatch(k, 900, 100)",
    "unique:timeLengthBatch(k, 900, 2)",
];

/// Generates steps that advance time by up to a second, with events up to half a second older.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event = (0..500_i64, 0..4_u8, 0..1500_i64, 0..10_i32);
    let step = (0..1000_i64, prop::collection::vec(event, 0..4));
    prop::collection::vec(step, 1..40).prop_map(|steps| {
        let mut clock = 0;
        let make = |(on, events): (i64, Vec<(i64, u8, i64, i32)>)| {
            clock += on;
            let events: Vec<Event> = events
                .into_iter()
                .map(|(late, key, ts, v)| {
                    let key = char::from(b'a' + key).to_string();
                    let values = vec![Value::text(&key), Value::Long(clock + ts), Value::Int(v)];
                    (clock - late, values)
                })
                .collect();
            if events.is_empty() { Step::Clock(clock) } else { Step::Chunk(events) }
        };
        steps.into_iter().map(make).collect()
    })
}

fn header(window: &str, wants_expired: bool) -> String {
    let flags = if wants_expired { ", all events, searched" } else { "" };
    format!("{window} of {COLUMNS}{flags}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A batch of many chunks gives the output of single chunks, and restarts change nothing.
    #[test]
    fn cuts_and_restarts_do_not_show(steps in steps(), restarts in any::<u64>(), wants_expired in any::<bool>()) {
        for window in WINDOWS {
            let make = || Driver::new(&header(window, wants_expired)).unwrap();
            let (mut plain, mut whole, mut restarted) = (make(), make(), make());
            whole.append_ahead(&steps);
            for (i, step) in steps.iter().enumerate() {
                let out = plain.run(step);
                prop_assert_eq!(&out, &whole.run(step), "{} at {}: {:?}", window, i, step);
                prop_assert_eq!(&out, &restarted.run(step), "{} at {}: {:?}", window, i, step);
                if restarts >> (i % 64) & 1 == 1 {
                    whole.run(&Step::Restart);
                    restarted.run(&Step::Restart);
                }
                let held = plain.run(&Step::Held);
                prop_assert_eq!(&held, &whole.run(&Step::Held), "{} at {}", window, i);
                prop_assert_eq!(&held, &restarted.run(&Step::Held), "{} at {}", window, i);
            }
        }
    }

    /// Every event expires at most once, and only after it was emitted; in batch windows, too.
    #[test]
    fn events_leave_once(steps in steps()) {
        for window in WINDOWS {
            let mut driver = Driver::new(&header(window, true)).unwrap();
            let mut inside = std::collections::BTreeMap::<String, i64>::new();
            for step in &steps {
                for word in driver.run(step).iter().flat_map(|line| line.trim_matches(['[', ']']).split(' ')) {
                    let name = word.split(['+', '-', '@', '(']).next().unwrap().to_owned();
                    match word.as_bytes().get(name.len()) {
                        Some(b'+') => *inside.entry(name).or_default() += 1,
                        Some(b'-') => *inside.entry(name).or_default() -= 1,
                        _ => {}
                    }
                }
                // `lossyFrequent` expires events that it did not emit, and an event that fits no expression
                // batch expires before it is emitted
                let counts = inside.values().all(|n| *n >= 0);
                prop_assert!(counts || window.starts_with("lossy"), "{}: {:?}", window, inside);
            }
        }
    }
}

/// Windows that retain scattered rows do not make the store retain all rows in between.
#[test]
fn stores_stay_small() {
    let windows = [
        "sort(3, v)",
        "session(800L, k)",
        "frequent(2, k)",
        "lossyFrequent(0.01, 0.001, k)",
        "unique:ever(k)",
        "unique:length(k, 2)",
        "unique:time(k, 900)",
        "unique:first(k)",
        "unique:lengthBatch(k, 5)",
        "time(900)",
        "lengthBatch(100)",
        "externalTime(ts, 900)",
        "expression('count() <= 50')",
    ];
    for window in windows {
        let mut driver = Driver::new(&header(window, true)).unwrap();
        for i in 0..60_000 {
            // one key and its session remain from the start, the others come and go
            let key = if i % 700 == 0 { "old".to_owned() } else { format!("k{}", i / 100) };
            let values = vec![Value::text(&key), Value::Long(i), Value::Int(i as i32)];
            driver.run(&Step::Chunk(vec![(i, values)]));
        }
        assert!(driver.rows() < 20_000, "{window}: {}", driver.rows());
        assert_ne!(driver.run(&Step::Held), ["nothing"], "{window}");
    }
}
