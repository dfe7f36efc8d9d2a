//! `tidemill backup`, `tidemill restore` and `tidemill verify`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;
use tidemill::{BackupReport, RestoreReport, Verification};

use crate::cli::client::Client;

/// Copies a data directory to a new directory, also while a server uses it. A node of a cluster copies the whole cluster.
///
/// The copy is of one moment: it has all events and documents that were acknowledged before the backup began. The directory
/// gets its name only when the copy is complete and on the disk. A running server makes the copy and goes on serving.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill backup --data data --to backups/monday")]
pub struct BackupArgs {
    /// Data directory.
    #[arg(long, visible_alias = "dir", env = "TIDEMILL_DATA", value_name = "DIR")]
    data: PathBuf,
    /// Directory of the backup: a new or empty one, outside of the data directory, on the machine of the server.
    #[arg(long, value_name = "BACKUP")]
    to: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Makes a data directory from a backup.
///
/// Every file is compared with its checksum. The new directory has an identity of its own; docs/backup.md says what that
/// means for sinks and tables in other systems.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill restore --from backups/monday --data restored")]
pub struct RestoreArgs {
    /// Directory of the backup.
    #[arg(long, value_name = "BACKUP")]
    from: PathBuf,
    /// Data directory to make: a new or empty one.
    // not from the environment: that names the directory in use
    #[arg(long, visible_alias = "dir", value_name = "DIR")]
    data: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Compares all files of a backup, or of a stopped data directory, with their checksums.
///
/// Exit code 0: all is as it was written. 1: damaged or missing files, which are named, with what that means and what to do.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill verify --from backups/monday\n  tidemill verify --data restored   (a data directory that no program has open)"
)]
pub struct VerifyArgs {
    /// Directory of a backup.
    #[arg(long, value_name = "BACKUP", conflicts_with = "data", required_unless_present = "data")]
    from: Option<PathBuf>,
    /// Data directory.
    #[arg(long, visible_alias = "dir", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Log of the data directory when it is not in files, such as kafka://127.0.0.1:9092/events. It is not verified.
    // may hold a password, so help does not show its value
    #[arg(long, env = "TIDEMILL_LOG", value_name = "URL", hide_env_values = true)]
    log: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn backup(args: BackupArgs) -> anyhow::Result<ExitCode> {
    let to = std::path::absolute(&args.to).with_context(|| args.to.display().to_string())?;
    let report = match Client::find(&args.data)? {
        Some(client) => {
            let to = to.to_str().with_context(|| format!("{}: the path is not UTF-8", to.display()))?;
            let reply = client.post("/api/v1/backup", &serde_json::json!({ "to": to }))?;
            serde_json::from_value(reply).context("the server's reply")?
        }
        None => tidemill::backup_stopped(&args.data, &to)?,
    };
    show(&report, args.json, backup_text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn restore(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let report = tidemill::restore(&args.from, &args.data)?;
    show(&report, args.json, restore_text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn verify(args: VerifyArgs) -> anyhow::Result<ExitCode> {
    let found = match (&args.from, &args.data) {
        (Some(backup), _) => tidemill::verify_backup(backup)?,
        (None, Some(data)) => verify_data(data, args.log.is_some())?,
        (None, None) => bail!("name a backup with --from or a data directory with --data"),
    };
    show(&found, args.json, verification_text)?;
    Ok(if found.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verify_data(data: &Path, log_elsewhere: bool) -> anyhow::Result<Verification> {
    match tidemill::verify_data(data, log_elsewhere) {
        Err(e) if e.kind() == tidemill::ErrorKind::Conflict => {
            let data = data.display();
            bail!(
                "{data}: a program has this data directory open, and its files change while they are read. Verify a backup \
                 instead: `tidemill backup --data {data} --to BACKUP`, then `tidemill verify --from BACKUP`; or end the program"
            )
        }
        found => Ok(found?),
    }
}

fn show<T: Serialize>(report: &T, json: bool, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    match json {
        true => println!("{}", serde_json::to_string_pretty(report)?),
        false => print!("{}", text(report)),
    }
    Ok(())
}

fn backup_text(report: &BackupReport) -> String {
    let BackupReport { path, files, bytes, tables, rows, log_records, .. } = report;
    let of_cluster =
        report.cluster.as_ref().map_or_else(String::new, |cluster| format!(" of the cluster {cluster}"));
    let mut text = format!(
        "Backup{of_cluster} in {}: {files} files, {}; {tables} tables with {rows} rows, {log_records} log records\n",
        path.display(),
        size(*bytes)
    );
    if let Some(location) = &report.tables_location {
        let _ = writeln!(text, "The tables in {location} are copied, too.");
    }
    text
}

fn restore_text(report: &RestoreReport) -> String {
    let RestoreReport { path, time, files, bytes, .. } = report;
    let data = path.display();
    let mut text = format!("Restored {data} from the backup of {time}: {files} files, {}\n", size(*bytes));
    if let Some(location) = &report.tables_location {
        let _ = writeln!(
            text,
            "The tables are in {data}/tables, and not in {location}, which belongs to the original."
        );
    }
    if !report.sinks.is_empty() {
        let _ = writeln!(
            text,
            "These sinks go on where they were at the time of the backup; what the original has written since is there already:"
        );
        report.sinks.iter().for_each(|sink| text += &format!("  {sink}\n"));
    }
    let _ = writeln!(text, "Start it with: tidemill serve --data {data}");
    if let Some(cluster) = &report.cluster {
        let _ = writeln!(
            text,
            "It is the data directory of a single node with all of the cluster {cluster}. To make a cluster of it again:\n  tidemill cluster \
             create --from {data} --cluster URL --store URL   (a new topic, and a store without tables and state)"
        );
    }
    text
}

/// One line per kind, then the damaged files.
fn verification_text(found: &Verification) -> String {
    let mut text = String::new();
    for kind in &found.kinds {
        let outcome = match kind.damaged {
            0 => "ok".to_owned(),
            damaged => format!("{damaged} DAMAGED"),
        };
        let _ = writeln!(
            text,
            "{:<12} {:>7} files {:>11}   {:<40} {outcome}",
            kind.kind,
            kind.files,
            size(kind.bytes),
            kind.content
        );
    }
    for note in &found.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for damage in &found.damaged {
        let _ = writeln!(text, "\ndamaged: {}\n  {}", damage.path, damage.problem);
        let _ = writeln!(text, "  This means: {}.\n  What to do: {}.", damage.meaning, damage.remedy);
    }
    text
}

/// Formats a number of bytes.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_one_digit_behind_the_point() {
        let sizes: Vec<String> = [0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 30].map(size).into();
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 GiB"]);
    }
}
