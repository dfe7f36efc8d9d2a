//! `#json:tokenize(json, path)` and `#json:tokenizeAsObject(json, path)`: emit an event for each element at a
//! path.

use std::sync::Arc;

use serde_json::Value as Json;
use tidemill_types::FieldType;

use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::functions::compile_cache::CompileCache;
use crate::functions::json_path::CompiledPath;
use crate::functions::json_text::{from_json, json_of};
use crate::registry::{BoundStreamFunction, StreamFunction};

pub(super) fn build(name: &'static str, args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    let fits = match args {
        [json, path, rest @ ..] => {
            matches!(json.ty, FieldType::String | FieldType::Object)
                && path.ty == FieldType::String
                && rest.len() <= 1
                && rest.iter().all(|r| r.ty == FieldType::Bool && r.constant.is_some())
        }
        _ => false,
    };
    if !fits {
        return Err(format!(
            "{name}(json, path [, fail.on.missing.attribute]) needs a string or an object, a string, and optionally a \
             constant bool"
        ));
    }
    let as_object = name.ends_with("AsObject");
    let fail_on_missing = args.get(2).and_then(|a| a.constant.as_ref()).is_none_or(Value::is_true);
    let paths = CompileCache::of(args, 1, CompiledPath::compile)?;
    let ty = if as_object { FieldType::Object } else { FieldType::String };
    Ok((Arc::new(TokenizeJson { name, paths, as_object, fail_on_missing }), vec![("jsonElement".into(), ty)]))
}

struct TokenizeJson {
    name: &'static str,
    paths: CompileCache<CompiledPath>,
    as_object: bool,
    /// True if a path that finds nothing fails the event; otherwise the element is null.
    fail_on_missing: bool,
}

impl std::fmt::Debug for TokenizeJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl TokenizeJson {
    fn element(&self, json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            json if self.as_object => from_json(json),
            Json::String(text) => Value::text(text),
            other => Value::text(&other.to_string()),
        }
    }
}

impl StreamFunction for TokenizeJson {
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        let wrong = |why: String| EvalError::argument(format!("{}: {why}", self.name));
        let (Some(json), Some(path)) = (args.first(), args.get(1).and_then(Value::as_str)) else {
            return Err(wrong("the path is null".into()));
        };
        if json.is_null() {
            return Err(wrong("the JSON is null".into()));
        }
        let json = json_of(json).map_err(wrong)?;
        let found = self.paths.get(path).map_err(wrong)?.read(&json);
        let elements = match found {
            Some(Json::Array(items)) => items.iter().map(|item| vec![self.element(item)]).collect(),
            Some(other) => vec![vec![self.element(&other)]],
            None => vec![],
        };
        match elements.is_empty() {
            false => Ok(elements),
            true if self.fail_on_missing => Err(wrong(format!("nothing found at `{path}`"))),
            true => Ok(vec![vec![Value::Null]]),
        }
    }
}
