//! The registry with everything that is built in.

use crate::registry::Registry;
use crate::{aggregators, functions, processor, stream_functions, windows};

impl Registry {
    /// Creates a registry with all built-in extensions.
    pub fn standard() -> Self {
        let mut registry = Self::default();
        functions::register(&mut registry);
        aggregators::register(&mut registry);
        stream_functions::register(&mut registry);
        processor::register(&mut registry);
        windows::register(&mut registry);
        registry
    }
}
