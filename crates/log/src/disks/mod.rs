//! The disk interface and its implementations.

pub mod disk;
pub(crate) mod encrypted_disk;
pub(crate) mod failure;
#[cfg(feature = "sim")]
pub mod sim_disk;
