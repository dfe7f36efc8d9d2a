//! Start and stop: recovery from checkpoints and logs, threads, and the order in which they end.

pub mod opening;
pub mod ownership;
pub mod recover;
pub mod reopen;
pub mod report;
pub mod threads;
pub mod transfers;
