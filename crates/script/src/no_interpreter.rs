//! Stands for the interpreter in a program that was built without it.

use crate::{CallContext, Fault, ScriptError, ScriptValue};

/// An interpreter that does not exist.
pub(crate) enum Interpreter {}

impl Interpreter {
    pub(crate) fn new(_name: &str, _body: &str) -> Result<Self, ScriptError> {
        let message = "this program was built without JavaScript: build it with `--features javascript`";
        Err(ScriptError { message: message.to_owned(), place: None })
    }

    pub(crate) fn call(&self, _: &[ScriptValue], _: CallContext, _: u64) -> Result<ScriptValue, Fault> {
        match *self {}
    }
}
