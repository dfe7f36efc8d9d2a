//! `tidemill check`: does the app compile, and what is in it.

use std::path::PathBuf;
use std::process::ExitCode;

use tidemill::App;

use super::vars::VarArgs;

/// Checks an app's rules, queries and settings without running it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill check examples/flights")]
pub struct CheckArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    #[command(flatten)]
    vars: VarArgs,
}

pub fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let app = App::read(&args.app, &args.vars.set)?;
    match tidemill_engine::compile(&app) {
        Ok(compiled) => {
            for file in &compiled.queries.files {
                println!(
                    "{}: {} streams, {} queries: good",
                    file.name,
                    file.plan.catalog.streams().len(),
                    file.placed.iter().map(|p| p.queries.len()).sum::<usize>()
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
