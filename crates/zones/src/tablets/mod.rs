//! Tablets: their files, their layout and their encryption.

pub(crate) mod checksum;
pub(crate) mod encode;
pub(crate) mod encodings;
pub(crate) mod encryption;
pub(crate) mod row_order;
pub(crate) mod tablet;
pub(crate) mod tablet_layout;
pub(crate) mod tablet_name;
pub(crate) mod tablet_writer;
