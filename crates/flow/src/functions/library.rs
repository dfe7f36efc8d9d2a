//! How functions are registered: a name, its forms, what nulls do, and what computes it.

use std::fmt;
use std::sync::Arc;

use tidemill_types::FieldType;

use super::signature::{Form, Signature};
use crate::column::Column;
use crate::expr::Failure;
use crate::registry::{Arg, Argument, BuiltFunction, Function, FunctionState, Registry};
use crate::value::Value;

/// A value, or why there is none.
pub(crate) type Computed = Result<Value, String>;

/// Computes a function.
pub(crate) type Compute = dyn Fn(&[Value], &FunctionState) -> Computed + Send + Sync;

/// Computes a function for many rows at once, or leaves that to [`Compute`]; see [`Function::call_batch`].
pub(crate) type ComputeBatch = dyn Fn(&[Argument<'_>], usize) -> Option<Column> + Send + Sync;

/// Computes no batch.
fn row_by_row(_: &[Argument<'_>], _: usize) -> Option<Column> {
    None
}

/// What an argument that is null does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// The event fails.
    Fail,
    /// The result is null.
    Null,
    /// The function deals with it.
    Pass,
}

/// What computes the calls in a place, and the type of the result.
type Made = (Box<Compute>, Box<ComputeBatch>, FieldType);

/// Registers functions of one namespace.
pub(crate) struct Library<'r> {
    registry: &'r mut Registry,
    namespace: &'static str,
}

impl<'r> Library<'r> {
    /// Functions called `namespace:name`, or `name` in the namespace without a name.
    pub(crate) fn new(registry: &'r mut Registry, namespace: &'static str) -> Self {
        Self { registry, namespace }
    }

    /// A function that needs nothing but its arguments.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: Nulls,
        compute: fn(&[Value]) -> Computed,
    ) {
        self.build(name, forms, nulls, move |_| Ok(Box::new(move |args, _| compute(args))));
    }

    /// A function that is made for the arguments of a call: constants among them are looked at once.
    pub(crate) fn build(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: Nulls,
        make: impl Fn(&[Arg]) -> Result<Box<Compute>, String> + Send + Sync + 'static,
    ) {
        self.register(name, forms, nulls, move |args, ty| Ok((make(args)?, Box::new(row_by_row), ty)));
    }

    /// As [`Self::build`], for functions that can do many rows at once.
    pub(crate) fn build_batched(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: Nulls,
        make: impl Fn(&[Arg]) -> Result<(Box<Compute>, Box<ComputeBatch>), String> + Send + Sync + 'static,
    ) {
        self.register(name, forms, nulls, move |args, ty| {
            let (compute, batch) = make(args)?;
            Ok((compute, batch, ty))
        });
    }

    /// As [`Self::build`], for functions whose constants also tell the type of the result.
    pub(crate) fn build_typed(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: Nulls,
        make: impl Fn(&[Arg]) -> Result<(Box<Compute>, FieldType), String> + Send + Sync + 'static,
    ) {
        self.register(name, forms, nulls, move |args, _| {
            let (compute, ty) = make(args)?;
            Ok((compute, Box::new(row_by_row), ty))
        });
    }

    fn register(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: Nulls,
        make: impl Fn(&[Arg], FieldType) -> Result<Made, String> + Send + Sync + 'static,
    ) {
        let signature = Signature::parse(forms);
        let name = self.full(name);
        let called = name.clone();
        self.registry.function(&name, move |args| {
            let (form, ty) = signature.check(args)?;
            let (compute, batch, ty) = make(args, ty)?;
            let native = Native { name: called.clone(), form: form.clone(), nulls, compute, batch };
            let built: BuiltFunction = (Arc::new(native), ty);
            Ok(built)
        });
    }

    fn full(&self, name: &str) -> String {
        if self.namespace.is_empty() { name.to_owned() } else { format!("{}:{name}", self.namespace) }
    }
}

/// Those whose values depend on the order of all calls.
const RANDOM: &[&str] = &["UUID", "math:rand"];

/// A function that comes built in.
struct Native {
    name: String,
    form: Form,
    nulls: Nulls,
    compute: Box<Compute>,
    batch: Box<ComputeBatch>,
}

impl Function for Native {
    fn call(&self, args: &[Value], state: &FunctionState) -> Result<Value, Failure> {
        if self.nulls != Nulls::Pass
            && let Some(null) = args.iter().position(Value::is_null)
        {
            return match self.nulls {
                Nulls::Null => Ok(Value::Null),
                _ => Err(Failure(format!("{}: `{}` is null", self.name, self.form.name(null)))),
            };
        }
        (self.compute)(args, state).map_err(|why| Failure(format!("{}: {why}", self.name)))
    }

    fn call_batch(&self, args: &[Argument<'_>], rows: usize) -> Option<Column> {
        let has_nulls = || args.iter().any(|a| !a.has_no_nulls());
        if self.nulls != Nulls::Pass && has_nulls() { None } else { (self.batch)(args, rows) }
    }

    fn depends_on_order(&self) -> bool {
        RANDOM.contains(&self.name.as_str())
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.form)
    }
}

/// Argument `i` as a text.
pub(crate) fn text(args: &[Value], i: usize) -> Result<&str, String> {
    args.get(i).and_then(Value::as_str).ok_or_else(|| format!("argument {} is no text", i + 1))
}

/// Argument `i` as an int.
pub(crate) fn int(args: &[Value], i: usize) -> Result<i32, String> {
    match args.get(i) {
        Some(Value::Int(n)) => Ok(*n),
        _ => Err(format!("argument {} is no int", i + 1)),
    }
}

/// Argument `i` as a double.
pub(crate) fn double(args: &[Value], i: usize) -> Result<f64, String> {
    args.get(i).and_then(Value::as_f64).ok_or_else(|| format!("argument {} is no number", i + 1))
}

/// The text that argument `i` always has, if it is a constant one.
pub(crate) fn constant_text(args: &[Arg], i: usize) -> Option<&str> {
    args.get(i)?.constant.as_ref()?.as_str()
}
