//! JavaScript of `$where`, `$function` and `$accumulator`, run by the engine of the crate `script`.
//!
//! Values cross as they are where JavaScript has them. A date is a `Date`; a value of another type of BSON is an object that only
//! passes through. Numbers that a function returns are doubles, as in MongoDB.

use std::fmt::Write as _;
use std::sync::Arc;

use bson::{Bson, Document};
use tidemill_docs::{DocsError, ErrorCode, Result, ScriptEngine, ScriptFunction, ScriptKind, Scripts};
use tidemill_script::{CallContext, Script, ScriptValue};
use tidemill_types::budget;

/// Name of the only property of an object that stands for a date; milliseconds since 1970.
const DATE: &str = "\u{1}date";
/// Name of the only property of an object that stands for a value of another type: its Extended JSON.
const OTHER: &str = "\u{1}bson";
/// Bytes of an interpreter that are counted; few scripts need more.
const MEMORY_COUNTED: usize = 4 << 20;
/// Integers up to here are numbers in a script.
const EXACT_MAX: u64 = 1 << 53;

/// Turns what stands for dates into dates, and back.
const CONVERSIONS: &str = "const given = (x) => {
  if (Array.isArray(x)) return x.map(given);
  if (typeof x !== 'object' || x === null) return x;
  if ('\\u0001date' in x) return new Date(x['\\u0001date']);
  for (const name in x) { const v = x[name]; if (typeof v === 'object' && v !== null) x[name] = given(v); }
  return x;
};
const returned = (x) => {
  if (Array.isArray(x)) return x.map(returned);
  if (typeof x !== 'object' || x === null) return x;
  if (x instanceof Date) return { '\\u0001date': x.getTime() };
  const y = {};
  for (const name in x) y[name] = returned(x[name]);
  return y;
};
";

/// Returns the engine for the reads of a client.
pub(crate) fn engine() -> Scripts {
    Scripts(Arc::new(Engine))
}

struct Engine;

impl ScriptEngine for Engine {
    fn compile(&self, source: &str, kind: ScriptKind) -> Result<Arc<dyn ScriptFunction>> {
        let mut body = CONVERSIONS.to_owned();
        let is_function = is_function(source);
        let written = match kind {
            ScriptKind::Function if !is_function => {
                return Err(failed(format!(
                    "expected a function, such as `function(a) {{ return a; }}`, found {source:?}"
                )));
            }
            ScriptKind::Function => {
                write!(body, "return returned((\n{source}\n).apply(null, data.map(given)));")
            }
            ScriptKind::Condition => {
                let function = match (is_function, is_expression(source)) {
                    (true, _) => source.to_owned(),
                    (false, true) => {
                        format!("function() {{ return {}\n}}", source.trim().trim_end_matches(';'))
                    }
                    (false, false) => format!("function() {{ {source}\n}}"),
                };
                write!(body, "const obj = given(data[0]);\nreturn !!(\n{function}\n).call(obj);")
            }
        };
        written.map_err(|error| failed(error.to_string()))?;
        let script = Script::compile("script", &body).map_err(|error| failed(error.message))?;
        let memory = budget::reserve(MEMORY_COUNTED)?;
        Ok(Arc::new(Compiled { script, _memory: memory }))
    }
}

