//! Tests: the parser with random texts, and statements over rows in memory whose replies InfluxDB has given.

mod case_file;
mod cases;
mod limits;
mod memory;
mod parser;
mod random;
mod replies;
mod translation;
