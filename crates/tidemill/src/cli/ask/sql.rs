//! `tidemill sql`: queries on a data directory, through its server if one is running.

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::Context;
use tidemill::{Tidemill, output};

use crate::cli::ask::repl::{Next, ShellOptions};
use crate::cli::client::Client;
use crate::cli::{DataArgs, OutputFormat, ask::repl};

/// Runs SQL over events, documents and system tables.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill sql --data data -c 'SELECT * FROM system.streams'\n  tidemill sql --data data -o csv -c 'SELECT * FROM events.\"TakeOffEvent\" LIMIT 10'\n  tidemill sql --data data        (interactive; `\\?` lists the commands of the prompt)"
)]
pub struct SqlArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The query, or several with `;` between them. They run in turn until one fails. Lines that begin with a backslash are
    /// commands of the prompt, such as `\d`; `\?` lists them. Without a query: interactive, or from standard input.
    #[arg(short = 'c', long = "command", value_name = "QUERY")]
    commands: Vec<String>,
    /// How rows are printed.
    #[arg(short, long, value_enum, default_value = "table")]
    output: OutputFormat,
}

/// Target of queries.
pub enum Session {
    /// The server on the data directory.
    Remote(Client),
    /// The data directory, opened by this process.
    Local(Box<Tidemill>),
}

impl Session {
    /// Connects to the server if one responds, else opens the directory.
    pub fn open(data: &DataArgs) -> anyhow::Result<Self> {
        if let Some(client) = Client::find(&data.data)? {
            return Ok(Self::Remote(client));
        }
        if !data.data.is_dir() {
            anyhow::bail!(
                "{}: no such directory; make one with `tidemill run APP --data {}`",
                data.data.display(),
                data.data.display()
            );
        }
        Ok(Self::Local(Box::new(Tidemill::start(data.builder()?)?)))
    }

    /// Runs a query and prints its rows.
    pub fn run(&self, query: &str, format: OutputFormat, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
        match self {
            Self::Remote(client) => client.sql(query, format.name(), out),
            Self::Local(tidemill) => {
                let rows = tidemill.sql(query)?;
                write_rows(format.format(), &rows, out)?;
                Ok(())
            }
        }
    }
}

/// Writes all rows of a query.
pub fn write_rows(
    format: output::Format,
    rows: &tidemill_sql::QueryRows,
    out: impl Write + Send,
) -> tidemill::Result<()> {
    let mut writer = output::Writer::new(format, &rows.schema, out)?;
    for batch in &rows.batches {
        writer.write(batch)?;
    }
    writer.finish().map(|_| ())
}

pub fn sql(args: SqlArgs) -> anyhow::Result<ExitCode> {
    let mut commands = args.commands;
    if commands.is_empty() && !std::io::stdin().is_terminal() {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        commands.push(text);
    }
    let session = Session::open(&args.data)?;
    let mut options = ShellOptions::new(args.output);
    if commands.is_empty() {
        return repl::repl(&session, &args.data, options);
    }
    for text in &commands {
        match repl::run_script(&session, text, &mut options) {
            Ok(Next::Continue) => {}
            Ok(Next::Leave) => break,
            // a reader that stops early (`| head`) is not a failure
            Err(e) if is_broken_pipe(&e) => return Ok(ExitCode::SUCCESS),
            Err(e) => return Err(e),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
