//! Integration tests: queries, windows and functions through the public API.

mod aggregations;
mod batched;
mod corrections;
mod extensions;
mod fed;
mod files;
mod functions;
mod joins;
mod large_batches;
mod learning;
mod limits;
mod mapped;
mod own;
mod partitions;
mod pattern_inspect;
mod pattern_paths;
mod patterns;
mod pmml;
mod random;
mod rows;
mod snapshot;
mod stores;
mod tables;
mod triggers;
mod why;
mod windows;
mod wrong;

mod recorded;
