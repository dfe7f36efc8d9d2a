//! Interactive SQL prompt.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::cli::ask::sql::Session;
use crate::cli::ask::statements::{Step, is_blank, script, statements};
use crate::cli::stdio::Stdout;
use crate::cli::{DataArgs, OutputFormat};

const HELP: &str = "\
Statements end with `;` and may span lines. NULL is shown as NULL, an empty text as nothing.
  \\d, \\dt       tables
  \\d TABLE      columns of a table, such as events.TakeOffEvent
  \\i FILE       run a file of statements and commands
  \\o FORMAT     table, json, ndjson or csv
  \\timing       show the time of each statement, or no longer
  \\echo TEXT    print a text
  \\q, exit      leave
  Ctrl-C        stop the query, or drop what is typed";

/// Files that may run each other by `\i`.
const SCRIPTS_MAX: usize = 16;

/// Options that commands change for the statements after them.
pub struct ShellOptions {
    /// Format of printed rows.
    pub format: OutputFormat,
    /// True if the time of each statement is shown.
    timing: bool,
}

impl ShellOptions {
    pub fn new(format: OutputFormat) -> Self {
        Self { format, timing: false }
    }
}

/// Continuation after a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Continue,
    Leave,
}

/// Runs statements until the end of input. The history is stored in the data directory.
pub fn repl(session: &Session, data: &DataArgs, mut options: ShellOptions) -> anyhow::Result<ExitCode> {
    let mut editor = DefaultEditor::new()?;
    let history = data.data.join("sql_history");
    // a missing history is not an error
    let _ = editor.load_history(&history);
    println!("Tidemill {}. \\? for help.", env!("CARGO_PKG_VERSION"));
    let mut statement = String::new();
    loop {
        let prompt = if statement.is_empty() { "tidemill> " } else { "     ...> " };
        match editor.readline(prompt) {
            Ok(line) => {
                let line = line.trim_end();
                if statement.is_empty() && line.trim_start().starts_with('\\') {
                    let _ = editor.add_history_entry(line);
                    match command(session, line.trim(), &mut options) {
                        Ok(Next::Continue) => continue,
                        Ok(Next::Leave) => break,
                        Err(e) => print_error(&e),
                    }
                    continue;
                }
                match line.trim().trim_end_matches(';').to_ascii_lowercase().as_str() {
                    "exit" | "quit" if statement.is_empty() => break,
                    "help" if statement.is_empty() => {
                        println!("{HELP}");
                        continue;
                    }
                    _ => statement.push_str(line),
                }
                let (complete, rest) = statements(&statement);
                if !complete.is_empty() {
                    let _ = editor.add_history_entry(statement.as_str());
                }
                for statement in complete.into_iter().filter(|s| !is_blank(s)) {
                    run_and_print(session, statement, &options);
                }
                let rest = if is_blank(rest) { String::new() } else { format!("{rest}\n") };
                statement = rest;
            }
            Err(ReadlineError::Interrupted) => statement.clear(),
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(e.into()),
        }
    }
    if let Err(e) = editor.save_history(&history) {
        eprintln!("the history could not be kept: {e}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a script: statements, and commands with a backslash. It ends at the first that fails.
///
/// Errors: that of the statement or command, with its number if there are several.
pub fn run_script(session: &Session, text: &str, options: &mut ShellOptions) -> anyhow::Result<Next> {
    run_nested_script(session, text, options, 0)
}

fn run_nested_script(
    session: &Session,
    text: &str,
    options: &mut ShellOptions,
    depth: usize,
) -> anyhow::Result<Next> {
    let steps = match script(text) {
        // an empty script is passed on, so that the session reports it
        none if none.is_empty() => vec![Step::Statement(text.to_owned())],
        steps => steps,
    };
    let count = steps.len();
    for (index, step) in steps.iter().enumerate() {
        let done = match step {
            Step::Statement(statement) => run(session, statement, options).map(|()| Next::Continue),
            Step::Command(line) => nested_command(session, line, options, depth),
        };
        match done {
            Ok(Next::Continue) => {}
            Ok(Next::Leave) => return Ok(Next::Leave),
            Err(e) if count == 1 => return Err(e),
            Err(e) => return Err(e.context(format!("statement {} of {count}", index + 1))),
        }
    }
    Ok(Next::Continue)
}

/// Runs a command of the prompt.
///
/// Errors: the command is not known, or cannot be done.
fn command(session: &Session, line: &str, options: &mut ShellOptions) -> anyhow::Result<Next> {
    nested_command(session, line, options, 0)
}

fn nested_command(
    session: &Session,
    line: &str,
    options: &mut ShellOptions,
    depth: usize,
) -> anyhow::Result<Next> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // psql takes a semicolon behind a command, too
    let argument = argument.trim().trim_end_matches(';').trim_end();
    match (name.trim_end_matches(';'), argument) {
        ("\\q", _) => return Ok(Next::Leave),
        ("\\?", _) => println!("{HELP}"),
        ("\\d" | "\\dt", "") => {
            let tables = "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
                          WHERE table_schema IN ('events', 'docs', 'system') ORDER BY 1, 2";
            session.run(tables, OutputFormat::Table, &mut Stdout)?;
        }
        ("\\d" | "\\dt", table) => columns(session, table)?,
        ("\\o", name) => match <OutputFormat as clap::ValueEnum>::from_str(name, true) {
            Ok(new) => options.format = new,
            Err(_) => bail!("`{name}` is not an output format: expected table, json, ndjson or csv"),
        },
        ("\\timing", "on") => options.timing = true,
        ("\\timing", "off") => options.timing = false,
        ("\\timing", "") => {
            options.timing = !options.timing;
            println!("Timing is {}.", if options.timing { "on" } else { "off" });
        }
        ("\\timing", other) => bail!("`{other}`: expected on or off"),
        ("\\echo", text) => println!("{text}"),
        ("\\i", "") => bail!("expected a file: \\i FILE"),
        ("\\i", _) if depth >= SCRIPTS_MAX => bail!("\\i: more than {SCRIPTS_MAX} files run each other"),
        ("\\i", file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
            return run_nested_script(session, &text, options, depth + 1).with_context(|| file.to_owned());
        }
        (other, _) => bail!("`{other}` is not a command: type \\? for the list"),
    }
    Ok(Next::Continue)
}

/// Runs a statement and prints its rows.
fn run(session: &Session, statement: &str, options: &ShellOptions) -> anyhow::Result<()> {
    let started = Instant::now();
    session.run(statement, options.format, &mut std::io::stdout())?;
    if options.timing {
        println!("Time: {:.3} ms", started.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(())
}

fn run_and_print(session: &Session, statement: &str, options: &ShellOptions) {
    if let Err(e) = run(session, statement, options) {
        print_error(&e);
    }
}

fn print_error(error: &anyhow::Error) {
    let interrupted = |e: &std::io::Error| e.kind() == std::io::ErrorKind::Interrupted;
    let stopped = error.chain().any(|cause| {
        // the HTTP client wraps I/O errors into its own type
        cause.downcast_ref::<std::io::Error>().is_some_and(interrupted)
            || matches!(cause.downcast_ref::<ureq::Error>(), Some(ureq::Error::Io(e)) if interrupted(e))
    });
    match stopped {
        true => eprintln!("stopped"),
        false => eprintln!("error: {error:#}"),
    }
}

/// Prints the columns of a table.
fn columns(session: &Session, table: &str) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    session.run(&format!("DESCRIBE {table}"), OutputFormat::Ndjson, &mut lines)?;
    let mut rows = vec![];
    for line in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let row: serde_json::Value = serde_json::from_slice(line)?;
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let null = if text("is_nullable") == "NO" { "not null" } else { "" };
        rows.push((text("column_name"), text("data_type"), null));
    }
    let width = |of: &dyn Fn(&(String, String, &str)) -> usize| rows.iter().map(of).max().unwrap_or(0).max(6);
    let (name, ty) = (width(&|r| r.0.chars().count()), width(&|r| r.1.chars().count()));
    println!(
        " {:<name$} | {:<ty$} | null\n-{}-+-{}-+----------",
        "column",
        "type",
        "-".repeat(name),
        "-".repeat(ty)
    );
    for (column, of, null) in &rows {
        println!("{}", format!(" {column:<name$} | {of:<ty$} | {null}").trim_end());
    }
    Ok(())
}
