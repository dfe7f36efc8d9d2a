//! BSON values in place, their order, and the paths that reach them.

pub(crate) mod decimal;
pub mod decimal_math;
pub(crate) mod display;
pub mod element;
pub(crate) mod key;
pub(crate) mod order;
pub(crate) mod path;
pub(crate) mod path_values;
pub(crate) mod raw;
pub(crate) mod validate;
