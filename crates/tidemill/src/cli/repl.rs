//! The interactive SQL prompt.

use std::process::ExitCode;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::sql::Session;
use super::{DataArgs, OutputFormat};

const HELP: &str = "\
Statements end with `;` and may span lines.
  \\d            tables
  \\d TABLE      columns of a table, such as events.TakeOffEvent
  \\o FORMAT     table, json, ndjson or csv
  \\q            leave";

/// Reads statements until the end of input. History is kept in the data directory.
pub fn repl(session: &Session, data: &DataArgs, mut format: OutputFormat) -> anyhow::Result<ExitCode> {
    let mut editor = DefaultEditor::new()?;
    let history = data.data.join("sql_history");
    // no history yet is no error
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
                statement.push_str(line);
                if line.ends_with(';') {
                    let _ = editor.add_history_entry(statement.as_str());
                    show(session, statement.trim_end_matches(';'), format);
                    statement.clear();
                } else if !statement.trim().is_empty() {
                    statement.push('\n');
                } else {
                    statement.clear();
                }
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

/// A backslash command; false to leave.
fn command(session: &Session, line: &str, format: &mut OutputFormat) -> bool {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, argument.trim()) {
        ("\\q", _) => return false,
        ("\\?", _) => println!("{HELP}"),
        ("\\d", "") => {
            let tables = "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
                          WHERE table_schema IN ('events', 'docs', 'system') ORDER BY 1, 2";
            show(session, tables, OutputFormat::Table);
        }
        ("\\d", table) => show(session, &format!("DESCRIBE {table}"), OutputFormat::Table),
        ("\\o", name) => match <OutputFormat as clap::ValueEnum>::from_str(name, true) {
            Ok(new) => *format = new,
            Err(_) => eprintln!("`{name}` is no format: expected table, json, ndjson or csv"),
        },
        (other, _) => eprintln!("`{other}` is no command: \\? lists them"),
    }
    true
}

fn show(session: &Session, statement: &str, format: OutputFormat) {
    if let Err(e) = session.run(statement, format, &mut std::io::stdout().lock()) {
        eprintln!("error: {e:#}");
    }
}
