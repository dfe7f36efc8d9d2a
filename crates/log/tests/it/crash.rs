//! Crashes at every disk operation of random work, by kill and by power loss, also during recovery.

use std::path::Path;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_encryption::DataKeys;
use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogEncryption, LogOptions};
use tidemill_types::{Offset, Timestamp};

use crate::basics::{P, options, payloads};
use tidemill_log::sim_disk::{Crash, SimDisk};

/// Guarantees that the log has given so far.
#[derive(Default, Debug, Clone)]
struct Promised {
    /// Every payload that got an offset.
    payloads: Vec<Vec<u8>>,
    /// Offsets at which groups begin, and the end.
    borders: Vec<u64>,
    os: u64,
    fsync: u64,
    truncated: u64,
}

fn open(disk: &SimDisk, keys: Option<&DataKeys>) -> tidemill_types::Result<LocalLog> {
    let encryption = keys.map(|keys| LogEncryption { keys: keys.clone(), log: "log" });
    let options = LogOptions { tail_bytes_max: 1500, encryption, ..options() };
    LocalLog::open_on(Arc::new(disk.clone()), Path::new("/log"), options).map(|(log, _)| log)
}

/// Performs `turns` random writes, unless the power fails before.
fn work(log: &LocalLog, disk: &SimDisk, rng: &mut StdRng, promised: &mut Promised, turns: usize) {
    for _ in 0..turns {
        if rng.random_bool(0.05) {
            disk.fail_syncs(1);
        }
        let durability = [Durability::Memory, Durability::Os, Durability::Fsync][rng.random_range(0..3)];
        let sizes = [0, 1, 30, 400, 600, 1500, 5000];
        let group: Vec<Vec<u8>> = (0..rng.random_range(1..4))
            .map(|_| {
                let byte = rng.random_range(0..4_u8);
                vec![byte; sizes[rng.random_range(0..sizes.len())]]
            })
            .collect();
        let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
        let written = if rng.random_bool(0.3) {
            log.write_owned(P, Timestamp(1), group.iter().cloned().map(Into::into).collect())
        } else {
            log.write(P, Timestamp(1), &slices)
        };
        let Ok(written) = written else {
            continue;
        };
        assert_eq!(written.first.0, promised.payloads.len() as u64);
        promised.payloads.extend(group);
        promised.borders.push(written.last.0 + 1);
        if log.sync(P, written.last, durability).is_ok() {
            let upto = written.last.0 + 1;
            promised.os = if durability >= Durability::Os { upto } else { promised.os };
            promised.fsync = if durability == Durability::Fsync { upto } else { promised.fsync };
        }
        if rng.random_bool(0.1) {
            let upto = rng.random_range(0..=promised.fsync);
            promised.truncated = promised.truncated.max(upto);
            let _ = log.truncate(P, Offset(upto));
        }
    }
}

/// Checks a recovered log against the guarantees, then derives new ones from its content.
fn check(log: &LocalLog, promised: &mut Promised, crash: Crash) {
    let (start, end) = (log.start(P).0, log.end(P).0);
    let least = if crash == Crash::Kill { promised.os.max(promised.fsync) } else { promised.fsync };
    assert!(end >= least, "{end} records are there, {least} were promised");
    assert!(start <= promised.truncated, "starts at {start}, truncated only to {}", promised.truncated);
    assert!(end == 0 || promised.borders.contains(&end), "{end} is inside a group: {:?}", promised.borders);
    assert_eq!(log.durable(P).0, end);
    let found = payloads(log, P);
    assert!(found == promised.payloads[start as usize..end as usize], "other payloads");
    promised.payloads.truncate(end as usize);
    promised.borders.retain(|b| *b <= end);
    (promised.os, promised.fsync) = (end, end);
    promised.truncated = promised.truncated.min(end);
}

fn crash_at(seed: u64, op: u64, crash: Crash, keys: Option<&DataKeys>) -> bool {
    let mut rng = StdRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    disk.stop_at(op, StdRng::seed_from_u64(seed ^ op));
    let mut promised = Promised::default();
    if let Ok(log) = open(&disk, keys) {
        work(&log, &disk, &mut rng, &mut promised, 25);
    }
    let finished = disk.ops() < op;
    let mut rng = StdRng::seed_from_u64(seed ^ op << 32);
    let mut disk = disk.after_crash(crash, &mut rng);
    // The first recovery may crash, too.
    if rng.random_bool(0.3) {
        disk.stop_at(rng.random_range(0..8), StdRng::seed_from_u64(op));
        drop(open(&disk, keys));
        disk = disk.after_crash(crash, &mut rng);
    }
    let log = open(&disk, keys).unwrap();
    check(&log, &mut promised, crash);
    work(&log, &disk, &mut rng, &mut promised, 5);
    let disk = disk.after_crash(Crash::Power, &mut rng);
    drop(log);
    check(&open(&disk, keys).unwrap(), &mut promised, Crash::Power);
    finished
}

#[test]
fn nothing_promised_is_lost_at_any_crash() {
    let seeds = match std::env::var("TIDEMILL_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..8,
    };
    let keys = DataKeys::random().unwrap();
    for seed in seeds {
        // every other seed with encryption
        let keys = (seed % 2 == 1).then_some(&keys);
        for crash in [Crash::Kill, Crash::Power] {
            for op in 1.. {
                let tried = std::panic::catch_unwind(|| crash_at(seed, op, crash, keys));
                match tried {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(panic) => {
                        eprintln!("TIDEMILL_SEED={seed}: {crash:?} at operation {op}");
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        }
    }
}
