//! What texts are compiled to: patterns, paths, formats.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::library::constant_text;
use crate::registry::ArgumentType;

/// How many a call keeps of what is not constant; then it begins anew.
const CACHED_MAX: usize = 64;

type CompileFn<T> = dyn Fn(&str) -> Result<T, String> + Send + Sync;

/// What the texts of an argument are compiled to: once when the query is, if it is constant, else as they come.
pub(crate) struct CompileCache<T> {
    constant: Option<Arc<T>>,
    cached: Mutex<HashMap<String, Arc<T>>>,
    compile: Box<CompileFn<T>>,
}

impl<T> CompileCache<T> {
    /// For argument `i`. Errors: what is wrong with it, if it is constant.
    pub(crate) fn of(
        args: &[ArgumentType],
        i: usize,
        compile: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let constant = constant_text(args, i).map(|text| compile(text).map(Arc::new)).transpose()?;
        Ok(Self { constant, cached: Mutex::default(), compile: Box::new(compile) })
    }

    /// What `text`, the argument's value, is compiled to. Errors: what is wrong with it.
    pub(crate) fn get(&self, text: &str) -> Result<Arc<T>, String> {
        if let Some(constant) = &self.constant {
            return Ok(constant.clone());
        }
        let mut cached = self.cached.lock();
        if let Some(known) = cached.get(text) {
            return Ok(known.clone());
        }
        let compiled = Arc::new((self.compile)(text)?);
        if cached.len() >= CACHED_MAX {
            cached.clear();
        }
        cached.insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }
}
