//! The iot use case of TSBS on Tidemill and beside its peers, and what other comparisons with peers need.

pub mod app;
pub mod compare;
pub mod cpu;
pub mod dataset;
pub mod digest;
pub mod duplicates;
pub mod expected;
pub mod generate;
pub mod imperfections;
pub mod ingest;
pub mod load;
pub mod lookups;
pub mod peers;
pub mod queries;
pub mod report;
pub mod statements;
pub mod states;
pub mod truck;
pub mod visible;
