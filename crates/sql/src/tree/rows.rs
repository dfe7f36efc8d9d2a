//! Comparisons of rows, column by column: `(a, b) < (c, d)` is `a < c OR a = c AND b < d`.
//!
//! DataFusion compares them as structs, for which null is a value like others.

use datafusion::logical_expr::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::logical_expr::sqlparser::tokenizer::Location;

use super::chains::take;
use super::first_place;

/// Columns of a row at most. The conditions of an order grow with their square.
const COLUMNS_MAX: usize = 32;

/// A row that cannot be compared, with its place.
pub(super) type Refused = (Location, String);

/// Replaces a comparison of rows at `expr`.
///
/// Errors: why the rows cannot be compared.
pub(super) fn expand(expr: &mut Expr) -> Result<(), Refused> {
    let expanded = match expr {
        Expr::BinaryOp { left, op, right } if is_row(left) || is_row(right) => {
            let (left, right) = pair(left, right)?;
            match op {
                BinaryOperator::Eq => all_equal(left, right),
                BinaryOperator::NotEq => any(left, right, &BinaryOperator::NotEq),
                BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
                    ordered(&left, &right, op)
                }
                _ => {
                    return refuse(&left, "rows in brackets are compared by =, <>, <, <=, >, >= and IN only");
                }
            }
        }
        Expr::IsNotDistinctFrom(left, right) if is_row(left) || is_row(right) => {
            let (left, right) = pair(left, right)?;
            same(left, right)
        }
        Expr::IsDistinctFrom(left, right) if is_row(left) || is_row(right) => {
            let (left, right) = pair(left, right)?;
            not(same(left, right))
        }
        Expr::InList { expr: row, list, negated } if is_row(row) || list.iter().any(is_row) => {
            let mut found: Option<Expr> = None;
            for item in list {
                let (left, right) = pair(row, item)?;
                let equal = all_equal(left, right);
                found = Some(match found {
                    Some(found) => binary(found, BinaryOperator::Or, equal),
                    None => equal,
                });
            }
            let Some(found) = found else { return Ok(()) };
            if *negated { not(found) } else { found }
        }
        Expr::InSubquery { expr: row, .. } if is_row(row) => {
            return refuse(
                columns(row),
                "a row in brackets IN (SELECT …) is not supported: write EXISTS (SELECT … WHERE x.a = a AND x.b = b)",
            );
        }
        Expr::Between { expr: row, low, high, .. } if [&row, &low, &high].iter().any(|e| is_row(e)) => {
            return refuse(columns(row), "BETWEEN of rows in brackets is not supported: write >= and <=");
        }
        Expr::AnyOp { left, .. } | Expr::AllOp { left, .. } if is_row(left) => {
            return refuse(columns(left), "ANY and ALL of rows in brackets are not supported: write EXISTS");
        }
        Expr::IsNull(row) | Expr::IsNotNull(row) if is_row(row) => {
            let is_null = matches!(expr, Expr::IsNull(_));
            let (Expr::IsNull(row) | Expr::IsNotNull(row)) = expr else { return Ok(()) };
            let each = columns(row).iter().cloned().map(|column| match is_null {
                true => Expr::IsNull(column.into()),
                false => Expr::IsNotNull(column.into()),
            });
            match each.reduce(|a, b| binary(a, BinaryOperator::And, b)) {
                Some(all) => Expr::Nested(all.into()),
                None => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    let _ = take(expr);
    *expr = expanded;
    Ok(())
}

fn is_row(expr: &Expr) -> bool {
    matches!(expr, Expr::Tuple(_))
}

fn columns(row: &Expr) -> &[Expr] {
    match row {
        Expr::Tuple(columns) => columns,
        other => std::slice::from_ref(other),
    }
}

fn pair(left: &Expr, right: &Expr) -> Result<(Vec<Expr>, Vec<Expr>), Refused> {
    let (a, b) = (columns(left), columns(right));
    if !is_row(left) || !is_row(right) || a.len() != b.len() {
        let found = |expr: &Expr| match expr {
            Expr::Tuple(columns) => format!("{} columns", columns.len()),
            _ => "one value".to_owned(),
        };
        let why = format!(
            "a row in brackets is compared with a row of as many columns, found {} and {}",
            found(left),
            found(right)
        );
        return refuse(a, &why);
    }
    if a.len() > COLUMNS_MAX {
        return refuse(a, &format!("a row in brackets has {COLUMNS_MAX} columns at most"));
    }
    Ok((a.to_vec(), b.to_vec()))
}

fn refuse<T>(row: &[Expr], why: &str) -> Result<T, Refused> {
    let at = row.iter().map(first_place).find(|at| at.line > 0);
    Err((at.unwrap_or_else(Location::empty), why.to_owned()))
}

fn all_equal(left: Vec<Expr>, right: Vec<Expr>) -> Expr {
    each(left, right, &BinaryOperator::And, |a, b| binary(a, BinaryOperator::Eq, b))
}

fn same(left: Vec<Expr>, right: Vec<Expr>) -> Expr {
    each(left, right, &BinaryOperator::And, |a, b| {
        Expr::Nested(Expr::IsNotDistinctFrom(nested(a).into(), nested(b).into()).into())
    })
}

fn any(left: Vec<Expr>, right: Vec<Expr>, op: &BinaryOperator) -> Expr {
    each(left, right, &BinaryOperator::Or, |a, b| binary(a, op.clone(), b))
}

fn each(
    left: Vec<Expr>,
    right: Vec<Expr>,
    joined: &BinaryOperator,
    compared: impl Fn(Expr, Expr) -> Expr,
) -> Expr {
    let parts = left.into_iter().zip(right).map(|(a, b)| compared(a, b));
    parts.reduce(|a, b| binary(a, joined.clone(), b)).unwrap_or_else(|| Expr::Tuple(vec![]))
}

/// Returns `a < c OR (a = c AND (b < d OR …))`. Only the last columns may be equal.
fn ordered(left: &[Expr], right: &[Expr], op: &BinaryOperator) -> Expr {
    let strict = match op {
        BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::Gt,
        other => other.clone(),
    };
    let mut pairs = left.iter().cloned().zip(right.iter().cloned()).rev();
    let Some((a, b)) = pairs.next() else { return Expr::Tuple(vec![]) };
    pairs.fold(binary(a, op.clone(), b), |rest, (a, b)| {
        let before = binary(a.clone(), strict.clone(), b.clone());
        let equal = binary(binary(a, BinaryOperator::Eq, b), BinaryOperator::And, rest);
        binary(before, BinaryOperator::Or, equal)
    })
}

fn not(expr: Expr) -> Expr {
    Expr::Nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: nested(expr).into() }.into())
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Expr::BinaryOp { left: nested(left).into(), op, right: nested(right).into() }.into())
}

fn nested(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => expr,
        other => Expr::Nested(other.into()),
    }
}
