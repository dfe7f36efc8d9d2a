//! Names of the schemas that have tables, and of their catalog.

/// Name of the only catalog.
pub(crate) const CATALOG: &str = "tidemill";

/// Schema that has tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SchemaName {
    Events,
    Docs,
    System,
}

impl SchemaName {
    pub const ALL: [Self; 3] = [Self::Events, Self::Docs, Self::System];

    /// Returns the name as queries write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Docs => "docs",
            Self::System => "system",
        }
    }

    /// Returns the schema of this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name().eq_ignore_ascii_case(name))
    }

    /// Returns what its tables hold, for messages.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Events => "stream",
            Self::Docs => "collection",
            Self::System => "system table",
        }
    }
}
