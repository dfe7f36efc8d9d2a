//! What sources and sinks of connectors have in common.

use std::collections::BTreeSet;

/// Gives each connector of an app a name of its own.
#[derive(Default)]
pub struct ConnectorNames(BTreeSet<String>);

impl ConnectorNames {
    /// Returns `name`, with a number behind it if it is taken.
    pub fn unique(&mut self, name: String) -> String {
        let numbered = (2..).map(|n| format!("{name} {n}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let free = free.unwrap_or(name);
        self.0.insert(free.clone());
        free
    }
}
