//! Full disks, failing syncs, short writes, shared syncs.

use std::path::Path;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogOptions};
use tidemill_types::{Error, ErrorKind, Offset, Timestamp};

use crate::basics::{P, options, payloads};
use tidemill_log::sim_disk::{Crash, SimDisk};

fn open(disk: &SimDisk, options: LogOptions) -> LocalLog {
    LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options).unwrap().0
}

fn append(log: &LocalLog, payload: &[u8], durability: Durability) -> Result<Offset, Error> {
    log.write_and_sync(P, Timestamp(0), &[payload], durability).map(|a| a.first)
}

fn after_power_loss(disk: &SimDisk) -> SimDisk {
    disk.after_crash(Crash::Power, &mut StdRng::seed_from_u64(1))
}

#[test]
fn full_disk_refuses_and_recovers_by_itself() {
    let disk = SimDisk::default();
    let log = open(&disk, options());
    append(&log, &[1; 500], Durability::Fsync).unwrap();
    disk.set_room(Some(disk.used() + 300));
    let error = append(&log, &[2; 500], Durability::Fsync).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().starts_with("disk full: write to /log/p00000/"), "{error}");
    // Nothing of the half-written record stays on the disk, and new ones are rejected without an offset.
    let (meta, newest) = ("tidemill-log 1\npartitions 1\n", "tidemill-log 1\nnewest 0\ncrc 00000000\n");
    assert_eq!(disk.used(), 40 + 532 + meta.len() + newest.len());
    for _ in 0..3 {
        assert_eq!(append(&log, b"refused", Durability::Memory).unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!((log.end(P), log.durable(P)), (Offset(2), Offset(1)));
    // Pending records are still readable.
    assert_eq!(payloads(&log, P), [vec![1; 500], vec![2; 500]]);
    disk.set_room(None);
    assert_eq!(append(&log, b"again", Durability::Fsync).unwrap(), Offset(2));
    assert_eq!(log.durable(P), Offset(3));
    let disk = after_power_loss(&disk);
    assert_eq!(payloads(&open(&disk, options()), P), [vec![1; 500], vec![2; 500], b"again".to_vec()]);
}

#[test]
fn what_a_full_disk_took_before_becomes_durable() {
    let disk = SimDisk::default();
    let log = open(&disk, options());
    append(&log, &[1; 500], Durability::Os).unwrap();
    disk.set_room(Some(disk.used() + 300));
    append(&log, &[2; 500], Durability::Os).unwrap_err();
    log.sync(P, Offset(0), Durability::Fsync).unwrap();
    assert_eq!(log.durable(P), Offset(1));
    assert_eq!(log.sync(P, Offset(1), Durability::Fsync).unwrap_err().kind(), ErrorKind::Unavailable);
    let after = after_power_loss(&disk);
    assert_eq!(payloads(&open(&after, options()), P), [vec![1; 500]]);
}

#[test]
fn full_disk_takes_the_part_that_it_has_room_for() {
    let disk = SimDisk::default();
    let log = open(&disk, LogOptions { background_sync_ms: 0, ..options() });
    append(&log, b"first", Durability::Fsync).unwrap();
    for i in 0..10 {
        append(&log, &[i; 200], Durability::Memory).unwrap();
    }
    disk.set_room(Some(disk.used() + 1000));
    assert_eq!(log.sync(P, Offset(10), Durability::Os).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(log.durable(P), Offset(5), "four records of 232 bytes fit into 1000");
}

#[test]
fn full_disk_when_a_segment_is_to_be_made() {
    let disk = SimDisk::default();
    let log = open(&disk, options());
    append(&log, &[1; 3900], Durability::Fsync).unwrap();
    disk.set_room(Some(disk.used() + 20));
    assert_eq!(append(&log, &[2; 200], Durability::Os).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(disk.names().len(), 3, "{:?}", disk.names());
    disk.set_room(None);
    log.sync(P, Offset(1), Durability::Fsync).unwrap();
    assert_eq!(payloads(&open(&after_power_loss(&disk), options()), P), [vec![1; 3900], vec![2; 200]]);
}

#[test]
fn records_in_memory_wait_for_space_up_to_the_limit() {
    let disk = SimDisk::default();
    let log = open(&disk, LogOptions { pending_bytes_max: 8 << 10, ..options() });
    disk.set_room(Some(disk.used()));
    let mut written = 0;
    let error = loop {
        match append(&log, &[3; 1000], Durability::Memory) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(written, 6);
    disk.set_room(None);
    log.flush().unwrap();
    assert_eq!(payloads(&open(&after_power_loss(&disk), options()), P).len(), 6);
}

#[test]
fn failed_fsync_is_not_taken_for_a_good_one_the_second_time() {
    let disk = SimDisk::default();
    let log = open(&disk, options());
    append(&log, b"before", Durability::Fsync).unwrap();
    append(&log, b"os", Durability::Os).unwrap();
    disk.fail_syncs(1);
    let error = append(&log, b"doubt", Durability::Fsync).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().starts_with("fsync of /log/p00000/"), "{error}");
    assert_eq!(log.durable(P), Offset(1));
    // The durability of the bytes is unknown, so they are rewritten before they are synced.
    log.sync(P, Offset(2), Durability::Fsync).unwrap();
    let log = open(&after_power_loss(&disk), options());
    assert_eq!(payloads(&log, P), [b"before".to_vec(), b"os".to_vec(), b"doubt".to_vec()]);
}

#[test]
fn bytes_of_a_failed_fsync_are_written_again_by_the_next_process() {
    let disk = SimDisk::default();
    let log = open(&disk, options());
    append(&log, b"before", Durability::Fsync).unwrap();
    disk.fail_syncs(u32::MAX);
    append(&log, b"doubt", Durability::Fsync).unwrap_err();
    // The next process reads the record from the page cache, which counts it as clean.
    let disk = disk.after_crash(Crash::Kill, &mut StdRng::seed_from_u64(1));
    let log = open(&disk, options());
    assert_eq!(log.durable(P), Offset(2));
    let log = open(&after_power_loss(&disk), options());
    assert_eq!(payloads(&log, P), [b"before".to_vec(), b"doubt".to_vec()]);
}

#[test]
fn short_writes_are_continued() {
    let disk = SimDisk::default();
    disk.set_write_max(Some(17));
    let log = open(&disk, options());
    log.write_and_sync(P, Timestamp(0), &[&[1; 100], &[2; 5000]], Durability::Fsync).unwrap();
    assert_eq!(payloads(&open(&after_power_loss(&disk), options()), P), [vec![1; 100], vec![2; 5000]]);
}

#[test]
fn closing_tells_whether_everything_is_on_the_disk_and_can_be_tried_again() {
    let disk = SimDisk::default();
    let log = open(&disk, LogOptions { retry_wait_ms: 1_000_000, ..options() });
    append(&log, b"x", Durability::Memory).unwrap();
    disk.fail_syncs(1);
    assert_eq!(log.close().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(append(&log, b"y", Durability::Memory).unwrap_err().kind(), ErrorKind::Unavailable);
    log.close().unwrap();
    assert_eq!(payloads(&open(&after_power_loss(&disk), options()), P), [b"x"]);
}

#[test]
fn a_failing_disk_is_not_asked_again_at_once() {
    let disk = SimDisk::default();
    let log = open(&disk, LogOptions { retry_wait_ms: 1_000_000, ..options() });
    disk.fail_syncs(1);
    append(&log, b"x", Durability::Fsync).unwrap_err();
    let ops = disk.ops();
    for _ in 0..10 {
        assert_eq!(append(&log, b"y", Durability::Fsync).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(log.sync(P, Offset(0), Durability::Fsync).unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!((disk.ops(), log.end(P)), (ops, Offset(1)));
}

#[test]
fn one_fsync_serves_all_that_wait() {
    let disk = SimDisk::default();
    let log = open(&disk, LogOptions { segment_bytes: 1 << 20, ..options() });
    let before = disk.fsyncs();
    for _ in 0..100 {
        append(&log, b"x", Durability::Memory).unwrap();
    }
    for i in 0..100 {
        log.sync(P, Offset(i), Durability::Fsync).unwrap();
    }
    assert_eq!(disk.fsyncs() - before, 1);
}

#[test]
fn group_above_the_pending_limit_waits_until_nothing_else_is_pending() {
    let disk = SimDisk::default();
    let log = open(&disk, LogOptions { pending_bytes_max: 10_000, ..options() });
    log.write_and_sync(P, Timestamp(0), &[&[1; 500]], Durability::Memory).unwrap();
    log.write(P, Timestamp(0), &[&[2; 6000], &[3; 6000]]).unwrap();
    assert_eq!(log.durable(P), Offset(1), "what was pending is on the disk");
    // The large group is pending now, and the next write waits for it.
    log.write(P, Timestamp(0), &[&[4; 8500]]).unwrap();
    assert_eq!(log.durable(P), Offset(3));
    log.sync(P, Offset(3), Durability::Fsync).unwrap();
    let log = open(&after_power_loss(&disk), LogOptions { pending_bytes_max: 10_000, ..options() });
    assert_eq!(payloads(&log, P).iter().map(Vec::len).collect::<Vec<_>>(), [500, 6000, 6000, 8500]);
}

/// Uses a file system of 1 MiB; skipped if this process may not mount one.
#[test]
fn real_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |args: &[&str]| {
        let done = std::process::Command::new(args[0]).args(&args[1..]).arg(dir.path()).output();
        done.is_ok_and(|o| o.status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"]) {
        eprintln!("skipped: a tmpfs can be mounted by root only");
        return;
    }
    let tried = std::panic::catch_unwind(|| {
        let (log, _) = LocalLog::open(dir.path().join("log"), options()).unwrap();
        let ballast = dir.path().join("ballast");
        std::fs::write(&ballast, vec![0; 600 << 10]).unwrap();
        let mut kept = 0;
        let error = loop {
            match append(&log, &[9; 3000], Durability::Fsync) {
                Ok(_) => kept += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().starts_with("disk full"), "{error}");
        std::fs::remove_file(&ballast).unwrap();
        assert_eq!(append(&log, &[9; 3000], Durability::Fsync).unwrap(), Offset(kept + 1));
        drop(log);
        let (log, reports) = LocalLog::open(dir.path().join("log"), options()).unwrap();
        assert_eq!(reports[0].cut, None);
        assert_eq!(payloads(&log, P), vec![vec![9; 3000]; kept as usize + 2]);
    });
    assert!(mount(&["umount"]));
    if let Err(panic) = tried {
        std::panic::resume_unwind(panic);
    }
}
