//! Conditions and assignments as MongoDB evaluates them.
//!
//! A comparison of a column with a value of the event is a plain condition, which indexes serve; everything else is an
//! expression. Comparisons with null are false, as in SiddhiQL.

use mongodb::bson::{Bson, Document, doc};
use tidemill_connect::{StoreArithmetic, StoreComparison, StoreExpr, TypedValue, bson_of, is_missing};
use tidemill_types::{FieldType, Result, StreamSchema, Value};

/// Columns of the table and the values of one event.
pub(super) struct Translation<'t> {
    pub schema: &'t StreamSchema,
    pub parameters: &'t [TypedValue],
}

impl Translation<'_> {
    /// Returns a filter of the documents that satisfy a condition.
    pub(super) fn filter(&self, x: &StoreExpr) -> Result<Document> {
        Ok(match x {
            StoreExpr::And(left, right) => doc! { "$and": [self.filter(left)?, self.filter(right)?] },
            StoreExpr::Or(left, right) => doc! { "$or": [self.filter(left)?, self.filter(right)?] },
            StoreExpr::Not(inner) => doc! { "$nor": [self.filter(inner)?] },
            StoreExpr::IsNull(inner) if matches!(**inner, StoreExpr::Column(_)) => {
                doc! { self.column_of(inner): Bson::Null }
            }
            StoreExpr::Column(_) => doc! { self.column_of(x): true },
            StoreExpr::Parameter(parameter) => match self.parameters.get(*parameter) {
                Some((_, Value::Bool(true))) => Document::new(),
                _ => none(),
            },
            StoreExpr::Compare(operator, left, right) => match (&**left, &**right) {
                (StoreExpr::Column(column), StoreExpr::Parameter(parameter)) => {
                    self.compare(*operator, *column, *parameter)?
                }
                (StoreExpr::Parameter(parameter), StoreExpr::Column(column)) => {
                    self.compare(operator.mirrored(), *column, *parameter)?
                }
                _ => doc! { "$expr": self.expression(x)? },
            },
            other => doc! { "$expr": self.expression(other)? },
        })
    }

    fn name(&self, column: usize) -> &str {
        self.schema.fields.get(column).map_or("", |field| field.name.as_str())
    }

    fn column_of(&self, x: &StoreExpr) -> &str {
        match x {
            StoreExpr::Column(column) => self.name(*column),
            _ => "",
        }
    }

    fn compare(&self, operator: StoreComparison, column: usize, parameter: usize) -> Result<Document> {
        let Some((ty, value)) = self.parameters.get(parameter).filter(|(_, value)| !is_missing(value)) else {
            return Ok(none());
        };
        let value = bson(value, *ty)?;
        let name = self.name(column);
        Ok(match operator {
            StoreComparison::Eq => doc! { name: { "$eq": value } },
            StoreComparison::Ne => doc! { name: { "$nin": [value, Bson::Null] } },
            other => doc! { name: { operator_name(other): value } },
        })
    }

    /// Returns an aggregation expression.
    pub(super) fn expression(&self, x: &StoreExpr) -> Result<Bson> {
        let both = |left: &StoreExpr, right: &StoreExpr| {
            Ok::<_, tidemill_types::Error>((self.expression(left)?, self.expression(right)?))
        };
        Ok(match x {
            StoreExpr::Column(column) => Bson::String(format!("${}", self.name(*column))),
            StoreExpr::Parameter(parameter) => match self.parameters.get(*parameter) {
                Some((ty, value)) => Bson::Document(doc! { "$literal": bson(value, *ty)? }),
                None => Bson::Null,
            },
            StoreExpr::Compare(operator, left, right) => {
                let (left, right) = both(left, right)?;
                let compared = doc! { operator_name(*operator): [left.clone(), right.clone()] };
                // null and missing values are below all others
                Bson::Document(doc! { "$and": [
                    { "$gt": [left, Bson::Null] }, { "$gt": [right, Bson::Null] }, compared,
                ] })
            }
            StoreExpr::Arithmetic(operator, left, right) => {
                let whole = self.is_whole(left) && self.is_whole(right);
                let (left, right) = both(left, right)?;
                let by_zero =
                    |value: Document| doc! { "$cond": [{ "$eq": [right.clone(), 0] }, Bson::Null, value] };
                Bson::Document(match operator {
                    StoreArithmetic::Add => doc! { "$add": [left, right] },
                    StoreArithmetic::Sub => doc! { "$subtract": [left, right] },
                    StoreArithmetic::Mul => doc! { "$multiply": [left, right] },
                    StoreArithmetic::Div if whole => {
                        by_zero(doc! { "$toLong": { "$trunc": [{ "$divide": [left, right.clone()] }] } })
                    }
                    StoreArithmetic::Div => by_zero(doc! { "$divide": [left, right.clone()] }),
                    StoreArithmetic::Rem => by_zero(doc! { "$mod": [left, right.clone()] }),
                })
            }
            StoreExpr::And(left, right) => {
                let (left, right) = both(left, right)?;
                Bson::Document(doc! { "$and": [left, right] })
            }
            StoreExpr::Or(left, right) => {
                let (left, right) = both(left, right)?;
                Bson::Document(doc! { "$or": [left, right] })
            }
            StoreExpr::Not(inner) => Bson::Document(doc! { "$not": [self.expression(inner)?] }),
            StoreExpr::IsNull(inner) => {
                Bson::Document(doc! { "$lte": [self.expression(inner)?, Bson::Null] })
            }
        })
    }

    fn is_whole(&self, x: &StoreExpr) -> bool {
        let is = |ty: FieldType| matches!(ty, FieldType::Int | FieldType::Long);
        match x {
            StoreExpr::Column(column) => self.schema.fields.get(*column).is_some_and(|field| is(field.ty)),
            StoreExpr::Parameter(parameter) => self.parameters.get(*parameter).is_some_and(|(ty, _)| is(*ty)),
            StoreExpr::Arithmetic(_, left, right) => self.is_whole(left) && self.is_whole(right),
            _ => false,
        }
    }

    /// Returns the update that assigns columns.
    pub(super) fn update(&self, set: &[(usize, StoreExpr)]) -> Result<Bson> {
        let is_given = set.iter().all(|(_, x)| matches!(x, StoreExpr::Parameter(_)));
        let mut assigned = Document::new();
        for (column, x) in set {
            let value = match x {
                StoreExpr::Parameter(parameter) if is_given => self.given(*column, *parameter)?,
                other => self.expression(other)?,
            };
            assigned.insert(self.name(*column), value);
        }
        let update = doc! { "$set": assigned };
        Ok(match is_given {
            true => Bson::Document(update),
            false => Bson::Array(vec![Bson::Document(update)]),
        })
    }

    /// Returns the value of a parameter for a column.
    pub(super) fn given(&self, column: usize, parameter: usize) -> Result<Bson> {
        let ty = self.schema.fields.get(column).map_or(FieldType::String, |field| field.ty);
        self.parameters.get(parameter).map_or(Ok(Bson::Null), |(_, value)| bson(value, ty))
    }
}

