//! Conversion between values of the host and those of an interpreter.

use rquickjs::{Array, BigInt, Coerced, Ctx, Filter, Object, String as JsString, Type, Value};

use crate::ScriptValue;

/// Nesting of arrays and objects that a script may return.
const DEPTH_MAX: usize = 64;
/// Values in the arrays and objects that a script may return.
const VALUES_MAX: usize = 100_000;
/// Numbers up to here are exact in a double.
const EXACT_MAX: u64 = 1 << 53;

/// Creates the value in the interpreter. Errors: its memory is exhausted.
pub(crate) fn to_js<'js>(ctx: &Ctx<'js>, value: &ScriptValue) -> rquickjs::Result<Value<'js>> {
    Ok(match value {
        ScriptValue::Null => Value::new_null(ctx.clone()),
        ScriptValue::Bool(b) => Value::new_bool(ctx.clone(), *b),
        ScriptValue::Int(n) => match i32::try_from(*n) {
            Ok(n) => Value::new_int(ctx.clone(), n),
            Err(_) if n.unsigned_abs() <= EXACT_MAX => Value::new_float(ctx.clone(), *n as f64),
            Err(_) => BigInt::from_i64(ctx.clone(), *n)?.into_value(),
        },
        ScriptValue::Number(n) => Value::new_float(ctx.clone(), *n),
        ScriptValue::Text(text) => JsString::from_str(ctx.clone(), text)?.into_value(),
        ScriptValue::List(items) => list_to_js(ctx, items)?.into_value(),
        ScriptValue::Map(entries) => {
            let object = Object::new(ctx.clone())?;
            for (name, value) in entries {
                object.set(name.as_str(), to_js(ctx, value)?)?;
            }
            object.into_value()
        }
    })
}

/// Creates an array in the interpreter. Errors: its memory is exhausted.
pub(crate) fn list_to_js<'js>(ctx: &Ctx<'js>, items: &[ScriptValue]) -> rquickjs::Result<Array<'js>> {
    let array = Array::new(ctx.clone())?;
    for (i, item) in items.iter().enumerate() {
        array.set(i, to_js(ctx, item)?)?;
    }
    Ok(array)
}

/// Reader of a value that a script returned.
#[derive(Default)]
pub(crate) struct Reader {
    values: usize,
}

/// Why a returned value cannot be read.
pub(crate) enum Unreadable {
    /// It is nothing that the host has a type for.
    Unsupported(String),
    /// Reading it threw an exception.
    Thrown,
}

impl From<rquickjs::Error> for Unreadable {
    fn from(error: rquickjs::Error) -> Self {
        match error {
            rquickjs::Error::Exception => Self::Thrown,
            other => Self::Unsupported(other.to_string()),
        }
    }
}

impl Reader {
    /// Reads `value`, nested `depth` deep.
    pub(crate) fn read(&mut self, value: &Value<'_>, depth: usize) -> Result<ScriptValue, Unreadable> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return unsupported(format!("an object with more than {VALUES_MAX} values"));
        }
        if depth > DEPTH_MAX {
            return unsupported(format!(
                "an object nested more than {DEPTH_MAX} deep, or that contains itself"
            ));
        }
        match value.type_of() {
            Type::Uninitialized | Type::Undefined | Type::Null => Ok(ScriptValue::Null),
            Type::Bool => Ok(ScriptValue::Bool(value.as_bool().unwrap_or_default())),
            Type::Int => Ok(ScriptValue::Int(value.as_int().unwrap_or_default().into())),
            Type::Float => Ok(number(value.as_float().unwrap_or_default())),
            // by its digits, because the conversion to 64 bits drops the others
            Type::BigInt => match value.get::<Coerced<String>>()?.0.parse() {
                Ok(n) => Ok(ScriptValue::Int(n)),
                Err(_) => unsupported("a bigint of more than 64 bits".into()),
            },
            Type::String => match value.as_string().map(JsString::to_string) {
                Some(Ok(text)) => Ok(ScriptValue::Text(text)),
                Some(Err(rquickjs::Error::Exception)) => Err(Unreadable::Thrown),
                _ => unsupported("a string that is not Unicode: half of a surrogate pair".into()),
            },
            Type::Array => self.list(value, depth),
            Type::Object => self.map(value, depth),
            Type::Promise => unsupported(
                "a promise: a function returns its value at once, without `async` and `await`".into(),
            ),
            Type::Function | Type::Constructor => unsupported("a function".into()),
            Type::Symbol => unsupported("a symbol".into()),
            Type::Exception => unsupported("an error".into()),
            other => unsupported(format!("a value of the kind `{other}`")),
        }
    }

    fn list(&mut self, value: &Value<'_>, depth: usize) -> Result<ScriptValue, Unreadable> {
        let Some(array) = value.as_array() else { return unsupported("no array".into()) };
        if array.len() > VALUES_MAX {
            return unsupported(format!("an array with more than {VALUES_MAX} values"));
        }
        let items = (0..array.len()).map(|i| self.read(&array.get::<Value<'_>>(i)?, depth + 1));
        Ok(ScriptValue::List(items.collect::<Result<_, _>>()?))
    }

    fn map(&mut self, value: &Value<'_>, depth: usize) -> Result<ScriptValue, Unreadable> {
        let Some(object) = value.as_object() else { return unsupported("no object".into()) };
        let mut entries = Vec::new();
        for property in object.own_props::<String, Value<'_>>(Filter::new().string().enum_only()) {
            let (name, value) = property?;
            if !value.is_function() {
                entries.push((name, self.read(&value, depth + 1)?));
            }
        }
        Ok(ScriptValue::Map(entries))
    }
}

/// Distinguishes whole numbers, which the interpreter may hold as doubles.
fn number(n: f64) -> ScriptValue {
    let whole = n.trunc() == n && n.abs() <= EXACT_MAX as f64 && !(n == 0.0 && n.is_sign_negative());
    if whole { ScriptValue::Int(n as i64) } else { ScriptValue::Number(n) }
}

fn unsupported<T>(what: String) -> Result<T, Unreadable> {
    Err(Unreadable::Unsupported(what))
}
