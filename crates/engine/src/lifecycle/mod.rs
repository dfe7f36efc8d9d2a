//! Start and stop: recovery from checkpoints and logs, threads, and the order in which they end.

pub mod opening;
// nothing but a simulation has more than one process yet
#[cfg(feature = "sim")]
pub mod ownership;
pub mod recover;
pub mod reopen;
pub mod report;
pub mod threads;
pub mod transfers;
