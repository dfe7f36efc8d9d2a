//! Expressions of what is outside of the document: the score of a search, and functions in JavaScript.

use bson::Bson;
use bson::raw::{RawBsonRef, RawDocument};

use super::{ExpressionParser, Node, invalid, known_options, option};
use crate::error::{DocsError, Result};
use crate::scripts::{CompiledScript, ScriptKind};

impl ExpressionParser<'_> {
    /// Parses `{ body, args, lang }`.
    pub(super) fn function(&mut self, options: &RawDocument) -> Result<Node> {
        known_options(options, &["body", "args", "lang"], "$function")?;
        check_language("$function", option(options, "lang", "$function")?)?;
        let source = script_source("$function", "body", option(options, "body", "$function")?)?;
        let script =
            CompiledScript::new(self.given.scripts.as_ref(), "$function", source, ScriptKind::Function)?;
        let RawBsonRef::Array(arguments) = option(options, "args", "$function")? else {
            return Err(DocsError::bad_value("The args field must be an array in $function"));
        };
        let arguments = self.parse(RawBsonRef::Array(arguments))?;
        Ok(Node::Script(script, Box::new(arguments)))
    }
}

/// Refuses another language than JavaScript.
pub fn check_language(operator: &str, language: RawBsonRef<'_>) -> Result<()> {
    match language {
        RawBsonRef::String("js") => Ok(()),
        other => {
            let found = Bson::try_from(other).map_err(invalid)?;
            Err(DocsError::bad_value(format!("{operator}: lang must be \"js\", found {found}")))
        }
    }
}

/// Returns the source of a function, a string or code.
pub fn script_source<'v>(operator: &str, name: &str, value: RawBsonRef<'v>) -> Result<&'v str> {
    match value {
        RawBsonRef::String(source) | RawBsonRef::JavaScriptCode(source) => Ok(source),
        other => {
            let found = Bson::try_from(other).map_err(invalid)?;
            Err(DocsError::type_mismatch(format!(
                "{operator}: {name} must be a string or code, found {found}"
            )))
        }
    }
}

/// Returns the node of `{$meta: "textScore"}`.
pub(super) fn meta(value: RawBsonRef<'_>) -> Result<Node> {
    match value {
        RawBsonRef::String("textScore") => Ok(Node::TextScore),
        other => {
            let found = Bson::try_from(other).map_err(invalid)?;
            Err(DocsError::bad_value(format!(
                "Unsupported argument to $meta: {found}: expected \"textScore\""
            )))
        }
    }
}
