//! SiddhiQL in the durable engine, measured from outside: see README.md.

mod cases;
mod data;
mod program;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Parser;

use crate::cases::Case;
use crate::program::{Cost, Run};

/// Wall and CPU seconds of `tidemill run` over trades, for each app and each program.
#[derive(Parser)]
struct Args {
    /// Names of the cases to run; all when none is given.
    cases: Vec<String>,
    /// A `tidemill` to measure; repeat it to compare several, whose runs alternate.
    #[arg(long, default_value = "target/release/tidemill")]
    program: Vec<PathBuf>,
    /// Trades that go in.
    #[arg(long, default_value_t = 2_000_000)]
    events: u64,
    /// Runs of each case and program.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Send over HTTP, in bodies of this many rows, rather than reading a CSV file.
    #[arg(long, value_name = "ROWS")]
    http: Option<u64>,
    /// Where the CSV files are kept between runs.
    #[arg(long, default_value = "target/bench-engine")]
    files: PathBuf,
    /// Directory in which the data directories are made, on the disk to be measured.
    #[arg(long, default_value = "target/bench-engine")]
    data: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.files)?;
    std::fs::create_dir_all(&args.data)?;
    let known = cases::all();
    for name in &args.cases {
        let names: Vec<&str> = known.iter().map(|c| c.name.as_str()).collect();
        ensure!(names.contains(&name.as_str()), "there is no case `{name}`: {}", names.join(", "));
    }
    println!(
        "| case | program | wall s: median (min to max) | CPU s | million events a wall second | check |"
    );
    println!("| --- | --- | ---: | ---: | ---: | --- |");
    for case in known.iter().filter(|c| args.cases.is_empty() || args.cases.contains(&c.name)) {
        measure(case, &args)?;
    }
    Ok(())
}

fn measure(case: &Case, args: &Args) -> anyhow::Result<()> {
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); args.program.len()];
    let mut checked: Option<Option<String>> = None;
    for _ in 0..args.runs.max(1) {
        for (program, costs) in args.program.iter().zip(&mut costs) {
            let dir = tempfile::tempdir_in(&args.data)?;
            let run = Run { program, case, dir: dir.path() };
            costs.push(match args.http {
                Some(rows) => run.over_http(args.events, rows)?,
                None => {
                    let streams = if case.two_streams { 2 } else { 1 };
                    let files = data::files(&args.files, case.symbols, streams, args.events)?;
                    let files: Vec<PathBuf> =
                        files.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
                    run.read_files(&files)?
                }
            });
            let result = run.check()?;
            let first = checked.get_or_insert_with(|| result.clone());
            ensure!(*first == result, "{}: {result:?} came out, before {first:?}", case.name);
        }
    }
    for (program, costs) in args.program.iter().zip(costs) {
        let (wall, (min, max)) = median(costs.iter().map(|c| c.wall.as_secs_f64()));
        let (cpu, _) = median(costs.iter().map(|c| c.cpu.as_secs_f64()));
        let rate = args.events as f64 / wall / 1e6;
        let check = checked.iter().flatten().next().map_or("-", String::as_str);
        println!(
            "| {} {} | {} | {wall:.2} ({min:.2} to {max:.2}) | {cpu:.2} | {rate:.2} | {check} |",
            case.name,
            case.title,
            program.display()
        );
    }
    Ok(())
}

/// The value in the middle; the smallest and the largest.
fn median(values: impl Iterator<Item = f64>) -> (f64, (f64, f64)) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], (values[0], values[values.len() - 1]))
}
