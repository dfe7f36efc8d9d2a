//! Functions of SiddhiQL apps that are written in JavaScript, run by QuickJS.
//!
//! A [`Script`] is a function of its arguments, the time and a seed that the host passes, and of nothing else: there
//! is no file, no network, no clock and no randomness of the machine, the time zone is UTC, and a call leaves nothing
//! behind for the next one. So a replay of the same events yields the same values.
//!
//! Bounds of a call: [`STEPS_MAX`] turns of loops and calls, [`TIME_MAX`], [`MEMORY_MAX`] and [`STACK_MAX`].

mod convert;
mod interpreter;
mod value;

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

pub use interpreter::CallContext;
use interpreter::{Fault, Interpreter};
pub use value::ScriptValue;

/// Turns of loops and calls of functions in one call of a script, counted by the interpreter in steps of 10,000.
pub const STEPS_MAX: u32 = 20_000_000;
/// Wall time of one call. Reached before [`STEPS_MAX`] only if single steps take long.
pub const TIME_MAX: Duration = Duration::from_secs(1);
/// Memory of one interpreter; there is one per thread that is in the function.
pub const MEMORY_MAX: usize = 64 << 20;
/// Stack of one call.
pub const STACK_MAX: usize = 512 << 10;

/// A compiled function, which threads may share.
pub struct Script {
    name: String,
    body: String,
    /// Interpreters that no thread uses now.
    idle: Mutex<Vec<Interpreter>>,
}

/// Why a script does not compile, or a call has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// What is wrong.
    pub message: String,
    /// Line and column in the body, from 1, if they are known.
    pub place: Option<(u32, u32)>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.place {
            Some((line, column)) => write!(f, " (line {line}, column {column} of the function)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// Compiles `function name(data) { body }`.
    ///
    /// Errors: the body is not JavaScript.
    pub fn compile(name: &str, body: &str) -> Result<Self, ScriptError> {
        let script = Self { name: name.to_owned(), body: body.to_owned(), idle: Mutex::default() };
        let first = script.interpreter()?;
        script.idle.lock().push(first);
        Ok(script)
    }

    /// Returns whether the function may use `Math.random`, and so wants a seed.
    pub fn uses_random(&self) -> bool {
        self.body.contains("random")
    }

    /// Calls the function with `args` as `data`.
    ///
    /// Errors: the script throws, exceeds a limit, or returns what is not a value.
    pub fn call(&self, args: &[ScriptValue], context: CallContext) -> Result<ScriptValue, ScriptError> {
        let idle = self.idle.lock().pop();
        let interpreter = match idle {
            Some(interpreter) => interpreter,
            None => self.interpreter()?,
        };
        match interpreter.call(args, context) {
            Ok(value) => {
                self.idle.lock().push(interpreter);
                Ok(value)
            }
            Err(Fault { error, interpreter_usable }) => {
                if interpreter_usable {
                    self.idle.lock().push(interpreter);
                }
                Err(error)
            }
        }
    }

    fn interpreter(&self) -> Result<Interpreter, ScriptError> {
        Interpreter::new(&self.name, &self.body)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("name", &self.name).finish_non_exhaustive()
    }
}
