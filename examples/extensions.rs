//! A function, an aggregate and a window of one's own in SiddhiQL: `cargo run --example extensions`.

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;
use tidemill::flow::EvalError;
use tidemill::flow::registry::{Aggregator, ArgumentType, Function, FunctionContext, Parameter, WindowInput};
use tidemill::flow::snapshot::{Error, Reader, SnapshotWriter};
use tidemill::flow::store::{RowId, RowStore};
use tidemill::flow::window::{RetainedRows, Window, WindowConstructor, WindowContext};
use tidemill::flow::{FieldType, Registry, Value};
use tidemill::output::{Format, Writer as TableWriter};
use tidemill::{App, Tidemill};

const QUERIES: &str = "
    define stream Readings (oven string, phase string, fahrenheit double);
    @info(name='typical')
    from Readings#window.own:run(phase)
    select phase, count() as readings, own:median(own:celsius(fahrenheit)) as celsius
    insert into Typical;
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut registry = Registry::standard();
    registry.function("own:celsius", |args| match args {
        [ArgumentType { ty: FieldType::Double, .. }] => Ok((Arc::new(Celsius), FieldType::Double)),
        _ => Err("expected a double, degrees Fahrenheit".into()),
    });
    registry.aggregator("own:median", |args| match args {
        [ArgumentType { ty: FieldType::Double, .. }] => {
            Ok((Arc::new(|| Box::<Median>::default()), FieldType::Double))
        }
        _ => Err("expected a double".into()),
    });
    registry.window("own:run", run);

    let dir = std::env::temp_dir().join(format!("tidemill-extensions-{}", std::process::id()));
    let app = App::from_texts("ovens", None, &[("ovens.siddhi", QUERIES)]).with_registry(registry);
    let tidemill = Tidemill::open_with(&dir, app)?;
    for (phase, fahrenheit) in [("heats", 70.0), ("heats", 250.0), ("bakes", 392.0), ("bakes", 401.0)] {
        let event = json!({"oven": "7", "phase": phase, "fahrenheit": fahrenheit});
        tidemill.send("Readings", &event)?;
    }
    let rows = tidemill.sql("SELECT phase, readings, round(celsius, 1) AS celsius FROM events.Typical")?;
    let mut table = TableWriter::new(Format::Table, &rows.schema, std::io::stdout())?;
    rows.batches.iter().try_for_each(|batch| table.write(batch))?;
    table.finish()?;
    tidemill.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

/// A function: it knows nothing but its arguments, whose types were checked when the app was compiled.
#[derive(Debug)]
struct Celsius;

impl Function for Celsius {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> Result<Value, EvalError> {
        Ok(args[0].as_f64().map_or(Value::Null, |f| Value::Double((f - 32.0) / 1.8)))
    }
}

/// An aggregate: the middle one of the values that are there now, ascending.
#[derive(Default)]
struct Median(Vec<f64>);

impl Median {
    fn place(&self, args: &[Value]) -> Option<(usize, f64)> {
        let value = args[0].as_f64()?;
        Some((self.0.partition_point(|known| known.total_cmp(&value).is_lt()), value))
    }
}

impl Aggregator for Median {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some((place, value)) = self.place(args) {
            self.0.insert(place, value);
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some((place, _)) = self.place(args) {
            self.0.remove(place);
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.0.clear();
    }

    fn value(&self) -> Value {
        self.0.get(self.0.len() / 2).map_or(Value::Null, |middle| Value::Double(*middle))
    }

    fn save(&self) -> serde_json::Value {
        json!(self.0)
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError> {
        self.0 = serde_json::from_value(state.clone()).map_err(|e| EvalError::state(e.to_string()))?;
        Ok(())
    }
}

/// `own:run(attribute)`: the events since the attribute was last another one; then all of them leave.
fn run(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    let [attribute] = parameters else { return Err("expected one attribute: own:run(attribute)".into()) };
    let column = attribute.column("the attribute", &[FieldType::String])?;
    Ok(Arc::new(move || Box::new(Run { column, held: vec![] })))
}

/// Rows have numbers; a window says which arrived and which left.
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
