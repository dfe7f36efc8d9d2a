//! The registry with everything that is built in.

use std::collections::BTreeMap;

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
        registry.set_model_files(BTreeMap::new());
        registry
    }

    /// Sets the files of models that queries name, by their paths.
    pub fn set_model_files(&mut self, files: BTreeMap<String, String>) {
        let hash =
            |(path, text): (&String, &String)| (path.clone(), xxhash_rust::xxh3::xxh3_64(text.as_bytes()));
        self.note_model_files(files.iter().map(hash).collect());
        processor::set_model_files(self, &files);
        stream_functions::pmml::register(self, files);
    }
}
