//! `tidemill explain`: placement and state of an app's queries.

use std::path::PathBuf;
use std::process::ExitCode;

use tidemill_engine::queries::explain;

use crate::cli::vars::VarArgs;

/// Shows where the queries of an app run, why, and what they keep.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill explain examples/flights")]
pub struct ExplainArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    #[command(flatten)]
    vars: VarArgs,
}

pub fn explain(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let app = args.vars.read_app(&args.app)?;
    let compiled = tidemill_engine::compile(&app)?;
    print!("{}", explain::explain(&compiled.queries, app.settings.partitions));
    Ok(ExitCode::SUCCESS)
}
