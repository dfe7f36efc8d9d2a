//! Values and rows: single, in columns and in batches.

pub mod batch;
pub mod column;
pub(crate) mod equality;
pub(crate) mod row;
pub(crate) mod shareable;
pub(crate) mod string_column;
pub(crate) mod u64_map;
pub mod value;
pub(crate) mod value_ref;
