//! Runs, their median and their spread.

use std::time::{Duration, Instant};

/// Events a second of several runs.
#[derive(Debug, Clone)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// Runs `run`, which says how long it took for `events` events, several times.
    ///
    /// Errors: the first of a run.
    pub fn of<E>(runs: usize, events: u64, mut run: impl FnMut() -> Result<Duration, E>) -> Result<Self, E> {
        let mut rates = Vec::with_capacity(runs);
        for _ in 0..runs.max(1) {
            rates.push(events as f64 / run()?.as_secs_f64().max(1e-9));
        }
        rates.sort_by(f64::total_cmp);
        Ok(Self(rates))
    }

    /// The one in the middle.
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The slowest and the fastest.
    pub fn spread(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

/// How long something takes in this thread: the time that it had a core for, so that neighbours count for little.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = core_time();
    let done = work();
    (done, core_time().saturating_sub(start))
}

/// How long something takes by the clock on the wall, for work of several threads.
pub fn timed_by_the_wall<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

fn core_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A rate as people read it: `154 k`, `11.2 M`.
pub fn shown(rate: f64) -> String {
    match rate {
        r if r >= 99.95e6 => format!("{:.0} M", r / 1e6),
        r if r >= 0.9995e6 => format!("{:.*} M", if r < 9.995e6 { 2 } else { 1 }, r / 1e6),
        r => format!("{:.0} k", r / 1e3),
    }
}
