//! Answers from hot data: the same as those from rows, at any moment.

mod exactness;
pub mod plans;
mod reuse;
mod rows;
pub mod tables;
mod ties;
