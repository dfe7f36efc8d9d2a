//! Options of a node of a cluster, and `tidemill cluster`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::Value;
use tidemill::engine::cluster::{
    CertificateFiles, ClusterOptions, NodeName, PeerOptions, Replicas, Secret, Security, Timing,
};
use tidemill::{App, Engine, EngineBuilder, GrowthReport, LogAtUrl, TakeOver, cluster_logs, control_log};

use crate::cli::DataArgs;
use crate::cli::client::Client;

/// Port of HTTP, unless another one is given.
const PORT: u16 = 4700;
/// Share of the partitions of a usual node.
const WEIGHT: u32 = 100;

/// This process as a node of a cluster.
#[derive(clap::Args)]
pub struct ClusterArgs {
    /// Take part in the cluster whose log is this topic of Kafka, such as kafka://10.0.0.7:9092/orders. Its members are in the topic
    /// orders.control. All nodes run the same app, each with a data directory of its own. Needs --store.
    #[arg(long, env = "TIDEMILL_CLUSTER", value_name = "URL", hide_env_values = true, requires = "store", conflicts_with_all = ["log", "state", "until_idle"])]
    cluster: Option<String>,
    /// Object store of the tables and of the state that all nodes share, such as s3://bucket/orders.
    #[arg(long, env = "TIDEMILL_STORE", value_name = "URL", requires = "cluster")]
    store: Option<String>,
    /// Name of this node, unique in the cluster; the name of the machine by default.
    #[arg(long, env = "TIDEMILL_NODE", value_name = "NAME", requires = "cluster")]
    node: Option<String>,
    /// Zone of this machine: the next owner of a partition is in another zone, if there is one.
    #[arg(long, env = "TIDEMILL_ZONE", value_name = "NAME", requires = "cluster")]
    zone: Option<String>,
    /// Address at which clients and other nodes reach this node; the name of the machine and port 4700 by default.
    #[arg(long, env = "TIDEMILL_ADVERTISE", value_name = "HOST:PORT", requires = "cluster")]
    advertise: Option<String>,
    /// Nodes that apply each partition: all of them, or 2, an owner and a standby. With 2, nodes ask each other, and share the work. The same
    /// for all nodes.
    #[arg(
        long,
        env = "TIDEMILL_REPLICAS",
        value_name = "all|2",
        default_value = "all",
        requires = "cluster"
    )]
    replicas: ReplicaCount,
    /// Address at which other nodes call this one, if they know each other: by --peers-secret or --peers-certificates. At other addresses than
    /// those of this machine, nodes need certificates.
    #[arg(long, env = "TIDEMILL_PEERS", value_name = "HOST:PORT", default_value = "127.0.0.1:4702")]
    peers: SocketAddr,
    /// The same address as other nodes see it, if it is another one.
    #[arg(long, env = "TIDEMILL_PEERS_ADVERTISE", value_name = "HOST:PORT")]
    peers_advertise: Option<String>,
    /// File with a secret of at least 16 bytes, which all nodes share that run on this machine.
    #[arg(long, env = "TIDEMILL_PEERS_SECRET", value_name = "FILE", conflicts_with = "peers_certificates")]
    peers_secret: Option<PathBuf>,
    /// Directory with ca.pem, the authority of the cluster, and node.pem and node.key, a certificate for the name of this node.
    #[arg(long, env = "TIDEMILL_PEERS_CERTIFICATES", value_name = "DIR")]
    peers_certificates: Option<PathBuf>,
    /// Accept topics with one copy. What was acknowledged is lost with its broker: for trials.
    #[arg(long, requires = "cluster")]
    unsafe_single_broker: bool,
}

