//! Feeds changed messages to the decoders of PostgreSQL's protocol, and reports those that they do not survive.
//!
//! ```text
//! cargo run --release -p tidemill-postgres --features fuzzing --example fuzz_messages -- --seconds 600 [--seed N]
//! cargo run --release -p tidemill-postgres --features fuzzing --example fuzz_messages -- --replay HEX
//! ```
//!
//! A finding is a panic, or a message that takes more than a second. It is printed as hexadecimal numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_postgres::fuzzing::receive;

/// Time of a message that is a finding.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes of a changed message.
const MESSAGE_BYTES_MAX: usize = 4_096;
/// Messages that are kept to be changed.
const CORPUS_MAX: usize = 1_000;

#[derive(Parser)]
struct Arguments {
    /// Seconds of the search.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the changes.
    #[arg(long)]
    seed: Option<u64>,
    /// Message to run once.
    #[arg(long, value_name = "HEX")]
    replay: Option<String>,
}

/// Messages to change: a letter and the content.
const SEEDS: [&[u8]; 22] = [
    b"QSELECT 'a''b', E'\\'', $$x$$, $t$;$t$ /* /* */ */ -- x\n; SET a = 'b', \"c\"; BEGIN\0",
    b"QSET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY\0",
    b"QPREPARE p (bigint, double precision) AS SELECT $1; EXECUTE p (1, -2.5e3, 'x'::text, NULL, true)\0",
    b"QDECLARE c BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT 1; FETCH FORWARD 10 FROM c; MOVE ALL IN c; CLOSE ALL\0",
    b"QCOPY (SELECT (1)) TO STDOUT (FORMAT csv, HEADER true, DELIMITER ';', FORCE_QUOTE (a, b), NULL '')\0",
    b"QCOPY a.\"b\" (c, d) TO STDOUT WITH CSV HEADER QUOTE AS '\"' FORCE QUOTE *\0",
    b"QCOPY a.\"b\" (c, \"d\") FROM STDIN (FORMAT csv, HEADER match, NULL 'x', ESCAPE '\\'); INSERT INTO a VALUES ($1)\0",
    b"da\\tb\t-7\t1.5e3\t2024-05-01 10:00:00+02\t{\"a\": 1}\r\n\\N\t\\x41\\101\\q\r\n\\.\r\n",
    b"d\"a\"\"b\",1,2,2024-05-01,\"{}\"\n\\.\n",
    b"dPGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\x01a\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x02{}\xff\xff",
    b"QSAVEPOINT a; ROLLBACK TO SAVEPOINT a; RELEASE a; DISCARD ALL; SHOW TIME ZONE; RESET ALL\0",
    b"Ps\0SELECT $1\0\0\x02\0\0\0\x14\0\0\x06\xa4",
    b"B\0s\0\0\x01\0\x01\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01",
    b"B\0\0\0\0\0\x03\0\0\0\x162024-05-01 12:00:00+02\0\0\0\x04\\x61\0\0\0\x05-1e-3\0\0",
    b"B\0\0\0\x01\0\x01\0\x01\0\0\0\x0e\0\x03\0\x01\x40\0\0\x02\0\x01\x09\x29\x17\x70\0\0",
    b"DSs\0",
    b"Ep\0\0\0\0\x0a",
    b"CPp\0",
    b"S",
    b"\0\0\x03\0\x02user\0ana\0options\0-c a=b\0\0",
    b"\0\x04\xd2\x16\x2e\0\0\0\x01key.",
    b"pSCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc",
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(hexadecimal) = arguments.replay {
        let pairs = hexadecimal.as_bytes().chunks(2);
        let bytes =
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).unwrap_or(0));
        receive(&bytes.collect::<Vec<u8>>());
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let began = Instant::now();
    let (mut count, mut findings) = (0_u64, 0_u64);
    let mut corpus: Vec<Vec<u8>> = SEEDS.iter().map(|seed| seed.to_vec()).collect();
    while began.elapsed() < Duration::from_secs(arguments.seconds) {
        let message = changed(&corpus, &mut random);
        let start = Instant::now();
        let survived = catch_unwind(AssertUnwindSafe(|| receive(&message))).is_ok();
        count += 1;
        if !survived || start.elapsed() > MESSAGE_TIME_MAX {
            findings += 1;
            let shown: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("finding ({:?}): {shown}", start.elapsed());
        }
        // changes upon changes reach further than those of the seeds
        if random.random_ratio(1, 50) {
            // those of the seeds stay
            if corpus.len() == CORPUS_MAX {
                corpus.swap_remove(random.random_range(SEEDS.len()..CORPUS_MAX));
            }
            corpus.push(message);
        }
    }
    println!("{count} messages, {findings} findings");
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a message of the corpus with up to eight changes.
fn changed(corpus: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut message = corpus[random.random_range(0..corpus.len())].clone();
    for _ in 0..random.random_range(1..=8) {
        let at = random.random_range(0..=message.len());
        match random.random_range(0..6) {
            0 if at < message.len() => message[at] = random.random(),
            1 if at < message.len() => message[at] ^= 1 << random.random_range(0..8),
            2 => message.insert(
                at,
                *[0, 0xff, b'\'', b'"', b'$', b'(', b' ', b'\\'].get(random.random_range(0..8)).unwrap_or(&0),
            ),
            3 => message.truncate(at.max(1)),
            4 => {
                let other = &corpus[random.random_range(0..corpus.len())];
                message.extend_from_slice(&other[random.random_range(0..=other.len())..]);
            }
            _ if at < message.len() => drop(message.remove(at)),
            _ => {}
        }
    }
    message.truncate(MESSAGE_BYTES_MAX);
    message
}
