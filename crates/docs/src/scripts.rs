//! Functions in JavaScript, which conditions and expressions call. This crate does not run them: who reads passes an engine on.
//!
//! Commands of the log have none. What a script does within its limits is the same each time, but the steps that it takes are not
//! counted to the last one, so that a write by it could not be ended at the same step when the log is applied again.

use std::fmt;
use std::sync::Arc;

use bson::Bson;

use crate::error::{DocsError, ErrorCode, Result};

/// Compiles functions.
pub trait ScriptEngine: Send + Sync {
    /// Compiles the source of a function, or of a condition.
    ///
    /// Errors: the source is not valid JavaScript.
    fn compile(&self, source: &str, kind: ScriptKind) -> Result<Arc<dyn ScriptFunction>>;
}

/// Kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    /// `function (a, b) { … }`
    Function,
    /// An expression, the body of a function, or a function; `this` is the document, and the result is a boolean.
    Condition,
}

/// A compiled function.
pub trait ScriptFunction: Send + Sync {
    /// Calls the function.
    ///
    /// Errors: it throws, takes more steps or memory than it may, or returns something that is not a value;
    /// the work has to end.
    fn call(&self, arguments: Vec<Bson>) -> Result<Bson>;
}

/// The engine of a reader.
#[derive(Clone)]
pub struct Scripts(pub Arc<dyn ScriptEngine>);

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripts")
    }
}

/// A function that a condition or an expression calls.
#[derive(Clone)]
pub(crate) struct CompiledScript(Arc<dyn ScriptFunction>);

impl CompiledScript {
    /// Compiles a source. Errors: the engine is missing, or the source is not valid JavaScript.
    pub fn new(scripts: Option<&Scripts>, operator: &str, source: &str, kind: ScriptKind) -> Result<Self> {
        match scripts {
            Some(scripts) => Ok(Self(scripts.0.compile(source, kind)?)),
            None => Err(DocsError::new(
                ErrorCode::NotSupported,
                format!(
                    "{operator} is not supported here: it is there for reads by MongoDB's protocol; writes, validators and definitions have to decide alike each time that the log is applied. Find the documents first, and write them by their _id"
                ),
            )),
        }
    }

    pub fn call(&self, arguments: Vec<Bson>) -> Result<Bson> {
        tidemill_types::budget::step()?;
        self.0.call(arguments)
    }
}

impl fmt::Debug for CompiledScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompiledScript")
    }
}
