//! Encrypted logs: nothing of a payload is on the disk, keys are needed, damage is found, logs from before are read.

use std::path::Path;
use std::sync::Arc;

use tidemill_encryption::DataKeys;
use tidemill_log::disk::Disk;
use tidemill_log::sim_disk::SimDisk;
use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogEncryption, LogOptions, inspect};
use tidemill_types::{ErrorKind, Offset, Result, Timestamp};

use crate::basics::{P, options, payloads};

const MARKER: &[u8] = b"a marker that is looked for";

fn open(disk: &SimDisk, keys: Option<&DataKeys>) -> Result<LocalLog> {
    let encryption = keys.map(|keys| LogEncryption { keys: keys.clone(), log: "log" });
    // without records in memory, so that they are read from the disk
    let options = LogOptions { tail_bytes_max: 0, encryption, ..options() };
    LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options).map(|(log, _)| log)
}

fn write(log: &LocalLog, payload: &[u8]) {
    log.write_and_sync(P, Timestamp(1), &[payload], Durability::Fsync).unwrap();
}

fn has_marker(disk: &SimDisk) -> bool {
    let content = |path: &Path| {
        let file = disk.open(path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        let n = file.read_at(0, &mut bytes).unwrap();
        assert_eq!(n, bytes.len());
        bytes
    };
    let files = disk.names().into_iter().filter(|path| path.extension().is_some_and(|e| e == "seg"));
    files.map(|path| content(&path)).any(|bytes| bytes.windows(MARKER.len()).any(|part| part == MARKER))
}

#[test]
fn payloads_are_on_the_disk_encrypted_and_are_read_after_restarts() {
    let (disk, keys) = (SimDisk::default(), DataKeys::random().unwrap());
    let large = [MARKER, &[9; 9000]].concat();
    let mut expected = Vec::new();
    for _ in 0..3 {
        let log = open(&disk, Some(&keys)).unwrap();
        for payload in [MARKER, b"", &large] {
            write(&log, payload);
            expected.push(payload.to_vec());
        }
        log.write_and_sync(P, Timestamp(2), &[MARKER, b"second"], Durability::Fsync).unwrap();
        expected.extend([MARKER.to_vec(), b"second".to_vec()]);
        assert!(payloads(&log, P) == expected);
        log.close().unwrap();
    }
    assert!(!has_marker(&disk));
    let found = inspect(&disk, Path::new("/log")).unwrap();
    assert_eq!((found.partitions[0].end, found.partitions[0].damaged.len()), (Offset(15), 0));
}

#[test]
fn a_log_from_before_is_read_and_new_records_are_encrypted() {
    for before in [0, 3] {
        let (disk, keys) = (SimDisk::default(), DataKeys::random().unwrap());
        let log = open(&disk, None).unwrap();
        (0..before).for_each(|_| write(&log, b"from before"));
        drop(log);
        let log = open(&disk, Some(&keys)).unwrap();
        write(&log, MARKER);
        drop(log);
        assert!(!has_marker(&disk));
        let log = open(&disk, Some(&keys)).unwrap();
        let mut expected = vec![b"from before".to_vec(); before];
        expected.push(MARKER.to_vec());
        assert_eq!(payloads(&log, P), expected);
    }
}

#[test]
fn without_the_keys_an_encrypted_log_does_not_open() {
    let (disk, keys) = (SimDisk::default(), DataKeys::random().unwrap());
    write(&open(&disk, Some(&keys)).unwrap(), MARKER);
    let without = open(&disk, None).map(drop).unwrap_err();
    assert_eq!(without.kind(), ErrorKind::Invalid);
    assert!(without.to_string().contains("key_file"), "{without}");
    let others = open(&disk, Some(&DataKeys::random().unwrap())).map(drop).unwrap_err();
    assert!(others.to_string().contains("key ring"), "{others}");
    assert_eq!(payloads(&open(&disk, Some(&keys)).unwrap(), P), [MARKER]);
}

#[test]
fn flipped_bytes_and_exchanged_records_are_found() {
    let (disk, keys) = (SimDisk::default(), DataKeys::random().unwrap());
    let log = open(&disk, Some(&keys)).unwrap();
    (0..3).for_each(|_| write(&log, MARKER));
    drop(log);
    let segment = Path::new("/log/p00000/00000000000000000000.seg");
    let bytes_of_record = 32 + MARKER.len() + 40;
    for at in 0..bytes_of_record {
        disk.edit(segment, |bytes| bytes[40 + at] ^= 4);
        let error = open(&disk, Some(&keys)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
        disk.edit(segment, |bytes| bytes[40 + at] ^= 4);
    }
    // one who knows the format can compute its checksum, and not the key
    disk.edit(segment, |bytes| {
        use tidemill_log::format::{Checksum, RecordHead, SegmentHeader, encode_head};
        let header = SegmentHeader::decode(bytes).unwrap();
        let (first, second) = (40, 40 + bytes_of_record);
        let payload = bytes[first + 32..first + bytes_of_record].to_vec();
        let head = RecordHead::decode(&bytes[second..]).unwrap();
        bytes[second + 32..second + bytes_of_record].copy_from_slice(&payload);
        bytes[second..second + 32].copy_from_slice(&encode_head(Checksum::new(header.salt), &head, &payload));
    });
    let log = open(&disk, Some(&keys)).unwrap();
    assert_eq!(&log.read(P, Offset(0), 1).unwrap()[0].payload[..], MARKER);
    let error = log.read(P, Offset(1), 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("offset 1"), "{error}");
}
