//! What an engine takes from outside instead of reaching for it, so that tests put others in their place.

use std::sync::Arc;

use tidemill_log::disk::{Disk, OsDisk};

use crate::clock::{Clock, SystemClock};

/// The machine as an engine sees it. Start from [`Environment::default`], the real machine, and change fields.
#[derive(Clone)]
pub struct Environment {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where the log's segments lie. Checkpoints and tables do not go through it.
    pub log_disk: Arc<dyn Disk>,
}

impl Default for Environment {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), log_disk: Arc::new(OsDisk) }
    }
}
