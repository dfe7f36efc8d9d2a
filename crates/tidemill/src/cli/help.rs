//! Help of the program: commands in groups, and hints for words that are commands elsewhere.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Write an app",
        &["new", "check", "test", "fmt", "explain", "replay", "backtest", "connectors", "declare"],
    ),
    ("Run it", &["run", "serve", "load", "cluster"]),
    ("Look at what it does", &["sql", "query", "tap", "why", "errors"]),
    ("Keep its data", &["backup", "restore", "verify", "keys"]),
    ("Let others in", &["users", "tokens"]),
    ("Help", &["completions", "help"]),
];

/// Words that other programs have as commands, and what does the same here.
const HINTS: [(&[&str], &str); 13] = [
    (
        &["init", "create", "scaffold", "quickstart", "generate"],
        "`tidemill new NAME` writes a small app to begin with",
    ),
    (
        &["demo", "example", "examples", "tutorial"],
        "`tidemill run examples/flights --data data` runs the example, `tidemill new NAME` writes a small app of your own",
    ),
    (
        &["status", "ps", "top", "info", "health", "stats", "list", "ls", "ui", "console", "dashboard"],
        "`tidemill sql --data DIR -c 'SELECT * FROM system.problems'` shows problems, `system.ledger` and `system.streams` \
         what is stored; http://127.0.0.1:4700 in a browser shows both",
    ),
    (
        &["start", "up", "server", "daemon"],
        "`tidemill run APP --data DIR` runs an app, `tidemill serve --data DIR` one that is deployed",
    ),
    (&["stop", "down", "shutdown", "kill"], "Ctrl-C, or `kill PID`, stops the process of `run` or `serve`"),
    (&["deploy", "apply", "install", "upgrade"], "`tidemill run APP --data DIR` deploys the app and runs it"),
    (
        &["psql", "shell", "repl", "mongo", "mongosh"],
        "`tidemill sql --data DIR` reads SQL; MongoDB drivers and shells connect to `run` and `serve`",
    ),
    (&["import", "ingest", "copy"], "`tidemill load STREAM FILE… --data DIR` stores the rows of files"),
    (
        &["send", "produce", "publish", "insert", "write"],
        "POST /api/v1/streams/STREAM sends events; `tidemill load STREAM - --format ndjson` reads standard input",
    ),
    (
        &["export", "dump"],
        "`tidemill sql --data DIR -o csv -c 'SELECT …'` writes rows, `tidemill backup` everything",
    ),
    (
        &["tail", "watch", "follow", "consume", "subscribe"],
        "`tidemill tap STREAM --data DIR` prints the events of a stream as they come",
    ),
    (&["lint", "validate", "compile", "build"], "`tidemill check APP` checks an app"),
    (
        &["format", "plan", "simulate", "doctor", "fsck"],
        "`fmt` formats, `explain` shows where queries run, `replay` runs over recorded events, `verify` checks data",
    ),
];

/// Returns the command with its subcommands in groups.
pub fn grouped(command: clap::Command) -> clap::Command {
    let mut command = command;
    // adds `help`, which is in a group as well
    command.build();
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{title}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(|found| found.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<width$}  {}", about.lines().next().unwrap_or_default());
        }
    }
    text += "\nOptions:\n{options}{after-help}";
    command.help_template(text)
}

/// Adds a hint to the error of a subcommand that there is not.
pub fn with_hint(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let hint = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => hint(word),
        _ => None,
    };
    if let Some(hint) = hint {
        // in place of a command whose name is only spelled alike
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

fn hint(word: &str) -> Option<&'static str> {
    HINTS.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = crate::cli::Args::command();
        command.build();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn words_of_other_programs_have_a_hint_that_names_what_there_is() {
        let command = crate::cli::Args::command();
        let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        for (words, hint) in HINTS {
            for word in words {
                assert!(!known.contains(word), "`{word}` is a command");
            }
            for named in hint.split("`tidemill ").skip(1) {
                let name = named.split([' ', '`']).next().unwrap();
                assert!(known.contains(&name), "{hint}");
            }
        }
    }
}