fn is_function(source: &str) -> bool {
    let source = source.trim_start();
    let starts = |word: &str| {
        source
            .strip_prefix(word)
            .is_some_and(|rest| rest.starts_with(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')))
    };
    // an arrow function has no `this`
    starts("function") || (source.starts_with('(') && source.contains("=>")) || starts("async")
}

/// Returns whether a condition is an expression, as MongoDB tells it from the body of a function.
fn is_expression(source: &str) -> bool {
    let source = source.trim();
    let one_statement = source.find(';').is_none_or(|at| at + 1 == source.len());
    !source.contains('\n')
        && one_statement
        && !source.split(|c: char| !c.is_alphanumeric()).any(|word| word == "return")
}

fn failed(message: impl Into<String>) -> DocsError {
    DocsError::new(ErrorCode::ScriptFailed, message)
}

struct Compiled {
    script: Script,
    /// Given back with the script.
    _memory: budget::Reservation,
}

impl ScriptFunction for Compiled {
    fn call(&self, arguments: Vec<Bson>) -> Result<Bson> {
        let arguments: Vec<ScriptValue> = arguments.into_iter().map(to_script).collect();
        let now_ms = bson::DateTime::now().timestamp_millis();
        let context = CallContext { now_ms, seed: Some(rand::random()) };
        match self.script.call(&arguments, context) {
            Ok(value) => to_bson(value),
            Err(error) => {
                // the budget of the command says it better
                budget::check()?;
                Err(failed(format!("{error}")))
            }
        }
    }
}

fn other(value: Bson) -> ScriptValue {
    ScriptValue::Map(vec![(OTHER.to_owned(), ScriptValue::Text(value.into_canonical_extjson().to_string()))])
}

fn to_script(value: Bson) -> ScriptValue {
    match value {
        Bson::Null | Bson::Undefined => ScriptValue::Null,
        Bson::Boolean(flag) => ScriptValue::Bool(flag),
        Bson::Int32(n) => ScriptValue::Int(n.into()),
        Bson::Int64(n) => ScriptValue::Int(n),
        Bson::Double(n) => ScriptValue::Number(n),
        Bson::String(text) | Bson::Symbol(text) => ScriptValue::Text(text),
        Bson::Array(values) => ScriptValue::List(values.into_iter().map(to_script).collect()),
        Bson::Document(fields) => {
            ScriptValue::Map(fields.into_iter().map(|(name, value)| (name, to_script(value))).collect())
        }
        Bson::DateTime(date) => {
            let millis = ScriptValue::Number(date.timestamp_millis() as f64);
            ScriptValue::Map(vec![(DATE.to_owned(), millis)])
        }
        value => other(value),
    }
}

fn to_bson(value: ScriptValue) -> Result<Bson> {
    Ok(match value {
        ScriptValue::Null => Bson::Null,
        ScriptValue::Bool(flag) => Bson::Boolean(flag),
        // a `bigint` is more than a number holds
        ScriptValue::Int(n) if n.unsigned_abs() > EXACT_MAX => Bson::Int64(n),
        ScriptValue::Int(n) => Bson::Double(n as f64),
        ScriptValue::Number(n) => Bson::Double(n),
        ScriptValue::Text(text) => Bson::String(text),
        ScriptValue::List(values) => Bson::Array(values.into_iter().map(to_bson).collect::<Result<_>>()?),
        ScriptValue::Map(fields) => match fields.as_slice() {
            [(name, ScriptValue::Int(millis))] if name == DATE => {
                Bson::DateTime(bson::DateTime::from_millis(*millis))
            }
            [(name, _)] if name == DATE => return Err(failed("the script returned an invalid date")),
            [(name, ScriptValue::Text(json))] if name == OTHER => {
                let json =
                    serde_json::from_str::<serde_json::Value>(json).map_err(|e| failed(e.to_string()))?;
                Bson::try_from(json).map_err(|error| failed(error.to_string()))?
            }
            _ => {
                let mut document = Document::new();
                for (name, value) in fields {
                    if name.contains('\0') {
                        return Err(failed(
                            "the script returned an object with NUL in the name of a property",
                        ));
                    }
                    document.insert(name, to_bson(value)?);
                }
                Bson::Document(document)
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use bson::{bson, doc};

    use super::*;

    fn call(kind: ScriptKind, source: &str, arguments: Vec<Bson>) -> Result<Bson> {
        Engine.compile(source, kind)?.call(arguments)
    }

    #[test]
    fn conditions_are_expressions_bodies_or_functions() {
        let document = || vec![bson!({ "a": 1, "b": 2_i64, "at": bson::DateTime::from_millis(0) })];
        let holds =
            |source: &str| call(ScriptKind::Condition, source, document()).unwrap() == Bson::Boolean(true);
        assert!(holds("this.a < this.b"));
        assert!(holds("obj.a == 1;"));
        assert!(holds("return this.a + this.b == 3"));
        assert!(holds("var x = this.a; return x > 0;"));
        assert!(holds("function() { return this.at.getFullYear() == 1970 }"));
        assert!(!holds("this.c") && !holds("function() {}"));
        let thrown = call(ScriptKind::Condition, "this.c.d", document()).unwrap_err();
        assert_eq!(thrown.code(), 139);
        assert_eq!(call(ScriptKind::Condition, "this.", document()).unwrap_err().code(), 139);
    }

    #[test]
    fn values_pass_through_a_function() {
        let id = bson::oid::ObjectId::from_bytes([7; 12]);
        let value = doc! { "id": id, "at": bson::DateTime::from_millis(1500), "list": [1.5, "x", null, true], "big": i64::MAX };
        let same =
            call(ScriptKind::Function, "function(x) { return x }", vec![Bson::Document(value.clone())]);
        assert_eq!(same.unwrap(), Bson::Document(value));
        let sum = call(ScriptKind::Function, "function(a, b) { return a + b; }", vec![bson!(1), bson!(2)]);
        assert_eq!(sum.unwrap(), Bson::Double(3.0));
        assert_eq!(call(ScriptKind::Function, "1 + 1", vec![]).unwrap_err().code(), 139);
        let endless = call(ScriptKind::Function, "function() { for (;;); }", vec![]).unwrap_err();
        assert!(endless.message().contains("steps"), "{endless}");
    }
}
