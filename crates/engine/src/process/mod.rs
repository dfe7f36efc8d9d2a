//! The process around the apps: clock, disk, health, threads.

pub mod clock;
pub mod disk_files;
pub mod disk_space;
pub mod health;
pub mod json_file;
pub mod limits;
pub mod notifier;
pub mod open_apps;
pub mod private_files;
pub mod retry_delay;
pub mod services;
pub mod spawn;
pub mod store_runtime;
