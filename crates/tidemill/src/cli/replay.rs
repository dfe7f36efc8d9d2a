//! `tidemill replay`: SiddhiQL over recorded inputs, in virtual time.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use tidemill_flow::Registry;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::query::Target;
use tidemill_flow::replay::{self, Case, Input, Replay};

use super::replay_files;

/// Runs a SiddhiQL app over recorded inputs in virtual time and prints what comes out as JSON lines.
///
/// The clock is that of the events: it moves to each event's time before the event goes in. Inputs are lines such as
/// {"stream":"S","timestamp":1000,"data":["a",1]} or {"timestamp":2000}, which only moves the clock. Without them an
/// app with sources of type 'file' reads its files to their end and writes those of its sinks.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill replay app.siddhi --events events.jsonl\n  tidemill replay app.siddhi --events events.jsonl --why average\n  tidemill replay --case cases/*.json"
)]
pub struct ReplayArgs {
    /// SiddhiQL file, or a directory with one.
    #[arg(required_unless_present = "case")]
    app: Option<PathBuf>,
    /// What goes in, a JSON object a line; the app's own files when not given.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Where what comes out goes; standard output when not given.
    #[arg(long, value_name = "FILE", requires = "events")]
    out: Option<PathBuf>,
    /// Prints behind what comes out why this query puts nothing out: what came to it, what it holds, what it waits for.
    /// Its name, or its number in the order of the text.
    #[arg(long, value_name = "QUERY", requires = "events")]
    why: Option<String>,
    /// Of a query inside `partition with`: the key that --why means.
    #[arg(long, value_name = "KEY", requires = "why")]
    key: Option<String>,
    /// Recorded runs: app, inputs and expected outputs in one JSON file each. Fails when something else comes out.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["app", "events", "out", "why"])]
    case: Vec<PathBuf>,
}

pub fn replay(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    if !args.case.is_empty() {
        return cases(&args.case);
    }
    let Some(app) = &args.app else { bail!("an app is needed") };
    let plan = match plan(app)? {
        Ok(plan) => plan,
        Err(diagnostics) => {
            eprint!("{diagnostics}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let Some(events) = &args.events else {
        if plan.file_sources.is_empty() {
            bail!("{}: it has no source of type 'file'; give its events with --events", app.display());
        }
        replay_files::run(plan)?;
        return Ok(ExitCode::SUCCESS);
    };
    let input = BufReader::new(File::open(events).with_context(|| events.display().to_string())?);
    let mut out: Box<dyn Write> = match &args.out {
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
        }
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    let streams = plan.catalog.streams();
    let written = plan.all_queries().filter_map(|query| match query.target {
        Target::Stream(stream) => Some(streams[stream].name.clone()),
        _ => None,
    });
    let written: Vec<String> = written.collect();
    let watches = |stream: &str| written.iter().any(|w| w == stream);
    let mut run = Replay::new(plan, 0, &watches, &|_| false);
    for (number, line) in (1..).zip(input.lines()) {
        let line = line.with_context(|| events.display().to_string())?;
        if line.trim().is_empty() {
            continue;
        }
        let input: Input = serde_json::from_str(&line).with_context(|| {
            format!(
                "{}:{number}: expected {{\"stream\":\"S\",\"timestamp\":1000,\"data\":[…]}} or {{\"timestamp\":1000}}",
                events.display()
            )
        })?;
        run.input(&input);
        for output in run.take() {
            serde_json::to_writer(&mut out, &output)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    drop(out);
    if let Some(query) = &args.why {
        println!("{}", run.app().why(query, args.key.as_deref())?);
    }
    Ok(ExitCode::SUCCESS)
}

/// The app in a file or directory; inside, the diagnostics when it is wrong.
fn plan(app: &Path) -> anyhow::Result<Result<AppPlan, String>> {
    let mut file = app.to_owned();
    if app.is_dir() {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(app).with_context(|| app.display().to_string())? {
            found.push(entry?.path());
        }
        found.retain(|path| path.extension().is_some_and(|e| e == "siddhi"));
        let [one] = found.as_slice() else {
            bail!("{}: {} *.siddhi files in it; name the one to run", app.display(), found.len());
        };
        file.clone_from(one);
    }
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(compile(&file.display().to_string(), &text))
}

/// Compiles SiddhiQL; `${NAME}` is looked for in the environment.
pub fn compile(name: &str, text: &str) -> Result<AppPlan, String> {
    replay::compile(name, text, &Registry::standard(), &|name| std::env::var(name).ok())
}

fn cases(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let registry = Registry::standard();
    let mut failed = 0;
    for path in files {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let case: Case = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let differences = replay::check(&case, &registry);
        if !differences.is_empty() {
            failed += 1;
            println!("{}", path.display());
            for difference in differences {
                println!("  {}", difference.trim_end().replace('\n', "\n  "));
            }
        }
    }
    println!("{} of {} as recorded", files.len() - failed, files.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
