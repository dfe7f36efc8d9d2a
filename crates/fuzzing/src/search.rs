//! Parent, child and findings.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::memory;

/// Time from which on an input is printed though it is not a finding.
const SLOW: Duration = Duration::from_millis(500);
/// Bytes of an input that is printed for that.
const SLOW_BYTES_MAX: usize = 4_000;

/// Number of inputs that have begun and ended: odd while one runs.
static STEPS: AtomicU64 = AtomicU64::new(0);
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Receiver of the inputs.
pub trait Target {
    /// Makes the input with this number of a search, counted from 0.
    fn next(&mut self, number: u64, random: &mut StdRng) -> Vec<u8>;

    /// Receives an input as from a client. Returns what became of it, which `--replay` prints.
    fn receive(&mut self, input: &[u8]) -> String;

    /// Puts what inputs have changed back to the beginning; called before the first input and after each round.
    fn begin_again(&mut self) {}
}

/// Bounds of an input: beyond them, it is a finding.
#[derive(Debug, Clone, Copy)]
pub struct InputBounds {
    /// Time until it is answered.
    pub time: Duration,
    /// Bytes that are allocated meanwhile.
    pub bytes: usize,
    /// Stack of the thread that receives it; that of threads of tokio, by default.
    pub stack_bytes: usize,
    /// Inputs of a round.
    pub round: u64,
    /// Parts of paths of source files whose panics are caught where they are called, and become errors: those of decoders that others
    /// have written. A target finds by its replies where one is not caught.
    pub caught: &'static [&'static str],
}

impl Default for InputBounds {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(5),
            bytes: 256 << 20,
            stack_bytes: 2 << 20,
            round: 2_000,
            caught: &[],
        }
    }
}

struct Arguments {
    seconds: u64,
    seed: u64,
    replay: Option<Vec<u8>>,
    /// File for the input that runs, of a child.
    child: Option<String>,
}

impl Arguments {
    fn of_process() -> Self {
        let mut found = Self { seconds: 60, seed: rand::random(), replay: None, child: None };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().unwrap_or_else(|| wrong(&format!("{name} needs a value")));
            let number = || value.parse().unwrap_or_else(|_| wrong(&format!("{name} needs a whole number")));
            match name.as_str() {
                "--seconds" => found.seconds = number(),
                "--seed" => found.seed = number(),
                "--replay" => found.replay = Some(from_hex(&value)),
                "--child" => found.child = Some(value),
                _ => wrong(&format!("unknown argument {name}: expected --seconds, --seed, --replay")),
            }
        }
        found
    }
}

fn wrong(message: &str) -> ! {
    eprintln!("error: {message}");
    exit(2)
}

/// Runs the search that the arguments of the process ask for. The process ends with 1 if there are findings.
pub fn main<T: Target>(bounds: InputBounds, new_target: impl FnOnce() -> T + Send + 'static) {
    let arguments = Arguments::of_process();
    match (arguments.replay, arguments.child) {
        (Some(input), _) => on_thread(bounds, move || {
            let mut target = new_target();
            target.begin_again();
            let run = run(&mut target, &input);
            println!("{}\n{:?}, {} KiB", run.reply, run.time, run.bytes >> 10);
        }),
        (None, Some(path)) => {
            let (seconds, seed) = (arguments.seconds, arguments.seed);
            on_thread(bounds, move || search(bounds, &mut new_target(), seconds, seed, &path));
        }
        (None, None) => parent(arguments.seconds, arguments.seed),
    }
}

