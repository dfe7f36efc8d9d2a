//! The bytes on disk equal the example in the format's description.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogOptions};
use tidemill_types::{Offset, Timestamp};

use crate::basics::{P, options};
use tidemill_log::sim_disk::SimDisk;

const DESCRIPTION: &str = include_str!("../../../../docs/formats/log.md");

/// Returns the bytes of the description's example: from the block marked `hex`, the column between the first
/// two gaps of each line.
fn example() -> Vec<u8> {
    let block = DESCRIPTION.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let lines = block.lines().map(|l| l.split("  ").nth(1).unwrap());
    lines.flat_map(|l| l.split_whitespace()).map(|b| u8::from_str_radix(b, 16).unwrap()).collect()
}

#[test]
fn segments_are_as_described() {
    let disk = SimDisk::default();
    let options = LogOptions { salt: 0x1122_3344_5566_7788, ..options() };
    let open = || LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options.clone()).unwrap();
    let time = Timestamp::parse("2013-01-01T10:17:00Z").unwrap();
    open().0.write_and_sync(P, time, &[b"tide", b"mill"], Durability::Fsync).unwrap();
    let path = PathBuf::from("/log/p00000/00000000000000000000.seg");
    let mut written = Vec::new();
    disk.edit(&path, |bytes| written = bytes.clone());
    let hex: Vec<String> =
        written.chunks(16).map(|c| c.iter().map(|b| format!("{b:02x} ")).collect()).collect();
    assert!(
        written == example(),
        "docs/formats/log.md shows other bytes than were written:\n{}",
        hex.join("\n")
    );
    // Conversely, the bytes of the description can be read.
    disk.edit(&path, |bytes| *bytes = example());
    let (log, _) = open();
    let records = log.read(P, Offset(0), 1 << 20).unwrap();
    assert_eq!((&records[0].payload[..], &records[1].payload[..]), (&b"tide"[..], &b"mill"[..]));
    assert_eq!((records[1].offset, records[1].time), (Offset(1), time));
}
