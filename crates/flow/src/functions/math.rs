//! `math:` Functions of numbers. Null gives null (false for `isNan` and `isInfinite`); an undefined result is
//! NaN, but null for `acos` and `asin`.

use std::f64::consts::{E, LN_2, PI};

use parking_lot::Mutex;

use super::java::number::{
    JavaRandom, hex_double, hex_float, in_base, parse_double, parse_float, parse_int, parse_whole,
    round_half_up,
};
use super::library::{NamespaceRegistrar, NullPolicy, ScalarResult, double, int, text};
use crate::columns::value::Value;

pub(super) fn register(math: &mut NamespaceRegistrar<'_>) {
    register_unary(math);
    register_binary(math);
    register_text_formats(math);
    register_classes(math);
    math.add("e", &[" -> double"], NullPolicy::Pass, |_| Ok(Value::Double(E)));
    math.add("pi", &[" -> double"], NullPolicy::Pass, |_| Ok(Value::Double(PI)));
    math.build("rand", &[" -> double", "const whole seed -> double"], NullPolicy::Pass, |args| {
        let seed = args.first().and_then(|a| a.constant.as_ref()).and_then(Value::as_i64);
        Ok(match seed {
            // 53 bits, the precision of a double
            None => {
                Box::new(|_, state| Ok(Value::Double((state.random() >> 11) as f64 / (1u64 << 53) as f64)))
            }
            Some(seed) => {
                let seeded = Mutex::new(JavaRandom::new(seed));
                Box::new(move |_, _| Ok(Value::Double(seeded.lock().next_double())))
            }
        })
    });
}

/// Registers a function of one double. The form defines the accepted number types.
macro_rules! one {
    ($math:ident, $name:literal, $form:expr, $compute:expr) => {
        $math.add($name, &[$form], NullPolicy::Null, |args| {
            let compute: fn(f64) -> f64 = $compute;
            Ok(Value::Double(compute(double(args, 0)?)))
        });
    };
}

const NUMBER: &str = "number x -> double";
const DECIMAL: &str = "decimal x -> double";

fn register_unary(math: &mut NamespaceRegistrar<'_>) {
    one!(math, "abs", NUMBER, f64::abs);
    one!(math, "cbrt", NUMBER, f64::cbrt);
    one!(math, "ceil", DECIMAL, f64::ceil);
    one!(math, "cos", NUMBER, f64::cos);
    one!(math, "cosh", NUMBER, f64::cosh);
    one!(math, "exp", NUMBER, f64::exp);
    one!(math, "floor", NUMBER, f64::floor);
    one!(math, "ln", NUMBER, f64::ln);
    one!(math, "log10", NUMBER, f64::log10);
    one!(math, "log2", NUMBER, |x| x.ln() / LN_2);
    one!(math, "sin", NUMBER, f64::sin);
    one!(math, "sinh", NUMBER, f64::sinh);
    one!(math, "sqrt", NUMBER, f64::sqrt);
    one!(math, "tan", NUMBER, f64::tan);
    one!(math, "tanh", NUMBER, f64::tanh);
    one!(math, "toDegrees", NUMBER, f64::to_degrees);
    one!(math, "toRadians", NUMBER, f64::to_radians);
    math.add("acos", &[DECIMAL], NullPolicy::Null, |args| Ok(defined(double(args, 0)?.acos())));
    math.add("asin", &[DECIMAL], NullPolicy::Null, |args| Ok(defined(double(args, 0)?.asin())));
    math.add("round", &["float x -> int", "double x -> long"], NullPolicy::Null, |args| {
        Ok(match args[0] {
            Value::Float(x) => Value::Int(round_half_up(f64::from(x)) as i32),
            _ => Value::Long(round_half_up(double(args, 0)?) as i64),
        })
    });
    math.add("signum", &["number x -> int"], NullPolicy::Null, |args| {
        let x = double(args, 0)?;
        Ok(Value::Int(i32::from(x > 0.0) - i32::from(x < 0.0)))
    });
    math.add("getExponent", &["number x -> int"], NullPolicy::Null, |args| {
        Ok(Value::Int(match args[0] {
            Value::Float(x) if x != 0.0 => ((x.to_bits() >> 23 & 0xFF) as i32) - 127,
            _ => ((double(args, 0)?.to_bits() >> 52 & 0x7FF) as i32) - 1023,
        }))
    });
}

fn defined(x: f64) -> Value {
    if x.is_nan() { Value::Null } else { Value::Double(x) }
}

