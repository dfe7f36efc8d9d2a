//! Functions that an app defines in JavaScript, and `js:eval`.

use std::fmt;
use std::sync::Arc;

use tidemill_lang::siddhi::ast::FunctionDefinition;
use tidemill_lang::{Diagnostic, Span};
use tidemill_script::{CallContext, Script, ScriptError, ScriptValue};
use tidemill_types::{FieldType, did_you_mean};

use crate::columns::value::{Key, OpaqueValue, Value};
use crate::eval_error::EvalError;
use crate::expr::{ArgumentType, BoundFunction, Function, FunctionContext};
use crate::registry::Registry;

/// Evaluates its first argument, as an expression or, if it is not one, as the body of a function.
const EVAL: &str = "let f;
try { f = new Function('return (' + data[0] + '\\n)'); } catch (e) { f = new Function(data[0]); }
return f();";

/// Types that `js:eval` may return.
const EVAL_TYPES: [FieldType; 6] = [
    FieldType::Int,
    FieldType::Long,
    FieldType::Float,
    FieldType::Double,
    FieldType::Bool,
    FieldType::String,
];

/// Registers `js:eval(expression, 'type')`.
pub(super) fn register(registry: &mut Registry) {
    registry.function("js:eval", |args| {
        let [expression, ty] = args else {
            return Err(format!(
                "expected (string expression, constant string type), found {} arguments",
                args.len()
            ));
        };
        if expression.ty != FieldType::String {
            return Err(format!(
                "the expression must be a string, found a value of type {}",
                expression.ty.name()
            ));
        }
        let Some(name) = ty.constant.as_ref().and_then(Value::as_str) else {
            return Err("the second argument must be a constant string, the type of the result".into());
        };
        let named = EVAL_TYPES.into_iter().find(|ty| ty.name() == name.to_ascii_lowercase());
        let result = named.ok_or_else(|| {
            format!("there is no type `{name}`{}", did_you_mean(name, EVAL_TYPES.map(FieldType::name)))
        })?;
        let script = Script::compile("eval", EVAL).map_err(|e| e.to_string())?;
        let function =
            ScriptFunction { name: "js:eval".into(), script, arity: 1, result, draws_random: false };
        Ok((Arc::new(function), result))
    });
}

/// Compiles a definition and registers the function for the app.
///
/// Errors: the language is not supported, the body is not valid in it, or the name is taken.
pub(crate) fn define(definition: &FunctionDefinition, registry: &mut Registry) -> Result<(), Diagnostic> {
    let name = &definition.name;
    let language = &definition.language.name;
    if !["javascript", "js"].contains(&language.to_ascii_lowercase().as_str()) {
        let message =
            format!("functions in `{language}` are not supported: the language of scripts is `javascript`");
        return Err(Diagnostic::error("F0402", definition.language.span, message).help(
            "write the body in JavaScript: the arguments are `data[0]`, `data[1]` …; or use the built-in functions, \
             or add the function in Rust with Registry::function",
        ));
    }
    if registry.find_aggregator(&name.name).is_some() {
        let message = format!("the name `{}` is already taken by an aggregate", name.name);
        return Err(Diagnostic::error("F0205", name.span, message).help("rename the function"));
    }
    let result = definition.result.ty;
    let body = &definition.body;
    let script = Script::compile(&name.name, &body.value).map_err(|error| {
        let message = format!("the body of `{}` is not JavaScript: {}", name.name, error.message);
        Diagnostic::error("F0419", place_in(body.span, &body.value, &error), message)
    })?;
    let draws_random = script.uses_random();
    let function =
        ScriptFunction { name: name.name.clone(), script, arity: usize::MAX, result, draws_random };
    let function: Arc<dyn Function> = Arc::new(function);
    registry.function(&name.name, move |_: &[ArgumentType]| {
        let bound: BoundFunction = (Arc::clone(&function), result);
        Ok(bound)
    });
    Ok(())
}

/// Returns the character of the body, which is in braces, that an error is about; all of it if that is unknown.
fn place_in(span: Span, body: &str, error: &ScriptError) -> Span {
    let found = error.place.and_then(|(line, column)| {
        let before: usize =
            body.split_inclusive('\n').take(line.checked_sub(1)? as usize).map(str::len).sum();
        let rest = body.get(before..)?;
        let (at, c) = rest.char_indices().nth(column.saturating_sub(1) as usize)?;
        let start = span.start + 1 + u32::try_from(before + at).ok()?;
        Some(Span { start, end: start + c.len_utf8() as u32, ..span })
    });
    found.unwrap_or(span)
}

/// A script as a function of expressions.
struct ScriptFunction {
    name: String,
    script: Script,
    /// Number of arguments that the script sees.
    arity: usize,
    result: FieldType,
    draws_random: bool,
}

impl Function for ScriptFunction {
    fn call(&self, args: &[Value], state: &FunctionContext<'_>) -> Result<Value, EvalError> {
        let args: Vec<ScriptValue> = args.iter().take(self.arity).map(to_script).collect();
        let context = CallContext { now_ms: state.now, seed: self.draws_random.then(|| state.random()) };
        let failed = |why: String| EvalError::argument(format!("{}: {why}", self.name));
        let value = self.script.call(&args, context).map_err(|e| failed(e.to_string()))?;
        from_script(value, self.result).map_err(failed)
    }

