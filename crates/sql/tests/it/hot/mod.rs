//! Answers from hot data: the same as those from rows, at any moment.

mod exactness;
mod plans;
mod reuse;
mod rows;
pub mod tables;
