//! Number of grouping sets of a `GROUP BY`: `CUBE` of n expressions makes 2^n, and several of them multiply.

use datafusion::logical_expr::sqlparser::ast::{Expr, GroupByExpr, GroupByWithModifier};

/// Returns the number of grouping sets of one `SELECT`, at most `u64::MAX`.
pub(super) fn sets(group_by: &GroupByExpr) -> u64 {
    let (expressions, modifiers) = match group_by {
        GroupByExpr::All(modifiers) => (&[][..], modifiers),
        GroupByExpr::Expressions(expressions, modifiers) => (expressions.as_slice(), modifiers),
    };
    let listed = expressions.iter().map(of_expression).fold(1, u64::saturating_mul);
    modifiers.iter().fold(listed, |sets, modifier| match modifier {
        GroupByWithModifier::Cube => sets.saturating_mul(power_of_two(expressions.len())),
        GroupByWithModifier::Rollup => sets.saturating_mul(expressions.len() as u64 + 1),
        GroupByWithModifier::GroupingSets(list) => sets.saturating_mul(of_expression(list)),
        GroupByWithModifier::Totals => sets,
    })
}

fn of_expression(expression: &Expr) -> u64 {
    match expression {
        Expr::Cube(parts) => power_of_two(parts.len()),
        Expr::Rollup(parts) => parts.len() as u64 + 1,
        Expr::GroupingSets(sets) => (sets.len() as u64).max(1),
        _ => 1,
    }
}

fn power_of_two(exponent: usize) -> u64 {
    u32::try_from(exponent).ok().and_then(|n| 1u64.checked_shl(n)).unwrap_or(u64::MAX)
}
