//! `tidemill load`: files, objects and standard input into a stream.

mod columns;
mod declare;
mod inputs;
mod objects;
mod positions;
mod progress;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ValueEnum;
use tidemill::{ErrorKind, StreamSchema, Tidemill};

use super::client::Client;
use super::new_data::NewData;
use super::vars::VarArgs;
use super::{DataArgs, flush_before_stop};
use columns::ColumnArgs;
use inputs::Input;
use progress::LoadProgress;
use source::LoadSource;

/// Format of loaded files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadFormat {
    /// A header line with names of fields, then a row a line.
    Csv,
    /// One JSON object a line, or a JSON array of objects.
    Ndjson,
    /// Parquet.
    Parquet,
    /// Avro object containers.
    Avro,
    /// InfluxDB's line protocol.
    LineProtocol,
}

/// Loads files, objects of stores and standard input into a stream.
///
/// The position in each file is stored with its rows: with `--resume`, a load that was broken off, even by a crash, goes on
/// where it stopped, and every row is stored exactly once. Rows that cannot be read are stored in `system.rejected`, and the
/// exit code is 1.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill load Trades trades.csv --infer --create trades-app\n  tidemill load Trades trades.csv --data loaded --app trades-app\n  tidemill load Trades trades.csv --data loaded --resume"
)]
pub struct LoadArgs {
    /// Stream of the rows. For line protocol one or several with commas: the measurement of each line is its stream.
    #[arg(value_name = "STREAM")]
    streams: String,
    /// Files, directories, patterns such as 'day-*.csv', URLs (s3://, gs://, az://, https://), or - for standard input.
    /// Input that begins like gzip or zstd is decompressed.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Format of all files. Default: what their names end in.
    #[arg(long, value_enum)]
    format: Option<LoadFormat>,
    /// Go on where an earlier load of the same files stopped; what was loaded is left out.
    #[arg(long, conflicts_with = "again")]
    resume: bool,
    /// Load all rows, also of files that were loaded before.
    #[arg(long)]
    again: bool,
    /// Name under which the position in standard input is stored, for `--resume` with the same input.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    columns: ColumnArgs,
    #[command(flatten)]
    inference: Inference,
}

/// Where rows go.
#[derive(clap::Args)]
struct Target {
    /// Data directory.
    #[arg(long, env = "TIDEMILL_DATA", value_name = "DIR", required_unless_present = "infer")]
    data: Option<PathBuf>,
    /// Log of the data directory, as for `tidemill run`.
    // may hold a password, so help does not show its value
    #[arg(long, env = "TIDEMILL_LOG", value_name = "URL", hide_env_values = true)]
    log: Option<String>,
    /// Deploy this app first: a directory, or one *.siddhi or *.rules file. Default: the app of the data directory.
    #[arg(long)]
    app: Option<PathBuf>,
    #[command(flatten)]
    vars: VarArgs,
}

/// What to find out instead of loading.
#[derive(clap::Args)]
struct Inference {
    /// Print the declaration of a stream for the first file, and load nothing. The types are those of its first 10,000 rows.
    #[arg(long)]
    infer: bool,
    /// With --infer: write an app that declares the stream into this new directory.
    #[arg(long, value_name = "DIR", requires = "infer")]
    create: Option<PathBuf>,
}

