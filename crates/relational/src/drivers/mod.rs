//! Connections to each database, by its library.

#[cfg(any(feature = "oracle", feature = "sqlite"))]
pub(crate) mod blocking;
pub(crate) mod mysql;
#[cfg(feature = "oracle")]
pub(crate) mod oracle;
pub(crate) mod postgres;
#[cfg(feature = "sql-server")]
pub(crate) mod sql_server;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
