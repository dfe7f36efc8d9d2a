//! The queries a to j: checks what comes out, then measures. README.md says what each is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use clap::Parser;
use tidemill_bench_cep::measure::{Rates, shown, timed};
use tidemill_bench_cep::trades::{BENCHES, Bench, Checksum, Trade};
use tidemill_flow::EvalError;
use tidemill_flow::batch::Batch;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::runtime::{AppRuntime, OutputHandler, StreamBatch};
use tidemill_flow::{Registry, Row, replay};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Events that are made before the clock runs on.
const PREPARED: u64 = 50_000;

/// Ten queries over made-up trades.
#[derive(Parser)]
struct Args {
    /// Letters of the queries to run; all when none is given.
    queries: Vec<String>,
    /// Events that go in.
    #[arg(long, default_value_t = 200_000)]
    events: u64,
    /// Events that are handed in together; with 1 each is sent by itself, as a row.
    #[arg(long, default_value_t = 1000)]
    together: u64,
    /// Hand in columns even if there is one event in them.
    #[arg(long)]
    columns: bool,
    /// Without row programs: every query gets every event in a batch.
    #[arg(long)]
    batches: bool,
    /// Runs of each.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("| query | rows out | checksum | events/s, median | slowest | fastest |");
    println!("| --- | ---: | --- | ---: | ---: | ---: |");
    for bench in
        BENCHES.iter().filter(|b| args.queries.is_empty() || args.queries.iter().any(|q| q == b.name))
    {
        let registry = Registry::standard();
        let plan = replay::compile(bench.name, &bench.app(), &registry, &|_| None).map_err(|e| anyhow!(e))?;
        let plan = Arc::new(plan);
        let (found, _) = run(bench, &plan, &args, Watch { hashes: true, ..Watch::default() })?;
        let checked = check(bench, args.events, found)?;
        let rates = Rates::of(args.runs, args.events, || {
            let (counted, time) = run(bench, &plan, &args, Watch::default())?;
            ensure!(counted.rows == found.rows, "{} rows, then {}", found.rows, counted.rows);
            Ok(time)
        })?;
        let (name, title) = (bench.name, bench.title);
        let (slowest, fastest) = rates.spread();
        let [median, slowest, fastest] = [rates.median(), slowest, fastest].map(shown);
        println!("| {name} {title} | {} | {checked} | {median} | {slowest} | {fastest} |", found.rows);
    }
    Ok(())
}

fn check(bench: &Bench, events: u64, found: Checksum) -> anyhow::Result<&'static str> {
    let Some((_, rows, sum)) = bench.known.iter().find(|(n, ..)| *n == events) else {
        return Ok("not known");
    };
    let known = Checksum { rows: *rows, sum: *sum };
    ensure!(found == known, "{}: {found:x?} came out, expected {known:x?}", bench.name);
    Ok("right")
}

/// What comes out, and how long sending took.
fn run(
    bench: &Bench,
    plan: &Arc<AppPlan>,
    args: &Args,
    mut watch: Watch,
) -> anyhow::Result<(Checksum, Duration)> {
    let find = |name| plan.catalog.find(name).ok_or_else(|| anyhow!("there is no stream `{name}`"));
    let streams = if bench.two_streams { vec![find("S")?, find("T")?] } else { vec![find("S")?] };
    let mut app = AppRuntime::new(plan.clone());
    if args.batches {
        app.use_row_programs(false);
    }
    app.start(0, &mut watch);
    let mut time = Duration::ZERO;
    for from in (0..args.events).step_by(PREPARED as usize) {
        let to = args.events.min(from + PREPARED);
        if args.together == 1 && !args.columns {
            let trades: Vec<Trade> = (from..to).map(|i| Trade::of(i, bench.symbols)).collect();
            // each event goes to the next stream
            let mut streams = streams.iter().cycle().skip(from as usize % streams.len());
            let mut send = |trade: &Trade| {
                let stream = streams.next().copied().unwrap_or_default();
                app.send_row(stream, &trade.values(), trade.time(), &mut watch)
            };
            let (sent, took) = timed(|| trades.iter().try_for_each(&mut send));
            sent.map_err(|failure| anyhow!(failure))?;
            time += took;
            continue;
        }
        let sends: Vec<_> = (from..to)
            .step_by(args.together as usize)
            .map(|i| Send::of(bench, &streams, i..to, args))
            .collect();
        let (sent, took) = timed(|| sends.into_iter().try_for_each(|send| send.to(&mut app, &mut watch)));
        sent.map_err(|failure| anyhow!(failure))?;
        time += took;
    }
    if bench.table {
        let content = app.on_demand("from Tab select symbol, price, volume;").map_err(|f| anyhow!(f))?;
        watch.out.add(&content.columns);
    }
    match watch.failure {
        None => Ok((watch.out, time)),
        Some(failure) => Err(anyhow!(failure)),
    }
}

/// Events that are handed in together.
struct Send {
    parts: Vec<StreamBatch>,
    /// Of which part each is the next.
    order: Option<Vec<u16>>,
    /// Instead: one event by itself.
    alone: Option<StreamBatch>,
}

impl Send {
    /// The first of these.
    fn of(bench: &Bench, streams: &[usize], of: Range<u64>, args: &Args) -> Self {
        let turns = streams.len() as u64;
        let events = of.start..of.end.min(of.start + args.together);
        let order = (turns > 1).then(|| events.clone().map(|i| (i % turns) as u16).collect());
        let part = |(turn, stream): (usize, &usize)| {
            bench.events(*stream, events.clone().filter(|i| i % turns == turn as u64))
        };
        let mut parts: Vec<StreamBatch> = streams.iter().enumerate().map(part).collect();
        let alone = (args.together == 1).then(|| parts.swap_remove((of.start % turns) as usize));
        Self { parts, order, alone }
    }

    fn to(self, app: &mut AppRuntime, watch: &mut Watch) -> Result<(), EvalError> {
        match self.alone {
            Some(part) => app.send(part.stream, part.columns, part.times, watch),
            None => app.send_batch(self.parts, self.order.as_deref(), watch),
        }
    }
}

/// Counts what comes out.
#[derive(Default)]
struct Watch {
    /// Whether rows are hashed.
    hashes: bool,
    out: Checksum,
    failure: Option<String>,
}

impl OutputHandler for Watch {
    fn events(&mut self, stream: &str, events: &Batch) {
        match stream {
            "Out" if self.hashes => self.out.add(&events.columns),
            "Out" => self.out.rows += events.len() as u64,
            _ => {}
        }
    }

    fn sent(&mut self, _: &str, _: &Batch) {}

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn wants_rows(&self) -> bool {
        true
    }

    fn event_rows(&mut self, stream: &str, rows: &[Row<'_>]) {
        match stream {
            "Out" if self.hashes => rows.iter().for_each(|row| self.out.add_row(*row)),
            "Out" => self.out.rows += rows.len() as u64,
            _ => {}
        }
    }

    fn sent_row(&mut self, _: &str, _: Row<'_>) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.failure.get_or_insert_with(|| format!("{query}: {}", failure));
    }
}
