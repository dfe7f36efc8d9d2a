//! `unitconversion:kgTolb(x)` and the like: each unit of a dimension into each other one.

use super::library::ScalarResult;
use super::signature::Signature;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{Function, FunctionContext};
use crate::registry::Registry;

use std::sync::Arc;

/// Units of length, in metres.
const LENGTHS: &[(&str, f64)] = &[
    ("Mm", 1e6),
    ("km", 1e3),
    ("m", 1.0),
    ("cm", 1e-2),
    ("mm", 1e-3),
    ("um", 1e-6),
    ("nm", 1e-9),
    ("mi", 1609.344),
    ("yd", 0.9144),
    ("ft", 0.3048),
    ("in", 0.0254),
];
/// Units of mass, in grams; `LT` is the imperial ton, `ST` the one of the United States, `st` the stone.
const MASSES: &[(&str, f64)] = &[
    ("t", 1e6),
    ("kg", 1e3),
    ("g", 1.0),
    ("mg", 1e-3),
    ("ug", 1e-6),
    ("LT", 1_016_046.908_8),
    ("ST", 907_184.74),
    ("st", 6_350.293_18),
    ("lb", 453.592_37),
    ("oz", 28.349_523_125),
];
/// Units of time, in seconds.
const TIMES: &[(&str, f64)] = &[
    ("y", 31_556_952.0),
    ("w", 604_800.0),
    ("d", 86_400.0),
    ("h", 3600.0),
    ("min", 60.0),
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("ns", 1e-9),
];
/// Units of volume, in litres; `gal` is the imperial gallon.
const VOLUMES: &[(&str, f64)] = &[("m3", 1e3), ("l", 1.0), ("ml", 1e-3), ("gal", 4.546_09)];

/// Registers the functions.
pub(super) fn register(registry: &mut Registry) {
    for units in [LENGTHS, MASSES, TIMES, VOLUMES] {
        for (from, size) in units {
            for (to, target) in units.iter().filter(|(to, _)| to != from) {
                let name = format!("unitconversion:{from}To{to}");
                let signature = Signature::parse(&["number x -> double"]);
                let (size, target) = (*size, *target);
                let called = name.clone();
                registry.function(&name, move |args| {
                    let (_, ty) = signature.check(args)?;
                    Ok((Arc::new(Conversion { name: called.clone(), size, target }), ty))
                });
            }
        }
    }
}

#[derive(Debug)]
struct Conversion {
    name: String,
    /// The unit converted from and the one converted to, in the base unit of their dimension.
    size: f64,
    target: f64,
}

impl Function for Conversion {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> Result<Value, EvalError> {
        let converted: ScalarResult = match args.first() {
            None | Some(Value::Null) => return Err(EvalError::null(format!("{}: `x`", self.name))),
            Some(x) => x.as_f64().map(|x| Value::Double(x * self.size / self.target)).ok_or_else(String::new),
        };
        converted.map_err(|_| EvalError::argument(format!("{}: `x` must be a number", self.name)))
    }
}
