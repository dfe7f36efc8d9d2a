//! Memory of many keys and many idle queries.
//!
//! `cargo bench -p tidemill-flow --bench footprint [-- KEYS [QUERIES]]`; the defaults are 10,000 keys and
//! 6,000 queries. Memory is live heap memory. Bytes per key are the additional memory of an app with that
//! many keys, divided by their number, once after one event per key and once after ten. Bytes per query are
//! the memory of text, plan and app of that many queries before any event reaches them; the load time is that
//! from the text to the started app.

use std::sync::Arc;
use std::time::Instant;

use tidemill_flow::EvalError;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Column, Registry, Value};
use tidemill_types::FieldType;

mod counted;

const RUNS: usize = 5;
const STREAM: &str = "define stream S (symbol string, price double, volume long);\n";

/// Queries of a partition, by name.
const KEYED: [(&str, &str); 6] = [
    ("running sum", "from S select symbol, sum(volume) as total insert into Out;"),
    (
        "running sum with a filter before",
        "from S[volume >= 0] select symbol, sum(volume) as total insert into Out;",
    ),
    ("`length(100)`", "from S#window.length(100) select symbol, sum(volume) as total insert into Out;"),
    ("`time(1 hour)`", "from S#window.time(1 hour) select symbol, sum(volume) as total insert into Out;"),
    (
        "pattern with `every`",
        "from every e1=S[price > 20.0] -> e2=S[price < e1.price] within 1 hour
            select e1.symbol as symbol, e2.price as price insert into Out;",
    ),
    (
        "three queries, by an inner stream",
        "from S#window.length(10) select symbol, avg(price) as price insert into #Mean;
            from #Mean[price > 10.0] select symbol, price insert into Out;
            from S select symbol, max(price) as price insert into Out;",
    ),
];

/// Idle queries; `@` stands for the number of the query.
const IDLE: [(&str, &str); 4] = [
    ("filter", "from S[price > @.0] select symbol, price insert into Out;"),
    (
        "`length(100)`, grouped",
        "from S[price > @.0]#window.length(100) select symbol, sum(price) as price group by symbol insert into Out;",
    ),
    (
        "pattern",
        "from every e1=S[price > @.0] -> e2=S[price > e1.price] within 1 sec
            select e1.symbol as symbol, e2.price as price insert into Out;",
    ),
    (
        "join of two windows",
        "from S[price > @.0]#window.length(10) as a join T#window.time(1 sec) as b on a.symbol == b.symbol
            select a.symbol as symbol, b.price as price insert into Out;",
    ),
];

struct Nothing;

impl OutputHandler for Nothing {
    fn events(&mut self, _: &str, _: &Batch) {}

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {}", failure);
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let keys = numbers.next().unwrap_or(10_000).max(1);
    let queries = numbers.next().unwrap_or(6_000).max(1);
    println!("{keys} keys; bytes per key\n");
    println!("| in a partition by `symbol` | one event a key | ten events a key | saved, ten events a key |");
    println!("| --- | ---: | ---: | ---: |");
    KEYED.iter().for_each(|(name, query)| keyed(name, query, keys));
    println!("\n{queries} queries, {RUNS} runs; bytes per query; seconds as median (min to max)\n");
    println!("| idle | plan | app | most while loading | load, s |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (name, query) in IDLE {
        let text = |i: usize| query.replace('@', &(i % 200).to_string());
        idle(name, queries, &(0..queries).map(text).collect::<Vec<_>>().join("\n"));
    }
    let text = |i: usize| IDLE[i % IDLE.len()].1.replace('@', &(i % 200).to_string());
    idle("a quarter of each", queries, &(0..queries).map(text).collect::<Vec<_>>().join("\n"));
}

fn plan(queries: &str) -> Arc<AppPlan> {
    let text = format!("{STREAM}{}{queries}", STREAM.replace(" S ", " T "));
    compile("footprint", &text, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}")).into()
}

fn keyed(name: &str, query: &str, keys: usize) {
    let mut app = AppRuntime::new(plan(&format!("partition with (symbol of S) begin {query} end;")));
    app.start(0, &mut Nothing);
    let empty = counted::live();
    let each = || (counted::live() - empty) as f64 / keys as f64;
    round(&mut app, 0, keys);
    let one = each();
    (1..10).for_each(|turn| round(&mut app, turn, keys));
    let ten = each();
    let mut saved = Vec::new();
    app.save(&mut saved).unwrap_or_else(|e| panic!("{e}"));
    println!("| {name} | {one:.0} | {ten:.0} | {:.0} |", saved.len() as f64 / keys as f64);
}

/// Sends an event for each key, each in a call of its own.
fn round(app: &mut AppRuntime, turn: usize, keys: usize) {
    for key in 0..keys {
        let mut columns = [FieldType::String, FieldType::Double, FieldType::Long].map(Column::new);
        columns[0].push(Value::text(&format!("S{key:06}")));
        // rising, so that a pattern that waits for a lower price keeps waiting
        columns[1].push(Value::Double((turn + 30) as f64));
        columns[2].push(Value::Long(key as i64));
        let time = (turn * keys + key) as i64;
        app.send(0, columns.into(), vec![time], &mut Nothing).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn idle(name: &str, queries: usize, text: &str) {
    let each = |bytes: usize| bytes as f64 / queries as f64;
    let (mut seconds, mut sizes) = (Vec::new(), (0, 0, 0));
    for _ in 0..RUNS {
        let empty = counted::live();
        let start = Instant::now();
        let (peak, (planned, app)) = counted::peak(|| {
            let plan = plan(text);
            let planned = counted::live();
            let mut app = AppRuntime::new(plan);
            app.start(0, &mut Nothing);
            (planned, app)
        });
        seconds.push(start.elapsed().as_secs_f64());
        sizes = (planned - empty, counted::live() - planned, peak - empty);
        drop(app);
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "| {name} | {:.0} | {:.0} | {:.0} | {:.2} ({:.2} to {:.2}) |",
        each(sizes.0),
        each(sizes.1),
        each(sizes.2),
        seconds[RUNS / 2],
        seconds[0],
        seconds[RUNS - 1],
    );
}
