//! `tidemill test`: the tests beside an app's rules.

use std::path::PathBuf;
use std::process::ExitCode;

use tidemill::App;
use tidemill_rules::testing;

use super::vars::VarArgs;

/// Runs the tests (`*.test` files) of an app.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill test examples/flights")]
pub struct TestArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    /// Run only tests whose name contains this.
    #[arg(value_name = "NAME")]
    filter: Option<String>,
    #[command(flatten)]
    vars: VarArgs,
}

pub fn test(args: TestArgs) -> anyhow::Result<ExitCode> {
    let app = App::read(&args.app, &args.vars.set)?;
    let program = tidemill_engine::compile(&app)?.program;
    let (mut passed, mut failed) = (0, 0);
    for file in &app.tests {
        let results = match testing::run_file(&program, &file.name, &file.text) {
            Ok(results) => results,
            Err(problems) => {
                for problem in problems {
                    eprintln!("{problem}");
                }
                failed += 1;
                continue;
            }
        };
        for result in results {
            if args.filter.as_ref().is_some_and(|f| !result.name.contains(f.as_str())) {
                continue;
            }
            if result.passed() {
                passed += 1;
                println!("ok      {}:{} {}", result.file, result.line, result.name);
            } else {
                failed += 1;
                println!("FAILED  {}:{} {}", result.file, result.line, result.name);
                for failure in &result.failures {
                    println!("        {}", failure.to_string().replace('\n', "\n        "));
                }
            }
        }
    }
    println!("\n{passed} passed, {failed} failed");
    if passed + failed == 0 {
        anyhow::bail!("{}: no tests; they are in files *.test, as docs/rules.md says", args.app.display());
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
