//! Registration of built-in functions: name, signatures, null handling and implementation.

use std::fmt;
use std::sync::Arc;

use tidemill_types::FieldType;

use super::signature::{Overload, Signature};
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{ArgumentType, BoundFunction, ColumnarValue, Function, FunctionContext};
use crate::registry::Registry;

/// Result of a function for one row: a value or an error message.
pub(crate) type ScalarResult = Result<Value, String>;

/// Implementation of a function for one row.
pub(crate) type ScalarFn = dyn Fn(&[Value], &FunctionContext) -> ScalarResult + Send + Sync;

/// Batched implementation of a function; returns `None` to fall back to [`ScalarFn`], see
/// [`Function::call_batch`].
pub(crate) type BatchScalarFn = dyn Fn(&[ColumnarValue<'_>], usize) -> Option<Column> + Send + Sync;

/// Batched implementation that always falls back to row-at-a-time evaluation.
fn row_by_row(_: &[ColumnarValue<'_>], _: usize) -> Option<Column> {
    None
}

/// Effect of a null argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullPolicy {
    /// The call is an error.
    Fail,
    /// The result is null.
    Null,
    /// The function handles nulls itself.
    Pass,
}

/// The implementations bound to a call site and the type of the result.
type BoundScalarFn = (Box<ScalarFn>, Box<BatchScalarFn>, FieldType);

/// Registers the functions of one namespace.
pub(crate) struct NamespaceRegistrar<'r> {
    registry: &'r mut Registry,
    namespace: &'static str,
}

impl<'r> NamespaceRegistrar<'r> {
    /// Creates a registrar for functions called `namespace:name`, or just `name` if the namespace is empty.
    pub(crate) fn new(registry: &'r mut Registry, namespace: &'static str) -> Self {
        Self { registry, namespace }
    }

    /// Registers a function that depends on nothing but its arguments.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: NullPolicy,
        compute: fn(&[Value]) -> ScalarResult,
    ) {
        self.build(name, forms, nulls, move |_| Ok(Box::new(move |args, _| compute(args))));
    }

    /// Registers a function whose implementation is built per call site, so that constant arguments are
    /// evaluated once.
    pub(crate) fn build(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: NullPolicy,
        make: impl Fn(&[ArgumentType]) -> Result<Box<ScalarFn>, String> + Send + Sync + 'static,
    ) {
        self.register(name, forms, nulls, move |args, ty| Ok((make(args)?, Box::new(row_by_row), ty)));
    }

    /// Registers a function as [`Self::build`] does, with a batched implementation in addition.
    pub(crate) fn build_batched(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: NullPolicy,
        make: impl Fn(&[ArgumentType]) -> Result<(Box<ScalarFn>, Box<BatchScalarFn>), String>
        + Send
        + Sync
        + 'static,
    ) {
        self.register(name, forms, nulls, move |args, ty| {
            let (compute, batch) = make(args)?;
            Ok((compute, batch, ty))
        });
    }

    /// Registers a function as [`Self::build`] does, whose result type depends on constant arguments.
    pub(crate) fn build_typed(
        &mut self,
        name: &'static str,
        forms: &[&'static str],
        nulls: NullPolicy,
        make: impl Fn(&[ArgumentType]) -> Result<(Box<ScalarFn>, FieldType), String> + Send + Sync + 'static,
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
        nulls: NullPolicy,
        make: impl Fn(&[ArgumentType], FieldType) -> Result<BoundScalarFn, String> + Send + Sync + 'static,
    ) {
        let signature = Signature::parse(forms);
        let name = self.qualified_name(name);
        let called = name.clone();
        self.registry.function(&name, move |args| {
            let (form, ty) = signature.check(args)?;
            let (compute, batch, ty) = make(args, ty)?;
            let native = NativeFunction { name: called.clone(), form: form.clone(), nulls, compute, batch };
            let built: BoundFunction = (Arc::new(native), ty);
            Ok(built)
        });
    }

    fn qualified_name(&self, name: &str) -> String {
        if self.namespace.is_empty() { name.to_owned() } else { format!("{}:{name}", self.namespace) }
    }
}

/// Functions whose results depend on the order of all calls.
const RANDOM: &[&str] = &["UUID", "math:rand"];

/// Built-in function, bound to a call site.
struct NativeFunction {
    name: String,
    form: Overload,
    nulls: NullPolicy,
    compute: Box<ScalarFn>,
    batch: Box<BatchScalarFn>,
}

impl Function for NativeFunction {
    fn call(&self, args: &[Value], state: &FunctionContext) -> Result<Value, EvalError> {
        if self.nulls != NullPolicy::Pass
            && let Some(null) = args.iter().position(Value::is_null)
        {
            return match self.nulls {
                NullPolicy::Null => Ok(Value::Null),
                _ => Err(EvalError::null(format!("{}: `{}`", self.name, self.form.name(null)))),
            };
        }
        (self.compute)(args, state).map_err(|why| EvalError::argument(format!("{}: {why}", self.name)))
    }

    fn call_batch(&self, args: &[ColumnarValue<'_>], rows: usize) -> Option<Column> {
        let has_nulls = || args.iter().any(|a| !a.has_no_nulls());
        if self.nulls != NullPolicy::Pass && has_nulls() { None } else { (self.batch)(args, rows) }
    }

    fn depends_on_order(&self) -> bool {
        RANDOM.contains(&self.name.as_str())
    }
}

impl fmt::Debug for NativeFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.form)
    }
}

/// Returns argument `i` as a string.
pub(crate) fn text(args: &[Value], i: usize) -> Result<&str, String> {
    args.get(i).and_then(Value::as_str).ok_or_else(|| format!("argument {} must be a string", i + 1))
}

/// Returns argument `i` as an int.
pub(crate) fn int(args: &[Value], i: usize) -> Result<i32, String> {
    match args.get(i) {
        Some(Value::Int(n)) => Ok(*n),
        _ => Err(format!("argument {} must be an int", i + 1)),
    }
}

/// Returns argument `i` as a double.
pub(crate) fn double(args: &[Value], i: usize) -> Result<f64, String> {
    args.get(i).and_then(Value::as_f64).ok_or_else(|| format!("argument {} must be a number", i + 1))
}

/// Returns the value of argument `i` if it is a constant string.
pub(crate) fn constant_text(args: &[ArgumentType], i: usize) -> Option<&str> {
    args.get(i)?.constant.as_ref()?.as_str()
}
