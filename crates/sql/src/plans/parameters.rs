//! Values of the parameters of a query: `$1`, `$2`, ….

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use tidemill_database::{Parameter, ParameterList};
use tidemill_types::{Error, Result, Value};

use crate::error::{from_datafusion, in_words};
use crate::plans::quantified;

/// Types of the parameters of a query, as far as their context tells them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParameterTypes(Vec<Option<DataType>>);

impl ParameterTypes {
    /// Returns the parameters of a plan that has not been optimized.
    ///
    /// Errors: `Invalid` for a parameter that has no number, and for numbers that are left out.
    pub fn of(plan: &LogicalPlan) -> Result<Self> {
        let found = plan.get_parameter_types().map_err(|e| from_datafusion(&e, None))?;
        let counts = parameters_of_limits(plan);
        let lists = quantified::list_types(plan);
        let mut numbered = BTreeMap::new();
        for (name, ty) in found {
            let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
            let number = number.filter(|number| *number > 0).ok_or_else(|| {
                Error::invalid(format!(
                    "the parameter `{name}` has no number: write $1 for the first value, $2 for the second"
                ))
            })?;
            let ty = ty.or_else(|| counts.contains(&name).then_some(DataType::Int64));
            numbered.insert(number, ty.or_else(|| lists.get(&name).cloned()));
        }
        if let Some(missing) = (1..=numbered.len()).find(|number| !numbered.contains_key(number)) {
            return Err(Error::invalid(format!(
                "the query has {} parameters and no ${missing}",
                numbered.len()
            )));
        }
        Ok(Self(numbered.into_values().collect()))
    }

