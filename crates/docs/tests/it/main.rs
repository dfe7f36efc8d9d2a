//! Integration tests.

mod cases;
mod checkpoint;
mod commands;
mod declared;
mod limits;
mod properties;
mod snapshots;
