//! Comparison with a real InfluxDB.

#[path = "../../src/tests/case_file.rs"]
mod case_file;
mod influxdb;