/// Returns the columns that a condition compares with values, if it is nothing but equalities of different columns.
pub(super) fn equalities(x: &StoreExpr) -> Option<Vec<(usize, usize)>> {
    match x {
        StoreExpr::And(left, right) => {
            let (mut left, right) = (equalities(left)?, equalities(right)?);
            let repeated = right.iter().any(|(column, _)| left.iter().any(|(known, _)| known == column));
            left.extend(right);
            (!repeated).then_some(left)
        }
        StoreExpr::Compare(StoreComparison::Eq, left, right) => match (&**left, &**right) {
            (StoreExpr::Column(column), StoreExpr::Parameter(parameter))
            | (StoreExpr::Parameter(parameter), StoreExpr::Column(column)) => {
                Some(vec![(*column, *parameter)])
            }
            _ => None,
        },
        _ => None,
    }
}

fn bson(value: &Value<'_>, ty: FieldType) -> Result<Bson> {
    bson_of(value, ty).map_err(tidemill_types::Error::invalid)
}

/// Returns the filter that no document satisfies.
fn none() -> Document {
    doc! { "_id": { "$in": [] } }
}

fn operator_name(operator: StoreComparison) -> &'static str {
    match operator {
        StoreComparison::Eq => "$eq",
        StoreComparison::Ne => "$ne",
        StoreComparison::Lt => "$lt",
        StoreComparison::Le => "$lte",
        StoreComparison::Gt => "$gt",
        StoreComparison::Ge => "$gte",
    }
}
