//! Limits of a process that several apps share.

use tidemill_types::{Error, Result};

use crate::app::settings::Settings;

/// Limits of a process with several apps. Those that are `None` follow from `memory` as the settings of an app follow from its setting
/// of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Memory that the data of all apps together may take. Each app has a part of it, by its setting `memory`.
    pub memory: u64,
    /// Maximum memory for the writes of all open transactions of all apps.
    pub transactions_bytes: Option<u64>,
    /// Maximum memory for sorts, joins and groups of the SQL statements of all apps.
    pub sql_memory_bytes: Option<u64>,
    /// Maximum SQL statements of all apps that run for long at the same time.
    pub sql_queries_max: Option<u64>,
}

impl ProcessLimits {
    /// Returns limits that all follow from `memory`, in bytes.
    pub fn of_memory(memory: u64) -> Self {
        Self { memory, transactions_bytes: None, sql_memory_bytes: None, sql_queries_max: None }
    }

    /// Returns the maximum memory for the writes of all open transactions.
    pub fn transactions_bytes(&self) -> u64 {
        self.settings().transactions_bytes()
    }

    /// Returns the maximum memory for sorts, joins and groups of all SQL statements.
    pub fn sql_memory_bytes(&self) -> u64 {
        self.settings().sql_memory_bytes().unwrap_or(self.memory)
    }

    /// Rejects limits that cannot work.
    ///
    /// Errors: `Invalid` with the limit.
    pub fn check(&self) -> Result<()> {
        let given = [
            ("transactions_bytes", self.transactions_bytes),
            ("sql_memory_bytes", self.sql_memory_bytes),
            ("sql_queries_max", self.sql_queries_max),
        ];
        for (name, value) in given {
            if value == Some(0) {
                return Err(Error::invalid(format!("limit of the process {name} = 0: expected at least 1")));
            }
        }
        self.settings().check_memory().map_err(|e| e.context("limits of the process"))
    }

    /// Returns the settings of an app that had all memory.
    fn settings(&self) -> Settings {
        let mut settings = Settings {
            memory: Some(self.memory),
            transactions_bytes: self.transactions_bytes,
            ..Settings::default()
        };
        settings.sql.memory_bytes = self.sql_memory_bytes;
        settings
    }
}
