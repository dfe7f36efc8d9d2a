//! Models that one query trains and others predict by: `streamingml`.

use std::sync::Arc;

use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::snapshot::RestoreMode;
use tidemill_flow::{Batch, Column, EvalError, FieldType, Registry, Value};

/// Values of the events of `Out`, and failures.
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
        self.0.push(format!("{query}: {failure}"));
    }
}

/// An app, its output, and the number of the next event.
struct App {
    plan: Arc<tidemill_flow::plan::AppPlan>,
    runtime: AppRuntime,
    lines: Lines,
    now: i64,
}

impl App {
    fn start(text: &str) -> Self {
        let plan = Arc::new(compile("app.siddhi", text, &Registry::standard(), &|_| None).unwrap());
        let (mut runtime, mut lines) = (AppRuntime::new(plan.clone()), Lines::default());
        runtime.start(0, &mut lines);
        Self { plan, runtime, lines, now: 0 }
    }

    fn send(&mut self, stream: &str, values: &[Value]) {
        self.now += 1;
        let column = |value: &Value| {
            let mut column = Column::new(match value {
                Value::Str(_) => FieldType::String,
                _ => FieldType::Double,
            });
            column.push(value.clone());
            column
        };
        let columns = values.iter().map(column).collect();
        let stream = self.plan.catalog.find(stream).unwrap();
        self.runtime.send(stream, columns, vec![self.now], &mut self.lines).unwrap();
    }

    fn restart(&mut self) {
        let mut state = Vec::new();
        self.runtime.save(&mut state).unwrap();
        self.runtime = AppRuntime::new(self.plan.clone());
        self.runtime.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines.0)
    }
}

/// Returns number `n` of a pattern, from 0 to 1.
fn number(n: i64, k: i64) -> f64 {
    (n * k % 1009) as f64 / 1009.0
}

const TREE: &str = "
define stream Known (a double, b double, kind string);
define stream Unknown (a double, b double);
from Known#streamingml:updateHoeffdingTree('sweets', 2, a, b, kind) select accuracy insert into Trained;
@info(name='classify')
from Unknown#streamingml:hoeffdingTreeClassifier('sweets', a, b) select prediction, confidenceLevel > 0.8 as sure insert into Out;";

#[test]
fn one_query_trains_a_tree_and_another_classifies() {
    for restarts in [false, true] {
        let mut app = App::start(TREE);
        app.send("Unknown", &[Value::Double(0.1), Value::Double(0.1)]);
        assert_eq!(app.take(), ["null false"], "nothing was learnt yet");
        for n in 0..3000 {
            let (a, b) = (number(n, 37), number(n, 53));
            let kind = if b > 0.5 { "candy" } else { "fudge" };
            app.send("Known", &[Value::Double(a), Value::Double(b), Value::text(kind)]);
            if restarts && n % 500 == 7 {
                app.restart();
            }
        }
        app.send("Unknown", &[Value::Double(0.9), Value::Double(0.1)]);
        app.send("Unknown", &[Value::Double(0.1), Value::Double(0.9)]);
        app.send("Unknown", &[Value::Double(f64::NAN), Value::Double(0.9)]);
        assert_eq!(app.take(), ["fudge true", "candy true", "classify: feature 1 of the model is NaN"]);
    }
}

#[test]
fn a_label_too_many_fails_its_event_only() {
    let mut app = App::start(TREE);
    for kind in ["x", "y", "z", "y"] {
        app.send("Known", &[Value::Double(1.0), Value::Double(2.0), Value::text(kind)]);
    }
    let lines = app.take();
    assert!(
        lines.len() == 1 && lines[0].contains("the label `z` is one more than the 2 classes"),
        "{lines:?}"
    );
    app.send("Unknown", &[Value::Double(1.0), Value::Double(2.0)]);
    assert_eq!(app.take(), ["y false"]);
}

#[test]
fn one_query_trains_rules_and_another_predicts() {
    let text = "
        define stream Known (a double, b double, y double);
        define stream Unknown (a double, b double);
        from Known#streamingml:updateAMRulesRegressor('m', 1.0E-7, 0.05, 200, 2, 2, a, b, y) select meanSquaredError insert into Trained;
        from Unknown#streamingml:AMRulesRegressor('m', a, b)
        select prediction > 2.9 and prediction < 3.1 as near, meanSquaredError < 0.5 as learnt insert into Out;";
    let outputs = [false, true].map(|restarts| {
        let mut app = App::start(text);
        for n in 0..10_000 {
            let (a, b) = (number(n, 37), number(n, 53));
            let y = 5.0 * a - 3.0 * b + 2.0;
            app.send("Known", &[Value::Double(a), Value::Double(b), Value::Double(y)]);
            if restarts && n % 1000 == 7 {
                app.restart();
            }
        }
        app.send("Unknown", &[Value::Double(0.5), Value::Double(0.5)]);
        app.take()
    });
    assert_eq!(outputs, [["true true"], ["true true"]]);
}

#[test]
fn clusters_are_found_after_the_first_refresh() {
    let text = "
        define stream S (a double, b double);
        from S#streamingml:clusTree(2, 10, 20, 5, 50, a, b)
        select math:round(closestCentroidCoordinate1) as x, math:round(closestCentroidCoordinate2) as y insert into Out;";
    for restarts in [false, true] {
        let mut app = App::start(text);
        for n in 0..200 {
            let shift = if n % 2 == 0 { 0.0 } else { 10.0 };
            let (a, b) = (number(n, 37) - 0.5, number(n, 53) - 0.5);
            app.send("S", &[Value::Double(shift + 0.5 * a), Value::Double(shift + 0.5 * b)]);
            if restarts && n % 30 == 7 {
                app.restart();
            }
        }
        let lines = app.take();
        assert_eq!(lines.iter().take_while(|line| *line == "null null").count(), 19);
        assert_eq!(lines[198..], ["0 0", "10 10"]);
    }
}
