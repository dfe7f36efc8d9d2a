//! `tidemill check`: does the app compile, and what is in it.

use std::path::PathBuf;
use std::process::ExitCode;

use tidemill::App;

/// Checks an app's rules, queries and settings without running it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill check examples/flights")]
pub struct CheckArgs {
    /// App directory.
    app: PathBuf,
}

pub fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let mut app = App::read(&args.app, &[])?;
    let mut good = true;
    for file in std::mem::take(&mut app.queries) {
        match super::replay::compile(&file.name, &file.text) {
            Ok(plan) => println!(
                "{}: {} streams, {} queries: good",
                file.name,
                plan.catalog.streams().len(),
                plan.all_queries().count()
            ),
            Err(diagnostics) => {
                eprint!("{diagnostics}");
                good = false;
            }
        }
    }
    if app.rules.is_empty() {
        return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    match tidemill_engine::compile(&app) {
        Ok(program) => {
            println!(
                "{}: {} streams, {} entities, {} rules, {} aggregates: good",
                app.name,
                program.streams().len(),
                program.collections().len(),
                program.rules().len(),
                program.aggregates().len()
            );
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(e) => {
            eprintln!("{e}");
            Ok(ExitCode::FAILURE)
        }
    }
}
