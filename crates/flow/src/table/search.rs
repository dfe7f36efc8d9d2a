//! Compiled searches: a condition, and the access path to the rows that may satisfy it.

use tidemill_types::FieldType;

use super::float_text;
use super::index::is_number;
use crate::catalog;
use crate::columns::equality::CompareType;
use crate::expr::{AccessPath, ColumnBounds, Comparison, Expr, Node, TableSearch};

/// Conjunct of a condition: `T.column op value`, where `value` does not depend on the row.
struct IndexPredicate<'e> {
    column: usize,
    op: Comparison,
    value: &'e Expr,
}

impl TableSearch {
    /// Compiles a search. `condition` reads the table's row from slot `slot`; without a condition all rows
    /// match.
    pub fn new(mut condition: Option<Expr>, slot: usize, table: &catalog::CatalogTable) -> Self {
        let access = condition.as_ref().map_or(AccessPath::Scan, |c| AccessPath::of(c, slot, table));
        if let (AccessPath::Key { .. }, [_, _, ..], Some(condition)) =
            (&access, table.primary_key.as_slice(), &mut condition)
        {
            compare_as_written(condition, slot, table);
        }
        Self { condition, slot, access }
    }

    /// Returns the values of the primary key if the condition consists of these equalities only.
    pub(super) fn exact_key(&self) -> Option<&[Expr]> {
        match &self.access {
            AccessPath::Key { values, exact: true } => Some(values),
            _ => None,
        }
    }
}

impl AccessPath {
    fn of(condition: &Expr, slot: usize, table: &catalog::CatalogTable) -> Self {
        let mut terms = Vec::new();
        let others = collect_predicates(condition, slot, &mut terms);
        terms.retain(|term| is_indexable(term, table.attributes[term.column].1));
        let equal = |column: &usize| {
            let ty = table.attributes[*column].1;
            equal_to(condition, slot, *column).filter(|x| CompareType::of(ty, x.ty).is_some()).cloned()
        };
        let key = &table.primary_key;
        if !key.is_empty()
            && let Some(mut values) = key.iter().map(equal).collect::<Option<Vec<_>>>()
        {
            for (column, value) in key.iter().zip(&mut values) {
                if key.len() > 1
                    && (table.attributes[*column].1, value.ty) == (FieldType::Double, FieldType::Float)
                {
                    float_text::read_as_double(value);
                }
            }
            let same = |(column, value): (&usize, &Expr)| table.attributes[*column].1 == value.ty;
            let exact = others == 0
                && key.len() == 1
                && terms.len() == key.len()
                && key.iter().zip(&values).all(same)
                && key.iter().all(|c| {
                    matches!(table.attributes[*c].1, FieldType::String | FieldType::Int | FieldType::Long)
                });
            return Self::Key { values, exact };
        }
        for (number, column) in table.indexes.iter().enumerate() {
            if let Some(value) = equal(column) {
                return Self::Index(number, ColumnBounds::Equal(value));
            }
        }
        let number = |column: &usize| is_number(table.attributes[*column].1);
        if let [column] = key.as_slice()
            && number(column)
            && let Some(bounds) = ColumnBounds::of(*column, &terms)
        {
            return Self::KeyRange(bounds);
        }
        let ranges = table.indexes.iter().enumerate().filter(|(_, column)| number(column));
        let range =
            ranges.filter_map(|(i, column)| Some(Self::Index(i, ColumnBounds::of(*column, &terms)?))).next();
        range.unwrap_or(Self::Scan)
    }
}

impl ColumnBounds {
    fn of(column: usize, terms: &[IndexPredicate<'_>]) -> Option<Self> {
        let (mut low, mut high) = (None, None);
        for term in terms.iter().filter(|t| t.column == column) {
            match term.op {
                Comparison::Gt | Comparison::Ge => low = Some(term.value.clone()),
                Comparison::Lt | Comparison::Le => high = Some(term.value.clone()),
                Comparison::Eq | Comparison::Ne => {}
            }
        }
        (low.is_some() || high.is_some()).then_some(Self::Range { low, high })
    }
}

/// Returns the expression that `column` of the row must equal according to one of the conjuncts.
pub(crate) fn equal_to(condition: &Expr, slot: usize, column: usize) -> Option<&Expr> {
    let mut terms = Vec::new();
    collect_predicates(condition, slot, &mut terms);
    terms.into_iter().find(|t| t.op == Comparison::Eq && t.column == column).map(|t| t.value)
}

/// Makes the condition compare floats with doubles in multi-column keys by their decimal forms, as the key
/// lookup does.
fn compare_as_written(condition: &mut Expr, slot: usize, table: &catalog::CatalogTable) {
    match &mut condition.node {
        Node::And(a, b) => {
            compare_as_written(a, slot, table);
            compare_as_written(b, slot, table);
        }
        Node::Compare(Comparison::Eq, a, b) => {
            let in_key = |x: &Expr| matches!(x.node, Node::Column { slot: s, column } if s == slot && table.primary_key.contains(&column));
            let key_is_left = in_key(a);
            let other: &Expr = if key_is_left { b } else { a };
            if (key_is_left || in_key(b)) && other.is_independent_of(slot) {
                match (a.ty, b.ty) {
                    (FieldType::Float, FieldType::Double) => float_text::read_as_double(a),
                    (FieldType::Double, FieldType::Float) => float_text::read_as_double(b),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Collects the usable conjuncts of a condition; returns the number of the other ones.
fn collect_predicates<'e>(condition: &'e Expr, slot: usize, terms: &mut Vec<IndexPredicate<'e>>) -> usize {
    let column = |x: &Expr| match x.node {
        Node::Column { slot: s, column } if s == slot => Some(column),
        _ => None,
    };
    let free = |x: &Expr| x.is_independent_of(slot);
    match &condition.node {
        Node::And(a, b) => collect_predicates(a, slot, terms) + collect_predicates(b, slot, terms),
        Node::Compare(op, a, b) if *op != Comparison::Ne => {
            if let Some(column) = column(a)
                && free(b)
            {
                terms.push(IndexPredicate { column, op: *op, value: b });
            } else if let Some(column) = column(b)
                && free(a)
            {
                terms.push(IndexPredicate { column, op: swap_operands(*op), value: a });
            } else {
                return 1;
            }
            0
        }
        _ => 1,
    }
}

fn swap_operands(op: Comparison) -> Comparison {
    match op {
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
        Comparison::Eq | Comparison::Ne => op,
    }
}

/// Returns whether key order can evaluate a predicate. A float and a whole number are ordered with the
/// precision of floats, which keys do not have.
fn is_indexable(term: &IndexPredicate<'_>, ty: FieldType) -> bool {
    let domain = CompareType::of(ty, term.value.ty);
    if term.op == Comparison::Eq {
        return domain.is_some();
    }
    let whole = |ty| matches!(ty, FieldType::Int | FieldType::Long);
    match domain {
        Some(CompareType::Integer) => true,
        Some(CompareType::Float) => {
            ty == FieldType::Double || ty == FieldType::Float && !whole(term.value.ty)
        }
        _ => false,
    }
}
