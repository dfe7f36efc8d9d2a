//! Values between Arrow, the database and clients: their types, and both formats in both directions.

mod catalog_type;
pub(crate) mod column;
pub(crate) mod encode;
mod lists;
mod numeric;
pub(crate) mod parameters;
mod times;
pub(crate) mod types;
