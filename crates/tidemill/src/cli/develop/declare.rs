//! `tidemill declare`: the streams of telemetry, as an app declares them.

use std::process::ExitCode;

use clap::ValueEnum;
use tidemill_mappers::telemetry::DeclaredStream;
use tidemill_mappers::{otlp, remote_write};

/// Protocol whose records are events of streams with these names.
#[derive(Clone, Copy, ValueEnum)]
enum Protocol {
    /// Logs, spans and metrics of OpenTelemetry.
    Opentelemetry,
    /// Samples, exemplars and descriptions of metrics of Prometheus.
    RemoteWrite,
}

/// Prints declarations of the streams that a protocol fills, for a file of an app.
///
/// Columns may be removed: what has no column is kept in `_extra`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill declare opentelemetry")]
pub struct DeclareArgs {
    /// Protocol.
    protocol: Protocol,
    /// Streams to print, such as otel_logs; default: all of the protocol.
    #[arg(value_name = "STREAM")]
    streams: Vec<String>,
}

pub fn declare(args: &DeclareArgs) -> anyhow::Result<ExitCode> {
    let all: &[&DeclaredStream] = match args.protocol {
        Protocol::Opentelemetry => &otlp::streams::STREAMS,
        Protocol::RemoteWrite => &remote_write::streams::STREAMS,
    };
    let names = || all.iter().map(|stream| stream.name);
    if let Some(unknown) = args.streams.iter().find(|name| !names().any(|known| known == *name)) {
        let all = names().collect::<Vec<_>>().join(", ");
        anyhow::bail!("this protocol has no stream `{unknown}`: expected some of {all}");
    }
    let is_wanted = |name: &str| args.streams.is_empty() || args.streams.iter().any(|wanted| wanted == name);
    let declarations = all.iter().filter(|stream| is_wanted(stream.name)).map(|stream| stream.declaration());
    print!("{}", declarations.collect::<Vec<_>>().join("\n"));
    Ok(ExitCode::SUCCESS)
}
