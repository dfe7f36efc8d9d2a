//! Records that stopped their partition: `tidemill errors records`, `rerun` and `forget`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Value as Json, json};

use crate::cli::DataArgs;
use crate::cli::ask::sql::Session;

#[derive(clap::Args)]
pub struct RecordsArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct RecordSelectionArgs {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    which: WhichRecordsArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct WhichRecordsArgs {
    /// The record with this id, such as 3/17; may be repeated.
    #[arg(long, value_name = "PARTITION/OFFSET")]
    id: Vec<String>,
    /// All of them.
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

/// Prints the records that are set aside.
pub fn records(args: &RecordsArgs) -> anyhow::Result<ExitCode> {
    let records = list(&Session::open(&args.data)?)?;
    for record in &records {
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        match args.json {
            true => println!("{record}"),
            false => {
                let content = match text("content") {
                    "" => "set aside when its partition is opened again",
                    content => content,
                };
                println!("{}  {content}\n  {}: {}", text("id"), text("time"), text("reason"));
            }
        }
    }
    if records.is_empty() && !args.json {
        println!("no record is set aside");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs rules and queries on the events of records that are set aside.
pub fn rerun(args: &RecordSelectionArgs) -> anyhow::Result<ExitCode> {
    let session = Session::open(&args.data)?;
    let mut errors = Vec::new();
    for id in selected(&session, &args.which)? {
        let of_rules: Vec<String> = match &session {
            Session::Remote(client) => {
                let reply = client.post("/api/v1/set-aside/rerun", &json!({ "id": id }))?;
                serde_json::from_value(reply["errors"].clone()).context("the server's reply")?
            }
            Session::Local(tidemill) => tidemill.engine().rerun_record(&id)?,
        };
        println!("record {id} was run again");
        errors.extend(of_rules);
    }
    if !errors.is_empty() {
        bail!("{} rules failed:\n{}", errors.len(), errors.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Forgets records that are set aside.
pub fn forget(args: &RecordSelectionArgs) -> anyhow::Result<ExitCode> {
    let session = Session::open(&args.data)?;
    for id in selected(&session, &args.which)? {
        match &session {
            Session::Remote(client) => drop(client.post("/api/v1/set-aside/forget", &json!({ "id": id }))?),
            Session::Local(tidemill) => tidemill.engine().forget_record(&id)?,
        }
        println!("record {id} is forgotten");
    }
    Ok(ExitCode::SUCCESS)
}

fn list(session: &Session) -> anyhow::Result<Vec<Json>> {
    match session {
        Session::Remote(client) => {
            serde_json::from_value(client.get("/api/v1/set-aside", &[])?).context("the server's list")
        }
        Session::Local(tidemill) => {
            let records = tidemill.engine().set_aside_records();
            let json = |record: &tidemill::SetAsideRecord| {
                json!({
                    "id": record.id(), "content": record.content, "reason": record.reason, "time": record.time,
                })
            };
            Ok(records.iter().map(json).collect())
        }
    }
}

fn selected(session: &Session, which: &WhichRecordsArgs) -> anyhow::Result<Vec<String>> {
    if !which.all {
        return Ok(which.id.clone());
    }
    Ok(list(session)?.iter().filter_map(|record| record["id"].as_str().map(str::to_owned)).collect())
}
