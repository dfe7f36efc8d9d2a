//! `$accumulator`: functions in JavaScript that keep the state of a group.

use std::sync::Arc;

use bson::Bson;
use bson::raw::{RawBsonRef, RawDocument};
use tidemill_docs::{Expression, ScriptFunction, ScriptKind, Variables, check_language, script_source};

use crate::commands::reading::find;
use crate::error::{Code, CommandError, Result};

const NAME: &str = "$accumulator";

/// The functions of an accumulator.
pub(super) struct ScriptAccumulator {
    init: Arc<dyn ScriptFunction>,
    init_args: Vec<Bson>,
    accumulate: Arc<dyn ScriptFunction>,
    finalize: Option<Arc<dyn ScriptFunction>>,
}

impl ScriptAccumulator {
    /// Reads the functions. Returns them with the expression of the arguments that each document gives.
    ///
    /// Errors: one is missing or no function; arguments of `init` that depend on a document.
    pub fn parse(options: &RawDocument, variables: &Variables) -> Result<(Self, Expression)> {
        let names = ["init", "initArgs", "accumulate", "accumulateArgs", "merge", "finalize", "lang"];
        super::known(NAME, options, &names)?;
        check_language(NAME, super::option(NAME, options, "lang")?)?;
        let Some(scripts) = &variables.scripts else {
            return Err(CommandError::not_supported("`$accumulator` in this command"));
        };
        let function = |name: &str| -> Result<Arc<dyn ScriptFunction>> {
            let source = script_source(NAME, name, super::option(NAME, options, name)?)?;
            Ok(scripts.0.compile(source, ScriptKind::Function)?)
        };
        // groups are not merged here, but an invalid function is refused
        function("merge")?;
        let init_args = match options.get("initArgs")? {
            None => Vec::new(),
            Some(args) => match Expression::parse_with(constant(args)?, variables)?.eval(find::empty())? {
                Some(Bson::Array(args)) => args,
                _ => return Err(not_array("initArgs")),
            },
        };
        let args = super::option(NAME, options, "accumulateArgs")?;
        let finalize = options.get("finalize")?.map(|_| function("finalize")).transpose()?;
        let parsed =
            Self { init: function("init")?, init_args, accumulate: function("accumulate")?, finalize };
        Ok((parsed, Expression::parse_with(args, variables)?))
    }

    /// Returns the state after a document with these arguments.
    pub fn add(&self, state: Option<Bson>, arguments: Option<Bson>) -> Result<Bson> {
        let Some(Bson::Array(arguments)) = arguments else { return Err(not_array("accumulateArgs")) };
        let state = state.map_or_else(|| self.init.call(self.init_args.clone()), Ok)?;
        Ok(self.accumulate.call([vec![state], arguments].concat())?)
    }

    /// Returns the result of a state.
    pub fn result(&self, state: Option<Bson>) -> Result<Bson> {
        let state = state.map_or_else(|| self.init.call(self.init_args.clone()), Ok)?;
        match &self.finalize {
            Some(finalize) => Ok(finalize.call(vec![state])?),
            None => Ok(state),
        }
    }
}

fn not_array(option: &str) -> CommandError {
    CommandError::new(Code::BadValue, format!("$accumulator requires that {option} evaluates to an array"))
}

/// Refuses arguments that name fields: a group is initialised without a document.
fn constant(args: RawBsonRef<'_>) -> Result<RawBsonRef<'_>> {
    let RawBsonRef::Array(array) = args else { return Ok(args) };
    for argument in array {
        if matches!(argument?, RawBsonRef::String(text) if text.starts_with('$') && !text.starts_with("$$")) {
            return Err(CommandError::not_supported("a field in `initArgs` of `$accumulator`"));
        }
    }
    Ok(args)
}
