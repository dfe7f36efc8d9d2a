//! The built-in windows, one file each.

mod batch;
mod build;
mod condition;
mod cron;
mod dynamic_condition;
mod expression;
mod expression_batch;
mod external_time;
mod external_time_batch;
mod frequent;
mod key;
mod length;
mod length_batch;
mod lossy_frequent;
mod session;
mod sort;
mod time;
mod time_batch;
mod time_eviction;
mod time_length;
mod unique;

pub(crate) use build::register;
