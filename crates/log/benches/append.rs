//! Compares appending with `fsync` to the log with `write` and `fdatasync` of the same bytes to a plain file.
//!
//! `cargo bench -p tidemill-log --bench append [-- DIR]`; DIR selects the disk to measure, by default the
//! system's temporary directory. Every run starts with a fresh file and a fresh log, which alternate batch by
//! batch, so that other load on the machine affects both. At the end the content of the log is read back and
//! compared.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogOptions};
use tidemill_types::{Offset, PartitionId, Timestamp};

const RUNS: usize = 9;
/// Batch size in bytes, and number of batches per run.
const CASES: [(usize, usize); 5] =
    [(512, 400), (4 << 10, 400), (64 << 10, 300), (256 << 10, 150), (1 << 20, 64)];

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let root = args.first().map_or_else(std::env::temp_dir, Into::into);
    println!("{RUNS} runs; median (min to max) of the runs; ratio is log / file of the same run");
    println!(
        "| batch, bytes | batches a run | file write + fdatasync, MB/s | log append with fsync, MB/s | ratio |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for (bytes, batches) in CASES {
        let batch = noise(bytes);
        let mut columns: [Vec<f64>; 3] = Default::default();
        for _ in 0..RUNS {
            let dir = tempfile::tempdir_in(&root).expect("a temporary directory");
            let (file, log) = run(dir.path(), &batch, batches);
            let megabytes = (bytes * batches) as f64 / 1e6;
            columns[0].push(megabytes / file.as_secs_f64());
            columns[1].push(megabytes / log.as_secs_f64());
            columns[2].push(file.as_secs_f64() / log.as_secs_f64());
        }
        let [file, log, ratio] = columns;
        println!("| {bytes} | {batches} | {} | {} | {} |", spread(file, 1), spread(log, 1), spread(ratio, 2));
    }
}

/// Returns the time that the batches took in the file and in the log.
fn run(dir: &Path, batch: &[u8], batches: usize) -> (Duration, Duration) {
    let p = PartitionId(0);
    let mut file = File::create(dir.join("file")).expect("a file");
    let (log, _) = LocalLog::open(dir.join("log"), LogOptions::new(1)).expect("a log");
    let mut times = (Duration::ZERO, Duration::ZERO);
    for _ in 0..batches {
        let start = Instant::now();
        file.write_all(batch).expect("write");
        file.sync_data().expect("fdatasync");
        times.0 += start.elapsed();
        let start = Instant::now();
        log.write_and_sync(p, Timestamp(0), &[batch], Durability::Fsync).expect("append");
        times.1 += start.elapsed();
    }
    drop(log);
    compare(dir, batch, batches);
    times
}

fn compare(dir: &Path, batch: &[u8], batches: usize) {
    let p = PartitionId(0);
    let (log, _) = LocalLog::open(dir.join("log"), LogOptions::new(1)).expect("the log again");
    let mut at = Offset(0);
    while at < log.end(p) {
        for record in log.read(p, at, 4 << 20).expect("read") {
            assert!(record.payload == batch, "record {} is another", record.offset);
            at = record.offset.next();
        }
    }
    assert_eq!(at, Offset(batches as u64));
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    let words = std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (median, min, max) = (values[values.len() / 2], values[0], values[values.len() - 1]);
    format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
}
