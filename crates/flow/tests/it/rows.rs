//! Single events give the output of batches, whichever way they take; in the steady state they allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::fs;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::{Case, Input, compile, value_of};
use tidemill_flow::runtime::{AppRuntime, OutputHandler, StreamBatch};
use tidemill_flow::snapshot::RestoreMode;
use tidemill_flow::{Batch, Column, EvalError, Registry, Row, Value, ValueRef};

use crate::fed::{RowTold, Told, files};

/// The system's allocator, with a count of the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // a thread that ends may still allocate
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is forwarded to the system's allocator; only a counter is added
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the system requires what the caller guarantees
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the output of a case whose events are sent one by one; `None` if the case sends several in one call.
///
/// `save_every`: the number of inputs after which the app is saved and restored.
fn told<H: OutputHandler>(
    case: &Case,
    plan: &Arc<AppPlan>,
    mut told: H,
    with_rows: bool,
    save_every: usize,
) -> Option<H> {
    let mut app = AppRuntime::new(plan.clone());
    app.use_row_programs(with_rows);
    app.start(case.start, &mut told);
    for (number, input) in case.inputs.iter().enumerate() {
        if number % save_every == save_every - 1 {
            let mut state = Vec::new();
            app.save(&mut state).unwrap();
            app = AppRuntime::new(plan.clone());
            app.use_row_programs(with_rows);
            app.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
        }
        match input {
            Input::Event { stream, timestamp, data } => {
                let stream = app.plan().catalog.find(stream)?;
                let types: Vec<_> =
                    app.plan().catalog.streams()[stream].attributes.iter().map(|(_, ty)| *ty).collect();
                if types.len() != data.len() {
                    return None;
                }
                let values: Vec<Value> = data.iter().zip(&types).map(|(v, ty)| value_of(v, *ty)).collect();
                let row: Vec<ValueRef<'_>> = values.iter().map(Value::borrowed).collect();
                app.send_row(stream, &row, *timestamp, &mut told).ok()?;
            }
            Input::Clock { timestamp } => app.advance((*timestamp).max(app.now()), &mut told),
            Input::OnDemand { on_demand } => match app.on_demand(on_demand) {
                Ok(found) => told.emission("on demand", &found),
                Err(failure) => told.failure("on demand", &failure),
            },
            Input::Events { .. } | Input::Restart { .. } => return None,
        }
    }
    Some(told)
}

