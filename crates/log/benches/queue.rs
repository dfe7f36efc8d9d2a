//! Compares N puts of a 36-byte string to one queue in one durable commit with one `write` and `fdatasync` of
//! the same strings to a plain file.
//!
//! `cargo bench -p tidemill-log --bench queue [-- DIR]`; DIR selects the disk to measure, by default the
//! system's temporary directory. Measured: begin, N puts, and commit with `fsync`, until the items can be
//! taken. Afterwards all items are taken, compared and acknowledged.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use tidemill_log::queue::{QueueOptions, Queues};
use tidemill_log::{Durability, LocalLog, LogOptions};
use tidemill_types::PartitionId;

const RUNS: usize = 9;
/// Small commits are repeated within a run, so that a run is not a single `fsync`.
const ITEMS_PER_RUN_MIN: usize = 50;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let root = args.first().map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(&root).expect("a temporary directory");
    let (log, _) = LocalLog::open(dir.path().join("log"), LogOptions::new(1)).expect("a log");
    let queues = Queues::open(Arc::new(log), PartitionId(0), QueueOptions::default()).expect("queues");
    let ids: Vec<String> = (0..1_000_000_u64).map(id).collect();
    println!("{RUNS} runs each, in turns; µs per item as median (min to max)");
    println!("| N | file write + fdatasync | put N, commit with fsync | put only | take | ack |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for n in (0..=6).map(|e| 10_usize.pow(e)) {
        let commits = (ITEMS_PER_RUN_MIN / n).clamp(1, 20);
        let mut columns: [Vec<f64>; 5] = Default::default();
        for _ in 0..RUNS {
            let micros = [file_run(dir.path(), &ids[..n], commits), queue_run(&queues, &ids[..n], commits)];
            let flat = [micros[0][0], micros[1][0], micros[1][1], micros[1][2], micros[1][3]];
            columns.iter_mut().zip(flat).for_each(|(c, m)| c.push(m / (n * commits) as f64));
        }
        let columns: Vec<String> = columns.iter_mut().map(|c| spread(c)).collect();
        println!("| {n} | {} |", columns.join(" | "));
    }
}

fn file_run(dir: &std::path::Path, ids: &[String], commits: usize) -> [f64; 4] {
    let mut file = File::create(dir.join("file")).expect("a file");
    let start = Instant::now();
    for _ in 0..commits {
        let mut text = Vec::new();
        for id in ids {
            text.extend_from_slice(id.as_bytes());
            text.push(b'\n');
        }
        file.write_all(&text).expect("write");
        file.sync_data().expect("fdatasync");
    }
    [micros(start), 0.0, 0.0, 0.0]
}

/// Returns the microseconds of put and commit, of put alone, of take, and of ack.
fn queue_run(queues: &Queues, ids: &[String], commits: usize) -> [f64; 4] {
    let (mut put, mut all) = (0.0, 0.0);
    for _ in 0..commits {
        let start = Instant::now();
        let mut tx = queues.begin();
        for id in ids {
            tx.put("flow/step/in", id.as_bytes()).expect("put");
        }
        put += micros(start);
        tx.commit(Durability::Fsync).expect("commit");
        all += micros(start);
    }
    let start = Instant::now();
    let taken = queues.take("flow/step/in", usize::MAX);
    let take = micros(start);
    assert_eq!(taken.len(), ids.len() * commits);
    assert!(taken.iter().zip(ids.iter().cycle()).all(|((_, item), id)| item == id.as_bytes()));
    let done: Vec<_> = taken.into_iter().map(|(id, _)| id).collect();
    let start = Instant::now();
    queues.ack(&done).expect("ack");
    [all, put, take, micros(start)]
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// Returns a string in the form of a UUID.
fn id(n: u64) -> String {
    let x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let y = x.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        x >> 32,
        x >> 16 & 0xffff,
        x & 0xfff,
        y >> 48,
        y & 0xffff_ffff_ffff
    )
}

fn spread(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let digits = if values[0] >= 10.0 { 1 } else { 3 };
    format!(
        "{:.digits$} ({:.digits$} to {:.digits$})",
        values[values.len() / 2],
        values[0],
        values[values.len() - 1]
    )
}