/// Registers a function of two doubles.
macro_rules! two {
    ($math:ident, $name:literal, $form:expr, $compute:expr) => {
        $math.add($name, &[$form], NullPolicy::Null, |args| {
            let compute: fn(f64, f64) -> f64 = $compute;
            Ok(Value::Double(compute(double(args, 0)?, double(args, 1)?)))
        });
    };
}

const TWO: &str = "number x, number y -> double";

fn register_binary(math: &mut NamespaceRegistrar<'_>) {
    math.add("atan", &[NUMBER, "number y, number x -> double"], NullPolicy::Null, |args| {
        let y = double(args, 0)?;
        Ok(Value::Double(if args.len() == 2 { y.atan2(double(args, 1)?) } else { y.atan() }))
    });
    two!(math, "copySign", "number magnitude, number sign -> double", f64::copysign);
    two!(math, "max", TWO, |a, b| if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a.total_cmp(&b).is_ge() {
        a
    } else {
        b
    });
    two!(math, "min", TWO, |a, b| if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a.total_cmp(&b).is_le() {
        a
    } else {
        b
    });
    two!(math, "power", "number base, number exponent -> double", |x, y| {
        // for these IEEE 754 gives 1, Java gives NaN
        if y.is_nan() || x.abs() == 1.0 && y.is_infinite() { f64::NAN } else { x.powf(y) }
    });
    math.add("log", &["number x, number base -> double"], NullPolicy::Null, |args| {
        let base = double(args, 1)?;
        if base == 1.0 {
            return Err("the base of a logarithm cannot be 1".into());
        }
        Ok(Value::Double(double(args, 0)?.ln() / base.ln()))
    });
}

fn register_text_formats(math: &mut NamespaceRegistrar<'_>) {
    math.add("parseInt", &["string text -> int"], NullPolicy::Null, |args| {
        Ok(Value::Int(parse_int(text(args, 0)?, 10)?))
    });
    math.add("parseLong", &["string text -> long"], NullPolicy::Null, |args| {
        Ok(Value::Long(parse_whole(text(args, 0)?, 10)?))
    });
    math.add("parseFloat", &["string text -> float"], NullPolicy::Null, |args| {
        Ok(Value::Float(parse_float(text(args, 0)?)?))
    });
    math.add("parseDouble", &["string text -> double"], NullPolicy::Null, |args| {
        Ok(Value::Double(parse_double(text(args, 0)?)?))
    });
    let whole = ["whole x -> string"];
    math.add("bin", &whole, NullPolicy::Null, |args| {
        unsigned(&args[0], |n| format!("{n:b}"), |n| format!("{n:b}"))
    });
    math.add("oct", &whole, NullPolicy::Null, |args| {
        unsigned(&args[0], |n| format!("{n:o}"), |n| format!("{n:o}"))
    });
    math.add("hex", &["number x -> string"], NullPolicy::Null, |args| match &args[0] {
        Value::Float(x) => Ok(Value::text(&hex_float(*x))),
        Value::Double(x) => Ok(Value::text(&hex_double(*x))),
        whole => unsigned(whole, |n| format!("{n:x}"), |n| format!("{n:x}")),
    });
    math.add("conv", &["string text, int from, int to -> string"], NullPolicy::Null, |args| {
        let n = parse_int(text(args, 0)?, u32::try_from(int(args, 1)?).unwrap_or(0))?;
        let to = u32::try_from(int(args, 2)?).ok().filter(|to| (2..=36).contains(to)).unwrap_or(10);
        Ok(Value::text(&in_base(n, to)))
    });
}

/// Formats the bits of an int or a long.
fn unsigned(x: &Value, int: fn(u32) -> String, long: fn(u64) -> String) -> ScalarResult {
    Ok(match x {
        Value::Int(n) => Value::text(&int(*n as u32)),
        Value::Long(n) => Value::text(&long(*n as u64)),
        _ => Value::Null,
    })
}

fn register_classes(math: &mut NamespaceRegistrar<'_>) {
    let forms = ["decimal x -> bool"];
    math.add("isInfinite", &forms, NullPolicy::Pass, |args| {
        Ok(Value::Bool(args[0].as_f64().is_some_and(f64::is_infinite)))
    });
    math.add("isNan", &forms, NullPolicy::Pass, |args| {
        Ok(Value::Bool(args[0].as_f64().is_some_and(f64::is_nan)))
    });
}
