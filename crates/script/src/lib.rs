//! Functions of SiddhiQL apps that are written in JavaScript, run by QuickJS.
//!
//! A [`Script`] is a pure function of its arguments, the time and a seed that the host passes: it has no
//! access to files, the network, clocks or the randomness of the machine, the time zone is UTC, and a call
//! leaves nothing behind for the next one. So a replay of the same events yields the same values.
//!
//! Bounds of a call: [`STEPS_MAX`], [`MEMORY_MAX`] and [`STACK_MAX`]. No clock is involved, also not where a call has to create an
//! interpreter, so that a replay decides alike; but a caller that has given the thread a [`Budget`](tidemill_types::budget::Budget) may end
//! a call with it.

#[cfg(feature = "javascript")]
mod convert;
#[cfg(feature = "javascript")]
mod interpreter;
#[cfg(not(feature = "javascript"))]
mod no_interpreter;
mod value;

use std::fmt;

use parking_lot::Mutex;

#[cfg(feature = "javascript")]
use interpreter::Interpreter;
#[cfg(not(feature = "javascript"))]
use no_interpreter::Interpreter;
pub use value::ScriptValue;

/// Steps of one call of a script: turns of loops, calls of functions, and the work of built-in functions, which is a step for
/// each element of an array and for 16 characters of a text. Counted in portions of 10,000.
pub const STEPS_MAX: u64 = 20_000_000;
/// Two portions of steps.
const STEPS_SLACK: u64 = 20_000;
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
    /// Description of the problem.
    pub message: String,
    /// Line and column in the body, from 1, if they are known.
    pub place: Option<(u32, u32)>,
}

/// Inputs of a call besides its arguments.
#[derive(Debug, Clone, Copy)]
pub struct CallContext {
    /// The time that `Date` tells, in milliseconds since 1970.
    pub now_ms: i64,
    /// Seed of `Math.random`; without it, that throws.
    pub seed: Option<u64>,
}

/// Why a call failed.
struct CallFailure {
    error: ScriptError,
    /// True if the interpreter can be reused; false after a limit was reached.
    interpreter_usable: bool,
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
        // What an interpreter has done before shifts its portions of steps and its memory a little. A call that comes close to
        // a limit is made again in a new one, so that it ends alike whenever it is made.
        let of_used = idle.and_then(|used| match used.call(args, context, STEPS_MAX - STEPS_SLACK) {
            Err(CallFailure { interpreter_usable: false, .. }) => None,
            outcome => Some((used, outcome)),
        });
        let (interpreter, outcome) = match of_used {
            Some(done) => done,
            None => {
                let new = self.interpreter()?;
                let outcome = new.call(args, context, STEPS_MAX);
                (new, outcome)
            }
        };
        match outcome {
            Ok(value) => {
                self.idle.lock().push(interpreter);
                Ok(value)
            }
            Err(CallFailure { error, interpreter_usable }) => {
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