#[test]
fn recorded_events_give_the_same_as_rows_and_as_batches() {
    let registry = Registry::standard();
    let (mut cases, mut programs, mut queries, mut wrong) = (0, 0, 0, Vec::new());
    for path in files() {
        let case: Case = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let Ok(plan) = compile("app.siddhi", &case.app, &registry, &|_| None) else { continue };
        let plan = Arc::new(plan);
        let Some(batches) = told(&case, &plan, Told::default(), false, usize::MAX) else { continue };
        cases += 1;
        let app = AppRuntime::new(plan.clone());
        queries += app.plan().queries.len();
        programs += (0..app.plan().queries.len()).filter(|query| app.batch_reason(*query).is_none()).count();
        let rows = told(&case, &plan, RowTold::default(), true, usize::MAX).map(|rows| rows.0);
        let restored = told(&case, &plan, RowTold::default(), true, 3).map(|rows| rows.0);
        let both = told(&case, &plan, Told::default(), true, usize::MAX);
        // random values depend on the state that a restored app has
        let restored = restored.filter(|_| !case.app.contains("UUID"));
        for (way, other) in [("rows", rows), ("restored rows", restored), ("rows for batches", both)] {
            let Some(other) = other else { continue };
            for list in batches.0.keys().chain(other.0.keys()) {
                let (a, b) = (batches.0.get(list), other.0.get(list));
                if a != b {
                    wrong.push(format!("{}, {way}, {list}:\n  {a:?}\n  {b:?}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    println!("{cases} cases, row programs for {programs} of {queries} queries");
    assert!(cases > 400 && programs > 200, "{cases} cases, {programs} programs");
}

/// A random literal, attribute, or operation on these; `names` are the attributes by type.
fn expression(rng: &mut StdRng, ty: &str, depth: u32) -> String {
    let leaf = depth == 0 || rng.random_bool(0.2);
    match ty {
        "bool" if leaf => ["b", "true", "false"].choose(rng).unwrap().to_string(),
        "bool" => {
            let number = |rng: &mut StdRng| *["int", "long", "float", "double"].choose(rng).unwrap();
            let comparison = *["==", "!=", "<", "<=", ">", ">="].choose(rng).unwrap();
            match rng.random_range(0..7) {
                0 => format!(
                    "({} and {})",
                    expression(rng, "bool", depth - 1),
                    expression(rng, "bool", depth - 1)
                ),
                1 => format!(
                    "({} or {})",
                    expression(rng, "bool", depth - 1),
                    expression(rng, "bool", depth - 1)
                ),
                2 => format!("not ({})", expression(rng, "bool", depth - 1)),
                3 => format!("({} is null)", ["b", "i", "l", "f", "d", "s"].choose(rng).unwrap()),
                4 => {
                    let (ty, op) =
                        (*["string", "bool"].choose(rng).unwrap(), *["==", "!="].choose(rng).unwrap());
                    format!("({} {op} {})", expression(rng, ty, depth - 1), expression(rng, ty, depth - 1))
                }
                _ => {
                    let (a, b) = (number(rng), number(rng));
                    format!(
                        "({} {comparison} {})",
                        expression(rng, a, depth - 1),
                        expression(rng, b, depth - 1)
                    )
                }
            }
        }
        "string" => ["s", "'a'", "''", "'a longer text'"].choose(rng).unwrap().to_string(),
        _ if leaf => {
            let literals = match ty {
                "int" => ["i", "i", "0", "2147483647", "7"],
                "long" => ["l", "l", "0L", "9223372036854775807L", "-3L"],
                "float" => ["f", "f", "0.0f", "1.5f", "16777217.0f"],
                _ => ["d", "d", "0.0", "0.1", "9007199254740993.0"],
            };
            literals.choose(rng).unwrap().to_string()
        }
        _ => {
            // operands are widened to the type of the result, so one of them has it
            let narrower: &[&str] = match ty {
                "int" => &["int"],
                "long" => &["int", "long"],
                "float" => &["int", "long", "float"],
                _ => &["int", "long", "float", "double"],
            };
            let mut operands = [ty, narrower.choose(rng).unwrap()];
            if rng.random_bool(0.5) {
                operands.swap(0, 1);
            }
            let op = ["+", "-", "*", "/", "%"].choose(rng).unwrap();
            let [a, b] = operands.map(|ty| expression(rng, ty, depth - 1));
            format!("({a} {op} {b})")
        }
    }
}

/// A random value of an attribute: often a limit of its type, null, or not a number.
fn value(rng: &mut StdRng, ty: &str) -> Value {
    if rng.random_bool(0.15) {
        return Value::Null;
    }
    match ty {
        "bool" => Value::Bool(rng.random_bool(0.5)),
        "int" => Value::Int(*[0, 1, -1, 7, i32::MAX, i32::MIN, 16_777_217].choose(rng).unwrap()),
        "long" => {
            Value::Long(*[0, 1, -1, 9, i64::MAX, i64::MIN, (1 << 53) + 1, 16_777_217].choose(rng).unwrap())
        }
        "float" => Value::Float(
            *[0.0, -0.0, 1.5, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE, 1.6e7].choose(rng).unwrap(),
        ),
        "double" => {
            Value::Double(*[0.0, -0.0, 0.1, f64::NAN, f64::NEG_INFINITY, 9e15, -2.5].choose(rng).unwrap())
        }
        _ => Value::text(["a", "", "b", "a longer text", "seven b"].choose(rng).unwrap()),
    }
}

/// Rows of a value with its bits, so that NaNs and zeros are told apart.
fn exact(value: &Value) -> String {
    match value {
        Value::Float(n) if !n.is_nan() => format!("float {:x}", n.to_bits()),
        Value::Double(n) if !n.is_nan() => format!("double {:x}", n.to_bits()),
        value => format!("{value:?}"),
    }
}

#[derive(Default)]
struct Exact {
    rows: Vec<Vec<String>>,
    failures: Vec<String>,
}

impl OutputHandler for Exact {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            let row = |i| events.columns.iter().map(|column| exact(&column.get(i))).collect();
            self.rows.extend((0..events.len()).map(row));
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.failures.push(format!("{query}: {failure}"));
    }

    fn wants_rows(&self) -> bool {
        true
    }

    fn event_rows(&mut self, stream: &str, rows: &[Row<'_>]) {
        if stream == "Out" {
            let row = |row: &Row<'_>| row.values.iter().map(|value| exact(&value.to_value())).collect();
            self.rows.extend(rows.iter().map(row));
        }
    }
}

#[test]
fn row_programs_compute_what_columns_do() {
    let seed = env::var("TIDEMILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_128);
    println!("TIDEMILL_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let types = ["bool", "int", "long", "float", "double", "string"];
    let mut rows_out = 0;
    for _ in 0..400 {
        let items: Vec<String> = (0..4)
            .map(|i| {
                let ty = *types.choose(&mut rng).unwrap();
                format!("{} as x{i}", expression(&mut rng, ty, 3))
            })
            .collect();
        let condition = expression(&mut rng, "bool", 3);
        let having = match rng.random_bool(0.3) {
            true => "having not (x0 is null)",
            false => "",
        };
        let grouped = rng.random_bool(0.3);
        let (sums, by) = match grouped {
            true => (", sum(l) as t, count() as c, avg(d) as a", "group by s, b"),
            false => ("", ""),
        };
        let window = if rng.random_bool(0.3) { "#window.length(3)" } else { "" };
        let text = format!(
            "define stream S (b bool, i int, l long, f float, d double, s string);\n\
             from S[{condition}]{window} select {}{sums} {by} {having} insert into Out;",
            items.join(", ")
        );
        let plan = compile("app", &text, &Registry::standard(), &|_| None);
        let plan = Arc::new(plan.unwrap_or_else(|e| panic!("{text}: {e}")));
        let events: Vec<Vec<Value>> =
            (0..40).map(|_| types.iter().map(|ty| value(&mut rng, ty)).collect()).collect();
        let mut by_row = Exact::default();
        let mut app = AppRuntime::new(plan.clone());
        assert_eq!(app.batch_reason(0), None, "{text}");
        app.start(0, &mut by_row);
        for (time, event) in events.iter().enumerate() {
            let row: Vec<ValueRef<'_>> = event.iter().map(Value::borrowed).collect();
            app.send_row(0, &row, time as i64, &mut by_row).unwrap();
        }
        let mut by_column = Exact::default();
        let mut app = AppRuntime::new(plan);
        app.start(0, &mut by_column);
        let mut columns: Vec<Column> =
            app.plan().catalog.streams()[0].attributes.iter().map(|(_, ty)| Column::new(*ty)).collect();
        for event in &events {
            columns.iter_mut().zip(event).for_each(|(column, value)| column.push(value.clone()));
        }
        let part = StreamBatch { stream: 0, columns, times: (0..events.len() as i64).collect() };
        app.send_batch(vec![part], None, &mut by_column).unwrap();
        assert_eq!(by_row.failures, by_column.failures, "seed {seed}: {text}");
        assert_eq!(by_row.rows.len(), by_column.rows.len(), "seed {seed}: {text}");
        rows_out += by_row.rows.len();
        let differs = by_row.rows.iter().zip(&by_column.rows).find(|(row, column)| row != column);
        assert_eq!(differs, None, "seed {seed}: {text}");
    }
    assert!(rows_out > 3_000, "{rows_out}");
}

#[derive(Default)]
struct Counted(usize);

impl OutputHandler for Counted {
    fn events(&mut self, _: &str, _: &Batch) {}

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {failure}");
    }

    fn wants_rows(&self) -> bool {
        true
    }

    fn event_rows(&mut self, stream: &str, rows: &[Row<'_>]) {
        self.0 += if stream == "Out" { rows.len() } else { 0 };
    }
}

#[test]
fn single_events_allocate_only_the_segments_of_windows() {
    let apps = [
        "from S[price > 20.0] select symbol, price insert into Out;",
        "from S select symbol, price * volume as x, volume * 2 + 1 as y insert into Out;",
        "from S#window.length(100) select ts, symbol, avg(price) as a group by symbol insert into Out;",
        "from S#window.externalTime(ts, 100) select symbol, sum(price) as s, count() as c group by symbol
         insert into Out;",
        "from every e1=S[price > 20.0] -> e2=S[price > e1.price] within 1 sec
         select e1.symbol as s, e1.ts as a, e2.ts as b insert into Out;",
        "from every e1=S[price > 50.0], e2=S[price > e1.price] select e1.ts as a, e2.ts as b insert into Out;",
        "from S#window.length(20) as a join T#window.length(20) as b on a.symbol == b.symbol
         select a.ts as x, b.ts as y, a.symbol as z insert into Out;",
        "partition with (symbol of S) begin
         from S select symbol, sum(price) as s, count() as c, max(price) as m insert into Out; end;",
        "@PrimaryKey('symbol') define table K (symbol string, price double, volume long);
         from S select symbol, price, volume update or insert into K on K.symbol == symbol;
         from S select symbol insert into Out;",
        "from S[volume > 3] select symbol, price insert into M; from M[price > 5.0] select price insert into Out;",
    ];
    for app in apps {
        let streams = "define stream S (symbol string, price double, volume long, ts long);
            define stream T (symbol string, price double, volume long, ts long);";
        let text = format!("{streams}\n{app}");
        let plan = compile("app", &text, &Registry::standard(), &|_| None).unwrap();
        let mut app = AppRuntime::new(Arc::new(plan));
        let mut out = Counted::default();
        app.start(0, &mut out);
        let ids = ["S", "T"].map(|name| app.plan().catalog.find(name).unwrap());
        let names = ["AB", "CD", "EF", "a symbol that is longer"];
        let mut send = |app: &mut AppRuntime, i: i64| {
            let price = (i * 7 % 100) as f64;
            let row = [
                ValueRef::Str(names[i as usize % 4]),
                ValueRef::Double(price),
                ValueRef::Long(i % 10),
                ValueRef::Long(1_000 + i),
            ];
            app.send_row(ids[(i / 4) as usize % 2], &row, 1_000 + i, &mut out).unwrap();
        };
        // segments of stores and lists of matches have their size after some thousand events
        (0..40_000).for_each(|i| send(&mut app, i));
        let before = ALLOCATIONS.with(Cell::get);
        (40_000..44_000).for_each(|i| send(&mut app, i));
        let allocations = ALLOCATIONS.with(Cell::get) - before;
        assert!(out.0 > 1_000, "{text}: {}", out.0);
        // each window has new columns once in 4,096 events, which grow by doubling
        assert!(allocations < 150, "{text}: {allocations} allocations in 4,000 events");
    }
}

#[test]
fn a_row_that_does_not_fit_is_refused() {
    let text = "define stream S (symbol string, n int); from S select symbol, n insert into Out;";
    let plan = compile("app", text, &Registry::standard(), &|_| None).unwrap();
    for with_rows in [true, false] {
        let mut app = AppRuntime::new(Arc::new(plan.clone()));
        app.use_row_programs(with_rows);
        let mut out = Counted::default();
        app.start(0, &mut out);
        let fits = [ValueRef::Str("a"), ValueRef::Int(1)];
        for wrong in
            [&fits[..1], &[ValueRef::Int(1), ValueRef::Int(1)], &[ValueRef::Str("a"), ValueRef::Long(1)]]
        {
            let refused = app.send_row(0, wrong, 1, &mut out).unwrap_err().to_string();
            assert!(refused.contains("do not match the attributes of `S`"), "{refused}");
        }
        assert!(app.send_row(9, &fits, 1, &mut out).unwrap_err().to_string().contains("no stream 9"));
        app.send_row(0, &fits, 1, &mut out).unwrap();
        app.send_row(0, &[ValueRef::Null, ValueRef::Null], 2, &mut out).unwrap();
    }
}
