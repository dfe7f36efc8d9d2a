//! Feeds changed messages to a connection in process, and reports those that it does not survive.
//!
//! ```text
//! cargo run --release -p tidemill-mongo --features fuzzing --example fuzz_messages -- --seconds 600 [--seed N]
//! cargo run --release -p tidemill-mongo --features fuzzing --example fuzz_messages -- --replay HEX
//! ```
//!
//! Valid messages of all commands are changed as documents and as bytes, and go through the same functions as those of a
//! connection: frame, compression, command, engine, reply. A finding is a panic, the end of the process, a request of more than
//! 5 seconds, or one that needs more than 2 GiB of memory. It is printed with the message as hexadecimal numbers.
//!
//! The messages are run in a child process, so that a stack overflow is a finding and not the end of the search.

#[path = "fuzz_messages/mutate.rs"]
mod mutate;
#[path = "fuzz_messages/seeds.rs"]
mod seeds;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Seek, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_engine::{App, Durability, Engine};
use tidemill_mongo::MongoOptions;
use tidemill_mongo::fuzzing::Connection;

/// Time of a request that is a finding.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Memory of a request that is a finding.
const REQUEST_BYTES_MAX: usize = 2 << 30;
/// Messages after which the documents are those of the beginning again.
const ROUND: u64 = 2000;
/// Stack of the threads on which tokio runs commands.
const STACK_BYTES: usize = 2 << 20;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// When the present request began, in milliseconds of the process; 0 between requests.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static PANICKED: AtomicBool = AtomicBool::new(false);
static CURRENT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Counts what is allocated.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the allocator of the system; the counters do not allocate
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: as above
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above
        unsafe { System.dealloc(at, layout) }
    }
}

struct Arguments {
    seconds: u64,
    seed: u64,
    replay: Option<Vec<u8>>,
    /// File for the message in progress, of a child.
    child: Option<String>,
}

fn arguments() -> Arguments {
    let mut found = Arguments { seconds: 60, seed: rand::random(), replay: None, child: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--seconds" => found.seconds = value.parse().expect("a number of seconds"),
            "--seed" => found.seed = value.parse().expect("a number"),
            "--replay" => found.replay = Some(from_hex(&value)),
            "--child" => found.child = Some(value),
            _ => panic!("unknown argument {name}: expected --seconds, --seed, --replay"),
        }
    }
    found
}

fn main() {
    let arguments = arguments();
    match (&arguments.replay, &arguments.child) {
        (Some(message), _) => replay(message.clone()),
        (None, Some(path)) => child(&arguments, path),
        (None, None) => parent(&arguments),
    }
}

/// Runs children until the time is over. A child ends by itself, or by a finding.
fn parent(arguments: &Arguments) {
    let program = std::env::current_exe().expect("the path of this program");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("message");
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    println!("seed {}", arguments.seed);
    let (mut seed, mut findings) = (arguments.seed, 0);
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            break;
        }
        let status = Command::new(&program)
            .args(["--seconds", &left.to_string(), "--seed", &seed.to_string(), "--child"])
            .arg(&path)
            .status()
            .expect("this program runs");
        if !status.success() {
            findings += 1;
            println!("FINDING of seed {seed}: {status}");
            let message = std::fs::read(&path).unwrap_or_default();
            let length = message.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
            println!("message {}", to_hex(message.get(4..4 + length).unwrap_or_default()));
        }
        seed = seed.wrapping_add(1);
    }
    println!("{findings} findings");
    std::process::exit(i32::from(findings > 0));
}

fn child(arguments: &Arguments, path: &str) {
    watch();
    let (seconds, seed, path) = (arguments.seconds, arguments.seed, path.to_owned());
    let run = move || search(seconds, seed, &path);
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).expect("a thread");
    worker.join().expect("the thread of the requests");
}

fn replay(message: Vec<u8>) {
    watch();
    let run = move || {
        let mut target = Target::new();
        target.fill();
        let took = target.run(&message, true);
        println!("{took:?}, {} MiB", (MOST.load(Ordering::Relaxed)) >> 20);
    };
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).expect("a thread");
    worker.join().expect("the thread of the requests");
}