    /// Returns the types for clients that send values in them: also that of `$1` in `CAST($1 AS t)`, whose values may have another
    /// type, as the cast takes them.
    ///
    /// Errors: those of [`Self::of`].
    pub fn described(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>> {
        let Self(types) = Self::of(plan)?;
        let casts = types_of_casts(plan);
        let types =
            (1..).zip(types).map(|(number, ty)| ty.or_else(|| casts.get(&format!("${number}")).cloned()));
        Ok(types.collect())
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Replaces the parameters of `plan`, which may be optimized, by `values`.
    ///
    /// Errors: `Invalid` for another number of values, and for a value that is not one of its parameter's type.
    pub fn bind(&self, plan: LogicalPlan, values: &[Parameter]) -> Result<LogicalPlan> {
        if values.len() != self.len() {
            return Err(Error::invalid(format!(
                "the query has {0} parameters: expected {0} values, found {1}",
                self.len(),
                values.len()
            )));
        }
        if values.is_empty() {
            return Ok(plan);
        }
        let scalars = self.0.iter().zip(values).enumerate();
        let scalars = scalars.map(|(index, (ty, value))| scalar(index + 1, ty.as_ref(), value));
        let scalars = scalars.collect::<Result<Vec<_>>>()?;
        let plan = plan.with_param_values(scalars).map_err(|e| from_datafusion(&e, None))?;
        quantified::with_values(plan)
    }
}

/// Returns the names of the parameters that are numbers of rows: `LIMIT $1 OFFSET $2`.
fn parameters_of_limits(plan: &LogicalPlan) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // the closure does not fail
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for count in [&limit.skip, &limit.fetch].into_iter().flatten() {
                if let Expr::Placeholder(placeholder) = count.as_ref() {
                    found.insert(placeholder.id.clone());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// Returns the types to which parameters are cast, by name.
fn types_of_casts(plan: &LogicalPlan) -> BTreeMap<String, DataType> {
    let mut found = BTreeMap::new();
    // the closures do not fail
    let _ = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                let cast = match inner {
                    Expr::Cast(cast) => Some((&cast.expr, &cast.field)),
                    Expr::TryCast(cast) => Some((&cast.expr, &cast.field)),
                    _ => None,
                };
                if let Some((inner, field)) = cast
                    && let Expr::Placeholder(placeholder) = inner.as_ref()
                {
                    found.insert(placeholder.id.clone(), field.data_type().clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    found
}

/// Returns a value in the type of its parameter, which must be able to hold it.
fn scalar(number: usize, ty: Option<&DataType>, value: &Parameter) -> Result<ScalarValue> {
    let own = match value {
        Parameter::Value(value) => own_scalar(number, value)?,
        Parameter::List(ParameterList { item, items }) => {
            let null = ScalarValue::try_from(item).map_err(|e| from_datafusion(&e, None))?;
            let items = items.iter().map(|item| match own_scalar(number, item)? {
                ScalarValue::Null => Ok(null.clone()),
                scalar => Ok(scalar),
            });
            ScalarValue::List(ScalarValue::new_list(&items.collect::<Result<Vec<_>>>()?, item, true))
        }
    };
    let Some(ty) = ty else { return Ok(own) };
    let cast = own.cast_to(ty).ok().filter(|cast| own.is_null() || !cast.is_null());
    // a text is parsed; other values must not change
    let is_text = matches!(value, Parameter::List(list) if list.item == DataType::Utf8)
        || matches!(own, ScalarValue::Utf8(_) | ScalarValue::Null);
    let same = |cast: &ScalarValue| is_text || cast.cast_to(&own.data_type()).is_ok_and(|back| back == own);
    cast.filter(same).ok_or_else(|| {
        let expected = match ty {
            DataType::List(item) => format!("list of {}", in_words(&item.data_type().to_string())),
            other => in_words(&other.to_string()),
        };
        Error::invalid(format!("parameter ${number}: expected a value of type {expected}, found {value}"))
    })
}

/// Returns a value in its own type.
fn own_scalar(number: usize, value: &Value<'static>) -> Result<ScalarValue> {
    Ok(match value {
        Value::Missing | Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Value::Int(value) => ScalarValue::Int64(Some(*value)),
        Value::Float(value) => ScalarValue::Float64(Some(*value)),
        Value::Str(value) => ScalarValue::Utf8(Some(value.to_string())),
        Value::Time(value) => ScalarValue::TimestampMicrosecond(Some(value.micros()), Some("UTC".into())),
        Value::Bson(_) => {
            return Err(Error::invalid(format!(
                "parameter ${number}: expected a text, a number, true, false, a time or null, found a document or an array"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;
    use tidemill_types::Timestamp;

    use super::*;

    #[test]
    fn values_take_the_type_of_their_parameter_or_are_refused() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let fits = |ty: &DataType, value: Value<'static>| scalar(1, Some(ty), &value.into()).unwrap();
        assert_eq!(fits(&DataType::Int32, Value::Int(7)), ScalarValue::Int32(Some(7)));
        assert_eq!(fits(&DataType::Int32, Value::Float(7.0)), ScalarValue::Int32(Some(7)));
        assert_eq!(fits(&DataType::Float64, Value::Int(7)), ScalarValue::Float64(Some(7.0)));
        assert_eq!(fits(&DataType::Int32, Value::Null), ScalarValue::Int32(None));
        assert_eq!(fits(&DataType::Int64, Value::Str("12".into())), ScalarValue::Int64(Some(12)));
        let noon = ScalarValue::TimestampMicrosecond(Some(43_200_000_000), Some("UTC".into()));
        assert_eq!(fits(&time, Value::Str("1970-01-01T12:00:00Z".into())), noon);
        assert_eq!(fits(&time, Value::Time(Timestamp(43_200_000_000))), noon);
        for (ty, value, found) in [
            (&DataType::Int32, Value::Int(1 << 40), "found 1099511627776"),
            (&DataType::Int64, Value::Float(1.5), "found 1.5"),
            (&DataType::Int64, Value::Str("many".into()), "found \"many\""),
            (&DataType::Boolean, Value::Int(2), "found 2"),
            (&time, Value::Str("noon".into()), "found \"noon\""),
        ] {
            let error = scalar(2, Some(ty), &value.into()).unwrap_err().to_string();
            assert!(
                error.contains("parameter $2: expected a value of type") && error.contains(found),
                "{error}"
            );
        }
    }
}
