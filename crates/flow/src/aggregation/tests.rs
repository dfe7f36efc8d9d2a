//! Tests of aggregations against a naive model over all events, of snapshots, and of purging.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tidemill_lang::siddhi::ast::OnDemandQuery;
use tidemill_lang::{FileId, SourceFile};

use super::*;
use crate::columns::value::Value;
use crate::compile::scope::StreamScope;
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::{Registry, replay};

pub(super) const UNITS: [&str; 6] = ["sec", "min", "hour", "day", "month", "year"];

/// 2024-02-28 23:00:00, shortly before a leap day and the end of a month.
pub(super) const START: i64 = 1_709_161_200_000;

fn plan(definition: &str) -> Arc<AggregationPlan> {
    let text = format!(
        "define stream S (k string, n int, v double, ts long);\n{definition};\nfrom S select k insert into Out;"
    );
    let plan =
        replay::compile("app", &text, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}"));
    plan.catalog.aggregations()[0].clone()
}

const ALL: &str = "define aggregation A from S select k, n as last, sum(n) as whole, sum(v) as total, avg(v) as mean, \
                   count() as events, min(n) as least, max(v) as greatest, distinctCount(n) as different \
                   group by k aggregate by ts every sec ... year";

pub(super) type Event = (Option<String>, Option<i32>, Option<f64>, i64);

pub(super) fn batch(events: &[Event]) -> Batch {
    use tidemill_types::FieldType::{Double, Int, Long, String};
    let mut batch = Batch::new([String, Int, Double, Long]);
    for (k, n, v, ts) in events {
        let null = || Value::Null;
        batch.columns[0].push(k.as_deref().map_or_else(null, Value::text));
        batch.columns[1].push(n.map_or_else(null, Value::Int));
        batch.columns[2].push(v.map_or_else(null, Value::Double));
        batch.columns[3].push(Value::Long(*ts));
        batch.times.push(*ts);
        batch.kinds.push(EventKind::Current);
    }
    batch.end_chunk(0);
    batch
}

