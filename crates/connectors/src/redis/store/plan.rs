//! How rows that satisfy a condition are found: by their key, or by a set of an index. What is found so is compared with
//! the whole condition.

use tidemill_connect::{RowScope, StoreComparison, StoreExpr, TypedValue};
use tidemill_types::{Error, Result};

use super::layout::Layout;

/// Location of the rows that may satisfy a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowLocation<'x> {
    /// Anywhere: the condition does not depend on the row.
    All,
    /// At the key of these values.
    Key(Vec<&'x StoreExpr>),
    /// In the set of this column and value.
    Index(usize, &'x StoreExpr),
    /// In one of several places.
    Union(Box<Self>, Box<Self>),
}

/// Places for the values of one row of parameters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// Keys of rows.
    pub keys: Vec<String>,
    /// Keys of sets of rows.
    pub sets: Vec<String>,
}

impl<'x> RowLocation<'x> {
    /// Plans a search.
    ///
    /// Errors: `Invalid` if every row would have to be looked at.
    pub(super) fn of(condition: &'x StoreExpr, layout: &Layout) -> Result<Self> {
        plan(condition, layout).ok_or_else(|| {
            let names = |columns: &[usize]| {
                columns.iter().map(|column| layout.column(*column)).collect::<Vec<_>>().join("`, `")
            };
            let mut ways = vec![];
            if !layout.primary_key.is_empty() {
                ways.push(format!("the primary key (`{}`)", names(&layout.primary_key)));
            }
            if !layout.indexes.is_empty() {
                ways.push(format!("a column with an index (`{}`)", names(&layout.indexes)));
            }
            let expected = match ways.is_empty() {
                true => "give the table a `@primaryKey` or an `@index`, and compare its columns by `==`".to_owned(),
                false => format!("compare {} by `==`", ways.join(" or ")),
            };
            Error::invalid(format!(
                "table `{}`: Redis finds rows by their key and by indexes, and the condition has neither; {expected}",
                layout.table
            ))
        })
    }

    /// Returns the places for these parameters, and whether all rows have to be looked at.
    pub(super) fn places(&self, layout: &Layout, parameters: &[TypedValue]) -> Places {
        let scope = RowScope { types: &layout.types, row: &[], parameters };
        let mut places = Places::default();
        self.add_places(layout, &scope, &mut places);
        places
    }

    fn add_places(&self, layout: &Layout, scope: &RowScope<'_>, places: &mut Places) {
        match self {
            Self::All => {}
            Self::Key(values) => {
                let values: Vec<TypedValue> = values.iter().map(|value| scope.value(value)).collect();
                places.keys.extend(layout.key_with(&values));
            }
            Self::Index(column, value) => places.sets.extend(layout.index_with(*column, &scope.value(value))),
            Self::Union(left, right) => {
                left.add_places(layout, scope, places);
                right.add_places(layout, scope, places);
            }
        }
    }
}

fn plan<'x>(condition: &'x StoreExpr, layout: &Layout) -> Option<RowLocation<'x>> {
    if !condition.reads_row() {
        return Some(RowLocation::All);
    }
    if let StoreExpr::Or(left, right) = condition {
        return match (plan(left, layout)?, plan(right, layout)?) {
            (RowLocation::All, _) | (_, RowLocation::All) => None,
            (left, right) => Some(RowLocation::Union(Box::new(left), Box::new(right))),
        };
    }
    let mut equalities = vec![];
    let mut parts = vec![];
    split(condition, &mut equalities, &mut parts);
    let value_of = |column: usize| equalities.iter().find(|(of, _)| *of == column).map(|(_, value)| *value);
    let key: Option<Vec<_>> = layout.primary_key.iter().map(|column| value_of(*column)).collect();
    if let Some(key) = key.filter(|key| !key.is_empty()) {
        return Some(RowLocation::Key(key));
    }
    let index =
        layout.indexes.iter().find_map(|column| Some(RowLocation::Index(*column, value_of(*column)?)));
    index.or_else(|| {
        let planned = parts.into_iter().filter(|part| matches!(part, StoreExpr::Or(..)));
        planned.filter_map(|part| plan(part, layout)).find(|plan| *plan != RowLocation::All)
    })
}

/// Collects the parts that must all hold, and those among them that give a column a value.
fn split<'x>(x: &'x StoreExpr, equalities: &mut Vec<(usize, &'x StoreExpr)>, parts: &mut Vec<&'x StoreExpr>) {
    match x {
        StoreExpr::And(left, right) => {
            split(left, equalities, parts);
            split(right, equalities, parts);
        }
        StoreExpr::Compare(StoreComparison::Eq, left, right) => match (&**left, &**right) {
            (StoreExpr::Column(column), value) | (value, StoreExpr::Column(column)) if !value.reads_row() => {
                equalities.push((*column, value));
            }
            _ => {}
        },
        part => parts.push(part),
    }
}
