//! Settings of encryption at rest, and the keys that they lead to.

use std::path::PathBuf;

use serde::Deserialize;
use tidemill_encryption::{DataKeys, KeySource, OpenKeyRing, Purpose};
use tidemill_log::LogEncryption;
use tidemill_types::{Error, Result};
use tidemill_zones::TabletKeys;

/// Source of the wrapping keys; `docs/encryption.md` describes what is encrypted with them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EncryptionSettings {
    /// File with the wrapping keys.
    pub key_file: Option<PathBuf>,
    /// Program and arguments that print what the file would have.
    pub key_command: Option<Vec<String>>,
    /// The opened key ring of the data directory.
    ///
    /// Not read from files: opening the data directory sets it.
    #[serde(skip)]
    pub keys: Option<OpenKeyRing>,
}

impl EncryptionSettings {
    /// Rejects settings that cannot work.
    pub(super) fn check(&self) -> Result<()> {
        if self.key_file.is_some() && self.key_command.is_some() {
            return Err(Error::invalid(
                "the settings encryption.key_file and encryption.key_command are both there: expected one of them",
            ));
        }
        Ok(())
    }

    /// Returns where the wrapping keys come from; `None` without encryption.
    pub fn source(&self) -> Option<KeySource> {
        let file = self.key_file.clone().map(KeySource::File);
        file.or_else(|| self.key_command.clone().map(KeySource::Command))
    }

    fn of(&self, purpose: Purpose) -> Option<DataKeys> {
        self.keys.as_ref().and_then(|keys| keys.keys(purpose))
    }

    /// Returns the keys of the log `log`, if it is encrypted.
    pub fn of_log(&self, log: &'static str) -> Option<LogEncryption> {
        self.of(Purpose::Log).map(|keys| LogEncryption { keys, log })
    }

    /// Returns the keys of checkpoints and ids, if they are encrypted.
    pub fn of_files(&self) -> Option<DataKeys> {
        self.of(Purpose::Files)
    }

    /// Returns the keys of tablets, if they are encrypted.
    pub fn of_tablets(&self) -> Option<TabletKeys> {
        self.of(Purpose::Tables).map(TabletKeys::new)
    }
}
