//! `tidemill tap`: the events of a stream as they come.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use tidemill_types::did_you_mean;

use crate::cli::client::{Client, path_segment};

/// Attempts to find a server again whose connection broke off, one a second.
const RECONNECTS_MAX: u32 = 30;

/// Prints the events of a stream as they come, one JSON object a line.
///
/// A server must run on the data directory. Events that come faster than they can be printed are skipped and counted on
/// standard error; the stream's table has them. After a broken connection the output continues behind the last event.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill tap FlightDelayEvent --data data --limit 10 --after 0\n  tidemill tap LandingEvent --data data --limit 1 --after 0 --ids"
)]
pub struct TapArgs {
    /// A stream, or a source or sink as the tables `system.sources` and `system.sinks` name it: then its stream.
    #[arg(value_name = "STREAM|SOURCE|SINK")]
    name: String,
    /// Data directory of the server.
    #[arg(long, env = "TIDEMILL_DATA", value_name = "DIR")]
    data: PathBuf,
    /// End after this many events.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Begin behind the event with this id, PARTITION-OFFSET-ROW, with the stored ones. `0` begins with the oldest.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Print the id of each event in front of it.
    #[arg(long)]
    ids: bool,
}

pub fn tap(args: TapArgs) -> anyhow::Result<ExitCode> {
    let mut tail = Tail { left: args.limit.unwrap_or(u64::MAX), last: args.after.clone(), args };
    if tail.last.as_deref() == Some("0") {
        tail.last = Some(String::new());
    }
    let mut attempts = 0;
    loop {
        let Some(client) = Client::find(&tail.args.data)? else {
            attempts += 1;
            let dir = tail.args.data.display();
            if tail.is_fresh() || attempts > RECONNECTS_MAX {
                bail!("no server runs on {dir}; start one with `tidemill serve --data {dir}`");
            }
            std::thread::sleep(Duration::from_secs(1));
            continue;
        };
        let stream = stream_of(&client, &tail.args.name)?;
        if tail.follow(&client, &stream)? {
            return Ok(ExitCode::SUCCESS);
        }
        attempts = 0;
        eprintln!("the connection broke off; connecting again");
    }
}

/// Returns the stream of a name.
fn stream_of(client: &Client, name: &str) -> anyhow::Result<String> {
    let streams = client.get("/api/v1/streams", &[])?;
    let names: Vec<&str> =
        streams.as_array().into_iter().flatten().filter_map(|stream| stream["name"].as_str()).collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    // the names of connectors say their streams: `FILE: TYPE to STREAM`, `FILE: STREAM to TYPE`
    let of_connector = name.split_once(": ").and_then(|(_, rest)| {
        let (from, to) = rest.split_once(" to ")?;
        [to, from].into_iter().find(|part| names.contains(part))
    });
    match of_connector {
        Some(stream) => Ok(stream.to_owned()),
        None => {
            let hint = did_you_mean(name, names.iter().copied());
            bail!("there is no stream, source or sink `{name}`{hint}")
        }
    }
}

struct Tail {
    args: TapArgs,
    /// Events that may still be printed.
    left: u64,
    /// Id of the last event.
    last: Option<String>,
}

impl Tail {
    /// Returns whether nothing was printed.
    fn is_fresh(&self) -> bool {
        self.left == self.args.limit.unwrap_or(u64::MAX)
    }

    /// Prints events until there were enough (true) or the connection breaks off.
    fn follow(&mut self, client: &Client, stream: &str) -> anyhow::Result<bool> {
        let path = format!("/api/v1/streams/{}/tail", path_segment(stream));
        let after: Vec<(&str, &str)> = self.last.as_deref().map(|last| ("after", last)).into_iter().collect();
        let body = client.stream(&path, &after)?;
        let (mut kind, mut id) = (String::new(), String::new());
        for line in BufReader::new(body).lines() {
            let Ok(line) = line else { return Ok(false) };
            match line.split_once(": ") {
                Some(("event", value)) => value.clone_into(&mut kind),
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("data", data)) if kind.is_empty() => {
                    match self.args.ids {
                        true => println!("{id}\t{data}"),
                        false => println!("{data}"),
                    }
                    self.last = Some(id.clone());
                    self.left -= 1;
                    if self.left == 0 {
                        return Ok(true);
                    }
                }
                Some(("data", data)) if kind == "skipped" => {
                    let skipped: serde_json::Value =
                        serde_json::from_str(data).context("the server's number of skipped events")?;
                    eprintln!("{} events were skipped: they came too fast", skipped["events"]);
                }
                Some(("data", data)) if kind == "error" => bail!("{data}"),
                None if line.is_empty() => kind.clear(),
                _ => {}
            }
        }
        Ok(false)
    }
}
