//! Yahoo's cloud serving benchmark (YCSB).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tidemill_engine::{ChangeScope, ChangeStart, Engine};

use crate::targets::{self, COLLECTION, Embedded, Kind, Rules, Submit, Wire};
use crate::workload::{self, Generator, Latencies, Operation, Target, Workload};
use crate::{Level, open};

#[derive(Args)]
pub struct Options {
    /// Workloads, of a to f, and u with updates alone.
    #[arg(long, default_value = "c,b,a,f,d,e", value_delimiter = ',')]
    workloads: Vec<char>,
    /// How the documents are reached.
    #[arg(long, default_value = "wire,driver,embedded", value_delimiter = ',')]
    targets: Vec<Kind>,
    /// Threads of the client.
    #[arg(long, default_value = "1,4,16", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Partitions of the data directory.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    partitions: Vec<u32>,
    /// How durable a write is before it is answered.
    #[arg(long, default_value = "fsync")]
    durability: Level,
    /// What else the engine does meanwhile.
    #[arg(long, default_value = "nothing")]
    meanwhile: Meanwhile,
    /// Documents.
    #[arg(long, default_value_t = 100_000)]
    records: u64,
    /// Length of a run in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each row.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Serves a data directory for the other process of a run, and prints its port.
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Meanwhile {
    Nothing,
    /// Once a second, a query that looks through all documents.
    Analytics,
    /// A reader follows the changes.
    Changes,
}

pub fn measure(options: &Options) -> Result<()> {
    if let Some(dir) = &options.serve {
        return serve(dir, options);
    }
    println!(
        "| target | partitions | workload | threads | ops/s (median) | spread | read avg µs | p95 | p99 | write avg µs | p95 | p99 |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for partitions in &options.partitions {
        for kind in &options.targets {
            let mut bed = TestBed::start(*kind, *partitions, options)?;
            for workload in &options.workloads {
                let workload = Workload::named(*workload)?;
                for threads in &options.threads {
                    bed.measure(workload, *threads, *partitions, options)?;
                }
            }
        }
    }
    Ok(())
}

fn serve(dir: &Path, options: &Options) -> Result<()> {
    let partitions = options.partitions.first().copied().unwrap_or(1);
    let engine = open(dir, options.durability, partitions)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mongo = tidemill_mongo::MongoOptions::default();
    let server =
        runtime.block_on(tidemill_mongo::serve(([127, 0, 0, 1], 0).into(), engine.clone(), mongo))?;
    let _other = OtherWork::start(options.meanwhile, engine)?;
    println!("{}", server.addr().port());
    // ends with the process that started it
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// A thread of the engine's process that does something else.
struct OtherWork {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl OtherWork {
    fn start(what: Meanwhile, engine: Arc<Engine>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = match what {
            Meanwhile::Nothing => None,
            Meanwhile::Analytics => Some(std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_secs(1));
                    // no index helps: every document is looked at
                    let filter = bson::rawdoc! { "field5": { "$gt": "M" }, "field6": { "$lt": "m" } };
                    let _ = engine.collection(COLLECTION).count(&filter);
                }
            })),
            Meanwhile::Changes => {
                let mut changes = engine.watch(ChangeScope::All, ChangeStart::Now)?;
                Some(std::thread::spawn(move || {
                    while !stopped.load(Ordering::Relaxed) {
                        if changes.next(1000, 1 << 20).is_ok_and(|batch| batch.is_empty()) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                }))
            }
        };
        Ok(Self { stop, thread })
    }
}

