//! Copies of logs, and the inspection of what they have.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_log::disk::{Disk, FileReader, OsDisk};
use tidemill_log::{
    Durability, GroupLog, LocalLog, Log, LogFile, LogFileContent, LogOptions, Record, SegmentEncoder,
    closed_log_files, inspect, meta_file,
};
use tidemill_types::{Offset, PartitionId, Timestamp};

const P: PartitionId = PartitionId(1);

fn options() -> LogOptions {
    LogOptions { segment_bytes: 4096, ..LogOptions::new(2) }
}

fn payload(i: u64) -> Bytes {
    Bytes::from(vec![i as u8; (i * 37 % 900) as usize])
}

fn open(dir: &Path) -> LocalLog {
    LocalLog::open(dir, options()).unwrap().0
}

fn write(files: Vec<LogFile>, dir: &Path) {
    for file in files {
        let path = dir.join(&file.name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut bytes = Vec::new();
        match file.content {
            LogFileContent::Stored { file, bytes: n } => {
                FileReader::new(file).take(n).read_to_end(&mut bytes).unwrap();
            }
            LogFileContent::Written(text) => bytes = text,
        }
        std::fs::write(path, bytes).unwrap();
    }
}

fn payloads(log: &LocalLog) -> Vec<Bytes> {
    let (start, end) = (log.start(P).0, log.end(P).0);
    (start..end).map(|at| log.read(P, Offset(at), 1).unwrap()[0].payload.clone()).collect()
}

#[test]
fn a_copy_ends_where_it_is_asked_to_and_goes_on_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("log"));
    for i in 0..100 {
        drop(log.append(P, payload(i).into(), Durability::Memory).unwrap());
    }
    for round in 0..2 {
        let start = log.start(P).0;
        for end in (start..=100).step_by(7).chain([start, 100]) {
            let copied = dir.path().join(format!("copy{round}-{end}"));
            // nothing of it need be on the disk before
            write(log.files(&[Offset(0), Offset(end)]).unwrap(), &copied);
            let (copy, reports) = LocalLog::open(&copied, options()).unwrap();
            assert!(reports.iter().all(|report| report.cut.is_none()), "{reports:?}");
            assert_eq!((copy.start(P), copy.end(P)), (Offset(start), Offset(end)));
            assert_eq!(payloads(&copy), (start..end).map(payload).collect::<Vec<_>>());
            let next = copy.append(P, payload(7).into(), Durability::Fsync).unwrap().wait().unwrap();
            assert_eq!(next.offset, Offset(end));
            copy.close().unwrap();
        }
        log.truncate(P, Offset(60)).unwrap();
        assert!(log.start(P).0 > 30);
    }
    assert!(log.files(&[Offset(0), Offset(101)]).is_err());
}

#[test]
fn files_of_a_copy_stay_readable_when_the_log_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("log"));
    let all: Vec<Bytes> = (0..100).map(payload).collect();
    log.write_owned(P, Timestamp(1), all.clone()).unwrap();
    for i in 100..200 {
        drop(log.append(P, payload(i).into(), Durability::Fsync).unwrap());
    }
    let files = log.files(&[Offset(0), Offset(150)]).unwrap();
    log.truncate(P, Offset(200)).unwrap();
    assert!(log.start(P).0 > 100);
    write(files, &dir.path().join("copy"));
    let copy = open(&dir.path().join("copy"));
    assert_eq!(payloads(&copy), (0..150).map(payload).collect::<Vec<_>>());
}

#[test]
fn every_flipped_byte_of_a_closed_log_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = open(&path);
    for i in 0..30 {
        log.append(P, payload(i).into(), Durability::Fsync).unwrap().wait().unwrap();
    }
    log.close().unwrap();
    drop(log);
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let sound = inspect(&*disk, &path).unwrap();
    assert_eq!(sound.partitions.iter().map(|p| p.end.0).collect::<Vec<_>>(), [0, 30]);
    assert!(sound.damaged.is_empty() && sound.partitions.iter().all(|p| p.damaged.is_empty()), "{sound:?}");
    for file in closed_log_files(&*disk, &path).unwrap() {
        let name = path.join(&file.name);
        let good = std::fs::read(&name).unwrap();
        let step = if good.len() < 100 { 1 } else { 101 };
        for at in (0..good.len()).step_by(step) {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            std::fs::write(&name, &bytes).unwrap();
            let found = inspect(&*disk, &path).unwrap();
            let of_partitions = found.partitions.iter().flat_map(|p| p.damaged.iter().chain(&p.unfinished));
            // the last record may be one whose write was not finished
            assert!(found.damaged.iter().chain(of_partitions).any(|d| d.path == name), "{name:?}: byte {at}");
        }
        std::fs::write(&name, good).unwrap();
    }
    let newest = path.join("p00001").join(
        std::fs::read_dir(path.join("p00001"))
            .unwrap()
            .filter_map(|f| f.unwrap().file_name().into_string().ok())
            .filter(|f| f.ends_with(".seg"))
            .max()
            .unwrap(),
    );
    std::fs::remove_file(&newest).unwrap();
    let found = inspect(&*disk, &path).unwrap();
    assert_eq!(found.partitions[1].damaged[0].path, newest);
}

#[test]
fn records_of_another_log_become_one_that_begins_at_their_offset() {
    let dir = tempfile::tempdir().unwrap();
    let record = |offset: u64| Record {
        offset: Offset(offset),
        // times of another log may go back
        time: Timestamp(1_000 - offset as i64),
        clock: 0,
        payload: payload(offset),
    };
    for (first, end, segment_bytes) in [(120, 120, 4096), (120, 123, 4096), (7, 60, 4096), (0, 60, 1)] {
        let path = dir.path().join(format!("log-{first}-{end}-{segment_bytes}"));
        let other = SegmentEncoder::new(PartitionId(0), Offset(0));
        let mut files = vec![(other.name(), other.header())];
        let mut encoder = SegmentEncoder::new(P, Offset(first));
        let mut bytes = encoder.header();
        for offset in first..end {
            if encoder.bytes() >= segment_bytes && encoder.next() > Offset(first) {
                files.push((encoder.name(), std::mem::take(&mut bytes)));
                encoder = SegmentEncoder::new(P, encoder.next());
                bytes = encoder.header();
            }
            encoder.record(&record(offset), &mut bytes).unwrap();
            assert_eq!(encoder.bytes(), bytes.len() as u64);
        }
        assert!(encoder.record(&record(end + 1), &mut Vec::new()).is_err(), "a record is missing before it");
        files.push((encoder.name(), bytes));
        write(vec![meta_file(2), other.newest_file(), encoder.newest_file()], &path);
        for (name, bytes) in files {
            std::fs::write(path.join(name), bytes).unwrap();
        }
        let found = inspect(&OsDisk, &path).unwrap();
        assert!(
            found.damaged.is_empty() && found.partitions.iter().all(|p| p.damaged.is_empty()),
            "{found:?}"
        );
        assert_eq!((found.partitions[1].start.0, found.partitions[1].end.0), (first, end));
        let (log, reports) = LocalLog::open(&path, options()).unwrap();
        assert!(reports.iter().all(|report| report.cut.is_none()), "{reports:?}");
        assert_eq!((log.start(P), log.end(P)), (Offset(first), Offset(end)));
        for offset in first..end {
            let read = &log.read(P, Offset(offset), 1).unwrap()[0];
            assert_eq!((read.time, &read.payload), (record(offset).time, &payload(offset)));
        }
        let next = log.append(P, payload(7).into(), Durability::Fsync).unwrap().wait().unwrap();
        assert_eq!(next.offset, Offset(end));
    }
}
