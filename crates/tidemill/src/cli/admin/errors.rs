//! `tidemill errors`: events that sinks could not deliver, and records that stopped their partition.

mod set_aside;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill::{UndeliveredEvent, UndeliveredSelection};

use crate::cli::DataArgs;
use crate::cli::ask::sql::Session;
use set_aside::{RecordSelectionArgs, RecordsArgs};

/// Lists events that sinks could not deliver, sends them again, or forgets them; the same for records that stopped their partition.
///
/// These are the events of sinks with on.error='STORE'. SQL, rules and MongoDB drivers find them as documents of the
/// collection tidemill.undelivered. A record that could not be applied, or not within the setting record_timeout, is set
/// aside at the next start: its events are stored, but rules and queries do not see them until it is run again.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill errors list --data data\n  tidemill errors retry --data data --sink 'orders.siddhi: Orders to kafka'\n  tidemill errors discard --data data --all\n  tidemill errors records --data data\n  tidemill errors rerun --data data --all"
)]
pub struct ErrorsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Print the events, oldest first, with their ids and the reasons.
    List(ListArgs),
    /// Send events to their sinks again, each once. What is refused again comes back with another id.
    Retry(SelectionArgs),
    /// Forget events.
    Discard(SelectionArgs),
    /// Print the records that are set aside, with their ids and the reasons.
    Records(RecordsArgs),
    /// Run rules and queries on the events of records that are set aside, now.
    Rerun(RecordSelectionArgs),
    /// Forget records that are set aside. Their events stay stored.
    Forget(RecordSelectionArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Only those of this sink, as `system.sinks` names it.
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct SelectionArgs {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    which: WhichArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct WhichArgs {
    /// Those of this sink, as `system.sinks` names it.
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// The one with this id; may be repeated.
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// All of them.
    #[arg(long, conflicts_with_all = ["sink", "id"])]
    all: bool,
}

/// An event as the server sends it.
#[derive(Deserialize)]
struct Undelivered {
    id: String,
    sink: String,
    stream: String,
    event: Json,
    reason: String,
    time: String,
}

impl From<UndeliveredEvent> for Undelivered {
    fn from(event: UndeliveredEvent) -> Self {
        let UndeliveredEvent { id, sink, stream, event, reason, time } = event;
        let event = serde_json::from_str(&event).unwrap_or(Json::String(event));
        Self { id, sink, stream, event, reason, time: time.to_string() }
    }
}

pub fn errors(args: ErrorsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List(args) => list(&args),
        Action::Retry(args) => retry(&args),
        Action::Discard(args) => discard(&args),
        Action::Records(args) => set_aside::records(&args),
        Action::Rerun(args) => set_aside::rerun(&args),
        Action::Forget(args) => set_aside::forget(&args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let events: Vec<Undelivered> = match Session::open(&args.data)? {
        Session::Remote(client) => {
            let limit = args.limit.to_string();
            let mut asked = vec![("limit", limit.as_str())];
            asked.extend(args.sink.as_deref().map(|sink| ("sink", sink)));
            let reply = client.get("/api/v1/undelivered", &asked)?;
            serde_json::from_value(reply).context("the server's list")?
        }
        Session::Local(tidemill) => {
            let selection = UndeliveredSelection { sink: args.sink.clone(), ids: vec![] };
            let events = tidemill.engine().undelivered(&selection, args.limit)?;
            events.into_iter().map(Undelivered::from).collect()
        }
    };
    for Undelivered { id, sink, stream, event, reason, time } in &events {
        match args.json {
            true => println!(
                "{}",
                json!({"id": id, "sink": sink, "stream": stream, "event": event, "reason": reason, "time": time})
            ),
            false => println!("{id}\n  refused {time}: {reason}\n  {event}"),
        }
    }
    if events.is_empty() && !args.json {
        println!("no undelivered events");
    } else if events.len() as u64 == args.limit {
        eprintln!("there may be more: --limit is {}", args.limit);
    }
    Ok(ExitCode::SUCCESS)
}

impl WhichArgs {
    fn to_json(&self) -> Json {
        match self.all {
            true => json!({"all": true}),
            false => json!({"sink": self.sink, "ids": self.id}),
        }
    }

    fn selection(&self) -> UndeliveredSelection {
        UndeliveredSelection { sink: self.sink.clone(), ids: self.id.clone() }
    }
}

fn retry(args: &SelectionArgs) -> anyhow::Result<ExitCode> {
    let (retried, errors) = match Session::open(&args.data)? {
        Session::Remote(client) => {
            let reply = client.post("/api/v1/undelivered/retry", &args.which.to_json())?;
            let errors: Vec<String> =
                serde_json::from_value(reply["errors"].clone()).context("the server's reply")?;
            (reply["retried"].as_u64().context("the server's reply has no number of events")?, errors)
        }
        Session::Local(tidemill) => {
            let outcome = tidemill.engine().retry_undelivered(&args.which.selection())?;
            (outcome.retried, outcome.errors)
        }
    };
    println!("{retried} events go to their sinks again");
    if !errors.is_empty() {
        bail!("{} events stay undelivered:\n{}", errors.len(), errors.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn discard(args: &SelectionArgs) -> anyhow::Result<ExitCode> {
    let discarded = match Session::open(&args.data)? {
        Session::Remote(client) => {
            let reply = client.post("/api/v1/undelivered/discard", &args.which.to_json())?;
            reply["discarded"].as_u64().context("the server's reply has no number of events")?
        }
        Session::Local(tidemill) => tidemill.engine().discard_undelivered(&args.which.selection())?,
    };
    println!("{discarded} events are forgotten");
    Ok(ExitCode::SUCCESS)
}
