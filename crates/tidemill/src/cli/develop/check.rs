//! `tidemill check`: compiles an app and lists its contents.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tidemill::{App, Tidemill};
use tidemill_engine::{CompiledApp, ConnectionTrial, try_connections};

use crate::cli::vars::VarArgs;

/// Checks an app's rules, queries, settings and summary without running it.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill check examples/flights\n  tidemill check examples/flights --connect"
)]
pub struct CheckArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    #[command(flatten)]
    vars: VarArgs,
    /// Also try to reach each system that the app is connected with. What connecting does happens: ports are opened, missing
    /// tables are created.
    #[arg(long)]
    connect: bool,
}

/// Maximum time of an attempt to reach a system.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let mut app = args.vars.read_app(&args.app)?;
    if !args.connect {
        app = app.with_open_values();
    }
    match tidemill_engine::compile(&app) {
        Ok(compiled) => {
            let mut wrong = missing_files(&app);
            wrong.extend(summary(&app)?);
            if !wrong.is_empty() {
                wrong.iter().for_each(|line| eprintln!("{line}"));
                return Ok(ExitCode::FAILURE);
            }
            for file in &compiled.queries.files {
                eprint!("{}", file.warnings);
                println!(
                    "{}: {} streams, {} queries: good",
                    file.name,
                    file.plan.catalog.streams().len(),
                    file.placements.iter().map(|p| p.queries.len()).sum::<usize>()
                );
            }
            let program = &compiled.program;
            eprint!("{}", tidemill_lang::render_all(program.warnings(), program.sources()));
            println!(
                "{}: {} streams, {} entities, {} rules, {} aggregates: good",
                app.name,
                program.streams().len(),
                program.collections().len(),
                program.rules().len(),
                program.aggregates().len()
            );
            match args.connect {
                true => Ok(connections(&app, &compiled)),
                false => Ok(ExitCode::SUCCESS),
            }
        }
        Err(e) => {
            eprintln!("{e}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Tries to reach the systems that the app is connected with.
fn connections(app: &App, compiled: &CompiledApp) -> ExitCode {
    let trials = try_connections(app, compiled, CONNECT_TIMEOUT);
    for ConnectionTrial { name, outcome } in &trials {
        match outcome {
            Ok(()) => println!("{name}: connected"),
            Err(e) => eprintln!("{name}: not connected: {e}"),
        }
    }
    if trials.is_empty() {
        println!("{}: no connections to other systems", app.name);
    }
    match trials.iter().all(|trial| trial.outcome.is_ok()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns what is wrong with the files of documents that the app names.
fn missing_files(app: &App) -> Vec<String> {
    let toml = app.dir.join("app.toml");
    let wrong = app.documents.iter().filter_map(|documents| {
        let reason = match std::fs::File::open(&documents.path).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.is_file() => return None,
            Ok(_) => "expected a file of JSON lines".to_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => "no such file".to_owned(),
            Err(e) => e.to_string(),
        };
        let (toml, path) = (toml.display(), documents.path.display());
        Some(format!("error: {toml}: [[documents]] of `{}`: {path}: {reason}", documents.collection))
    });
    wrong.collect()
}

/// Plans the SQL of the app's summary on an empty data directory and returns the errors.
fn summary(app: &App) -> anyhow::Result<Vec<String>> {
    if app.summary.is_empty() {
        return Ok(Vec::new());
    }
    let dir = tempfile::tempdir().context("a directory to plan the summary in")?;
    let mut alone = app.clone();
    // nothing outside that directory, and with minimal resources
    alone.settings.tables = None;
    alone.settings.log = None;
    alone.settings.partitions = 1;
    let tidemill = Tidemill::open_with(dir.path().join("data"), alone)?;
    let wrong = app.summary.iter().filter_map(|part| {
        let error = tidemill.check_summary(&part.sql).err()?;
        let file = app.dir.join("app.toml");
        Some(format!("error: {}:{}: summary \"{}\": {error}", file.display(), part.line, part.title))
    });
    let wrong = wrong.collect();
    tidemill.engine().abandon();
    Ok(wrong)
}
