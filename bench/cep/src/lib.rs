//! Benchmarks of continuous queries: what the programs in `src/bin` share. README.md says what they measure.

pub mod digest;
pub mod email;
pub mod lists;
pub mod mails;
pub mod measure;
pub mod quoted;
pub mod random;
pub mod spaces;
pub mod trades;
pub mod words;
