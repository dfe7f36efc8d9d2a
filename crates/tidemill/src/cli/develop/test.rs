//! `tidemill test`: runs the tests of an app.

mod junit;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use tidemill_engine::testing::{self, TestOptions, TestProblem, TestResult};

use crate::cli::vars::VarArgs;

/// Runs the tests (`*.test` files) of an app.
///
/// Each test runs rules, queries and tables together in an engine of its own in memory, as they run live. Its clock goes by
/// the times of the events that it gives, and by its lines `after 1 min` and `at 2013-01-01T10:00:00Z`.
/// Exit code 1 when a test fails, or when there is none to run.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill test examples/flights\n  tidemill test examples/flights 'late flight'\n  tidemill test examples/flights --junit results.xml"
)]
pub struct TestArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    /// Run only tests whose name contains this.
    #[arg(value_name = "NAME")]
    filter: Option<String>,
    /// Write the results to this file as well, as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    vars: VarArgs,
}

/// Results of one file of tests.
struct FileResult {
    file: String,
    /// Problems of the file; if there are any, none of its tests ran.
    problems: Vec<TestProblem>,
    tests: Vec<TestResult>,
}

pub fn test(args: TestArgs) -> anyhow::Result<ExitCode> {
    let app = args.vars.read_app(&args.app)?;
    let compiled = tidemill_engine::compile(&app)?;
    let options = TestOptions { filter: args.filter.as_deref(), ..TestOptions::default() };
    let mut results = Vec::new();
    for file in &app.tests {
        let (problems, tests) = match testing::run_file(&app, &compiled, file, &options) {
            Ok(tests) => (Vec::new(), tests),
            Err(problems) => (problems, Vec::new()),
        };
        let result = FileResult { file: file.name.clone(), problems, tests };
        show(&result);
        results.push(result);
    }
    if let Some(path) = &args.junit {
        let xml = junit::write(&app.name, &results);
        std::fs::write(path, xml).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let tests = || results.iter().flat_map(|result| &result.tests);
    let unread = results.iter().filter(|result| !result.problems.is_empty()).count();
    let passed = tests().filter(|test| test.passed()).count();
    let failed = tests().count() - passed + unread;
    if passed + failed == 0 {
        match &args.filter {
            Some(filter) if !app.tests.is_empty() => bail!("no test's name contains `{filter}`"),
            _ => bail!("{}: no tests; they are in files *.test, as docs/rules.md says", args.app.display()),
        }
    }
    println!("\n{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(result: &FileResult) {
    for problem in &result.problems {
        eprintln!("{problem}");
    }
    for test in &result.tests {
        let word = if test.passed() { "ok     " } else { "FAILED " };
        println!("{word} {}:{} {}", test.file, test.line, test.name);
        for failure in &test.failures {
            println!("        {}", failure.to_string().replace('\n', "\n        "));
        }
    }
}