pub fn load(args: LoadArgs) -> anyhow::Result<ExitCode> {
    let inputs = inputs::expand(&args.files, args.format)?;
    args.columns.check(&inputs)?;
    if args.inference.infer {
        return declare::infer(&args.streams, &inputs[0], &args.columns, args.inference.create.as_deref());
    }
    let new_data = args.target.data.as_deref().map(NewData::look);
    let mut progress = LoadProgress::new(&inputs);
    let loaded = load_into(&args, &inputs, &mut progress);
    if let Err(e) = &loaded
        && progress.is_empty()
        && !is_conflict(e)
        && let Some(new_data) = new_data
    {
        new_data.discard();
    }
    Ok(if loaded? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns whether another program has the data directory open, which may be making it at this moment.
fn is_conflict(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|e| e.downcast_ref::<tidemill::Error>().is_some_and(|e| e.kind() == ErrorKind::Conflict))
}

/// Loads all inputs. Returns whether all rows could be read.
fn load_into(args: &LoadArgs, inputs: &[Input], progress: &mut LoadProgress) -> anyhow::Result<bool> {
    let tidemill = args.target.open()?;
    let loaded = Load::new(args, &tidemill).and_then(|load| load.run(inputs, progress));
    if loaded.is_ok() {
        flush_before_stop(&tidemill);
    }
    let closed = tidemill.close();
    let good = loaded?;
    closed?;
    Ok(good)
}

impl Target {
    /// Opens the data directory.
    ///
    /// Errors: a server runs on it, with what to do instead; those of the engine.
    fn open(&self) -> anyhow::Result<Tidemill> {
        let data = self.data.clone().context("--data is missing: expected the data directory")?;
        let dir = data.display().to_string();
        if Client::find(&data)?.is_some() {
            bail!(
                "a server runs on {dir}, and only one process at a time can have it open: stop the server and load again, or \
                 send the rows over HTTP: curl -H \"Authorization: Bearer $(cat {dir}/token)\" -H 'content-type: text/csv' \
                 --data-binary @FILE http://ADDRESS/api/v1/streams/STREAM (`cat {dir}/server.json` has the address)"
            );
        }
        let mut builder = DataArgs { data, log: self.log.clone() }.builder()?;
        if let Some(app) = &self.app {
            builder = builder.app(self.vars.read_app(app)?);
        }
        let tidemill = Tidemill::start(builder).with_context(|| match self.app {
            None => format!("{dir} (`--app APP` deploys an app in a new data directory)"),
            Some(_) => dir.clone(),
        })?;
        for warning in &tidemill.engine().recovery.warnings {
            eprintln!("warning: {warning}");
        }
        Ok(tidemill)
    }
}

/// A load into an open data directory.
struct Load<'a> {
    args: &'a LoadArgs,
    tidemill: &'a Tidemill,
    streams: Vec<Arc<StreamSchema>>,
}

impl<'a> Load<'a> {
    /// Errors: a stream is not declared.
    fn new(args: &'a LoadArgs, tidemill: &'a Tidemill) -> anyhow::Result<Self> {
        let names = args.streams.split(',').map(str::trim);
        let streams = names.map(|name| tidemill.engine().stream_schema(name).cloned());
        let streams = streams.collect::<tidemill::Result<Vec<_>>>().context(
            "`--infer --create DIR` writes an app that declares a stream for a file; `--app DIR` deploys an app",
        )?;
        // rows of an earlier load are applied before their positions are looked at
        tidemill.engine().catch_up()?;
        Ok(Self { args, tidemill, streams })
    }

    /// Loads all inputs. Returns whether all rows could be read.
    fn run(&self, inputs: &[Input], progress: &mut LoadProgress) -> anyhow::Result<bool> {
        let names: Vec<&str> = self.streams.iter().map(|stream| stream.name.as_str()).collect();
        let plan = |input| positions::plan(self.tidemill.engine(), self.args, &names.join(","), input);
        let plans = inputs.iter().map(plan).collect::<anyhow::Result<Vec<_>>>()?;
        // rows of line protocol for several streams name theirs
        let only = if let [stream] = names.as_slice() { stream } else { "" };
        for (input, plan) in inputs.iter().zip(plans) {
            let mut source = LoadSource::open(input, &plan, &self.streams, &self.args.columns, progress)?;
            let read = self.tidemill.engine().read_source(&mut source, only);
            read.with_context(|| {
                format!("{input}: the rows before are stored; `--resume` goes on behind them")
            })?;
            drop(source);
            progress.end_input();
        }
        self.tidemill.engine().catch_up()?;
        progress.finish();
        Ok(!progress.has_rejections())
    }
}
