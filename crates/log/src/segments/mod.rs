//! Segment files: their format, and reading, checking and recovering them.

pub(crate) mod copy;
pub(crate) mod encoder;
pub mod format;
pub(crate) mod inspect;
pub(crate) mod newest_segment;
pub(crate) mod recover;
pub mod scan;
pub(crate) mod segment;
pub(crate) mod writer;
