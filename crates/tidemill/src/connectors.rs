//! The connectors that the program has.

use std::sync::{Arc, OnceLock};

use tidemill_connect::Catalog;
use tidemill_flow::Connectors;

/// Returns all types of sources, sinks and mappers.
pub fn catalog() -> &'static Arc<Catalog> {
    static CATALOG: OnceLock<Arc<Catalog>> = OnceLock::new();
    CATALOG.get_or_init(|| Arc::new(tidemill_connectors::catalog()))
}

/// Returns what an app needs to use the types of [`catalog`].
pub fn connectors() -> Connectors {
    Connectors::Catalog(catalog().clone())
}
