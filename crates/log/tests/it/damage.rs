//! Torn tails are cut and reported; damage is rejected with its position and repaired only on request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_log::disk::Disk;
use tidemill_log::{CutReason, Durability, GroupLog, LocalLog, Log, LogOptions, RecoveryReport};
use tidemill_types::{Error, ErrorKind, Offset, Timestamp};

use crate::basics::{P, options, payloads};
use tidemill_log::sim_disk::SimDisk;

const HEADER: usize = 40;
/// Makes every record 100 bytes long.
const PAYLOAD: usize = 68;

fn open(disk: &SimDisk, options: LogOptions) -> Result<(LocalLog, RecoveryReport), Error> {
    let opened = LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options)?;
    Ok((opened.0, opened.1[0].clone()))
}

fn segment(base: u64) -> PathBuf {
    PathBuf::from(format!("/log/p00000/{base:020}.seg"))
}

const NOTE: &str = "/log/p00000/newest";

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    disk.names().into_iter().filter(|n| n.extension().is_some_and(|e| e == "seg")).collect()
}

/// Returns a disk with `n` records, each appended and synced separately, without zero sectors.
fn disk_with(n: u8) -> SimDisk {
    let disk = SimDisk::default();
    let (log, _) = open(&disk, options()).unwrap();
    for i in 0..n {
        log.write_and_sync(P, Timestamp(-1), &[&[i + 1; PAYLOAD]], Durability::Fsync).unwrap();
    }
    disk
}

#[test]
fn any_cut_of_the_last_segment_is_a_torn_tail() {
    for cut in HEADER..HEADER + 500 {
        let disk = disk_with(5);
        disk.edit(&segment(0), |bytes| bytes.truncate(cut));
        let (log, report) = open(&disk, options()).unwrap();
        let whole = (cut - HEADER) / 100;
        assert_eq!(payloads(&log, P).len(), whole);
        match report.cut {
            None => assert_eq!(cut, HEADER + whole * 100),
            Some(c) => {
                assert_eq!(
                    (c.pos as usize, c.bytes as usize),
                    (HEADER + whole * 100, cut - HEADER - whole * 100)
                );
                assert_eq!((c.file, c.records, c.reason), (segment(0), 0, CutReason::Torn));
            }
        }
        assert_eq!(
            log.write_and_sync(P, Timestamp(0), &[b"on"], Durability::Fsync).unwrap().first,
            Offset(whole as u64)
        );
    }
}

#[test]
fn a_bad_last_record_is_cut() {
    for byte in 0..100 {
        let disk = disk_with(5);
        disk.edit(&segment(0), |bytes| bytes[HEADER + 400 + byte] ^= 0x10);
        let (log, report) = open(&disk, options()).unwrap();
        assert_eq!(log.end(P), Offset(4), "byte {byte}");
        let cut = report.cut.clone().unwrap();
        assert_eq!((cut.pos, cut.bytes), (440, 100));
        let text = report.to_string();
        assert!(
            text.ends_with(
                "cut at byte 440 because the last write was not finished: 100 bytes with 0 whole records went"
            ),
            "{text}"
        );
    }
}

