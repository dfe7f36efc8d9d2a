//! `tidemill why`: what made a rule fire, or kept it from firing.

use std::process::ExitCode;

use anyhow::Context;
use tidemill::{EventSelector, Explanation};

use super::DataArgs;
use super::sql::Session;

/// Explains why a rule fired or did not fire for a recent event.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill why LateTakeOff --data data --event flight_id=2013-01-09/HA51/JFK"
)]
pub struct WhyArgs {
    /// The rule; without one, all rules of the event's stream.
    rule: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    /// The event: its id (PARTITION-OFFSET-ROW, as SQL shows in _partition, _offset, _row) or FIELD=VALUE[,FIELD=VALUE].
    #[arg(long, value_name = "EVENT")]
    event: EventSelector,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn why(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let explanations: Vec<Explanation> = match Session::open(&args.data)? {
        Session::Remote(client) => {
            let path = match &args.rule {
                Some(rule) => format!("/api/v1/rules/{rule}/why"),
                None => "/api/v1/why".to_owned(),
            };
            let mut reply = client.get(&path, &[("event", &args.event.to_string())])?;
            let list = match reply.get_mut("explanations") {
                Some(list) => list.take(),
                None => reply,
            };
            serde_json::from_value(list).context("the server's explanation")?
        }
        Session::Local(tidemill) => tidemill.engine().why(args.rule.as_deref(), &args.event)?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&explanations)?);
    } else {
        for explanation in &explanations {
            println!("{explanation}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