/// Runs children until the time is over. A child ends by itself, or by a finding.
fn parent(seconds: u64, first_seed: u64) {
    let program = std::env::current_exe().expect("the path of this program");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("input");
    let end = Instant::now() + Duration::from_secs(seconds);
    println!("seed {first_seed}");
    let (mut seed, mut findings) = (first_seed, 0);
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            break;
        }
        let child = Command::new(&program)
            .args(["--seconds", &left.to_string(), "--seed", &seed.to_string(), "--child"])
            .arg(&path)
            .status();
        let status = child.expect("this program runs");
        if !status.success() {
            findings += 1;
            println!("FINDING of seed {seed}: {status}");
            let file = std::fs::read(&path).unwrap_or_default();
            let length = file.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
            println!("input {}", to_hex(file.get(4..4 + length).unwrap_or_default()));
        }
        seed = seed.wrapping_add(1);
    }
    println!("{findings} findings");
    exit(i32::from(findings > 0));
}

fn on_thread(bounds: InputBounds, run: impl FnOnce() + Send + 'static) {
    watch(bounds);
    let thread = std::thread::Builder::new().stack_size(bounds.stack_bytes).spawn(run).expect("a thread");
    if thread.join().is_err() {
        exit(2);
    }
}

/// Notes panics of all threads but those that are caught, and ends the process when an input takes too long or too much memory.
fn watch(bounds: InputBounds) {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let file = info.location().map_or("", |location| location.file());
        if bounds.caught.iter().any(|part| file.contains(part)) {
            return;
        }
        HAS_PANICKED.store(true, Ordering::Relaxed);
        default(info);
    }));
    std::thread::spawn(move || {
        let (mut steps, mut since, mut used) = (0, Instant::now(), memory::used());
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let present = STEPS.load(Ordering::Relaxed);
            if present != steps {
                (steps, since, used) = (present, Instant::now(), memory::used());
            }
            let runs = present % 2 == 1;
            if runs && memory::used() > used + 2 * bounds.bytes {
                println!("an input takes more than {} MiB", (2 * bounds.bytes) >> 20);
                exit(4);
            }
            if runs && since.elapsed() > bounds.time {
                println!("an input takes more than {:?}", bounds.time);
                exit(3);
            }
        }
    });
}

/// An input that has run.
struct Run {
    reply: String,
    time: Duration,
    bytes: usize,
}

fn run(target: &mut impl Target, input: &[u8]) -> Run {
    let before = memory::start();
    STEPS.fetch_add(1, Ordering::Relaxed);
    let start = Instant::now();
    let reply = target.receive(input);
    let time = start.elapsed();
    STEPS.fetch_add(1, Ordering::Relaxed);
    Run { reply, time, bytes: memory::most().saturating_sub(before) }
}

fn search(bounds: InputBounds, target: &mut impl Target, seconds: u64, seed: u64, path: &str) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut file = File::create(path).expect("a file for the input");
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut count, mut slowest, mut largest) = (0_u64, Duration::ZERO, 0);
    while Instant::now() < end {
        if count.is_multiple_of(bounds.round) {
            target.begin_again();
        }
        let input = target.next(count, &mut random);
        // the parent reads it when this process ends
        let length = u32::try_from(input.len()).expect("an input of less than 4 GiB");
        file.rewind().expect("the file for the input");
        file.write_all(&[&length.to_le_bytes(), input.as_slice()].concat()).expect("the file for the input");
        let Run { time, bytes, .. } = run(target, &input);
        if HAS_PANICKED.load(Ordering::Relaxed) {
            exit(2);
        }
        if time > bounds.time || bytes > bounds.bytes {
            println!("an input took {time:?} and {} MiB", bytes >> 20);
            exit(3);
        }
        if time > slowest && time > SLOW {
            let shown = to_hex(&input[..input.len().min(SLOW_BYTES_MAX)]);
            println!("slow: {time:?}, {} MiB: {shown}", bytes >> 20);
        }
        (slowest, largest) = (slowest.max(time), largest.max(bytes));
        count += 1;
    }
    println!("{count} inputs, the slowest took {slowest:?}, the largest {} KiB", largest >> 10);
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    bytes.unwrap_or_else(|| wrong("--replay needs hexadecimal numbers, as a finding is printed"))
}
