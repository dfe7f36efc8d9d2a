//! `tidemill replay`: SiddhiQL over recorded inputs, in virtual time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use tidemill_engine::AppFile;
use tidemill_flow::Registry;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::query::Target;
use tidemill_flow::replay::{self, Case, Input, OutputKind, QueryLoss, Replay};

use crate::cli::develop::replay_files;
use crate::cli::stdio::Stdout;
use crate::cli::vars::VarArgs;

/// Runs a SiddhiQL app over recorded events and prints its output as JSON lines.
///
/// The clock is that of the events: it moves to each event's time before the event goes in. Inputs are lines such as
/// {"stream":"S","timestamp":1000,"data":["a",1]} or {"timestamp":2000}, which only moves the clock. Without them an
/// app with sources of type 'file' reads its files to their end and writes the files of its sinks.
///
/// The exit code is 1 when an input could not be processed (there is no such stream, a row cannot be read, the attributes
/// are too few or too many) or when a query failed and lost events.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill replay app.siddhi --events events.jsonl\n  tidemill replay app.siddhi --events events.jsonl --why average\n  tidemill replay --case cases/*.json"
)]
pub struct ReplayArgs {
    /// SiddhiQL file, or a directory with one. Paths in `file.uri` count from where the file is.
    #[arg(required_unless_present = "case")]
    app: Option<PathBuf>,
    #[command(flatten)]
    vars: VarArgs,
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
    let read = args.vars.read_app(app)?;
    let [file] = read.queries.as_slice() else {
        bail!("{}: {} *.siddhi files in it; name the one to run", app.display(), read.queries.len());
    };
    let mut registry = args.vars.registry();
    registry.set_model_files(read.model_files());
    let plan = match compile(&app_file(app, file), &file.text, &read.vars, &registry) {
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
        let dir = read.dir.join(&file.name).parent().map(Path::to_owned).unwrap_or_default();
        return Ok(exit_code(replay_files::run(plan, &dir)?));
    };
    let input = BufReader::new(File::open(events).with_context(|| events.display().to_string())?);
    let mut out: Box<dyn Write> = match &args.out {
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
        }
        None => Box::new(BufWriter::new(Stdout)),
    };
    let streams = plan.catalog.streams();
    let written = plan.all_queries().filter_map(|query| match query.target {
        Target::Stream(stream) => Some(streams[stream].name.clone()),
        _ => None,
    });
    let written: Vec<String> = written.collect();
    let watches = |stream: &str| written.iter().any(|w| w == stream);
    let mut run = Replay::new(plan, 0, &watches, &|_| false);
    let (mut told, mut failed) = (0, 0_u64);
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
        let done = run.try_input(&input);
        if !done {
            failed += 1;
        }
        for lost in &run.losses()[told..] {
            eprintln!("{}:{number}: {}", events.display(), first_failure(lost));
        }
        told = run.losses().len();
        for output in run.take_outputs() {
            if let (OutputKind::Failure { failure }, false) = (&output.what, done) {
                eprintln!("error: {}:{number}: {failure}", events.display());
            }
            serde_json::to_writer(&mut out, &output)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    drop(out);
    if let Some(query) = &args.why {
        println!("{}", run.app().why(query, args.key.as_deref())?);
    }
    summary(run.losses());
    if failed > 0 {
        eprintln!("{failed} inputs failed; the errors are listed above");
        return Ok(ExitCode::FAILURE);
    }
    Ok(exit_code(run.losses().is_empty()))
}

/// Formats the message for the first failure of a query.
pub fn first_failure(lost: &QueryLoss) -> String {
    let at = lost.example.as_ref().map_or_else(|| " in a timer".to_owned(), |event| format!(" at {event}"));
    format!("`{}` failed{at}: {}", lost.query, lost.reason)
}

/// Prints at the end how much each query lost.
pub fn summary(all: &[QueryLoss]) {
    for lost in all {
        let times = match lost.times {
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        let events = match lost.events {
            0 => String::new(),
            1 => " and lost 1 event".to_owned(),
            n => format!(" and lost {n} events"),
        };
        eprintln!("`{}` failed {times}{events}; the first time: {}", lost.query, lost.reason);
    }
    if !all.is_empty() {
        eprintln!(
            "to keep such events write @OnError(action='STREAM') before their stream and read `!STREAM`"
        );
    }
}

fn exit_code(complete: bool) -> ExitCode {
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the name of a file of an app for messages.
fn app_file(app: &Path, file: &AppFile) -> String {
    if app.is_dir() { app.join(&file.name).display().to_string() } else { app.display().to_string() }
}

/// Compiles SiddhiQL. `${NAME}` is resolved from the variables, then from the environment.
fn compile(
    name: &str,
    text: &str,
    vars: &BTreeMap<String, String>,
    registry: &Registry,
) -> Result<AppPlan, String> {
    let variable = |name: &str| vars.get(name).cloned().or_else(|| std::env::var(name).ok());
    replay::compile(name, text, registry, &variable)
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
