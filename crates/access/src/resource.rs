//! Objects on which rights are granted.

use std::borrow::Cow;
use std::fmt;

/// Database whose collections the store knows by their own names.
const DEFAULT_DATABASE: &str = "docs";
/// Beginning of the names of collections in which the server keeps what is its own, such as undelivered events.
const SERVER_COLLECTIONS: &str = "docs.tidemill.";

/// Kinds of objects that have names, as patterns write them.
pub(crate) const KINDS: [&str; 6] = ["stream", "collection", "table", "system", "rule", "query"];
/// The server itself, as patterns write it.
pub(crate) const SERVER: &str = "server";

/// Object on which an action is taken: a kind and a name, such as `stream:Orders`, or the server itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    /// One of [`KINDS`], or [`SERVER`], which has no name.
    kind: &'static str,
    name: Cow<'a, str>,
}

impl<'a> Resource<'a> {
    /// The server as a whole: metrics, statements of others, backups, users.
    pub const SERVER: Resource<'static> = Resource { kind: SERVER, name: Cow::Borrowed("") };

    /// The stream `name`: its events, its table `events.name` in SQL, and its sinks.
    pub fn stream(name: &'a str) -> Self {
        Self { kind: "stream", name: name.into() }
    }

    /// The collection that the store knows by this name: `orders` is `docs.orders`, and `sales/orders` is `sales.orders`. See
    /// [`Self::namespace`] for `tidemill.undelivered`.
    pub fn collection(stored: &'a str) -> Self {
        let name = match stored.split_once('/') {
            Some((database, collection)) => format!("{database}.{collection}"),
            None => format!("{DEFAULT_DATABASE}.{stored}"),
        };
        Self::namespace(name)
    }

    /// The collection `database.collection`, as MongoDB clients name it. The collections `docs.tidemill.*` are those of the server,
    /// so they are [`Self::SERVER`]: a pattern of collections does not match them.
    pub fn namespace(namespace: impl Into<Cow<'a, str>>) -> Self {
        let name = namespace.into();
        match name.starts_with(SERVER_COLLECTIONS) {
            true => Self::SERVER,
            false => Self { kind: "collection", name },
        }
    }

    /// All collections of a database, also those that do not exist yet: only patterns that cover all of them match.
    pub fn database(name: &str) -> Self {
        // a pattern matches the text `*` only by a `*` of its own, which then matches every name
        Self { kind: "collection", name: format!("{name}.*").into() }
    }

    /// The table, named window or aggregation `name` of an app.
    pub fn table(name: &'a str) -> Self {
        Self { kind: "table", name: name.into() }
    }

    /// The table `system.name` of SQL.
    pub fn system(name: &'a str) -> Self {
        Self { kind: "system", name: name.into() }
    }

    /// The rule `name`.
    pub fn rule(name: &'a str) -> Self {
        Self { kind: "rule", name: name.into() }
    }

    /// The SiddhiQL query `name`.
    pub fn query(name: &'a str) -> Self {
        Self { kind: "query", name: name.into() }
    }

    /// All rules, also those that do not exist yet: only patterns that cover all of them match.
    pub fn all_rules() -> Resource<'static> {
        Resource { kind: "rule", name: Cow::Borrowed("*") }
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SERVER => f.write_str(SERVER),
            kind => write!(f, "{kind}:{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_kinds_and_names() {
        for (resource, text) in [
            (Resource::stream("Orders"), "stream:Orders"),
            (Resource::collection("orders"), "collection:docs.orders"),
            (Resource::collection("sales/a/b"), "collection:sales.a/b"),
            (Resource::namespace("sales.orders"), "collection:sales.orders"),
            (Resource::collection("tidemill.undelivered"), "server"),
            (Resource::collection("docs/tidemill.undelivered"), "server"),
            (Resource::namespace("docs.tidemill.undelivered"), "server"),
            (Resource::namespace("docs.tidemills"), "collection:docs.tidemills"),
            (Resource::collection("sales/tidemill.undelivered"), "collection:sales.tidemill.undelivered"),
            (Resource::database("sales"), "collection:sales.*"),
            (Resource::system("ledger"), "system:ledger"),
            (Resource::SERVER, "server"),
        ] {
            assert_eq!(resource.to_string(), text);
        }
    }
}
