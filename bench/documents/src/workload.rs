//! The core workloads: which operations, on which documents.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use bson::RawDocumentBuf;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Fields of a document, and bytes of each.
const FIELDS: usize = 10;
const FIELD_BYTES: usize = 100;
/// Constant of the zipfian distribution.
const THETA: f64 = 0.99;
/// Documents that other threads may be inserting.
const INSERTS_OPEN: u64 = 256;
/// Documents of the longest scan.
const SCAN_MAX: usize = 100;

/// Runs operations for one thread.
pub trait Target: Send {
    /// Inserts documents before the measurement.
    fn load(&mut self, records: Vec<RawDocumentBuf>) -> Result<()>;
    /// Runs an operation and looks at all fields of what it reads.
    fn run(&mut self, operation: Operation) -> Result<()>;
    /// Waits for operations that are on their way.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An operation.
pub enum Operation {
    Read(String),
    /// A field gets a new value.
    Update(String, String, String),
    Insert(RawDocumentBuf),
    /// Documents from a key on.
    Scan(String, usize),
    /// A read, then an update.
    ReadModifyWrite(String, String, String),
}

/// Shares of operations, in percent.
#[derive(Clone, Copy)]
pub struct Workload {
    pub name: char,
    update: u32,
    insert: u32,
    scan: u32,
    modify: u32,
    /// Whether the documents that were inserted last are read most.
    latest: bool,
}

impl Workload {
    pub fn named(name: char) -> Result<Self> {
        let workload =
            |update, insert, scan, modify, latest| Self { name, update, insert, scan, modify, latest };
        Ok(match name {
            'a' => workload(50, 0, 0, 0, false),
            'b' => workload(5, 0, 0, 0, false),
            'c' => workload(0, 0, 0, 0, false),
            'd' => workload(0, 5, 0, 0, true),
            'e' => workload(0, 5, 95, 0, false),
            'f' => workload(0, 0, 0, 50, false),
            // not one of YCSB's: updates alone
            'u' => workload(100, 0, 0, 0, false),
            other => bail!("workload {other}: expected one of a to f, or u"),
        })
    }
}

/// Returns the key of a document.
pub fn key(number: u64) -> String {
    format!("user{:019}", hash(number) >> 1)
}

/// Returns a new document.
pub fn record(number: u64, rng: &mut StdRng) -> RawDocumentBuf {
    let mut record = RawDocumentBuf::new();
    record.append(bson::cstr!("_id"), key(number));
    for field in 0..FIELDS {
        if let Ok(name) = bson::raw::CString::try_from(format!("field{field}")) {
            record.append(name, text(rng));
        }
    }
    record
}

fn text(rng: &mut StdRng) -> String {
    (0..FIELD_BYTES).map(|_| char::from(rng.random_range(b' '..=b'~'))).collect()
}

/// FNV-1a of the bytes of a number, which spreads popular documents over all of them.
fn hash(number: u64) -> u64 {
    number
        .to_le_bytes()
        .into_iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Chooses operations for one thread.
pub struct Generator<'r> {
    workload: Workload,
    records: &'r AtomicU64,
    zipfian: Zipfian,
    rng: StdRng,
}

impl<'r> Generator<'r> {
    pub fn new(workload: Workload, records: &'r AtomicU64, seed: u64) -> Self {
        let zipfian = Zipfian::new(records.load(Ordering::Relaxed));
        Self { workload, records, zipfian, rng: StdRng::seed_from_u64(seed) }
    }

    fn chosen(&mut self) -> u64 {
        let records = self.records.load(Ordering::Relaxed);
        let rank = self.zipfian.next(&mut self.rng);
        match self.workload.latest {
            // not those that other threads are just inserting
            true => records.saturating_sub(1 + INSERTS_OPEN + rank),
            false => hash(rank) % records,
        }
    }

    pub fn next(&mut self) -> Operation {
        let dice = self.rng.random_range(0..100);
        let Workload { update, insert, scan, modify, .. } = self.workload;
        if dice < insert {
            let number = self.records.fetch_add(1, Ordering::Relaxed);
            return Operation::Insert(record(number, &mut self.rng));
        }
        let key = key(self.chosen());
        let field = format!("field{}", self.rng.random_range(0..FIELDS));
        match dice - insert {
            dice if dice < update => Operation::Update(key, field, text(&mut self.rng)),
            dice if dice < update + scan => Operation::Scan(key, self.rng.random_range(1..=SCAN_MAX)),
            dice if dice < update + scan + modify => {
                Operation::ReadModifyWrite(key, field, text(&mut self.rng))
            }
            _ => Operation::Read(key),
        }
    }
}

/// Ranks by the zipfian distribution, as Gray and others compute it in constant time.
struct Zipfian {
    items: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    fn new(items: u64) -> Self {
        let zeta = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(THETA)).sum::<f64>();
        let all = zeta(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta(2) / all);
        Self { items: items as f64, alpha: 1.0 / (1.0 - THETA), zeta: all, eta }
    }

    fn next(&self, rng: &mut StdRng) -> u64 {
        let u: f64 = rng.random();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let rank = self.items * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items as u64 - 1)
    }
}

/// Latencies of operations, in nanoseconds and in order.
pub struct Latencies(Vec<u32>);

impl Latencies {
    pub fn of(mut nanos: Vec<u32>) -> Self {
        nanos.sort_unstable();
        Self(nanos)
    }

    /// Returns the latency, in microseconds, that this part of the operations did not exceed.
    pub fn at(&self, part: f64) -> f64 {
        let place = ((self.0.len() as f64 * part) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(place).map_or(0.0, |nanos| f64::from(*nanos) / 1000.0)
    }
}

impl fmt::Display for Latencies {
    /// Writes average, 95th and 99th percentile in microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(" | | ");
        }
        let sum: f64 = self.0.iter().map(|nanos| f64::from(*nanos)).sum();
        write!(f, "{:.2} | {:.2} | {:.2}", sum / self.0.len() as f64 / 1000.0, self.at(0.95), self.at(0.99))
    }
}
