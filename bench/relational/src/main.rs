//! The sink `rdbms` beside plain client loops: see README.md.

mod client;
mod events;
mod sink;

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use tidemill_relational::Operation;

use crate::client::Client;
use crate::events::Event;

/// Rows a second that reach PostgreSQL and MariaDB from the sink and from plain client loops.
#[derive(Parser)]
struct Args {
    /// `postgres://user:password@host:port/database` or `mysql://…`; repeat it to measure several.
    #[arg(long, required = true)]
    url: Vec<String>,
    /// Rows that are inserted, and that are in the table when it is updated.
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// Rows that are updated by key.
    #[arg(long, default_value_t = 400_000)]
    updates: usize,
    /// Rows that are updated one by one, which takes long.
    #[arg(long, default_value_t = 20_000)]
    single_updates: usize,
    /// Runs of each loop, which alternate.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only loops whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
}

/// Rows of a transaction, as the engine hands them to a sink.
const BATCH: usize = 8192;
/// Rows of a transaction that updates, as clients send them.
const UPDATE_BATCH: usize = 1000;

/// A loop that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loop {
    ClientInsert,
    SinkInsert,
    ClientUpdateSingle,
    ClientUpdateBatch,
    SinkUpdateBatch,
    SinkUpdate,
}

impl Loop {
    const ALL: [Self; 6] = [
        Self::ClientInsert,
        Self::SinkInsert,
        Self::ClientUpdateSingle,
        Self::ClientUpdateBatch,
        Self::SinkUpdateBatch,
        Self::SinkUpdate,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ClientInsert => "insert: client, COPY or LOAD DATA of 8,192",
            Self::SinkInsert => "insert: sink, batches of 8,192",
            Self::ClientUpdateSingle => "update: client, one by one, transactions of 1,000",
            Self::ClientUpdateBatch => "update: client, statements of 1,000",
            Self::SinkUpdateBatch => "update: sink, batches of 1,000",
            Self::SinkUpdate => "update: sink, batches of 8,192",
        }
    }

    fn inserts(self) -> bool {
        matches!(self, Self::ClientInsert | Self::SinkInsert)
    }
}

/// Time of each transaction.
type Times = Vec<Duration>;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let rows = events::events(args.rows, 0);
    println!("| database | loop | rows | rows/s: median (min to max) | transaction ms: p50 | p99 |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for url in &args.url {
        measure(url, &rows, &args).with_context(|| Client::name(url).to_owned())?;
    }
    Ok(())
}

fn measure(url: &str, rows: &[Event], args: &Args) -> anyhow::Result<()> {
    let mut client = Client::connect(url)?;
    let loops: Vec<Loop> = Loop::ALL.into_iter().filter(|l| l.name().contains(&args.only)).collect();
    let mut rates: Vec<Vec<f64>> = vec![vec![]; loops.len()];
    let mut times: Vec<Times> = vec![vec![]; loops.len()];
    // the first run only warms up
    for run in 0..=args.runs {
        for inserts in [true, false] {
            if !inserts {
                client.create_table()?;
                client.insert(rows)?;
            }
            for (index, which) in loops.iter().enumerate().filter(|(_, l)| l.inserts() == inserts) {
                if inserts {
                    client.create_table()?;
                }
                let (count, took) = run_loop(*which, url, &mut client, rows, args, run)?;
                let seconds: f64 = took.iter().map(Duration::as_secs_f64).sum();
                if run > 0 {
                    rates[index].push(count as f64 / seconds);
                    times[index].extend(took);
                }
            }
        }
    }
    for ((which, rates), times) in loops.iter().zip(&mut rates).zip(&mut times) {
        rates.sort_by(f64::total_cmp);
        times.sort();
        let ms = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
        let [min, median, max] = [rates[0], rates[rates.len() / 2], rates[rates.len() - 1]];
        println!(
            "| {} | {} | {} | {median:.0} ({min:.0} to {max:.0}) | {:.1} | {:.1} |",
            Client::name(url),
            which.name(),
            row_count(*which, args),
            ms(0.5),
            ms(0.99)
        );
    }
    client.drop_table()
}

fn row_count(which: Loop, args: &Args) -> usize {
    match which {
        Loop::ClientUpdateSingle => args.single_updates,
        which if which.inserts() => args.rows,
        _ => args.updates,
    }
}

/// Runs a loop and checks what is in the table.
fn run_loop(
    which: Loop,
    url: &str,
    client: &mut Client,
    rows: &[Event],
    args: &Args,
    run: usize,
) -> anyhow::Result<(usize, Times)> {
    let count = row_count(which, args);
    // each loop and run writes other values
    let seed = run * Loop::ALL.len() + which as usize + 1;
    let changed = if which.inserts() { vec![] } else { events::updates(rows.len(), count, seed) };
    let times = match which {
        Loop::ClientInsert => client.insert(rows)?,
        Loop::SinkInsert => sink::write(url, Operation::Insert, rows, BATCH)?,
        Loop::ClientUpdateSingle => client.update_single(&changed)?,
        Loop::ClientUpdateBatch => client.update(&changed)?,
        Loop::SinkUpdateBatch => sink::write(url, Operation::Update, &changed, UPDATE_BATCH)?,
        Loop::SinkUpdate => sink::write(url, Operation::Update, &changed, BATCH)?,
    };
    let expected = if which.inserts() { rows } else { &changed };
    let found = client.count_equal(expected)?;
    ensure!(found == expected.len(), "{}: {found} of {} rows are right", which.name(), expected.len());
    Ok((count, times))
}
