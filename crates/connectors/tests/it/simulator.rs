//! Made-up events: the same for the same seed, also after restarts.

use std::time::{Duration, Instant};

use tidemill_connect::{ConnectorConfig, Source};
use tidemill_types::{FieldType, Timestamp, Value, row_value};

use crate::helpers::{catalog, config, source_error};
use crate::positioned::{PositionedSource, context};

const FIELDS: &[(&str, FieldType)] = &[
    ("id", FieldType::String),
    ("site", FieldType::String),
    ("n", FieldType::Long),
    ("heat", FieldType::Double),
    ("drift", FieldType::Float),
    ("open", FieldType::Bool),
];

const EXPRESSIONS: &[(&str, &str)] = &[
    ("field.id", "uuid()"),
    ("field.site", "choice(\"north\", \"south\") + \"-\" + n % 3"),
    ("field.n", "sequence(1000, 10)"),
    ("field.heat", "20 + 5 * sin(n / 10) + normal(0, 0.5)"),
    ("field.drift", "walk(0, 1, -10, 10)"),
];

fn open(options: &[(&str, &str)]) -> PositionedSource {
    let all: Vec<_> = options.iter().chain(EXPRESSIONS).copied().collect();
    let config = ConnectorConfig { mapper: None, ..config("simulator", &all) };
    PositionedSource::open(FIELDS, config, ".".as_ref())
}

fn rows(options: &[(&str, &str)]) -> Vec<String> {
    let mut source = open(options);
    source.poll_until("the input ends", |source| source.ended);
    assert!(source.rejected.is_empty(), "{:?}", source.rejected);
    source.rows
}

#[test]
fn a_seed_decides_the_events() {
    let options = [("rate", "max"), ("count", "2500"), ("seed", "7")];
    let first = rows(&options);
    assert_eq!(first.len(), 2500);
    assert_eq!(first, rows(&options));
    let other = rows(&[("rate", "max"), ("count", "2500"), ("seed", "8")]);
    assert!(first.iter().zip(&other).all(|(a, b)| a != b));
    let fields: Vec<&str> = first[3].split('|').collect();
    assert!(matches!(fields[1], "north-0" | "south-0"), "{fields:?}");
    assert_eq!(fields[2], "1030");
    let heat: f64 = fields[3].parse().unwrap();
    assert!((15.0..26.0).contains(&heat));
    // a walk goes in small steps
    let drifts: Vec<f64> = first.iter().map(|row| row.split('|').nth(4).unwrap().parse().unwrap()).collect();
    assert!(drifts.windows(2).all(|pair| (pair[0] - pair[1]).abs() <= 1.001));
    assert!(drifts.iter().any(|x| x.abs() > 5.0) && drifts.iter().all(|x| x.abs() <= 10.0));
}

#[test]
fn events_go_on_after_a_restart() {
    let all = rows(&[("rate", "max"), ("count", "5000")]);
    let mut source = open(&[("rate", "max"), ("count", "5000")]);
    while !source.ended {
        source.poll();
        source.restart();
        // what was handed over and is not stored comes again from the stored position
        source.ended = source.rows.len() >= all.len();
    }
    assert!(source.rows == all, "{} rows", source.rows.len());
    source.ended = false;
    source.poll_until("the input ends", |source| source.ended);
    assert_eq!(source.rows.len(), all.len());
}

#[test]
fn events_come_at_their_rate() {
    let began = Instant::now();
    let mut source = open(&[("rate", "200"), ("count", "61")]);
    source.poll_until("the input ends", |source| source.ended);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    // the first event is due at once
    let mut source = open(&[("rate", "0.001")]);
    source.poll_rows(1);
}

#[test]
fn times_follow_the_rate() {
    let options =
        [("count", "3"), ("rate", "10"), ("start.time", "2024-05-01T12:00:00Z"), ("field.at", "time()")];
    let config = ConnectorConfig { mapper: None, ..config("simulator", &options) };
    let context = context(&[("at", FieldType::Long)]);
    let mut source = catalog().open_source(&config, &context, Default::default()).unwrap();
    let mut found = vec![];
    while let Some(batch) = source.next(Timestamp(0)).unwrap() {
        batch.rows.for_each_arrival(|_, part, row| {
            let rows = &batch.rows.parts[part].1;
            let (Value::Int(ms), Value::Time(time)) = (row_value(rows, 0, row), row_value(rows, 1, row))
            else {
                panic!("{rows:?}");
            };
            assert_eq!(ms, time.0 / 1000);
            found.push(time.to_string());
        });
    }
    assert_eq!(found, ["2024-05-01T12:00:00Z", "2024-05-01T12:00:00.1Z", "2024-05-01T12:00:00.2Z"]);
}

#[test]
fn wrong_options_are_refused() {
    for (options, expected) in [
        (&[("rate", "fast")][..], "expected a number of events in a second"),
        (&[("rate", "0")], "no events would come with a rate of 0"),
        (&[("rate", "max"), ("shape", "sine")], "the shape `sine` needs a number"),
        (&[("shape", "ramp")], "needs the option `rate.to`"),
        (&[("shape", "burst"), ("burst.rate", "5"), ("burst.length", "2 min")], "below `period`"),
        (&[("burst.rate", "5")], "it needs shape='burst'"),
        (&[("shape", "sine"), ("amplitude", "2")], "expected a number up to `rate`"),
        (&[("start.time", "noon")], "start.time"),
        (&[("field.texts", "1")], "the stream has no attribute `texts`. Did you mean `text`?"),
        (&[("field.n", "unifrom(1, 2)")], "there is no function `unifrom`. Did you mean `uniform`?"),
        (&[("count", "0")], "expected an integer from 1"),
    ] {
        let error = source_error("simulator", options);
        assert!(error.contains(expected), "{error}");
    }
}
