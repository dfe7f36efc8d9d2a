//! `tidemill fmt`: formats rules and SiddhiQL.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tidemill::App;
use tidemill_engine::AppFile;
use tidemill_lang::{Diagnostic, SourceFile, Sources, render_all, rules, siddhi};

/// Writes the rules and queries of an app in canonical form.
///
/// Files `*.rules` and `*.siddhi` are rewritten. Comments stay.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill fmt examples/flights --check")]
pub struct FmtArgs {
    /// App directory, or one *.siddhi or *.rules file. Variables `${NAME}` stay as they are.
    app: PathBuf,
    /// Change nothing; list the files that would be changed and fail if there are any.
    #[arg(long)]
    check: bool,
}

type Format = fn(&SourceFile) -> Result<String, Vec<Diagnostic>>;

pub fn fmt(args: FmtArgs) -> anyhow::Result<ExitCode> {
    let app = App::read(&args.app, &[])?;
    let rules = app.rules.iter().map(|file| (file, rules::format as Format));
    let queries = app.queries.iter().map(|file| (file, siddhi::format as Format));
    let (mut changed, mut failed) = (0, 0);
    for (file, format) in rules.chain(queries) {
        match formatted(file, format) {
            Err(diagnostics) => {
                eprint!("{diagnostics}");
                failed += 1;
            }
            Ok(text) if text == file.text => {}
            Ok(text) => {
                changed += 1;
                println!("{}", file.name);
                if !args.check {
                    let path = app.dir.join(&file.name);
                    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
                }
            }
        }
    }
    let good = failed == 0 && (changed == 0 || !args.check);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn formatted(file: &AppFile, format: Format) -> Result<String, String> {
    let mut sources = Sources::default();
    let id = sources.add(&file.name, &file.text);
    let source = sources.get(id).ok_or_else(|| format!("{}: too many files\n", file.name))?;
    format(source).map_err(|d| render_all(&d, &sources))
}
