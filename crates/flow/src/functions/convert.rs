//! `convert` and `cast`.

use tidemill_types::FieldType;

use super::java::number::{parse_double, parse_float, parse_whole};
use super::library::{NamespaceRegistrar, NullPolicy, ScalarResult, constant_text};
use crate::columns::value::Value;
use crate::expr::ArgumentType;

/// Target types of a conversion.
const TARGETS: [FieldType; 6] = [
    FieldType::Int,
    FieldType::Long,
    FieldType::Float,
    FieldType::Double,
    FieldType::String,
    FieldType::Bool,
];

pub(super) fn register(core: &mut NamespaceRegistrar<'_>) {
    core.build_typed("convert", &["any x, const string type -> object"], NullPolicy::Null, |args| {
        let ty = target(args)?;
        if args[0].ty == FieldType::Object && ty != FieldType::String {
            return Err(format!("an object can only be converted to string, not to {}", ty.name()));
        }
        if ty == FieldType::Object {
            return Err(unknown("object", &TARGETS));
        }
        Ok((Box::new(move |args, _| Ok(convert(&args[0], ty))), ty))
    });
    core.build_typed("cast", &["any x, const string type -> object"], NullPolicy::Pass, |args| {
        let ty = target(args)?;
        if ty == FieldType::Object {
            return Err(unknown("object", &TARGETS));
        }
        Ok((Box::new(move |args, _| cast(&args[0], ty)), ty))
    });
}

/// Returns the type that the second argument names; case is ignored.
fn target(args: &[ArgumentType]) -> Result<FieldType, String> {
    let name = constant_text(args, 1).unwrap_or_default();
    match FieldType::parse(&name.to_ascii_lowercase()) {
        Some(FieldType::Time) | None => Err(unknown(name, &TARGETS)),
        Some(ty) => Ok(ty),
    }
}

fn unknown(name: &str, known: &[FieldType]) -> String {
    let known: Vec<_> = known.iter().map(|t| t.name()).collect();
    format!("cannot convert to type `{name}`: expected one of {}", known.join(", "))
}

/// Evaluates `convert(x, 'type')`; a string that cannot be parsed gives null.
fn convert(x: &Value, ty: FieldType) -> Value {
    let number = |n: f64| match ty {
        FieldType::Int => Value::Int(n as i32),
        FieldType::Long => Value::Long(n as i64),
        FieldType::Float => Value::Float(n as f32),
        FieldType::Double => Value::Double(n),
        _ => Value::Bool(n == 1.0),
    };
    let whole = |n: i64| match ty {
        FieldType::Int => Value::Int(n as i32),
        FieldType::Long => Value::Long(n),
        FieldType::Float => Value::Float(n as f32),
        FieldType::Double => Value::Double(n as f64),
        _ => Value::Bool(n == 1),
    };
    match x {
        Value::Null => Value::Null,
        _ if ty == FieldType::String => Value::text(&x.to_string()),
        Value::Bool(b) if ty == FieldType::Bool => Value::Bool(*b),
        Value::Bool(b) => whole(i64::from(*b)),
        Value::Int(n) => whole(i64::from(*n)),
        Value::Long(n) => whole(*n),
        Value::Float(n) => number(f64::from(*n)),
        Value::Double(n) => number(*n),
        Value::Str(s) => read(s, ty).unwrap_or(Value::Null),
        Value::Object(_) => Value::Null,
    }
}

fn read(text: &str, ty: FieldType) -> Option<Value> {
    Some(match ty {
        FieldType::Int => Value::Int(i32::try_from(parse_whole(text, 10).ok()?).ok()?),
        FieldType::Long => Value::Long(parse_whole(text, 10).ok()?),
        FieldType::Float => Value::Float(parse_float(text).ok()?),
        FieldType::Double => Value::Double(parse_double(text).ok()?),
        _ => Value::Bool(text.eq_ignore_ascii_case("true")),
    })
}

/// Evaluates `cast(x, 'type')`: the value as an equal value of another type.
///
/// Columns hold values of their type only. Therefore a number is converted to the equal number of the target
/// type, a string to the number it spells, and any value but an object to its string form. A value without an
/// equal of that type is an error. Null cast to bool is false.
fn cast(x: &Value, ty: FieldType) -> ScalarResult {
    if x.ty() == Some(ty) {
        return Ok(x.clone());
    }
    let cast = match (x, ty) {
        (Value::Null, FieldType::Bool) => Value::Bool(false),
        (Value::Null, _) => Value::Null,
        (Value::Object(_), FieldType::String) => Value::Null,
        (_, FieldType::String) => Value::text(&x.to_string()),
        (Value::Str(text), ty) if ty != FieldType::Bool => read(text, ty).unwrap_or(Value::Null),
        (Value::Int(_) | Value::Long(_) | Value::Float(_) | Value::Double(_), ty)
            if ty != FieldType::Bool =>
        {
            let converted = convert(x, ty);
            if equal_numbers(x, &converted) { converted } else { Value::Null }
        }
        _ => Value::Null,
    };
    if cast.is_null() && !x.is_null() {
        let found = x.ty().map_or("null", FieldType::name);
        return Err(format!("cannot cast `{x}` of type {found} to {}", ty.name()));
    }
    Ok(cast)
}

fn equal_numbers(a: &Value, b: &Value) -> bool {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a == b,
        _ => {
            let (a, b) = (a.as_f64(), b.as_f64());
            a == b || a.is_some_and(f64::is_nan) && b.is_some_and(f64::is_nan)
        }
    }
}
