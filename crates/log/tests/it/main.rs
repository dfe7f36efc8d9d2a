//! Tests of the log with disks that fail, crash and fill up.

mod basics;
mod contract;
mod copies;
mod crash;
mod damage;
mod encryption;
mod faults;
mod format;