#[test]
fn any_changed_byte_before_a_valid_record_is_damage() {
    for at in HEADER..HEADER + 400 {
        let disk = disk_with(5);
        disk.edit(&segment(0), |bytes| bytes[at] ^= 0x10);
        let error = open(&disk, options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
        let record = (at - HEADER) / 100;
        let place =
            format!("00.seg is damaged at byte {}, where offset {record} is expected", HEADER + record * 100);
        assert!(error.message().contains(&place), "{error}");
        assert!(
            error
                .message()
                .contains("Restore the log from a backup, or open it once with `log_repair = true`")
        );
    }
}

#[test]
fn repair_cuts_at_the_damage_and_keeps_what_it_cut() {
    let disk = disk_with(5);
    disk.edit(&segment(0), |bytes| bytes[HEADER + 250] ^= 1);
    let (log, report) = open(&disk, LogOptions { repair: true, ..options() }).unwrap();
    assert_eq!(log.end(P), Offset(2));
    let cut = report.cut.unwrap();
    assert_eq!((cut.reason, cut.pos, cut.bytes, cut.records), (CutReason::Damaged, 240, 300, 2));
    assert!(disk.names().contains(&cut.quarantined_as[0]), "{:?}", disk.names());
    log.write_and_sync(P, Timestamp(0), &[b"on"], Durability::Fsync).unwrap();
    drop(log);
    assert_eq!(open(&disk, options()).unwrap().1.end, Offset(3));
}

#[test]
fn damage_in_an_older_segment_is_never_a_tail() {
    for (what, edit) in [
        ("the file only 60 more", (|b: &mut Vec<u8>| b.truncate(b.len() - 40)) as fn(&mut Vec<u8>)),
        ("later segments exist", |b| b.extend([0; 600])),
        ("begins with offset", |b| b.truncate(b.len() - 100)),
        ("checksum", |b| b[20] ^= 1),
        ("mark", |b| b[0] ^= 1),
    ] {
        let disk = disk_with(100);
        let first = disk.names().into_iter().find(|n| n.extension().is_some_and(|e| e == "seg")).unwrap();
        disk.edit(&first, edit);
        let error = open(&disk, options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        assert!(error.message().contains(what), "{what}: {error}");
        let (log, report) = open(&disk, LogOptions { repair: true, ..options() }).unwrap();
        assert_eq!(report.cut.as_ref().unwrap().reason, CutReason::Damaged);
        assert!(log.end(P) <= Offset(40), "{report}");
        drop(log);
        open(&disk, options()).unwrap();
    }
}

#[test]
fn missing_segment_is_damage() {
    let disk = disk_with(100);
    Disk::remove(&disk, &segments(&disk)[1]).unwrap();
    let error = open(&disk, options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("the segment before ends before offset"), "{error}");
}

/// Without its last segments a log looks as if it ended earlier, and offsets would be assigned twice.
#[test]
fn a_missing_newest_segment_is_told_and_repaired_only_when_asked_for() {
    for gone in 1..=3 {
        let disk = disk_with(100);
        let segments = segments(&disk);
        let (kept, removed) = segments.split_at(segments.len() - gone);
        removed.iter().for_each(|path| Disk::remove(&disk, path).unwrap());
        let error = open(&disk, options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let newest = removed.last().unwrap().display();
        assert!(
            error
                .message()
                .starts_with(&format!("{newest}, the newest segment of log partition 0, is missing")),
            "{error}"
        );
        assert!(error.message().contains("open it once with `log_repair = true`"), "{error}");

        let (log, report) = open(&disk, LogOptions { repair: true, ..options() }).unwrap();
        assert_eq!(report.segments, kept.len().max(1));
        assert_eq!(report.cut.as_ref().unwrap().reason, CutReason::Missing);
        assert!(report.to_string().ends_with("is missing, and what it held is lost"), "{report}");
        let end = log.end(P);
        // The repaired log opens without a cut even if no record was appended since.
        drop(log);
        let (log, report) = open(&disk, options()).unwrap();
        assert_eq!((report.end, report.cut), (end, None));
        log.write_and_sync(P, Timestamp(0), &[b"on"], Durability::Fsync).unwrap();
        drop(log);
        assert_eq!(open(&disk, options()).unwrap().1.end, end.next());
    }
}

#[test]
fn the_only_segment_is_missed_as_well() {
    let disk = disk_with(5);
    Disk::remove(&disk, &segment(0)).unwrap();
    let error = open(&disk, options()).err().unwrap();
    assert!(error.message().contains("it held the records from offset 0 on"), "{error}");
}

/// A segment is recorded as the newest only after its header is on the disk.
#[test]
fn a_noted_segment_without_its_header_is_damage() {
    let disk = disk_with(100);
    disk.edit(segments(&disk).last().unwrap(), Vec::clear);
    let error = open(&disk, options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_log_of_an_earlier_release_has_no_note_and_gets_one() {
    let disk = disk_with(100);
    Disk::remove(&disk, Path::new(NOTE)).unwrap();
    let (log, report) = open(&disk, options()).unwrap();
    assert_eq!((report.end, report.cut), (Offset(100), None));
    log.write_and_sync(P, Timestamp(0), &[b"on"], Durability::Fsync).unwrap();
    drop(log);
    Disk::remove(&disk, segments(&disk).last().unwrap()).unwrap();
    assert_eq!(open(&disk, options()).err().unwrap().kind(), ErrorKind::Corrupt);
}

#[test]
fn no_changed_byte_of_the_note_passes() {
    let mut length = 0;
    disk_with(100).edit(Path::new(NOTE), |bytes| length = bytes.len());
    for at in 0..length {
        let disk = disk_with(100);
        disk.edit(Path::new(NOTE), |bytes| bytes[at] ^= 1);
        let error = open(&disk, options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
        assert!(error.message().contains(NOTE) && error.message().contains("delete this file"), "{error}");
    }
}

#[test]
fn zeros_at_the_end_are_room_and_not_damage() {
    let disk = disk_with(5);
    disk.edit(&segment(0), |bytes| bytes.extend([0; 3000]));
    let (log, report) = open(&disk, options()).unwrap();
    assert_eq!(log.end(P), Offset(5));
    let cut = report.cut.unwrap();
    assert_eq!((cut.reason, cut.bytes, cut.records), (CutReason::Zeros, 3000, 0));
}

/// The sectors of the last write reach the disk in any order.
#[test]
fn unwritten_sector_in_the_last_write_is_torn_but_not_in_an_earlier_one() {
    for synced_before in [true, false] {
        let disk = SimDisk::default();
        let (log, _) = open(&disk, options()).unwrap();
        for i in 0..20_u8 {
            log.write(P, Timestamp(-1), &[&[i + 1; PAYLOAD]]).unwrap();
        }
        if synced_before {
            log.flush().unwrap();
        }
        log.write_and_sync(P, Timestamp(-1), &[&[99; PAYLOAD]], Durability::Fsync).unwrap();
        drop(log);
        disk.edit(&segment(0), |bytes| bytes[512..1024].fill(0));
        let opened = open(&disk, options());
        if synced_before {
            assert_eq!(opened.err().unwrap().kind(), ErrorKind::Corrupt);
        } else {
            let (log, report) = opened.unwrap();
            assert_eq!(log.end(P), Offset(4));
            assert_eq!(report.cut.unwrap().records, 11);
        }
    }
}

#[test]
fn half_a_group_is_cut() {
    let disk = SimDisk::default();
    let (log, _) = open(&disk, options()).unwrap();
    log.write_and_sync(P, Timestamp(0), &[b"whole"], Durability::Fsync).unwrap();
    log.write_and_sync(P, Timestamp(0), &[&[1; PAYLOAD], &[2; PAYLOAD], &[3; PAYLOAD]], Durability::Fsync)
        .unwrap();
    drop(log);
    disk.edit(&segment(0), |bytes| bytes.truncate(HEADER + 37 + 200));
    let (log, report) = open(&disk, options()).unwrap();
    assert_eq!(payloads(&log, P), [b"whole".to_vec()]);
    let cut = report.cut.unwrap();
    assert_eq!((cut.pos, cut.bytes, cut.records), (HEADER as u64 + 37, 200, 2));
}

/// A sender that puts a copy of a segment into a payload must not be able to block recovery.
#[test]
fn records_inside_a_torn_payload_do_not_count() {
    let disk = disk_with(3);
    let mut image = Vec::new();
    let other = SimDisk::default();
    let (log, _) = open(&other, LogOptions { salt: 8, ..options() }).unwrap();
    for _ in 0..20 {
        log.write_and_sync(P, Timestamp(-1), &[&[1; PAYLOAD]], Durability::Fsync).unwrap();
    }
    drop(log);
    other.edit(&segment(0), |bytes| image = bytes.clone());
    let (log, _) = open(&disk, options()).unwrap();
    log.write_and_sync(P, Timestamp(0), &[&image], Durability::Fsync).unwrap();
    drop(log);
    disk.edit(&segment(0), |bytes| bytes.truncate(bytes.len() - 1));
    assert_eq!(open(&disk, options()).unwrap().1.end, Offset(3));
}

/// Records longer than the scan window.
#[test]
fn long_records_are_checked_as_well() {
    let disk = SimDisk::default();
    let large = || LogOptions { segment_bytes: 64 << 20, ..options() };
    let (log, _) = open(&disk, large()).unwrap();
    for i in 1..4_u8 {
        log.write_and_sync(P, Timestamp(-1), &[&vec![i; 3 << 20]], Durability::Fsync).unwrap();
    }
    drop(log);
    let (log, report) = open(&disk, large()).unwrap();
    assert_eq!((report.end, report.cut), (Offset(3), None));
    assert_eq!(payloads(&log, P)[2], vec![3; 3 << 20]);
    drop(log);
    let mut image = Vec::new();
    disk.edit(&segment(0), |bytes| image = bytes.clone());
    disk.edit(&segment(0), |bytes| bytes[HEADER + (5 << 20)] ^= 1);
    assert_eq!(open(&disk, large()).err().unwrap().kind(), ErrorKind::Corrupt);
    disk.edit(&segment(0), |bytes| *bytes = image[..image.len() - (2 << 20)].to_vec());
    assert_eq!(open(&disk, large()).unwrap().1.end, Offset(2));
}

#[test]
fn another_format_is_told_apart_from_damage() {
    let disk = disk_with(3);
    disk.edit(&segment(0), |bytes| {
        bytes[8] = 3;
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    });
    let error = open(&disk, LogOptions { repair: true, ..options() }).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("format 3"), "{error}");
}

#[test]
fn damage_under_an_open_log_is_found_on_reading() {
    let disk = disk_with(10);
    let (log, _) = open(&disk, options()).unwrap();
    disk.edit(&segment(0), |bytes| bytes[HEADER + 350] ^= 1);
    assert_eq!(log.read(P, Offset(0), 250).unwrap().len(), 2);
    let error = log.read(P, Offset(3), 250).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("at byte 340, where offset 3 is expected"), "{error}");
}

#[test]
fn lost_meta_file_is_told() {
    let disk = disk_with(1);
    Disk::remove(&disk, Path::new("/log/log.meta")).unwrap();
    let error = open(&disk, options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("log.meta is missing"), "{error}");
    // of a log whose files were removed one by one nothing is left but its directories
    let files: Vec<_> = disk.names().into_iter().filter(|path| path.starts_with("/log/p00000")).collect();
    files.iter().for_each(|path| Disk::remove(&disk, path).unwrap());
    let (log, _) = open(&disk, options()).unwrap();
    assert_eq!((log.start(P), log.end(P)), (Offset(0), Offset(0)));
}