    fn depends_on_order(&self) -> bool {
        self.draws_random
    }
}

impl fmt::Debug for ScriptFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[javascript]", self.name)
    }
}

fn to_script(value: &Value) -> ScriptValue {
    match value {
        Value::Null => ScriptValue::Null,
        Value::Bool(b) => ScriptValue::Bool(*b),
        Value::Int(n) => ScriptValue::Int((*n).into()),
        Value::Long(n) => ScriptValue::Int(*n),
        // the shortest decimal form, as the float is written elsewhere
        Value::Float(n) => ScriptValue::Number(n.to_string().parse().unwrap_or_else(|_| f64::from(*n))),
        Value::Double(n) => ScriptValue::Number(*n),
        Value::Str(text) => ScriptValue::Text(text.to_string()),
        Value::Object(object) => object_to_script(object),
    }
}

fn object_to_script(object: &OpaqueValue) -> ScriptValue {
    match object {
        OpaqueValue::List(items) => ScriptValue::List(items.lock().iter().map(to_script).collect()),
        OpaqueValue::Set(items) => {
            ScriptValue::List(items.lock().keys().map(|key| to_script(&key.0)).collect())
        }
        OpaqueValue::Map(entries) => {
            let entries = entries.lock();
            ScriptValue::Map(
                entries.iter().map(|(key, value)| (key.0.to_string(), to_script(value))).collect(),
            )
        }
        OpaqueValue::Json(json) => json_to_script(json),
    }
}

fn json_to_script(json: &serde_json::Value) -> ScriptValue {
    match json {
        serde_json::Value::Null => ScriptValue::Null,
        serde_json::Value::Bool(b) => ScriptValue::Bool(*b),
        serde_json::Value::Number(n) => {
            n.as_i64().map_or_else(|| ScriptValue::Number(n.as_f64().unwrap_or(f64::NAN)), ScriptValue::Int)
        }
        serde_json::Value::String(text) => ScriptValue::Text(text.clone()),
        serde_json::Value::Array(items) => ScriptValue::List(items.iter().map(json_to_script).collect()),
        serde_json::Value::Object(entries) => ScriptValue::Map(
            entries.iter().map(|(name, value)| (name.clone(), json_to_script(value))).collect(),
        ),
    }
}

/// Converts what the script returned to the declared type. Errors: it does not fit; says how to make it fit.
fn from_script(value: ScriptValue, ty: FieldType) -> Result<Value, String> {
    let kind = value.kind();
    let unfit = |hint: &str| Err(format!("the script returned {kind}, but its type is {}{hint}", ty.name()));
    Ok(match (ty, value) {
        (_, ScriptValue::Null) => Value::Null,
        (FieldType::Bool, ScriptValue::Bool(b)) => Value::Bool(b),
        (FieldType::Int, ScriptValue::Int(n)) => match i32::try_from(n) {
            Ok(n) => Value::Int(n),
            Err(_) => {
                return Err(format!("the script returned {n}, which is too large for an int: return a long"));
            }
        },
        (FieldType::Long | FieldType::Time, ScriptValue::Int(n)) => Value::Long(n),
        (FieldType::Int | FieldType::Long | FieldType::Time, ScriptValue::Number(n)) => {
            return Err(format!(
                "the script returned {n}, but its type is {}: use Math.round, or return a double",
                ty.name()
            ));
        }
        (FieldType::Float, ScriptValue::Int(n)) => Value::Float(n as f32),
        (FieldType::Float, ScriptValue::Number(n)) => Value::Float(n as f32),
        (FieldType::Double, ScriptValue::Int(n)) => Value::Double(n as f64),
        (FieldType::Double, ScriptValue::Number(n)) => Value::Double(n),
        (FieldType::String, ScriptValue::Text(text)) => Value::text(&text),
        (FieldType::String, ScriptValue::Bool(b)) => Value::text(&b.to_string()),
        (FieldType::String, ScriptValue::Int(n)) => Value::text(&n.to_string()),
        (FieldType::String, ScriptValue::Number(n)) => Value::text(&n.to_string()),
        (FieldType::String, _) => return unfit(": return JSON.stringify(…)"),
        (FieldType::Bool, _) => return unfit(": compare, as in `return x > 0`"),
        (FieldType::Object, value) => to_object(value),
        (_, ScriptValue::Text(_)) => return unfit(": return Number(…)"),
        _ => return unfit(""),
    })
}

/// Converts a value of a script to the value of SiddhiQL that it is nearest to.
fn to_object(value: ScriptValue) -> Value {
    match value {
        ScriptValue::Null => Value::Null,
        ScriptValue::Bool(b) => Value::Bool(b),
        ScriptValue::Int(n) => i32::try_from(n).map_or(Value::Long(n), Value::Int),
        ScriptValue::Number(n) => Value::Double(n),
        ScriptValue::Text(text) => Value::text(&text),
        ScriptValue::List(items) => {
            Value::Object(OpaqueValue::list(items.into_iter().map(to_object).collect()))
        }
        ScriptValue::Map(entries) => {
            let entries =
                entries.into_iter().map(|(name, value)| (Key(Value::text(&name)), to_object(value)));
            Value::Object(OpaqueValue::map(entries.collect()))
        }
    }
}
