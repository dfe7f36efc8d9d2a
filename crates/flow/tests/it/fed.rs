//! Batched calls: events sent in one call, each as a chunk of its own, give the output of one call per event.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use tidemill_flow::EvalError;
use tidemill_flow::replay::{Case, Input, compile, value_of};
use tidemill_flow::runtime::{AppRuntime, OutputHandler, StreamBatch};
use tidemill_flow::{Batch, Column, Registry, Row};

/// Events per stream and output per query, in order.
#[derive(Default)]
pub struct Told(pub BTreeMap<String, Vec<String>>);

impl Told {
    fn add(&mut self, list: String, batch: &Batch) {
        let rows = self.0.entry(list).or_default();
        for row in 0..batch.len() {
            let values: Vec<String> = batch.columns.iter().map(|c| format!("{:?}", c.get(row))).collect();
            rows.push(format!("{} {:?} {}", batch.times[row], batch.kinds[row], values.join(", ")));
        }
    }
}

impl OutputHandler for Told {
    fn events(&mut self, stream: &str, events: &Batch) {
        self.add(stream.to_owned(), events);
    }

    fn emission(&mut self, query: &str, emission: &Batch) {
        self.add(format!("query {query}"), emission);
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.0.entry(format!("failure of {query}")).or_default().push(failure.to_string());
    }
}

/// Receives single events as rows, and tells them as [`Told`] does.
#[derive(Default)]
pub struct RowTold(pub Told);

impl RowTold {
    fn add(&mut self, list: String, rows: &[Row<'_>]) {
        let told = self.0.0.entry(list).or_default();
        for row in rows {
            let values: Vec<String> = row.values.iter().map(|v| format!("{:?}", v.to_value())).collect();
            told.push(format!("{} Current {}", row.time, values.join(", ")));
        }
    }
}

impl OutputHandler for RowTold {
    fn events(&mut self, stream: &str, events: &Batch) {
        self.0.events(stream, events);
    }

    fn emission(&mut self, query: &str, emission: &Batch) {
        self.0.emission(query, emission);
    }

    fn wants_rows(&self) -> bool {
        true
    }