impl ClusterArgs {
    /// Makes the engine a node, and keeps the tables of the app in the store.
    pub fn add_to(&self, builder: EngineBuilder, app: &mut App) -> anyhow::Result<EngineBuilder> {
        let (Some(url), Some(store)) = (&self.cluster, &self.store) else { return Ok(builder) };
        let machine = || hostname::get().ok().and_then(|name| name.into_string().ok());
        let name = self
            .node
            .clone()
            .or_else(machine)
            .context("the name of this machine is not known: give --node NAME")?;
        let advertise = || Some(format!("{}:{PORT}", machine()?));
        let url = with_requirements(url, self.unsafe_single_broker);
        let log = LogAtUrl::new(Some(url.clone())).context("--cluster")?;
        let (cluster, control) = control_log(&url).context("--cluster")?;
        let store = store.trim_end_matches('/');
        app.settings.tables = Some(format!("{store}/tables"));
        let options = ClusterOptions {
            cluster,
            name: NodeName::new(&name).context("--node")?,
            address: self.advertise.clone().or_else(advertise).context("give --advertise HOST:PORT")?,
            zone: self.zone.clone().unwrap_or_default(),
            weight: WEIGHT,
            replicas: self.replicas()?,
            timing: Timing::SMALL,
            control,
        };
        // nodes take over by the control partition
        let builder = builder.log(Arc::new(log)).state(&format!("{store}/state"), TakeOver::Lossless);
        Ok(builder.cluster(options))
    }
}

impl ClusterArgs {
    fn replicas(&self) -> anyhow::Result<Replicas> {
        let peers = self.peer_options()?;
        match (self.replicas, peers) {
            (ReplicaCount::All, peers) => Ok(Replicas::All(peers)),
            (ReplicaCount::Two, Some(peers)) => Ok(Replicas::OwnerAndStandby(peers)),
            (ReplicaCount::Two, None) => bail!(
                "--replicas 2: nodes call each other and must know each other: give --peers-secret FILE, or --peers-certificates DIR if \
                 they run on several machines"
            ),
        }
    }

    /// Returns how nodes call each other; `None` if they have nothing by which they know each other.
    fn peer_options(&self) -> anyhow::Result<Option<PeerOptions>> {
        let security = match (&self.peers_secret, &self.peers_certificates) {
            (Some(file), _) => {
                let secret =
                    std::fs::read(file).with_context(|| format!("--peers-secret {}", file.display()))?;
                Security::Secret(Secret::new(secret.trim_ascii()).context("--peers-secret")?)
            }
            (None, Some(dir)) => Security::Certificates(CertificateFiles::new(
                dir.join("node.pem"),
                dir.join("node.key"),
                dir.join("ca.pem"),
            )),
            (None, None) => return Ok(None),
        };
        Ok(Some(PeerOptions { listen: self.peers, advertise: self.peers_advertise.clone(), security }))
    }
}

/// Number of nodes that apply a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ReplicaCount {
    /// All of them.
    All,
    /// An owner and a standby.
    #[value(name = "2")]
    Two,
}

/// Adds what a cluster requires of its topics to a URL.
fn with_requirements(url: &str, unsafe_single_broker: bool) -> String {
    with_option(url, "requirements", if unsafe_single_broker { "unsafe_single_broker" } else { "replicated" })
}

/// Adds an option to a URL, unless it has it.
fn with_option(url: &str, name: &str, value: &str) -> String {
    match url.split_once('?') {
        Some((_, options)) if options.split('&').any(|option| option.starts_with(&format!("{name}="))) => {
            url.to_owned()
        }
        Some(_) => format!("{url}&{name}={value}"),
        None => format!("{url}?{name}={value}"),
    }
}

/// Makes a cluster of a data directory, and shows clusters.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill cluster create --from data --cluster kafka://10.0.0.7:9092/orders --store s3://bucket/orders\n  tidemill cluster status --data data"
)]
pub struct ClusterCommandArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Makes the data directory of a single node, which is stopped, the beginning of a cluster.
    Create(CreateArgs),
    /// Shows members and partitions, as the node that runs on a data directory sees them.
    Status(StatusArgs),
}

