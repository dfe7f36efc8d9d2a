//! Clients that transfer money and append to lists, while the server is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR};
use mongodb::sync::{Client, ClientSession};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Result;
use crate::bank::{self, Bank};
use crate::history::{End, Span};
use crate::lists::{self, Lists};
use crate::server::{Server, client};

#[derive(Args)]
pub struct Options {
    /// Runs, each with a data directory, partitions, clients and kills of its own.
    #[arg(long, default_value_t = 200)]
    runs: u64,
    /// Seed of the first run; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long clients work in a run, in seconds.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
}

/// What a run has seen.
#[derive(Debug, Default)]
struct Totals {
    committed: usize,
    aborted: usize,
    unknown: usize,
    kills: u64,
}

pub fn check(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let (mut all, mut wrong) = (Totals::default(), 0);
    for seed in options.seed..options.seed + options.runs {
        match run(seed, options.seconds) {
            Ok(run) => {
                println!("seed {seed}: {run:?}");
                all.committed += run.committed;
                all.aborted += run.aborted;
                all.unknown += run.unknown;
                all.kills += run.kills;
            }
            Err(error) => {
                wrong += 1;
                println!("seed {seed}: WRONG: {error}");
            }
        }
    }
    println!("{} runs in {:.0?}: {wrong} wrong; {all:?}", options.runs, begun.elapsed());
    if wrong > 0 { Err("some runs were wrong".into()) } else { Ok(()) }
}

fn run(seed: u64, seconds: f64) -> Result<Totals> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut server = Server::start([1, 2, 4][rng.random_range(0..3)])?;
    let port = server.port();
    let bank = Bank::open(&client(port)?, rng.random_range(4..12))?;
    let lists = Lists::new(rng.random_range(3..10));
    let kills = rng.random_range(0..4);
    let stop = AtomicBool::new(false);
    let (transfers, appends) = std::thread::scope(|scope| -> Result<_> {
        let work = |client_number: usize| {
            let mut rng = StdRng::seed_from_u64(seed ^ ((client_number as u64 + 1) << 32));
            let (bank, lists, stop) = (&bank, &lists, &stop);
            scope.spawn(move || -> Result<_> {
                let client = client(port)?;
                let (mut transfers, mut appends) = (Vec::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    match rng.random_bool(0.5) {
                        true => transfers.push(bank.transfer(&client, &mut rng)?),
                        false => appends.push(lists.transaction(&client, &mut rng)?),
                    }
                }
                Ok((transfers, appends))
            })
        };
        let clients: Vec<_> = (0..rng.random_range(3..8)).map(work).collect();
        for _ in 0..=kills {
            std::thread::sleep(Duration::from_secs_f64(seconds / f64::from(kills + 1)));
            server.kill_and_start()?;
        }
        stop.store(true, Ordering::Relaxed);
        let (mut transfers, mut appends) = (Vec::new(), Vec::new());
        for client in clients {
            let (some_transfers, some_appends) = client.join().map_err(|_| "a client panicked")??;
            transfers.extend(some_transfers);
            appends.extend(some_appends);
        }
        Ok((transfers, appends))
    })?;
    server.kill_and_start()?;
    let client = client(port)?;
    bank::check(&bank, &client, &transfers)?;
    lists::check(&lists.read_all(&client)?, &appends)?;
    let ends = transfers.iter().map(|t| t.end).chain(appends.iter().map(|a| a.end));
    let mut totals = Totals { kills: u64::from(kills as u32) + 2, ..Totals::default() };
    for end in ends {
        match end {
            End::Committed => totals.committed += 1,
            End::Aborted => totals.aborted += 1,
            End::Unknown => totals.unknown += 1,
        }
    }
    Ok(totals)
}

/// Runs `statements` in a transaction, and says how it ended.
pub fn in_transaction(
    client: &Client,
    statements: impl FnOnce(&mut ClientSession) -> std::result::Result<bool, Error>,
) -> Result<(End, Span)> {
    let begun = Instant::now();
    let end = |end| Ok((end, Span { begun, ended: Instant::now() }));
    let Ok(mut session) = client.start_session().run() else { return end(End::Aborted) };
    session.start_transaction().run()?;
    if !statements(&mut session).unwrap_or(false) {
        // the server may be gone, and with it the transaction
        let _ = session.abort_transaction().run();
        return end(End::Aborted);
    }
    // as `withTransaction` of a driver: a commit whose outcome is unknown is sent again
    for _ in 0..20 {
        match session.commit_transaction().run() {
            Ok(()) => return end(End::Committed),
            Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => return end(End::Aborted),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    end(End::Unknown)
}
