//! Partitions: many keys, and rejected apps. `tests/cases/recorded-own/partition` has the behaviour of
//! queries.

use std::sync::Arc;

use tidemill_flow::EvalError;
use tidemill_flow::column::Column;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Registry, Value};
use tidemill_types::FieldType;

const KEYS: i64 = 100_000;

#[derive(Default)]
struct Counts {
    rows: u64,
    last: Vec<Value>,
}

impl OutputHandler for Counts {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            self.rows += events.len() as u64;
            self.last = events.columns.iter().map(|c| c.get(events.len() - 1)).collect();
        }
    }

    fn sent(&mut self, _: &str, _: &Batch) {}

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {failure:?}");
    }
}

fn app(queries: &str) -> (AppRuntime, Counts) {
    let text = format!("@app:playback define stream S (k long, v int); {queries}");
    let plan = compile("app.siddhi", &text, &Registry::standard(), &|_| None).unwrap();
    let (mut app, mut counts) = (AppRuntime::new(Arc::new(plan)), Counts::default());
    app.start(0, &mut counts);
    (app, counts)
}

fn send(app: &mut AppRuntime, counts: &mut Counts, key: i64, time: i64) {
    let mut columns = [FieldType::Long, FieldType::Int].map(Column::new);
    columns[0].push(Value::Long(key));
    columns[1].push(Value::Int(1));
    app.send(0, columns.into(), vec![time], counts).unwrap();
}

#[test]
fn timers_of_many_keys() {
    let queries = "partition with (k of S) begin
            from S#window.time(1 min) select k, sum(v) as s insert all events into Out;
        end;";
    let (mut app, mut counts) = app(queries);
    // ten keys per millisecond, and the first tenth of them a second time
    let events = KEYS + KEYS / 10;
    for i in 0..events {
        send(&mut app, &mut counts, i % KEYS, i / 10);
    }
    assert_eq!(counts.rows, events as u64);
    let last = counts.last.iter().map(Value::as_i64).collect::<Vec<_>>();
    assert_eq!(last, [Some(KEYS / 10 - 1), Some(2)]);
    assert_eq!(app.next_due(), Some(60_000));
    app.advance(60_000, &mut counts);
    assert_eq!(counts.rows, events as u64 + 10, "ten keys are due at each instant");
    app.advance(200_000, &mut counts);
    // both events of a key expire in one chunk, except for the ten keys whose first event had expired before
    assert_eq!(counts.rows, (events + KEYS + 10) as u64);
    assert_eq!(app.next_due(), None);
}

#[test]
fn many_keys_come_and_go() {
    let (mut app, mut counts) = app("@purge(enable='true', interval='100 milliseconds', idle.period='1 sec')
        partition with (k of S) begin
            from every e1=S -> e2=S select e1.k as k, e2.v as v insert into Out;
        end;");
    for i in 0..KEYS {
        // each key occurs twice, the second time after it was purged
        send(&mut app, &mut counts, i % (KEYS / 2), i);
    }
    assert_eq!(counts.rows, 0);
    send(&mut app, &mut counts, KEYS / 2 - 1, KEYS);
    assert_eq!(counts.rows, 1);
}

/// Compiles an app that must be rejected; returns the message.
fn refused(queries: &str) -> String {
    let text =
        format!("define stream Trades (symbol string, price double); define table T (k string);\n{queries}");
    compile("app.siddhi", &text, &Registry::standard(), &|_| None).map(|_| ()).unwrap_err()
}

#[test]
fn mistakes_are_told_with_their_place() {
    let query = "from Trades select symbol insert into Out;";
    for (queries, said) in [
        (
            format!("partition with (symbol of Trade) begin {query} end;"),
            &["F1003", "no stream `Trade`", "`Trades`", ":2:27"][..],
        ),
        (format!("partition with (k of T) begin {query} end;"), &["F1003", "is a table", "name a stream"]),
        (
            "partition with (price of Trades) begin from #Mid select symbol insert into Out; end;".into(),
            &["F1002", "no query before this one writes `#Mid`", "insert into #Mid"],
        ),
        (
            "partition with (symbol of Trades) begin from Trades select symbol insert into #Middle;
             from #Midle select symbol insert into Out; end;"
                .into(),
            &["F1002", "Did you mean `#Middle`?", ":3:"],
        ),
        ("from Trades select symbol insert into #M;".into(), &["F1001", "`#M`", "write `M`"]),
        (
            format!("@purge(enable='true') partition with (symbol of Trades) begin {query} end;"),
            &["F1004", "`idle.period`", "idle.period='1 hour'"],
        ),
        (
            format!("@purge(enable='on') partition with (symbol of Trades) begin {query} end;"),
            &["F1005", "found 'on'", "write 'true' or 'false'"],
        ),
        (
            format!(
                "@purge(enable='true', idle.period='0 sec') partition with (symbol of Trades) begin {query} end;"
            ),
            &["F1006", "`0 sec`", "write a duration such as '10 sec'"],
        ),
        (
            format!("partition with (price > 5 as 'high' or price as 'low' of Trades) begin {query} end;"),
            &["a range", "double", ":2:40"],
        ),
    ] {
        let found = refused(&queries);
        for said in said {
            assert!(found.contains(said), "{said} is not in\n{found}");
        }
    }
    // all errors are reported at once
    let all = refused(
        "@purge(enable='no') partition with (nope of Trades) begin from X select symbol insert into Out; end;",
    );
    assert!(["F1005", "nope", "`X`"].iter().all(|part| all.contains(part)), "{all}");
}