/// Offsets, documents, windows and patterns in progress, ids of events, positions of change streams and sinks, and tables are kept. The
/// directory stays as it is, and does not start any more. An interrupted run is continued by the same command.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill cluster create --from data --cluster kafka://10.0.0.7:9092/orders --store s3://bucket/orders"
)]
struct CreateArgs {
    /// Data directory of the single node, which no program has open.
    // not from the environment: that names the directory in use
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Topic of Kafka in which the log continues, such as kafka://10.0.0.7:9092/orders. It is created; one that exists must be without
    /// records.
    #[arg(long, env = "TIDEMILL_CLUSTER", value_name = "URL", hide_env_values = true)]
    cluster: String,
    /// Object store of the tables and of the state that all nodes share, such as s3://bucket/orders.
    #[arg(long, env = "TIDEMILL_STORE", value_name = "URL")]
    store: String,
    /// Accept topics with one copy. What was acknowledged is lost with its broker: for trials.
    #[arg(long)]
    unsafe_single_broker: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill cluster status --data data")]
struct StatusArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn cluster(args: ClusterCommandArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ClusterCommand::Create(args) => create(&args),
        ClusterCommand::Status(args) => status(&args),
    }
}

fn create(args: &CreateArgs) -> anyhow::Result<ExitCode> {
    let logs =
        cluster_logs(&with_requirements(&args.cluster, args.unsafe_single_broker)).context("--cluster")?;
    let builder =
        Engine::builder(&args.from).log(Arc::new(LogAtUrl::default())).connectors(tidemill::connectors());
    let report = builder.grow(&*logs, &args.store)?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", created_text(&report, &args.cluster)),
    }
    Ok(ExitCode::SUCCESS)
}

fn created_text(report: &GrowthReport, url: &str) -> String {
    let GrowthReport { cluster, store, path, base_offsets, tables, rows, tables_stay, notes } = report;
    let offsets: Vec<String> = base_offsets.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{} is the beginning of the cluster {cluster}, whose partitions continue at the offsets {}.\n",
        path.display(),
        offsets.join(", ")
    );
    if *tables_stay {
        text += &format!("The tables stay in {store}/tables.\n");
    } else if *tables > 0 {
        text += &format!("{tables} tables with {rows} rows are copied to {store}/tables.\n");
    }
    notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    // options may have passwords
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    text += &format!(
        "Start nodes with the same app, each with a new data directory:\n  tidemill run APP --data NEW --cluster {url} --store {store}\n"
    );
    text
}

fn status(StatusArgs { data, json }: &StatusArgs) -> anyhow::Result<ExitCode> {
    let Some(client) = Client::find(&data.data)? else {
        bail!(
            "no node runs on {}: start it with `tidemill run APP --data DIR --cluster URL --store URL`",
            data.data.display()
        );
    };
    let status = client.get("/api/v1/cluster", &[])?;
    match json {
        true => println!("{status:#}"),
        false => print(&status),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(status: &Value) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let some = |value: &Value| if value.is_null() { "-".to_owned() } else { text(value) };
    println!(
        "cluster {}, seen by {} ({})",
        text(&status["cluster"]),
        text(&status["node"]),
        text(&status["standing"])
    );
    println!("\nmembers");
    for member in status["members"].as_array().into_iter().flatten() {
        let draining = if member["draining"] == true { ", draining" } else { "" };
        let zone = text(&member["zone"]);
        let zone = if zone.is_empty() { zone } else { format!(", zone {zone}") };
        println!("  {}  {}{zone}{draining}", text(&member["name"]), text(&member["address"]));
    }
    println!("\npartitions");
    for partition in status["partitions"].as_array().into_iter().flatten() {
        let applied = partition["applied"].as_array().into_iter().flatten();
        let applied: Vec<String> =
            applied.map(|one| format!("{} {}", text(&one["node"]), text(&one["next"]))).collect();
        println!(
            "  {}: owner {}, next owner {}, epoch {}; applied: {}",
            text(&partition["partition"]),
            some(&partition["owner"]),
            some(&partition["standby"]),
            some(&partition["epoch"]),
            applied.join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_added_to_a_url() {
        assert_eq!(with_option("kafka://a/t", "x", "1"), "kafka://a/t?x=1");
        assert_eq!(with_option("kafka://a/t?y=2", "x", "1"), "kafka://a/t?y=2&x=1");
        assert_eq!(with_option("kafka://a/t?x=2", "x", "1"), "kafka://a/t?x=2");
    }
}