    fn event_rows(&mut self, stream: &str, rows: &[Row<'_>]) {
        self.add(stream.to_owned(), rows);
    }

    fn emission_rows(&mut self, query: &str, rows: &[Row<'_>]) {
        self.add(format!("query {query}"), rows);
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.0.failure(query, failure);
    }
}

/// Groups single events by stream; returns the batches, and for each event the index of its batch.
pub fn parts(
    app: &AppRuntime,
    events: &[(&str, i64, &[serde_json::Value])],
) -> Option<(Vec<StreamBatch>, Vec<u16>)> {
    let catalog = &app.plan().catalog;
    let mut parts: Vec<StreamBatch> = Vec::new();
    let mut order = Vec::new();
    for (stream, time, data) in events {
        let stream = catalog.find(stream)?;
        let attributes = &catalog.streams()[stream].attributes;
        let known = parts.iter().position(|p| p.stream == stream);
        let place = known.unwrap_or_else(|| {
            let columns = attributes.iter().map(|(_, ty)| Column::new(*ty)).collect();
            parts.push(StreamBatch { stream, columns, times: vec![] });
            parts.len() - 1
        });
        let part = &mut parts[place];
        part.times.push(*time);
        (data.len() == attributes.len()).then_some(())?;
        part.columns.iter_mut().zip(*data).for_each(|(column, v)| column.push(value_of(v, column.ty())));
        order.push(place as u16);
    }
    Some((parts, order))
}

/// Runs a case with at most `together` events per call; `None` if the case does not allow that.
fn run(case: &Case, registry: &Registry, together: usize) -> Option<(Told, bool)> {
    let plan = compile("app.siddhi", &case.app, registry, &|_| None).ok()?;
    let mut app = AppRuntime::new(Arc::new(plan));
    let at_once = app.row_at_a_time_reason().is_none();
    let mut told = Told::default();
    app.start(case.start, &mut told);
    let mut waiting: Vec<(&str, i64, &[serde_json::Value])> = Vec::new();
    for input in &case.inputs {
        if let Input::Event { stream, timestamp, data } = input {
            waiting.push((stream, *timestamp, data));
            if waiting.len() < together {
                continue;
            }
        }
        if !waiting.is_empty() {
            let (parts, order) = parts(&app, &waiting)?;
            app.send_batch(parts, Some(&order), &mut told).ok()?;
            waiting.clear();
        }
        match input {
            Input::Event { .. } => {}
            Input::Clock { timestamp } => app.advance((*timestamp).max(app.now()), &mut told),
            Input::OnDemand { on_demand } => match app.on_demand(on_demand) {
                Ok(found) => told.add("on demand".into(), &found),
                Err(failure) => told.failure("on demand", &failure),
            },
            Input::Events { .. } | Input::Restart { .. } => return None,
        }
    }
    if !waiting.is_empty() {
        let (parts, order) = parts(&app, &waiting)?;
        app.send_batch(parts, Some(&order), &mut told).ok()?;
    }
    Some((told, at_once))
}

pub fn files() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let list = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let folders = ["recorded", "recorded-own"].map(|name| cases.join(name)).into_iter().flat_map(list);
    let mut files: Vec<PathBuf> = folders
        .filter(|f| f.is_dir())
        .flat_map(list)
        .filter(|f| f.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    files
}

#[test]
fn events_together_give_what_they_give_one_by_one() {
    let registry = Registry::standard();
    let (mut compared, mut wrong) = (0, Vec::new());
    for path in files() {
        let case: Case = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let Some((single, at_once)) = run(&case, &registry, 1) else { continue };
        compared += usize::from(at_once);
        for together in [2, 3, 1000] {
            let Some((fed, _)) = run(&case, &registry, together) else { continue };
            for list in single.0.keys().chain(fed.0.keys()) {
                let (a, b) = (single.0.get(list), fed.0.get(list));
                if a != b {
                    wrong.push(format!("{}, {together} together, {list}:\n  {a:?}\n  {b:?}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    assert!(compared >= 100, "only {compared} cases were not run one by one");
}

/// Runs single events through an app, one per call and all in one call.
fn both(app: &str, events: &[(&str, i64, &[serde_json::Value])]) -> [Told; 2] {
    in_batches(app, events, [1, events.len()])
}

/// Runs single events through an app, with each of these numbers of events per call.
fn in_batches(app: &str, events: &[(&str, i64, &[serde_json::Value])], together: [usize; 2]) -> [Told; 2] {
    let plan = Arc::new(compile("app.siddhi", app, &Registry::standard(), &|_| None).unwrap());
    together.map(|together| {
        let mut app = AppRuntime::new(plan.clone());
        let mut told = Told::default();
        app.start(0, &mut told);
        for events in events.chunks(together) {
            let (parts, order) = parts(&app, events).unwrap();
            app.send_batch(parts, Some(&order), &mut told).unwrap();
        }
        told
    })
}

#[test]
fn a_match_that_fails_takes_no_other_with_it() {
    let apps = [
        "define stream S (k string);
         from every e1=S -> e2=S select str:upper(e1.k) as k insert into Out;",
        "define stream S (k string); define stream R (k string);
         from S#window.length(3) as a join R#window.length(3) as b select str:concat(a.k, str:upper(b.k)) as k
         insert into Out;",
    ];
    let texts = ["a", "b", "c", "d"].map(|text| [serde_json::json!(text)]);
    let null = [serde_json::Value::Null];
    for app in apps {
        let other = if app.contains("stream R") { "R" } else { "S" };
        let [one_by_one, together] = both(
            app,
            &[
                ("S", 1, &texts[0]),
                (other, 2, &texts[1]),
                (other, 3, &null),
                ("S", 4, &texts[2]),
                (other, 5, &texts[3]),
            ],
        );
        assert!(one_by_one.0["Out"].len() > 1, "{:?}", one_by_one.0);
        assert!(one_by_one.0.keys().any(|list| list.starts_with("failure")), "{:?}", one_by_one.0);
        assert_eq!(one_by_one.0, together.0);
    }
}

#[test]
fn ever_new_keys_are_joined() {
    let app = "define stream S (k string); define stream R (k string);
        from S#window.length(50) as a join R#window.length(50) as b on a.k == b.k
        select a.k as k insert into Out;";
    // The keys of a side reach the other side a little later; keys that are gone are evicted from time to
    // time, also in the middle of a batch.
    let keys: Vec<[serde_json::Value; 1]> = (0..6000).map(|i| [format!("k{i}").into()]).collect();
    let mut sent = Vec::new();
    for i in 30..keys.len() {
        sent.push(("S", i as i64, keys[i].as_slice()));
        sent.push(("R", i as i64, keys[i - i % 30].as_slice()));
    }
    let [one_by_one, together] = in_batches(app, &sent, [1, 1000]);
    assert!(one_by_one.0["Out"].len() > 5000, "{}", one_by_one.0["Out"].len());
    assert!(one_by_one.0 == together.0);
}

#[test]
fn the_end_of_a_batch_does_not_fail_a_filter() {
    let app = "define stream S (k string);
        from S#window.batch()[str:length(k) == 1] select k insert all events into Out;";
    let texts = ["a", "b", "c"].map(|text| [serde_json::json!(text)]);
    let null = [serde_json::Value::Null];
    let [one_by_one, together] =
        both(app, &[("S", 1, &texts[0]), ("S", 2, &null), ("S", 3, &texts[1]), ("S", 4, &texts[2])]);
    assert_eq!(one_by_one.0["S"].len(), 2, "{:?}", one_by_one.0);
    assert_eq!(one_by_one.0, together.0);
}

#[test]
fn an_event_that_fails_behind_a_window_goes_no_further() {
    let app = "define stream S (k string);
        from S#window.length(2) select str:upper(k) as k insert into Out;";
    let texts = ["a", "b"].map(|text| [serde_json::json!(text)]);
    let null = [serde_json::Value::Null];
    let mut sent = vec![("S", 1, texts[0].as_slice()), ("S", 2, null.as_slice())];
    // enough rows for columnar processing
    sent.extend((3..20).map(|time| ("S", time, texts[1].as_slice())));
    let [one_by_one, together] = both(app, &sent);
    assert_eq!(one_by_one.0["S"].len(), 18, "{:?}", one_by_one.0);
    assert_eq!(one_by_one.0, together.0);
}

#[test]
fn a_late_event_leaves_with_the_next_one() {
    let app = "define stream R (v int); define stream S (v int);
        from S#window.time(1 sec) select v insert expired events into Out;";
    let values = [1, 2, 3].map(|v| [serde_json::json!(v)]);
    let [one_by_one, together] =
        both(app, &[("R", 5000, &values[0]), ("S", 3000, &values[1]), ("S", 6000, &values[2])]);
    assert_eq!(one_by_one.0["Out"], ["6000 Current Int(2)"]);
    assert_eq!(one_by_one.0, together.0);
}

/// Counts the calls by which a stream gets its events.
#[derive(Default)]
struct Calls(BTreeMap<String, usize>);

impl OutputHandler for Calls {
    fn events(&mut self, stream: &str, _: &Batch) {
        *self.0.entry(stream.to_owned()).or_default() += 1;
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {failure}");
    }
}

/// One component that filters and counts, and one whose table is read and written while a window waits for the clock.
const TWO_COMPONENTS: &str = "define stream A (v int); define stream R (v int);
    define table K (v int);
    from A[v > 1] select v insert into M;
    from M#window.time(2 sec) select v, count() as c insert all events into Big;
    from R[not ((K.v == v) in K)] select v insert into K;
    from R[(K.v == v) in K] select v insert into Known;
    from R#window.time(1 sec) select v, UUID() != '' as u insert expired events into Gone;";

#[test]
fn components_are_batched_each_for_itself() {
    let plan = Arc::new(compile("app.siddhi", TWO_COMPONENTS, &Registry::standard(), &|_| None).unwrap());
    let mut app = AppRuntime::new(plan.clone());
    let stream = |name: &str| plan.catalog.find(name).unwrap();
    assert_eq!(app.row_at_a_time_reason_of(stream("A")), None);
    assert_eq!(app.row_at_a_time_reason_of(stream("Big")), None);
    for row_at_a_time in ["R", "Known", "Gone"] {
        let why = app.row_at_a_time_reason_of(stream(row_at_a_time)).unwrap();
        assert!(why.contains("depends on the order of calls") || why.contains("read and written"), "{why}");
    }
    let values: Vec<[serde_json::Value; 1]> = (0..50).map(|i| [serde_json::json!(i % 7)]).collect();
    let sent: Vec<(&str, i64, &[serde_json::Value])> = (0..50)
        .map(|i| (if i % 3 == 0 { "R" } else { "A" }, 1_000 + 90 * i as i64, values[i].as_slice()))
        .collect();
    let mut calls = Calls::default();
    app.start(0, &mut calls);
    let (parts, order) = parts(&app, &sent).unwrap();
    app.send_batch(parts, Some(&order), &mut calls).unwrap();
    assert_eq!((calls.0["M"], calls.0["Big"]), (1, 1), "{:?}", calls.0);
    assert!(calls.0["Known"] > 5 && calls.0["Gone"] > 5, "{:?}", calls.0);
    let [one_by_one, together] = both(TWO_COMPONENTS, &sent);
    assert!(one_by_one.0["Gone"].len() > 5);
    assert_eq!(one_by_one.0, together.0);
    // a batch of one component only still moves the clock of the other
    let first = [("R", 1_000, values[1].as_slice())];
    let then: Vec<_> = (0..40).map(|i| ("A", 1_100 + 100 * i, values[3].as_slice())).collect();
    let all: Vec<_> = first.into_iter().chain(then).collect();
    let [one_by_one, together] = both(TWO_COMPONENTS, &all);
    assert_eq!(one_by_one.0["Gone"].len(), 1);
    assert_eq!(one_by_one.0, together.0);
}

#[test]
fn single_events_and_batches_agree_where_events_leave_as_they_come() {
    let text = |text: &str| serde_json::json!(text);
    // the arriving key is too rare to be emitted, and leaves with the bucket
    let app = "define stream S (k string);
        from S#window.lossyFrequent(0.3, 0.1, k) select k insert all events into Out;";
    let keys = ["a", "a", "a", "a", "a", "b", "b", "b", "b", "c"].map(|key| [text(key)]);
    let sent: Vec<_> = (0..).zip(&keys).map(|(i, key)| ("S", 1_000 + i, key.as_slice())).collect();
    let [one_by_one, together] = both(app, &sent);
    assert!(one_by_one.0["Out"].last().unwrap().contains("\"c\""), "{:?}", one_by_one.0);
    assert_eq!(one_by_one.0, together.0);

    // an event that breaks the condition alone is emitted at the time of the clock, which is later
    let app = "define stream A (k string, v int); define stream B (k string);
        from A#window.expressionBatch('sum(v) < 3') as a join B#window.length(5) as b on a.k == b.k
        select a.k as k, a.v as v insert into Out;";
    let (b, late) = ([text("x")], [text("x"), serde_json::json!(7)]);
    let [one_by_one, together] = both(app, &[("B", 2_000, &b), ("A", 1_000, &late)]);
    assert_eq!(one_by_one.0["Out"].len(), 1);
    assert_eq!(one_by_one.0, together.0);

    // a window that holds nothing evicts each row at once
    let app = "define stream A (k string); define stream B (k string);
        from A#window.expression('count() < 1') as a join B#window.length(5) as b on a.k == b.k
        select a.k as k insert into Out;";
    let mut sent = vec![("B", 1_000, b.as_slice())];
    sent.extend((0..2_100).map(|i| ("A", 1_001 + i, b.as_slice())));
    let [one_by_one, together] = both(app, &sent);
    assert_eq!(one_by_one.0["Out"].len(), 2_100);
    assert_eq!(one_by_one.0, together.0);
}

#[test]
fn conditions_of_partitions_and_aggregations_connect_them_with_tables() {
    let app = "define stream U (k int); define stream S (k int); define table T (k int);
        from U select k insert into T;
        partition with ((T.k == k) in T as 'known' or not ((T.k == k) in T) as 'new' of S)
        begin from S select k, count() as n insert into Out; end;";
    let one = [serde_json::json!(1)];
    let [one_by_one, together] = both(app, &[("S", 1_000, &one), ("U", 1_001, &one), ("S", 1_002, &one)]);
    assert_eq!(one_by_one.0["Out"].len(), 2);
    assert_eq!(one_by_one.0, together.0);

    let app = "define stream U (k int); define stream S (k int, v long); define table T (k int);
        define aggregation A from S[(T.k == k) in T] select k, sum(v) as t group by k aggregate every sec;
        from U select k insert into T;";
    let plan = Arc::new(compile("app.siddhi", app, &Registry::standard(), &|_| None).unwrap());
    let app = AppRuntime::new(plan.clone());
    for stream in ["S", "U"] {
        let why = app.row_at_a_time_reason_of(plan.catalog.find(stream).unwrap()).unwrap();
        assert!(why.contains("the aggregation `A`"), "{why}");
    }
}
