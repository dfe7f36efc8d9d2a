//! Verification of the small files: settings, and the progress and queues of sinks.

use std::path::Path;

use tidemill_log::disk::Disk;
use tidemill_types::{Error, ErrorKind, Result};

use super::logs::LogTotals;
use super::report::{Consequence, Verification};
use crate::directory::encryption::KEY_RING_FILE;
use crate::process::disk_files::list;
use crate::process::json_file::read_json;
use crate::sinks::{DELIVERIES_DIR, partition_dirs, queue_dirs};

const SETTINGS: Consequence = Consequence {
    meaning: "the data directory does not open",
    remedy: "restore the file from a backup; if you changed it by hand, remove its line `crc32c`",
};
const SINKS: Consequence = Consequence {
    meaning: "how far a sink has come, or what waits for it, is unknown, and the data directory does not open",
    remedy: "restore a backup",
};

/// Verifies `meta.json`, `app.json` and the key ring.
pub fn check_settings(disk: &dyn Disk, dir: &Path, found: &mut Verification) {
    let mut files = SmallFiles::default();
    for name in ["meta.json", "app.json", KEY_RING_FILE] {
        files.check(disk, &dir.join(name));
    }
    let app = match crate::directory::datadir::deployed_app(dir) {
        Ok(Some(app)) => app.name,
        Ok(None) => "none is deployed".to_owned(),
        Err(_) => "unknown".to_owned(),
    };
    found.add("settings", (files.count, files.bytes), format!("app {app}"), files.damaged, SETTINGS);
}

/// Verifies the progress of sinks, and the events that wait for other systems.
///
/// Errors: `Unavailable`.
pub fn check_sinks(disk: &dyn Disk, dir: &Path, found: &mut Verification) -> Result<()> {
    let mut files = SmallFiles::default();
    let sinks = dir.join("sinks");
    for name in list(disk, &sinks)?.iter().filter(|name| name.ends_with(".json")) {
        files.check(disk, &sinks.join(name));
    }
    let deliveries = dir.join(DELIVERIES_DIR);
    for partition in partition_dirs(disk, &deliveries)? {
        for name in list(disk, &partition)?.iter().filter(|name| name.ends_with(".json")) {
            files.check(disk, &partition.join(name));
        }
    }
    let mut queues = LogTotals::default();
    for name in queue_dirs(disk, &deliveries)? {
        files.check(disk, &deliveries.join(&name).join("progress.json"));
        queues.add(&tidemill_log::inspect(disk, &deliveries.join(&name).join("events"))?);
    }
    let (count, bytes) = (files.count + queues.segments, files.bytes + queues.bytes);
    if count == 0 && files.damaged.is_empty() {
        return Ok(());
    }
    files.damaged.append(&mut queues.damaged);
    found.add("sinks", (count, bytes), format!("{} sinks", files.count), files.damaged, SINKS);
    Ok(())
}

/// Small files with a checksum.
#[derive(Default)]
struct SmallFiles {
    count: u64,
    bytes: u64,
    damaged: Vec<(String, String)>,
}

impl SmallFiles {
    /// Verifies a file; one that is not there counts as none.
    fn check(&mut self, disk: &dyn Disk, path: &Path) {
        match read_json::<serde_json::Map<String, serde_json::Value>>(disk, path) {
            Ok(None) => {}
            Ok(Some(_)) => {
                self.count += 1;
                self.bytes += disk.open(path).and_then(|file| file.len()).unwrap_or_default();
            }
            Err(e) => {
                self.count += 1;
                self.damaged.push((path.display().to_string(), problem(&e, path)));
            }
        }
    }
}

/// Returns the message of an error without the path, which is reported beside it.
pub fn problem(error: &Error, path: &Path) -> String {
    let path = format!("{}: ", path.display());
    let message = error.message().trim_start_matches(path.as_str());
    match std::error::Error::source(error).filter(|_| error.kind() == ErrorKind::Corrupt) {
        Some(cause) => format!("{message}: {cause}"),
        None => message.to_owned(),
    }
}
