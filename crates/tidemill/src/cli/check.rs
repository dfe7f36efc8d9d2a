//! `tidemill check`: compiles an app and lists its contents.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tidemill::{App, Tidemill};

use super::vars::VarArgs;

/// Checks an app's rules, queries, settings and summary without running it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill check examples/flights")]
pub struct CheckArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    #[command(flatten)]
    vars: VarArgs,
}

pub fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let app = args.vars.read_app(&args.app)?;
    match tidemill_engine::compile(&app) {
        Ok(compiled) => {
            let wrong = summary(&app)?;
            if !wrong.is_empty() {
                wrong.iter().for_each(|line| eprintln!("{line}"));
                return Ok(ExitCode::FAILURE);
            }
            for file in &compiled.queries.files {
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
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => {
            eprintln!("{e}");
            Ok(ExitCode::FAILURE)
        }
    }
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
