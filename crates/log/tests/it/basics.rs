//! Writing, reading, reopening, truncating, locking; one contract for every log implementation.

use std::sync::Arc;

use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogOptions, MemoryLog};
use tidemill_types::{ErrorKind, Offset, PartitionId, Timestamp};

pub const P: PartitionId = PartitionId(0);

pub fn options() -> LogOptions {
    LogOptions { segment_bytes: 4096, background_sync_ms: 0, retry_wait_ms: 0, salt: 7, ..LogOptions::new(1) }
}

/// Returns all payloads of a partition, read in small pieces; checks the offsets.
pub fn payloads(log: &dyn Log, p: PartitionId) -> Vec<Vec<u8>> {
    let mut at = log.start(p);
    let mut out = Vec::new();
    while at < log.end(p) {
        let records = log.read(p, at, 700).unwrap();
        assert!(!records.is_empty(), "nothing read at {at}");
        for record in records {
            assert_eq!(record.offset, at);
            out.push(record.payload.to_vec());
            at = at.next();
        }
    }
    out
}

/// Groups, which only logs in this process have.
fn check_groups(log: &dyn GroupLog) {
    let big = vec![7; 9000];
    let done = log.write_and_sync(P, Timestamp(5), &[b"a", b"", &big], Durability::Fsync).unwrap();
    assert_eq!((done.first, done.last, done.durability), (Offset(0), Offset(2), Durability::Fsync));
    let done = log.write(P, Timestamp(-1), &[b"b"]).unwrap();
    assert_eq!((done.first, done.durability), (Offset(3), Durability::Memory));
    assert_eq!(log.read(P, Offset(3), 1).unwrap()[0].time, Timestamp(-1));
    let done = log.write_owned(P, Timestamp(3), vec!["c".into(), vec![8; 9000].into(), "".into()]).unwrap();
    assert_eq!((done.first, done.last), (Offset(4), Offset(6)));
    assert_eq!(
        payloads(log, P),
        [b"a".to_vec(), vec![], big, b"b".to_vec(), b"c".to_vec(), vec![8; 9000], vec![]]
    );
    assert_eq!(log.write_owned(P, Timestamp(0), vec![]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(log.write(P, Timestamp(0), &[]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(log.write(PartitionId(9), Timestamp(0), &[b"x"]).unwrap_err().kind(), ErrorKind::Invalid);
    log.close().unwrap();
    assert_eq!(log.write(P, Timestamp(0), &[b"x"]).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn groups_of_every_local_log() {
    check_groups(&MemoryLog::new(1));
    let dir = tempfile::tempdir().unwrap();
    check_groups(&LocalLog::open(dir.path(), options()).unwrap().0);
}

#[test]
fn memory_log_is_bounded() {
    let log = MemoryLog::with_limit(1, 10);
    log.write(P, Timestamp(0), &[b"12345678"]).unwrap();
    assert_eq!(log.write(P, Timestamp(0), &[b"123"]).unwrap_err().kind(), ErrorKind::LimitReached);
    log.truncate(P, Offset(1)).unwrap();
    assert_eq!(log.write(P, Timestamp(0), &[b"123"]).unwrap().first, Offset(1));
}

#[test]
fn reopened_log_has_everything_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for round in 0..4_u32 {
        let (log, reports) = LocalLog::open(dir.path(), options()).unwrap();
        assert_eq!(reports[0].end, Offset(expected.len() as u64));
        assert_eq!(reports[0].cut, None);
        assert_eq!(payloads(&log, P), expected);
        for i in 0..50_u32 {
            let payload = vec![(round * 50 + i) as u8; 300];
            log.write(P, Timestamp(0), &[&payload]).unwrap();
            expected.push(payload);
        }
        assert_eq!(payloads(&log, P), expected);
    }
    let (log, reports) = LocalLog::open(dir.path(), options()).unwrap();
    assert!(reports[0].segments > 10, "{}", reports[0]);
    log.truncate(P, Offset(100)).unwrap();
    let start = log.start(P);
    assert!(start > Offset(80) && start <= Offset(100), "{start}");
    assert_eq!(payloads(&log, P), expected[start.0 as usize..]);
    log.truncate(P, Offset(u64::MAX)).unwrap();
    assert_eq!(log.end(P), Offset(200));
    drop(log);
    let (log, reports) = LocalLog::open(dir.path(), options()).unwrap();
    assert_eq!((reports[0].segments, reports[0].end), (1, Offset(200)));
    assert_eq!(log.write_and_sync(P, Timestamp(0), &[b"x"], Durability::Os).unwrap().first, Offset(200));
}

#[test]
fn far_readers_read_from_files_and_close_ones_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { tail_bytes_max: 2000, segment_bytes: 1 << 20, ..options() };
    let (log, _) = LocalLog::open(dir.path(), options).unwrap();
    let all: Vec<Vec<u8>> = (0..3000_u32).map(|i| i.to_le_bytes().repeat(i as usize % 90)).collect();
    for (i, group) in all.chunks(7).enumerate() {
        let group: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
        let durability = if i % 50 == 0 { Durability::Fsync } else { Durability::Os };
        log.write_and_sync(P, Timestamp(0), &group, durability).unwrap();
    }
    assert_eq!(payloads(&log, P), all);
    log.flush().unwrap();
    assert_eq!(payloads(&log, P), all);
    for from in [0_u64, 1, 777, 1500, 2999] {
        assert_eq!(log.read(P, Offset(from), 1).unwrap()[0].payload, all[from as usize]);
    }
}

#[test]
fn one_process_at_a_time_and_a_fixed_number_of_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let (log, reports) = LocalLog::open(dir.path(), LogOptions { partitions: 3, ..options() }).unwrap();
    assert_eq!((reports.len(), log.partitions()), (3, 3));
    log.write_and_sync(PartitionId(2), Timestamp(0), &[b"x"], Durability::Fsync).unwrap();
    assert_eq!((log.end(PartitionId(2)), log.end(PartitionId(1))), (Offset(1), Offset(0)));
    let error = LocalLog::open(dir.path(), options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("open in another process"), "{error}");
    drop(log);
    let error = LocalLog::open(dir.path(), options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("has 3 partitions"), "{error}");
    let error = LocalLog::open(dir.path(), LogOptions { partitions: 0, ..options() }).err().unwrap();
    assert!(error.message().contains("partitions = 0"), "{error}");
}

#[test]
fn partitions_that_are_opened_one_by_one_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let open = |id| LogOptions { partitions: 3, only: Some(PartitionId(id)), ..options() };
    let (two, _) = LocalLog::open(dir.path(), open(2)).unwrap();
    let (zero, _) = LocalLog::open(dir.path(), open(0)).unwrap();
    two.write_and_sync(PartitionId(2), Timestamp(0), &[b"x"], Durability::Fsync).unwrap();
    assert_eq!(
        (two.partitions(), two.end(PartitionId(2)), two.end(PartitionId(0))),
        (3, Offset(1), Offset(0))
    );
    let error = two.read(PartitionId(0), Offset(0), 1).unwrap_err();
    assert!(error.message().contains("partition 0 is not open"), "{error}");
    let error = LocalLog::open(dir.path(), open(2)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("p00002.lock"), "{error}");
    let error = LocalLog::open(dir.path(), open(3)).err().unwrap();
    assert!(error.message().contains("only = 3: expected 0 to 2"), "{error}");
    // its files are replaced by others, of a directory without the file that belongs to all
    two.close().unwrap();
    let other = tempfile::tempdir().unwrap();
    std::fs::rename(dir.path().join("p00002"), other.path().join("p00002")).unwrap();
    let (moved, _) = LocalLog::open(other.path(), open(2)).unwrap();
    assert_eq!(payloads(&moved, PartitionId(2)), [b"x"]);
    let (two, _) = LocalLog::open(dir.path(), open(2)).unwrap();
    assert_eq!(two.end(PartitionId(2)), Offset(0));
    drop((zero, two));
    // all together they are a log
    let (all, _) = LocalLog::open(dir.path(), LogOptions { partitions: 3, ..options() }).unwrap();
    assert_eq!(all.end(PartitionId(2)), Offset(0));
}

#[test]
fn many_threads_get_offsets_without_holes() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { background_sync_ms: 1, ..options() };
    let log = Arc::new(LocalLog::open(dir.path(), options.clone()).unwrap().0);
    std::thread::scope(|s| {
        for t in 0..8_u8 {
            let log = Arc::clone(&log);
            s.spawn(move || {
                for i in 0..100_u8 {
                    let durability = [Durability::Memory, Durability::Os, Durability::Fsync][i as usize % 3];
                    let done =
                        log.write_and_sync(P, Timestamp(0), &[&[t, i, 0], &[t, i, 1]], durability).unwrap();
                    assert_eq!(done.last, done.first.next());
                    let back = log.read(P, done.first, 1000).unwrap();
                    assert_eq!(&back[0].payload[..], [t, i, 0]);
                    assert_eq!(&back[1].payload[..], [t, i, 1]);
                }
            });
        }
    });
    let all = payloads(&*log, P);
    assert_eq!(all.len(), 1600);
    drop(log);
    let (log, _) = LocalLog::open(dir.path(), options).unwrap();
    assert_eq!(payloads(&log, P), all);
    for t in 0..8 {
        let mine: Vec<u8> = all.iter().filter(|p| p[0] == t && p[2] == 0).map(|p| p[1]).collect();
        assert_eq!(mine, (0..100).collect::<Vec<u8>>());
    }
}

#[test]
fn durability_words() {
    for d in [Durability::Memory, Durability::Os, Durability::Fsync] {
        assert_eq!(d.to_string().parse::<Durability>().unwrap(), d);
    }
    assert!(Durability::Memory < Durability::Os && Durability::Os < Durability::Fsync);
    let error = "fsinc".parse::<Durability>().unwrap_err();
    assert_eq!(error.message(), "`fsinc` is no durability. Did you mean `fsync`?");
}

/// Padding is visible in the file only; small groups are not padded.
#[test]
fn large_groups_end_with_a_block() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes: 1 << 20, ..options() };
    let (log, _) = LocalLog::open(dir.path(), options.clone()).unwrap();
    let file = dir.path().join("p00000/00000000000000000000.seg");
    let bytes = || std::fs::metadata(&file).unwrap().len();
    log.write_and_sync(P, Timestamp(0), &[b"small"], Durability::Fsync).unwrap();
    assert_eq!(bytes(), 40 + 32 + 5);
    let large = vec![1; 40_000];
    log.write_and_sync(P, Timestamp(0), &[&large, b"last"], Durability::Fsync).unwrap();
    assert_eq!(bytes() % 4096, 0, "{}", bytes());
    log.write_and_sync(P, Timestamp(0), &[b"small"], Durability::Fsync).unwrap();
    let done =
        log.write_owned(P, Timestamp(0), vec![vec![2; 30_000].into(), vec![3; 30_000].into()]).unwrap();
    log.sync(P, done.last, Durability::Fsync).unwrap();
    assert_eq!(bytes() % 4096, 0, "{}", bytes());
    let expected =
        [b"small".to_vec(), large, b"last".to_vec(), b"small".to_vec(), vec![2; 30_000], vec![3; 30_000]];
    assert_eq!(payloads(&log, P), expected);
    drop(log);
    let (log, reports) = LocalLog::open(dir.path(), options).unwrap();
    assert_eq!(reports[0].cut, None);
    assert_eq!(payloads(&log, P), expected, "the same from the disk");
}

#[test]
fn files_are_for_their_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = LocalLog::open(dir.path().join("log"), options()).unwrap();
    log.write_and_sync(P, Timestamp(0), &[b"x"], Durability::Fsync).unwrap();
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap()) & 0o777
    };
    let partition = dir.path().join("log/p00000");
    assert_eq!((mode(&dir.path().join("log")), mode(&partition)), (0o700, 0o700));
    let files = [dir.path().join("log"), partition].map(|dir| std::fs::read_dir(dir).unwrap());
    let files: Vec<_> =
        files.into_iter().flatten().map(|f| f.unwrap().path()).filter(|p| p.is_file()).collect();
    assert!(files.len() >= 4, "{files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
}
