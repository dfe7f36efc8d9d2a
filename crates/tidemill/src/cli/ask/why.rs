//! `tidemill why`: explains why a rule fired or did not, and what a query waits for.

use std::fmt::Display;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;
use tidemill::{EventSelector, Explanation, QueryWhy};

use crate::cli::DataArgs;
use crate::cli::ask::sql::Session;
use crate::cli::client::path_segment;

/// Explains why a rule fired or did not fire for an event, or what a query waits for.
///
/// With --event, it shows what a rule did with that event. If nothing is kept about the event any more, the rules run again over
/// stored events, and the answer says how far the documents are those of that time. Without --event, it shows a query of a
/// *.siddhi file: which events came, what its window, pattern or join holds, which condition the last event did not satisfy,
/// and what has to happen next.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill why LateTakeOff --data data --event flight_id=2013-01-09/HA51/JFK\n  tidemill why 'always late' --data data\n  tidemill why 'always late' --data data --key N384HA"
)]
pub struct WhyArgs {
    /// The rule or query; with --event it may be left out, for all rules of the event's stream.
    #[arg(required_unless_present = "event")]
    name: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    /// The event: its id (PARTITION-OFFSET-ROW, as SQL shows in _partition, _offset, _row) or FIELD=VALUE[,FIELD=VALUE].
    #[arg(long, value_name = "EVENT")]
    event: Option<EventSelector>,
    /// Of a query inside `partition with`: the key that is meant.
    #[arg(long, value_name = "KEY", conflicts_with = "event")]
    key: Option<String>,
    /// The file that has the query, where several have one of that name.
    #[arg(long, value_name = "FILE", conflicts_with = "event")]
    app: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn why(args: WhyArgs) -> anyhow::Result<ExitCode> {
    match &args.event {
        Some(event) => show(&explanations(&args, event)?, args.json)?,
        None => show(&reports(&args)?, args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(all: &[impl Serialize + Display], json: bool) -> anyhow::Result<()> {
    match json {
        true => println!("{}", serde_json::to_string_pretty(all)?),
        false => all.iter().for_each(|one| println!("{one}")),
    }
    Ok(())
}

fn explanations(args: &WhyArgs, event: &EventSelector) -> anyhow::Result<Vec<Explanation>> {
    match Session::open(&args.data)? {
        Session::Remote(client) => {
            let path = match &args.name {
                Some(rule) => format!("/api/v1/rules/{}/why", path_segment(rule)),
                None => "/api/v1/why".to_owned(),
            };
            let mut reply = client.get(&path, &[("event", &event.to_string())])?;
            let list = match reply.get_mut("explanations") {
                Some(list) => list.take(),
                None => reply,
            };
            serde_json::from_value(list).context("the server's explanation")
        }
        Session::Local(tidemill) => Ok(tidemill.engine().why(args.name.as_deref(), event)?),
    }
}

fn reports(args: &WhyArgs) -> anyhow::Result<Vec<QueryWhy>> {
    let Some(name) = &args.name else { bail!("name a query, or an event with --event") };
    match Session::open(&args.data)? {
        Session::Remote(client) => {
            let key = args.key.as_deref().map(|key| ("key", key));
            let app = args.app.as_deref().map(|app| ("app", app));
            let asked: Vec<(&str, &str)> = key.into_iter().chain(app).collect();
            let reply = client.get(&format!("/api/v1/queries/{}/why", path_segment(name)), &asked)?;
            serde_json::from_value(reply).context("the server's report")
        }
        Session::Local(tidemill) => {
            Ok(tidemill.engine().why_query(args.app.as_deref(), name, args.key.as_deref())?)
        }
    }
}
