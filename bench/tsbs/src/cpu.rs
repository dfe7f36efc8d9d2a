//! CPU time by thread, which shows where the time of an ingest goes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};

/// CPU time of a process by the names of its threads, without the numbers at their ends.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes {
    by_thread: BTreeMap<String, Duration>,
    process: Duration,
}

impl CpuTimes {
    /// Reads the times of this process. Threads that have ended are in the total only.
    pub fn read() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let micros = |t: nix::sys::time::TimeVal| {
            Duration::from_micros((t.tv_sec() * 1_000_000 + t.tv_usec()).unsigned_abs())
        };
        let mut times = Self {
            by_thread: BTreeMap::new(),
            process: micros(usage.user_time()) + micros(usage.system_time()),
        };
        for task in std::fs::read_dir("/proc/self/task")? {
            let task = task?.path();
            // a thread may end between the two reads
            let (Ok(name), Ok(schedule)) =
                (std::fs::read_to_string(task.join("comm")), std::fs::read_to_string(task.join("schedstat")))
            else {
                continue;
            };
            let on_cpu =
                schedule.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or_default();
            let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '#');
            *times.by_thread.entry(name.to_owned()).or_default() += Duration::from_nanos(on_cpu);
        }
        Ok(times)
    }

    /// Returns the seconds since `before`: those of the process, and those of the threads that used at least a hundredth,
    /// most first. Threads that have ended count together, as `ended`.
    pub fn since(&self, before: &Self) -> (f64, Vec<(String, f64)>) {
        let process = self.process.saturating_sub(before.process).as_secs_f64();
        let mut threads: Vec<(String, f64)> = self
            .by_thread
            .iter()
            .map(|(name, time)| {
                let earlier = before.by_thread.get(name).copied().unwrap_or_default();
                (name.clone(), time.saturating_sub(earlier).as_secs_f64())
            })
            .collect();
        let known: f64 = threads.iter().map(|(_, seconds)| seconds).sum();
        threads.push(("ended".to_owned(), process - known));
        threads.retain(|(_, seconds)| *seconds > process / 100.0);
        threads.sort_by(|a, b| b.1.total_cmp(&a.1));
        (process, threads)
    }
}