impl Drop for OtherWork {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A filled collection.
struct TestBed {
    kind: Kind,
    records: u64,
    engine: Option<Arc<Engine>>,
    server: Option<(Child, u16)>,
    _other: Option<OtherWork>,
    _dir: tempfile::TempDir,
}

impl TestBed {
    fn start(kind: Kind, partitions: u32, options: &Options) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut bed =
            Self { kind, records: options.records, engine: None, server: None, _other: None, _dir: dir };
        if matches!(kind, Kind::Embedded | Kind::Submit | Kind::Rules) {
            let engine = open(bed._dir.path(), options.durability, partitions)?;
            bed._other = Some(OtherWork::start(options.meanwhile, engine.clone())?);
            bed.engine = Some(engine);
        } else {
            let name = |value: Option<clap::builder::PossibleValue>| {
                value.map(|value| value.get_name().to_owned()).context("a value without a name")
            };
            let mut child = Command::new(std::env::current_exe()?)
                .args(["ycsb", "--partitions", &partitions.to_string()])
                .args(["--durability", &name(options.durability.to_possible_value())?])
                .args(["--meanwhile", &name(options.meanwhile.to_possible_value())?])
                .arg("--serve")
                .arg(bed._dir.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut port = String::new();
            let stdout = child.stdout.take().context("the server's output")?;
            BufReader::new(stdout).read_line(&mut port)?;
            bed.server = Some((child, port.trim().parse()?));
        }
        let mut target = bed.connect()?;
        let mut rng = StdRng::seed_from_u64(1);
        for start in (0..options.records).step_by(500) {
            let end = (start + 500).min(options.records);
            let records = (start..end).map(|n| workload::record(n, &mut rng)).collect();
            target.load(records)?;
        }
        Ok(bed)
    }

    fn connect(&self) -> Result<Box<dyn Target>> {
        let port = self.server.as_ref().map_or(0, |(_, port)| *port);
        Ok(match (self.kind, &self.engine) {
            (Kind::Embedded, Some(engine)) => Box::new(Embedded::new(engine.clone())),
            (Kind::Submit, Some(engine)) => Box::new(Submit::new(engine.clone())),
            (Kind::Rules, Some(engine)) => Box::new(Rules::new(engine.clone())),
            (Kind::Driver, _) => Box::new(targets::Driver::connect(port)?),
            _ => Box::new(Wire::connect(port)?),
        })
    }

    fn measure(
        &mut self,
        workload: Workload,
        threads: usize,
        partitions: u32,
        options: &Options,
    ) -> Result<()> {
        let mut runs = Vec::new();
        for run in 0..options.runs {
            runs.push(self.run(workload, threads, Duration::from_secs_f64(options.seconds), run as u64)?);
        }
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (median, reads, writes) = &runs[runs.len() / 2];
        let spread = (runs[runs.len() - 1].0 - runs[0].0) / median * 100.0;
        let target = format!("{:?}", self.kind).to_lowercase();
        println!(
            "| {target} | {partitions} | {} | {threads} | {median:.0} | {spread:.0}% | {reads} | {writes} |",
            workload.name
        );
        Ok(())
    }

    /// Returns operations per second, and the latencies of reads and writes.
    fn run(
        &mut self,
        workload: Workload,
        threads: usize,
        length: Duration,
        seed: u64,
    ) -> Result<(f64, Latencies, Latencies)> {
        let targets = (0..threads).map(|_| self.connect()).collect::<Result<Vec<_>>>()?;
        let records = std::sync::atomic::AtomicU64::new(self.records);
        let start = Instant::now();
        let outcomes = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..)
                .zip(targets)
                .map(|(thread, mut target)| {
                    let records = &records;
                    scope.spawn(move || -> Result<(Vec<u32>, Vec<u32>)> {
                        let mut generator = Generator::new(workload, records, seed * 1000 + thread);
                        let (mut reads, mut writes) = (Vec::new(), Vec::new());
                        while start.elapsed() < length {
                            let operation = generator.next();
                            let began = Instant::now();
                            let is_read = matches!(operation, Operation::Read(_) | Operation::Scan(..));
                            target.run(operation)?;
                            let nanos = u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX);
                            if is_read { reads.push(nanos) } else { writes.push(nanos) }
                        }
                        target.finish()?;
                        Ok((reads, writes))
                    })
                })
                .collect();
            let joined = clients
                .into_iter()
                .map(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
            joined.collect::<Result<Vec<_>>>()
        })?;
        let elapsed = start.elapsed().as_secs_f64();
        self.records = records.into_inner();
        let (reads, writes): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
        let (reads, writes) = (reads.concat(), writes.concat());
        let operations = (reads.len() + writes.len()) as f64 / elapsed;
        Ok((operations, Latencies::of(reads), Latencies::of(writes)))
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.server {
            // it ends when its input does
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
