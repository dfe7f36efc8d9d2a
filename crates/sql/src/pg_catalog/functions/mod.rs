//! Functions of PostgreSQL that tell of its catalogs and of the session.
//!
//! A function is a row of a table: name, arguments, type of its result, and what it does for one row. They are registered for the
//! statements that name one of them, over the objects that the statement sees.

mod access;
mod definitions;
mod format;
mod keywords;
mod lists;
mod names;
pub(super) mod object_types;
mod session;
mod sizes;
mod specs;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::definitions::{ColumnDefinition, data_type};
use super::objects::Objects;
use super::rows::{Cell, array};

pub(super) use access::may_change;
pub(super) use definitions::{index_definition, sql_type};
pub(super) use keywords::Keywords;
pub(crate) use lists::is_vector;
pub(super) use lists::{EXPAND, OR_EMPTY, SUBSCRIPTS};
pub(super) use specs::NO_TEXTS;

/// Value of an argument.
#[derive(Debug, Clone, PartialEq)]
enum Arg {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
}

/// Type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Text,
    /// Number of an object or its name.
    Object,
}

/// Value of a function for one row.
type Body = fn(&Objects, &[Arg]) -> Result<Cell>;

/// A function.
struct Spec {
    name: &'static str,
    arguments: &'static [Kind],
    /// Arguments at the end that may be left out.
    optional: usize,
    /// PostgreSQL's type of the result.
    result: &'static str,
    /// True if the result is null when an argument is.
    is_strict: bool,
    body: Body,
}

impl Spec {
    fn form(&self) -> String {
        let names = self.arguments.iter().enumerate().map(|(at, kind)| {
            let name = match kind {
                Kind::Bool => "boolean",
                Kind::Int => "integer",
                Kind::Text => "text",
                Kind::Object => "oid",
            };
            match at >= self.arguments.len() - self.optional {
                true => format!("[{name}]"),
                false => name.to_owned(),
            }
        });
        format!("{}({})", self.name, names.collect::<Vec<_>>().join(", "))
    }
}

/// Returns whether there is a function of this name, in lower case.
pub(super) fn is_known(name: &str) -> bool {
    lists::NAMES.contains(&name)
        || name == format::FORMAT
        || specs::all().iter().any(|spec| spec.name == name)
}

/// Returns the names of all functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    specs::all().iter().map(|spec| spec.name).chain(lists::NAMES).chain([format::FORMAT])
}

/// Adds the functions to the state of a statement.
pub(super) fn register(state: &mut SessionState, objects: &Arc<Objects>) -> Result<()> {
    for (at, _) in specs::all().iter().enumerate() {
        let signature = Signature::user_defined(Volatility::Stable);
        let function = CatalogFunction { spec: at, objects: objects.clone(), signature };
        state.register_udf(Arc::new(ScalarUDF::from(function)))?;
    }
    state.register_udf(Arc::new(format::format()))?;
    lists::register(state)
}

/// A function over the objects that a statement sees.
#[derive(Debug)]
struct CatalogFunction {
    /// Number of its [`Spec`].
    spec: usize,
    objects: Arc<Objects>,
    signature: Signature,
}

impl CatalogFunction {
    fn spec(&self) -> &'static Spec {
        // numbers are those of the table
        &specs::all()[self.spec]
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec && Arc::ptr_eq(&self.objects, &other.objects)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.spec().name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.spec().result))
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let spec = self.spec();
        let column = ColumnDefinition { name: spec.name, ty: spec.result, is_nullable: true };
        Ok(Arc::new(column.field()))
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let spec = self.spec();
        let count = spec.arguments.len();
        if given.len() > count || given.len() + spec.optional < count {
            return plan_err!(
                "there is no function {} of {} arguments: expected {}",
                spec.name,
                given.len(),
                spec.form()
            );
        }
        let wanted = given.iter().zip(spec.arguments).map(|(given, kind)| match (kind, given) {
            (Kind::Bool, DataType::Boolean | DataType::Null) => Ok(DataType::Boolean),
            // a value of a parameter comes as a text
            (Kind::Bool, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => Ok(DataType::Boolean),
            (Kind::Int, ty) if ty.is_integer() || ty.is_null() => Ok(DataType::Int64),
            (Kind::Object, ty) if ty.is_integer() || ty.is_null() => Ok(DataType::Int64),
            (Kind::Int, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => Ok(DataType::Int64),
            (
                Kind::Text | Kind::Object,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null,
            ) => Ok(DataType::Utf8),
            _ => plan_err!("there is no function {} of {given}: expected {}", spec.name, spec.form()),
        });
        wanted.collect()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let spec = self.spec();
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let columns: Vec<ArrayRef> = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let cells = (0..rows).map(|row| {
            let values: Vec<Arg> = columns.iter().map(|column| value(column, row)).collect::<Result<_>>()?;
            match spec.is_strict && values.contains(&Arg::Null) {
                true => Ok(Cell::Null),
                false => (spec.body)(&self.objects, &values),
            }
        });
        let cells: Vec<Cell> = cells.collect::<Result<_>>()?;
        let column = ColumnDefinition { name: spec.name, ty: spec.result, is_nullable: true };
        let result = array(&column, &cells)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

fn value(column: &ArrayRef, row: usize) -> Result<Arg> {
    if column.is_null(row) {
        return Ok(Arg::Null);
    }
    Ok(match column.data_type() {
        DataType::Boolean => Arg::Bool(column.as_boolean().value(row)),
        DataType::Int64 => Arg::Int(column.as_primitive::<Int64Type>().value(row)),
        DataType::Utf8 => Arg::Text(column.as_string::<i32>().value(row).to_owned()),
        DataType::Null => Arg::Null,
        other => return exec_err!("an argument of type {other}"),
    })
}

/// Returns the number of an object from an argument.
fn number(arg: Option<&Arg>) -> Option<i64> {
    match arg? {
        Arg::Int(value) => Some(*value),
        Arg::Text(text) => text.trim().parse().ok(),
        Arg::Bool(_) | Arg::Null => None,
    }
}

/// Returns the text of an argument.
fn text(arg: Option<&Arg>) -> &str {
    match arg {
        Some(Arg::Text(text)) => text,
        _ => "",
    }
}

/// Returns the field of a result of this type of PostgreSQL.
fn field(name: &'static str, ty: &'static str) -> Field {
    ColumnDefinition { name, ty, is_nullable: true }.field()
}
