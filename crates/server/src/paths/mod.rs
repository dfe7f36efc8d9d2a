//! Paths whose routes, guards and descriptions have something in common.

pub(crate) mod api_version;
pub(crate) mod telemetry_path;