/// Notes panics, and ends the process when a request takes too long or too much memory.
fn watch() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::Relaxed);
        default(info);
    }));
    std::thread::spawn(|| {
        let start = Instant::now();
        let mut seen = (0, start);
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let began = BEGAN.load(Ordering::Relaxed);
            if began != seen.0 {
                seen = (began, Instant::now());
            }
            if USED.load(Ordering::Relaxed) > REQUEST_BYTES_MAX {
                println!("more than {} MiB in use", REQUEST_BYTES_MAX >> 20);
                std::process::exit(4);
            }
            if began % 2 == 1 && seen.1.elapsed() > REQUEST_TIME_MAX {
                println!("a request takes more than {REQUEST_TIME_MAX:?}");
                std::process::exit(3);
            }
        }
    });
}

/// A connection and its engine.
struct Target {
    connection: Connection,
    _dir: tempfile::TempDir,
}

impl Target {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut app = App::from_rules("docs", "entity Customer key id;");
        app.settings.partitions = 1;
        app.settings.durability = Durability::Memory;
        let engine = Arc::new(Engine::open(dir.path(), Some(app)).expect("an engine"));
        Self { connection: Connection::new(engine, MongoOptions::default()), _dir: dir }
    }

    /// Makes the documents those of the beginning.
    fn fill(&mut self) {
        self.connection.forget();
        for command in seeds::begin() {
            self.run(&mutate::plain(&command), false);
        }
    }

    fn run(&mut self, message: &[u8], show: bool) -> Duration {
        BEGAN.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        let reply = self.connection.receive(message);
        BEGAN.fetch_add(1, Ordering::Relaxed);
        if show {
            match &reply {
                Ok(bytes) => {
                    let document: Result<bson::Document, _> = bson::deserialize_from_slice(&bytes[21..]);
                    let text = document.map_or_else(|e| e.to_string(), |d| d.to_string());
                    println!("reply {}", text.chars().take(2000).collect::<String>());
                }
                Err(error) => println!("closed: {error}"),
            }
        }
        start.elapsed()
    }
}

fn search(seconds: u64, seed: u64, path: &str) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut file = std::fs::File::create(path).expect("a file for the message");
    let seeds = seeds::all();
    let pool = mutate::Pool::of(&seeds);
    let mut target = Target::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut count, mut slowest) = (0_u64, Duration::ZERO);
    while Instant::now() < end {
        if count.is_multiple_of(ROUND) {
            target.fill();
        }
        let message = match count < seeds.len() as u64 {
            // first, all of them as they are: they show that the commands work
            true => mutate::plain(&seeds[count as usize]),
            false => mutate::message(&seeds, &pool, &mut random),
        };
        CURRENT.lock().expect("no panic inside").clone_from(&message);
        // the parent reads it when this process ends
        file.rewind().expect("the file for the message");
        file.write_all(&(message.len() as u32).to_le_bytes()).expect("the file for the message");
        file.write_all(&message).expect("the file for the message");
        MOST.store(USED.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = USED.load(Ordering::Relaxed);
        let took = target.run(&message, false);
        let most = MOST.load(Ordering::Relaxed).saturating_sub(before);
        if PANICKED.load(Ordering::Relaxed) {
            std::process::exit(2);
        }
        if took > REQUEST_TIME_MAX || most > REQUEST_BYTES_MAX {
            println!("a request took {took:?} and {} MiB", most >> 20);
            std::process::exit(3);
        }
        if took > slowest {
            slowest = took;
            if took > Duration::from_millis(500) {
                println!(
                    "slow: {took:?}, {} MiB: {}",
                    most >> 20,
                    to_hex(&message[..message.len().min(4000)])
                );
            }
        }
        count += 1;
        if random.random_ratio(1, 50_000) {
            println!("{count} messages");
        }
    }
    println!("{count} messages, the slowest took {slowest:?}");
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}
