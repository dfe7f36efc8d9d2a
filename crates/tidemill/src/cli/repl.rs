//! Interactive SQL prompt.

use std::process::ExitCode;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::sql::Session;
use super::statements::{is_blank, statements};
use super::{DataArgs, OutputFormat};

const HELP: &str = "\
Statements end with `;` and may span lines. NULL is shown as NULL, an empty text as nothing.
  \\d            tables
  \\d TABLE      columns of a table, such as events.TakeOffEvent
  \\o FORMAT     table, json, ndjson or csv
  \\q, exit      leave
  Ctrl-C        stop the query, or drop what is typed";

/// Runs statements until the end of input. The history is stored in the data directory.
pub fn repl(session: &Session, data: &DataArgs, mut format: OutputFormat) -> anyhow::Result<ExitCode> {
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
                    if !command(session, line.trim(), &mut format) {
                        break;
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
                    run_and_print(session, statement, format);
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

/// Runs a backslash command. Returns false to exit.
fn command(session: &Session, line: &str, format: &mut OutputFormat) -> bool {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, argument.trim()) {
        ("\\q", _) => return false,
        ("\\?", _) => println!("{HELP}"),
        ("\\d", "") => {
            let tables = "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
                          WHERE table_schema IN ('events', 'docs', 'system') ORDER BY 1, 2";
            run_and_print(session, tables, OutputFormat::Table);
        }
        ("\\d", table) => {
            if let Err(e) = columns(session, table) {
                print_error(&e);
            }
        }
        ("\\o", name) => match <OutputFormat as clap::ValueEnum>::from_str(name, true) {
            Ok(new) => *format = new,
            Err(_) => eprintln!("`{name}` is not an output format: expected table, json, ndjson or csv"),
        },
        (other, _) => eprintln!("`{other}` is not a command: type \\? for the list"),
    }
    true
}

fn run_and_print(session: &Session, statement: &str, format: OutputFormat) {
    if let Err(e) = session.run(statement, format, &mut std::io::stdout().lock()) {
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
