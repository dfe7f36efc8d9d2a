//! Cache for arguments that are compiled: regular expressions, JSON paths and date formats.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::library::constant_text;
use crate::expr::ArgumentType;

/// Upper bound of cached values per call site of a non-constant argument; the cache is cleared when it is
/// reached.
const CACHED_MAX: usize = 64;

type CompileFn<T> = dyn Fn(&str) -> Result<T, String> + Send + Sync;

/// Compiled values of a string argument: compiled once with the query if the argument is constant, else on
/// first use.
pub(crate) struct CompileCache<T> {
    constant: Option<Arc<T>>,
    cached: Mutex<HashMap<String, Arc<T>>>,
    compile: Box<CompileFn<T>>,
}

impl<T> CompileCache<T> {
    /// Creates the cache for argument `i`. Errors: the argument is constant and does not compile.
    pub(crate) fn of(
        args: &[ArgumentType],
        i: usize,
        compile: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let constant = constant_text(args, i).map(|text| compile(text).map(Arc::new)).transpose()?;
        Ok(Self { constant, cached: Mutex::default(), compile: Box::new(compile) })
    }

    /// Returns the compiled form of `text`, the value of the argument. Errors: `text` does not compile.
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
