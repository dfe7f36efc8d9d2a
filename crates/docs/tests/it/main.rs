//! Integration tests.

mod cases;
mod checkpoint;
mod commands;
mod limits;
mod properties;
