//! Functions of lists, among them vectors, whose elements PostgreSQL counts from 0.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray, StringArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::cast::as_list_array;
use datafusion::common::{Result, plan_err};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_database::PG_TYPE;

use super::field;
use crate::pg_catalog::column_type::type_of;
use crate::pg_catalog::definitions::type_of_oid;
use crate::pg_catalog::functions::sql_type;

/// Name of the function whose rows are the subscripts of a list.
pub(in crate::pg_catalog) const SUBSCRIPTS: &str = "generate_subscripts";
/// Name of the function whose rows are the elements of a list, `x`, with their number from 1, `n`.
pub(in crate::pg_catalog) const EXPAND: &str = "_pg_expandarray";

/// Name of the function that makes a list without elements of one that is null.
pub(in crate::pg_catalog) const OR_EMPTY: &str = "__or_empty";

/// Names of all functions of this module.
pub(super) const NAMES: [&str; 7] =
    [SUBSCRIPTS, EXPAND, OR_EMPTY, "array_upper", "array_lower", "oidvectortypes", "pg_typeof"];

pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for name in NAMES {
        let signature = Signature::user_defined(Volatility::Stable);
        state.register_udf(Arc::new(ScalarUDF::from(ListFunction { name, signature })))?;
    }
    Ok(())
}

/// Returns whether a column is a vector, whose elements are counted from 0.
pub(crate) fn is_vector(field: &Field) -> bool {
    matches!(field.metadata().get(PG_TYPE).map(String::as_str), Some("int2vector" | "oidvector"))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListFunction {
    name: &'static str,
    signature: Signature,
}

/// Returns the type of the elements of `_pg_expandarray`.
fn pair() -> Fields {
    Fields::from(vec![Field::new("x", DataType::Int64, true), Field::new("n", DataType::Int64, true)])
}

impl ScalarUDFImpl for ListFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        let list = |item: DataType| DataType::List(Arc::new(Field::new_list_field(item, true)));
        Ok(match self.name {
            SUBSCRIPTS => list(DataType::Int64),
            EXPAND => list(DataType::Struct(pair())),
            OR_EMPTY => args.first().cloned().unwrap_or(DataType::Null),
            "array_upper" | "array_lower" => DataType::Int64,
            _ => DataType::Utf8,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let (OR_EMPTY, [list]) = (self.name, args.arg_fields) {
            return Ok(Arc::new(list.as_ref().clone().with_name(OR_EMPTY)));
        }
        if let "array_upper" | "array_lower" = self.name {
            return Ok(Arc::new(field(self.name, "int8")));
        }
        Ok(Arc::new(Field::new(self.name, self.return_type(&[])?, true)))
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let refused = |expected: &str| {
            plan_err!(
                "there is no function {} of these arguments: expected {}({expected})",
                self.name,
                self.name
            )
        };
        let counts = match self.name {
            SUBSCRIPTS => 2..=3,
            "array_upper" | "array_lower" => 2..=2,
            _ => 1..=1,
        };
        if !counts.contains(&given.len()) {
            return refused(if self.name == "pg_typeof" { "value" } else { "list, dimension" });
        }
        if self.name == "pg_typeof" {
            return Ok(given.to_vec());
        }
        let list = match &given[0] {
            DataType::List(_) => given[0].clone(),
            DataType::Null => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
            _ => return refused("list, dimension"),
        };
        let mut types = vec![list];
        types.extend(given[1..].iter().enumerate().map(|(at, _)| match at {
            0 => DataType::Int64,
            _ => DataType::Boolean,
        }));
        Ok(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        if self.name == "pg_typeof" {
            let (oid, modifier) = args.arg_fields.first().map_or((705, -1), |field| type_of(field));
            let name = match args.arg_fields.first().is_some_and(|field| field.data_type().is_null()) {
                true => "unknown".to_owned(),
                false => type_of_oid(oid).map_or_else(String::new, |ty| sql_type(ty, modifier.min(-1))),
            };
            return Ok(ColumnarValue::Array(Arc::new(StringArray::from(vec![name; rows]))));
        }
        let first = i64::from(!args.arg_fields.first().is_some_and(|field| is_vector(field)));
        let lists = args.args[0].to_array(rows)?;
        let lists = as_list_array(&lists)?;
        let lengths = (0..rows).map(|row| lists.is_valid(row).then(|| i64::from(lists.value_length(row))));
        // a list without elements has no dimension
        let filled = lengths.clone().map(|length| length.filter(|length| *length > 0));
        let result: ArrayRef = match self.name {
            OR_EMPTY => {
                let (field, offsets, values, _) = lists.clone().into_parts();
                Arc::new(ListArray::try_new(field, offsets, values, None)?)
            }
            "array_upper" => {
                Arc::new(filled.map(|length| length.map(|n| first + n - 1)).collect::<Int64Array>())
            }
            "array_lower" => Arc::new(filled.map(|length| length.map(|_| first)).collect::<Int64Array>()),
            "oidvectortypes" => Arc::new(names(lists)?),
            SUBSCRIPTS => {
                let values = lengths.clone().flat_map(|length| {
                    let end = first + length.unwrap_or(0);
                    first..end
                });
                let values = Arc::new(values.collect::<Int64Array>());
                let offsets = OffsetBuffer::from_lengths(lengths.map(|length| to_usize(length.unwrap_or(0))));
                let nulls: Option<NullBuffer> = lists.nulls().cloned();
                Arc::new(ListArray::try_new(
                    Arc::new(Field::new_list_field(DataType::Int64, true)),
                    offsets,
                    values,
                    nulls,
                )?)
            }
            _ => expanded(lists)?,
        };
        Ok(ColumnarValue::Array(result))
    }
}

fn to_usize(value: i64) -> usize {
    // a length
    usize::try_from(value).unwrap_or(0)
}

/// Returns the names of the types in each list.
fn names(lists: &ListArray) -> Result<StringArray> {
    let lists = (0..lists.len()).map(|row| {
        if lists.is_null(row) {
            return Ok(None);
        }
        let oids = cast(&lists.value(row), &DataType::Int64)?;
        let oids = datafusion::common::cast::as_int64_array(&oids)?;
        let names = oids.iter().flatten().map(|oid| {
            let ty = u32::try_from(oid).ok().and_then(type_of_oid);
            ty.map_or_else(|| "???".to_owned(), |ty| sql_type(ty, -1))
        });
        Ok(Some(names.collect::<Vec<_>>().join(", ")))
    });
    lists.collect()
}

/// Returns for each list its elements with their numbers.
fn expanded(lists: &ListArray) -> Result<ArrayRef> {
    let mut elements = vec![];
    let mut numbers: Vec<i64> = vec![];
    let mut lengths = vec![];
    for row in 0..lists.len() {
        let length = if lists.is_valid(row) { lists.value(row).len() } else { 0 };
        if length > 0 {
            elements.push(cast(&lists.value(row), &DataType::Int64)?);
            numbers.extend((1_i64..).take(length));
        }
        lengths.push(length);
    }
    let elements: Vec<&dyn Array> = elements.iter().map(AsRef::as_ref).collect();
    let elements = match elements.is_empty() {
        true => Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef,
        false => arrow::compute::concat(&elements)?,
    };
    let values = StructArray::try_new(pair(), vec![elements, Arc::new(Int64Array::from(numbers))], None)?;
    let item = Arc::new(Field::new_list_field(DataType::Struct(pair()), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(values), lists.nulls().cloned())?))
}
