//! Integration tests.

mod budget;
mod cases;
mod checkpoint;
mod commands;
mod declared;
mod geo;
mod id_order;
mod identity;
mod limits;
mod properties;
mod repeated_fields;
mod snapshots;
mod text;
mod write_digest;
