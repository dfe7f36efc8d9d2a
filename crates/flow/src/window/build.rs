//! Construction of windows from their names and parameters.

use std::ops::RangeInclusive;

use tidemill_types::FieldType;

use super::{
    WindowConstructor, batch, cron, expression, expression_batch, external_time, external_time_batch,
    frequent, length, length_batch, lossy_frequent, session, sort, time, time_batch, time_length, unique,
};
use crate::expr::{Expr, Node};
use crate::registry::Registry;
use crate::value::Value;

/// A parameter of a window.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Expression evaluated on a row, which is slot 0.
    pub expr: Expr,
    /// Attribute name if the parameter is a plain attribute.
    pub attribute: Option<String>,
    /// Source text, for errors.
    pub text: String,
}

/// An attribute of a window's input rows.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// Attribute name.
    pub name: String,
    /// Attribute type.
    pub ty: FieldType,
    /// Column index in the [`RowStore`](crate::store::RowStore).
    pub column: usize,
}

/// Description of a window's input, for the construction of the window.
#[derive(Clone, Copy)]
pub struct WindowInput<'a> {
    /// Names that may qualify an attribute: the stream's name and its alias.
    pub names: &'a [&'a str],
    /// Attributes in order.
    pub attributes: &'a [Attribute],
    /// Columns that the query selects as plain attributes; `None` if it selects all.
    pub selected: Option<&'a [usize]>,
    /// Functions and aggregates that conditions may call.
    pub registry: &'a Registry,
}

type WindowFactoryFn = fn(&[Parameter], &WindowInput<'_>) -> Result<WindowConstructor, String>;

/// Built-in windows by name.
const WINDOWS: &[(&str, WindowFactoryFn)] = &[
    ("batch", batch::build),
    ("cron", cron::build),
    ("delay", time::delay),
    ("expression", expression::build),
    ("expressionBatch", expression_batch::build),
    ("externalTime", external_time::build),
    ("externalTimeBatch", external_time_batch::build),
    ("frequent", frequent::build),
    ("length", length::build),
    ("lengthBatch", length_batch::build),
    ("lossyFrequent", lossy_frequent::build),
    ("session", session::build),
    ("sort", sort::build),
    ("time", time::build),
    ("timeBatch", time_batch::build),
    ("timeLength", time_length::build),
    ("unique:ever", unique::ever),
    ("unique:externalTimeBatch", external_time_batch::build_unique),
    ("unique:first", unique::first),
    ("unique:firstLengthBatch", unique::first_length_batch),
    ("unique:firstTimeBatch", unique::first_time_batch),
    ("unique:length", unique::length),
    ("unique:lengthBatch", unique::length_batch),
    ("unique:time", unique::time),
    ("unique:timeBatch", unique::time_batch),
    ("unique:timeLengthBatch", unique::time_length_batch),
];

/// Registers the built-in windows.
pub(crate) fn register(registry: &mut Registry) {
    for (name, build) in WINDOWS {
        registry.window(name, build);
    }
}

/// Checks the number of parameters; `form` is the expected form, for the error.
pub(super) fn arity(
    parameters: &[Parameter],
    allowed: RangeInclusive<usize>,
    form: &str,
) -> Result<(), String> {
    if allowed.contains(&parameters.len()) {
        return Ok(());
    }
    let given = match parameters.len() {
        0 => "no parameters".to_owned(),
        1 => "1 parameter".to_owned(),
        n => format!("{n} parameters"),
    };
    Err(format!("expected {form}, found {given}"))
}

impl Parameter {
    fn wrong<T>(&self, what: &str, wanted: &str) -> Result<T, String> {
        Err(format!("{what} must be {wanted}, found `{}`", self.text))
    }

    /// Returns a constant int or long of at least 0: a time span in milliseconds.
    pub fn span(&self, what: &str) -> Result<i64, String> {
        match self.expr.as_const().and_then(Value::as_i64) {
            Some(span) if span >= 0 => Ok(span),
            _ => self.wrong(what, "a constant time or number of milliseconds, 0 or more"),
        }
    }

    /// Returns a span as [`Self::span`] does; `None` for 0 and -1. Errors: other negative values.
    pub fn span_or_none(&self, what: &str) -> Result<Option<i64>, String> {
        match self.expr.as_const().and_then(Value::as_i64) {
            Some(0 | -1) => Ok(None),
            Some(span) if span > 0 => Ok(Some(span)),
            _ => self.wrong(what, "a constant time or number of milliseconds above 0, or -1 for none"),
        }
    }

    /// Returns a span greater than 0, for spans that repeat.
    pub fn period(&self, what: &str) -> Result<i64, String> {
        match self.span(what)? {
            0 => self.wrong(what, "a constant time or number of milliseconds above 0"),
            span => Ok(span),
        }
    }

    /// Returns a constant int of at least 0.
    pub fn count(&self, what: &str) -> Result<u64, String> {
        match self.expr.as_const() {
            Some(Value::Int(n)) if *n >= 0 => Ok(u64::from(n.unsigned_abs())),
            _ => self.wrong(what, "a constant int, 0 or more"),
        }
    }

    /// Returns a constant int or long as an instant.
    pub fn instant(&self, what: &str) -> Result<i64, String> {
        match self.expr.as_const().and_then(Value::as_i64) {
            Some(instant) => Ok(instant),
            None => self.wrong(what, "a constant number of milliseconds"),
        }
    }

    /// Returns a constant bool.
    pub fn flag(&self, what: &str) -> Result<bool, String> {
        match self.expr.as_const() {
            Some(Value::Bool(flag)) => Ok(*flag),
            _ => self.wrong(what, "a constant, true or false"),
        }
    }

    /// Returns a constant double from 0 to 1.
    pub fn share(&self, what: &str) -> Result<f64, String> {
        match self.expr.as_const() {
            Some(Value::Double(share)) if (0.0..=1.0).contains(share) => Ok(*share),
            _ => self.wrong(what, "a constant double from 0.0 to 1.0"),
        }
    }

    /// Returns a constant string.
    pub fn constant_text(&self, what: &str) -> Result<&str, String> {
        match self.expr.as_const().and_then(Value::as_str) {
            Some(text) => Ok(text),
            None => self.wrong(what, "a constant string"),
        }
    }

    /// Returns the column of an attribute that has one of these types.
    pub fn column(&self, what: &str, types: &[FieldType]) -> Result<usize, String> {
        match self.expr.node {
            Node::Column { slot: 0, column } if types.contains(&self.expr.ty) => Ok(column),
            _ => {
                let names: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
                self.wrong(what, &format!("an attribute of type {}", names.join(" or ")))
            }
        }
    }
}
