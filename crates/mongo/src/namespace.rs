//! Names of databases and collections.
//!
//! The store has one flat list of collections. Those of the database `docs` have their own names there, so that they are
//! `docs.<collection>` in SQL, too, and are the entities of rules. Those of another database are called `database/collection`.

use crate::error::{Code, CommandError, Result};

/// The database whose collections rules and SQL know by the same name.
pub(crate) const DEFAULT_DATABASE: &str = "docs";
/// Databases that a MongoDB server always has.
pub(crate) const SYSTEM_DATABASES: [&str; 3] = ["admin", "config", "local"];

/// Returns the name of a collection in the store.
pub(crate) fn stored_name(database: &str, collection: &str) -> Result<String> {
    check_database(database)?;
    if collection.is_empty() || collection.contains(['$', '\0']) || collection.starts_with("system.") {
        let message = format!(
            "invalid collection name `{database}.{collection}`: expected at least one character, no `$` and NUL, not starting \
             with `system.`"
        );
        return Err(CommandError::new(Code::InvalidNamespace, message));
    }
    if database != DEFAULT_DATABASE {
        return Ok(format!("{database}/{collection}"));
    }
    if collection.contains('/') {
        let message =
            format!("invalid collection name `{database}.{collection}`: `/` is not allowed in this database");
        return Err(CommandError::new(Code::InvalidNamespace, message));
    }
    Ok(collection.to_owned())
}

/// Returns what the names of a database's collections begin with in the store.
pub(crate) fn database_prefix(database: &str) -> String {
    match database {
        DEFAULT_DATABASE => String::new(),
        other => format!("{other}/"),
    }
}

/// Returns database and collection of a name in the store.
pub(crate) fn split_stored_name(stored: &str) -> (&str, &str) {
    stored.split_once('/').unwrap_or((DEFAULT_DATABASE, stored))
}

/// Returns the name that clients know a collection of the store by, `database.collection`.
pub(crate) fn namespace_of(stored: &str) -> String {
    let (database, collection) = split_stored_name(stored);
    format!("{database}.{collection}")
}

/// Checks the name of a database.
pub(crate) fn check_database(database: &str) -> Result<()> {
    let bad = database.is_empty()
        || database.len() > 63
        || database.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    match bad {
        true => Err(CommandError::new(
            Code::InvalidNamespace,
            format!(
                "invalid database name `{database}`: expected 1 to 63 bytes without `/`, `\\`, `.`, ` `, `\"`, `$` and NUL"
            ),
        )),
        false => Ok(()),
    }
}
