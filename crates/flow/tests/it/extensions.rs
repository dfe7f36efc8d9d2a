//! A user-defined window in all positions that accept a window.

use std::ops::Range;
use std::sync::Arc;

use tidemill_flow::EvalError;
use tidemill_flow::registry::{Parameter, WindowInput};
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler, StreamBatch};
use tidemill_flow::snapshot::{Error, Reader, RestoreMode, SnapshotWriter};
use tidemill_flow::store::{RowId, RowStore};
use tidemill_flow::window::{RetainedRows, Window, WindowConstructor, WindowContext};
use tidemill_flow::{Batch, Column, FieldType, Registry, Value};

/// `own:run(attribute)`: buffers events while the attribute keeps its value; then all of them expire.
fn run(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    let [attribute] = parameters else { return Err("expected one attribute: own:run(attribute)".into()) };
    let column = attribute.column("the attribute", &[FieldType::String])?;
    Ok(Arc::new(move || Box::new(Run { column, held: vec![] })))
}

struct Run {
    column: usize,
    held: Vec<RowId>,
}

impl Window for Run {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for row in rows {
            let is_other =
                |last: &RowId| context.rows.text(*last, self.column) != context.rows.text(row, self.column);
            if self.held.last().is_some_and(is_other) {
                self.held.drain(..).for_each(|left| context.out.expired(left, context.now));
            }
            context.out.current(row, context.rows.time(row));
            self.held.push(row);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows(&self) -> Vec<RowId> {
        self.held.clone()
    }

    fn retained_rows(&self) -> RetainedRows {
        self.held.first().map_or(RetainedRows::Nothing, |oldest| RetainedRows::From(*oldest))
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.held)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.held = from.state()?;
        Ok(())
    }
}

fn registry() -> Registry {
    let mut registry = Registry::standard();
    registry.window("own:run", run);
    registry
}

/// Collects the events of `Out` as lines.
#[derive(Default)]
struct Lines(Vec<String>);

impl OutputHandler for Lines {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            let value = |row: usize| move |column: &Column| column.get(row).to_string();
            let line = |row| events.columns.iter().map(value(row)).collect::<Vec<_>>().join(" ");
            self.0.extend((0..events.len()).map(line));
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.0.push(format!("{query}: {}", failure));
    }
}

/// Sends an event per letter, with the letter as its string and consecutive numbers. With `saved`, the app is
/// saved and restored before each call.
fn out(queries: &str, letters: &str, together: usize, saved: bool) -> Vec<String> {
    let text = format!("define stream S (k string, v int);\n{queries}");
    let plan = Arc::new(compile("own.siddhi", &text, &registry(), &|_| None).unwrap());
    let mut app = AppRuntime::new(plan.clone());
    let mut lines = Lines::default();
    app.start(0, &mut lines);
    let stream = plan.catalog.find("S").unwrap();
    let letters: Vec<char> = letters.chars().collect();
    for (number, chunk) in letters.chunks(together).enumerate() {
        if saved {
            let mut state = Vec::new();
            app.save(&mut state).unwrap();
            app = AppRuntime::new(plan.clone());
            app.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
        }
        let first = (number * together) as i64;
        let mut columns = vec![Column::new(FieldType::String), Column::new(FieldType::Int)];
        for (i, letter) in chunk.iter().enumerate() {
            columns[0].push(Value::text(&letter.to_string()));
            columns[1].push(Value::Int(first as i32 + i as i32));
        }
        let times = (first..first + chunk.len() as i64).collect();
        app.send_batch(vec![StreamBatch { stream, columns, times }], None, &mut lines).unwrap();
    }
    lines.0
}

#[test]
fn a_window_of_ones_own_holds_what_it_says() {
    let places = [
        "from S#window.own:run(k) select k, count() as n, sum(v) as s insert into Out;",
        "define window W (k string, v int) own:run(k);
         from S insert into W;
         from W select k, count() as n, sum(v) as s insert into Out;",
        "from S#window.own:run(k) as a join S#window.length(1) as b on a.v == b.v
         select a.k as k, a.v as n, b.v as s insert into Out;",
        "from S#window.own:run(k) select k, v as n, v as s insert expired events into Out;",
    ];
    let expected = [
        vec!["a 1 0", "a 2 1", "b 1 2", "b 2 5", "b 3 9", "c 1 5", "a 1 6"],
        vec!["a 1 0", "a 2 1", "b 1 2", "b 2 5", "b 3 9", "c 1 5", "a 1 6"],
    ];
    let letters = "aabbbca";
    for (place, queries) in places.iter().enumerate() {
        let one_by_one = out(queries, letters, 1, false);
        if let Some(expected) = expected.get(place) {
            assert_eq!(one_by_one, *expected, "{queries}");
        }
        assert!(one_by_one.len() >= 5, "{queries}: {one_by_one:?}");
        assert_eq!(out(queries, letters, 1, true), one_by_one, "saved: {queries}");
        assert_eq!(out(queries, &letters.repeat(10), 35, false), out(queries, &letters.repeat(10), 1, false));
    }
}

#[test]
fn what_is_wrong_with_its_parameters_is_told() {
    let wrong = |call: &str| {
        let text =
            format!("define stream S (k string, v int);\nfrom S#window.{call} select k insert into Out;");
        compile("own.siddhi", &text, &registry(), &|_| None).err().map(|e| e.to_string()).unwrap()
    };
    assert!(wrong("own:run()").contains("own:run: expected one attribute: own:run(attribute)"));
    assert!(wrong("own:run(v)").contains("own:run: the attribute must be an attribute of type string"));
    assert!(wrong("own:runs(k)").contains("there is no window `own:runs`. Did you mean `own:run`?"));
}
