//! Isolation levels, and the modes of transactions that name them.

use super::words::Words;
use crate::error::{PgError, Result};

/// Isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// The same as [`Self::ReadCommitted`], under its own name.
    ReadUncommitted,
    /// Each statement reads the present moment.
    ReadCommitted,
    /// All statements read the moment of the first.
    RepeatableRead,
}

impl Isolation {
    const ALL: [Self; 3] = [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead];

    /// Returns the name of the level, as settings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
        }
    }

    /// Returns the level of a name in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// Returns the error for the level that transactions here cannot have.
pub(crate) fn serializable() -> PgError {
    PgError::not_supported(
        "the isolation level SERIALIZABLE is not supported, as nothing would notice that others write what a transaction has read. Write \
         REPEATABLE READ to read one moment",
    )
}

impl Words<'_> {
    /// Takes the modes of a transaction. Returns its level, if they name one.
    pub(super) fn transaction_modes(&mut self) -> Result<Option<Isolation>> {
        let mut named = None;
        while self.token(0).is_some() {
            if self.take("ISOLATION") {
                self.keyword("LEVEL")?;
                if self.is("SERIALIZABLE") {
                    return Err(serializable());
                }
                let level = format!("{} {}", self.upper(0), self.upper(1));
                let level = Isolation::of_name(&level);
                named = Some(level.ok_or_else(|| self.expected("READ COMMITTED or REPEATABLE READ"))?);
                self.at += 2;
            } else if self.take("READ") {
                if !self.take("ONLY") && !self.take("WRITE") {
                    return Err(self.expected("ONLY or WRITE"));
                }
            } else if !self.take("NOT") && !self.take("DEFERRABLE") && !self.take(",") {
                return Err(self.expected("ISOLATION LEVEL, READ ONLY or READ WRITE"));
            }
        }
        Ok(named)
    }
}