fn written(write: &dyn Fn(&mut SnapshotWriter<'_>) -> Result<(), Error>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = SnapshotWriter::new(&mut bytes).expect("a writer");
    out.section("aggregation A").and_then(|()| write(&mut out)).and_then(|()| out.finish()).expect("a state");
    bytes
}

pub(super) fn saved(aggregation: &Aggregation) -> Vec<u8> {
    written(&|out| aggregation.save(out))
}

pub(super) fn restore(aggregation: &mut Aggregation, mut state: &[u8]) -> Result<(), Error> {
    let mut from = Reader::new(&mut state)?;
    from.section("aggregation A")?;
    aggregation.restore(&mut from)
}

/// Returns the rows that an on-demand query finds, as strings.
pub(super) fn rows(aggregation: &Aggregation, query: &str) -> Vec<String> {
    let file = SourceFile::new(FileId(0), "query", query);
    let Ok(OnDemandQuery::Find(find)) = tidemill_lang::siddhi::parse_on_demand(&file) else {
        panic!("{query}")
    };
    let plan = aggregation.plan();
    let attributes = plan.attributes();
    let mut scope = StreamScope { stream: &plan.name, attributes: &attributes, tables: &[] };
    let within = find.within.as_ref().expect("`within`");
    let read = compile_bucket_query(within, plan, crate::expr::INPUT, &mut scope, &Registry::standard())
        .expect("a clause");
    let frame = Frame { rows: &[], time: 0, now: 0, host: &NoContext };
    let mut rows = Vec::new();
    let mut visit = |columns: &[Column], row: usize| {
        rows.push(columns.iter().map(|c| c.get(row).to_string()).collect::<Vec<_>>().join(" "));
    };
    aggregation.search(&read, 0, None, &frame, &mut visit).expect("rows");
    rows
}

pub(super) fn per(aggregation: &Aggregation, unit: &str) -> Vec<String> {
    let mut rows = rows(aggregation, &format!("from A within 0L, 99999999999999L per '{unit}'"));
    rows.sort();
    rows
}

/// Computes the rows that [`per`] must return, from all events.
pub(super) fn reckoned(events: &[Event], unit: tidemill_lang::siddhi::ast::PeriodUnit) -> Vec<String> {
    let mut rows: BTreeMap<(i64, Option<String>), Vec<&Event>> = BTreeMap::new();
    for event in events {
        let start = calendar::bucket_range(unit, event.3).expect("a time").start;
        rows.entry((start, event.0.clone())).or_default().push(event);
    }
    let text = |value: Option<Value>| value.unwrap_or_default().to_string();
    let row = |((start, k), events): (&(i64, Option<String>), &Vec<&Event>)| {
        let n = || events.iter().filter_map(|e| e.1);
        let v = || events.iter().filter_map(|e| e.2);
        let latest = events.iter().max_by_key(|e| e.3).expect("an event");
        let sum = (v().count() > 0).then(|| v().sum::<f64>());
        let shown = [
            text(k.as_deref().map(Value::text)),
            text(latest.1.map(Value::Int)),
            text((n().count() > 0).then(|| Value::Long(n().map(i64::from).sum()))),
            text(sum.map(Value::Double)),
            text(sum.map(|sum| Value::Double(sum / v().count() as f64))),
            events.len().to_string(),
            text(n().min().map(Value::Int)),
            text(v().max_by(f64::total_cmp).map(Value::Double)),
            events.iter().map(|e| e.1).collect::<BTreeSet<_>>().len().to_string(),
        ];
        format!("{start} {}", shown.join(" "))
    };
    let mut rows: Vec<String> = rows.iter().map(row).collect();
    rows.sort();
    rows
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let key =
        prop::option::weighted(0.9, prop::sample::select(vec!["a", "b", "null", ""]).prop_map(str::to_owned));
    // sums of whole numbers are exact in any order of addition
    let decimal = prop::option::weighted(0.9, (-50i32..50).prop_map(f64::from));
    let spans =
        prop::sample::select(vec![1_i64, 500, 20_000, 1_000_000, 50_000_000, 900_000_000, 30_000_000_000]);
    let time = (spans, 0i64..100).prop_map(|(span, n)| START + span * n / 37);
    (key, prop::option::weighted(0.8, -5i32..5), decimal, time)
}

proptest! {
    #[test]
    fn buckets_hold_what_a_plain_reckoning_gives(
        events in prop::collection::vec(event(), 0..60),
        cuts in prop::collection::vec(1usize..9, 60),
        restart in 0usize..60,
        from in -2_000_000i64..200_000_000,
        length in 1i64..300_000_000,
    ) {
        let plan = plan(ALL);
        let mut aggregation = Aggregation::new(plan.clone());
        let mut rest = events.as_slice();
        for cut in cuts {
            let (chunk, later) = rest.split_at(cut.min(rest.len()));
            aggregation.push(&batch(chunk)).expect("events");
            if (later.len()..rest.len()).contains(&restart) {
                let state = saved(&aggregation);
                aggregation = Aggregation::new(plan.clone());
                restore(&mut aggregation, &state).expect("a state");
            }
            rest = later;
        }
        for (name, unit) in UNITS.iter().zip(plan.units.iter()) {
            prop_assert_eq!(per(&aggregation, name), reckoned(&events, *unit), "{}", name);
            // the buckets cut to an arbitrary time range, in whole seconds
            let stretch = START + from..START + from + length;
            let second = |e: &&Event| calendar::bucket_range(plan.units[0], e.3).expect("a time").start;
            let inside: Vec<Event> = events.iter().filter(|e| stretch.contains(&second(e))).cloned().collect();
            let query = format!("from A within {}L, {}L per '{name}'", stretch.start, stretch.end);
            let mut found = rows(&aggregation, &query);
            found.sort();
            prop_assert_eq!(found, reckoned(&inside, *unit), "{} of {:?}", name, stretch);
        }
    }
}

#[test]
fn a_late_event_costs_its_buckets_only() {
    let mut aggregation = Aggregation::new(plan(ALL));
    let at = |seconds: i64| (Some("a".to_owned()), Some(1), None, START + seconds * 1000);
    for seconds in [0, 1, 60, 3600, 86_400] {
        aggregation.push(&batch(&[at(seconds)])).expect("an event");
    }
    // five seconds, the last one open; two closed minutes and an open one; the hour of the closed minutes
    assert_eq!(aggregation.len(), 5 + 3 + 1);
    aggregation.push(&batch(&[at(2)])).expect("a late event");
    assert_eq!(aggregation.len(), 6 + 3 + 1);
    assert_eq!(per(&aggregation, "min").len(), 4);
    let first_minute =
        rows(&aggregation, "from A within '2024-02-28 23:00:00', '2024-02-28 23:01:00' per 'min'");
    assert_eq!(first_minute, [format!("{START} a 1 3 null null 3 1 null 1")]);
}

#[test]
fn a_foreign_state_is_refused_and_changes_nothing() {
    let mut aggregation = Aggregation::new(plan(ALL));
    let event = |k: &str| (Some(k.to_owned()), Some(1), Some(2.0), START);
    aggregation.push(&batch(&[event("a"), event("b")])).expect("events");
    let state = saved(&aggregation);
    let mut other =
        Aggregation::new(plan("define aggregation A from S select sum(n) as s aggregate every min"));
    assert!(restore(&mut other, &state).is_err());
    assert!(other.is_empty());
    for (what, write) in [
        (
            "a group that is not there",
            &(|out: &mut SnapshotWriter<'_>| {
                out.flag(false)?;
                out.number(0)?;
                out.flag(true)?;
                out.signed(START)?;
                out.numbers([7].into_iter())
            }) as &dyn Fn(&mut SnapshotWriter<'_>) -> Result<(), Error>,
        ),
        ("two rows of one group", &|out| {
            out.flag(false)?;
            out.number(1)?;
            out.flag(true)?;
            out.value(&Value::text("a"))?;
            out.flag(true)?;
            out.signed(START)?;
            out.numbers([0, 0].into_iter())?;
            (0..100).try_for_each(|_| out.number(0))
        }),
        ("too many groups", &|out| out.flag(false).and_then(|()| out.number(u64::MAX))),
        ("nothing", &|_| Ok(())),
    ] {
        assert!(restore(&mut aggregation, &written(write)).is_err(), "{what}");
        assert_eq!(saved(&aggregation), state, "{what}");
    }
}

#[test]
fn what_is_old_is_forgotten_with_its_groups() {
    let definition = "@purge(interval='10 sec', @retentionPeriod(min='120 min')) define aggregation A from S \
                      select k, count() as n group by k aggregate every sec ... min";
    let mut aggregation = Aggregation::new(plan(definition));
    aggregation.start(START);
    assert_eq!(aggregation.next_purge(), Some(START + 10_000));
    for second in 0..100 {
        let key = format!("key {second}");
        aggregation.push(&batch(&[(Some(key), None, None, START + second * 1000)])).expect("an event");
    }
    aggregation.purge(START + 130_000);
    // the seconds from 10 on are within 120 s, and all minutes are within 120 min
    assert_eq!(per(&aggregation, "sec").len(), 90);
    assert_eq!(per(&aggregation, "min").len(), 100);
    aggregation.purge(START + 3 * 3_600_000);
    assert!(aggregation.is_empty());
    assert!(aggregation.groups.all().iter().all(|values| values.is_empty()));
    aggregation.push(&batch(&[(Some("key 7".into()), None, None, START + 4 * 3_600_000)])).expect("an event");
    assert_eq!(aggregation.groups.len(), 100, "numbers are used again");
}

#[test]
fn purges_without_effect_are_left_out() {
    let mut aggregation =
        Aggregation::new(plan("define aggregation A from S select count() as n aggregate every sec ... min"));
    aggregation.start(0);
    aggregation.skip_purges(START);
    let grid = 15 * 60_000;
    assert_eq!(aggregation.next_purge(), Some(START / grid * grid));
    aggregation.push(&batch(&[(None, None, None, START + 1)])).expect("an event");
    aggregation.skip_purges(START + 10 * grid);
    let next = aggregation.next_purge().expect("a purge");
    assert!(next <= START + 120_000 + grid && next % grid == 0, "{next}");
}

#[test]
fn too_many_rows_and_unreadable_times_fail() {
    let mut aggregation = Aggregation::new(plan(ALL)).with_rows_max(2);
    let event = |time: i64| batch(&[(Some("a".into()), Some(1), None, time)]);
    aggregation.push(&event(START)).expect("an event");
    assert!(aggregation.push(&event(i64::MAX)).is_err());
    aggregation.push(&event(START + 60_000)).expect("an event");
    // events of existing rows are accepted, late or not
    aggregation.push(&event(START + 500)).expect("a late event");
    aggregation.push(&event(START + 60_999)).expect("an event");
    let other = batch(&[(Some("b".into()), Some(1), None, START)]);
    for events in [event(START + 120_000), other] {
        let failure = aggregation.push(&events).expect_err("too many");
        assert!(matches!(failure, EvalError::Limit(_)), "{failure}");
    }
    assert_eq!(aggregation.groups.len(), 1, "what is refused is not kept in mind");
    assert_eq!(per(&aggregation, "years").len(), 1);
}
