//! What distinguishes a log from all others.

use crate::app::settings::Settings;
use crate::directory::datadir::DataDir;
use crate::directory::environment::LogProvider;

/// Identity of a log. Other systems remember which events of it they have, by offset: an event of another log with the
/// same offset is another event. That of a log in memory is empty.
#[derive(Debug, Clone, Default)]
pub struct LogId(Option<String>);

impl LogId {
    /// Returns the identity of the log that `provider` opens for a data directory.
    pub fn of(provider: &dyn LogProvider, settings: &Settings, data: &DataDir) -> Self {
        Self(provider.id(settings).or_else(|| data.id().map(str::to_owned)))
    }

    /// Returns the identity of a log that continues the one of a data directory: other systems know its events already.
    pub fn continuing(directory: &str) -> Self {
        Self(Some(directory.to_owned()))
    }

    /// Returns a name for something of this log that nothing of another log has.
    pub fn qualify(&self, name: &str) -> String {
        match &self.0 {
            Some(id) => format!("{id}/{name}"),
            None => name.to_owned(),
        }
    }
}
