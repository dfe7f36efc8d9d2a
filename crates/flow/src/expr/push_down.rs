//! Conditions and assignments as another system evaluates them.

use tidemill_connect::{StoreArithmetic, StoreComparison, StoreExpr, StoreUpdate};
use tidemill_types::FieldType;

use super::{Arithmetic, Comparison, Expr, Node};

/// Condition for the other system, and the expressions of its parameters, which do not depend on the row.
#[derive(Debug, Clone, Default)]
pub(crate) struct PushedSearch {
    /// Condition; `None` if all rows match.
    pub condition: Option<StoreExpr>,
    /// Expressions of the parameters.
    pub parameters: Vec<Expr>,
}

impl PushedSearch {
    /// Translates a condition that reads the table's row from slot `slot`.
    ///
    /// Errors: what the other system cannot evaluate.
    pub fn of(condition: Option<&Expr>, slot: usize) -> Result<Self, String> {
        let mut parameters = vec![];
        let condition = condition.map(|c| translate(c, slot, &mut parameters)).transpose()?;
        Ok(Self { condition, parameters })
    }

    /// Returns the types of the parameters.
    pub fn types(&self) -> impl Iterator<Item = FieldType> {
        self.parameters.iter().map(|parameter| parameter.ty)
    }
}

/// Translates an update of rows that are read from slot `slot`. Returns it with the expressions of its parameters.
///
/// Errors: what the other system cannot evaluate.
pub(crate) fn push_update(
    on: Option<&Expr>,
    set: &[(usize, Expr)],
    slot: usize,
) -> Result<(StoreUpdate, Vec<Expr>), String> {
    let PushedSearch { condition, mut parameters } = PushedSearch::of(on, slot)?;
    let condition = condition.ok_or("an update without a condition")?;
    let mut assigned = vec![];
    for (column, value) in set {
        assigned.push((*column, translate(value, slot, &mut parameters)?));
    }
    Ok((StoreUpdate { condition, set: assigned }, parameters))
}

fn translate(x: &Expr, slot: usize, parameters: &mut Vec<Expr>) -> Result<StoreExpr, String> {
    if x.is_independent_of(slot) {
        parameters.push(x.clone());
        return Ok(StoreExpr::Parameter(parameters.len() - 1));
    }
    let mut part = |x: &Expr| translate(x, slot, parameters).map(Box::new);
    Ok(match &x.node {
        Node::Column { column, .. } => StoreExpr::Column(*column),
        Node::Compare(op, a, b) => StoreExpr::Compare(comparison(*op), part(a)?, part(b)?),
        Node::Arithmetic(op, a, b) => StoreExpr::Arithmetic(arithmetic(*op), part(a)?, part(b)?),
        Node::And(a, b) => StoreExpr::And(part(a)?, part(b)?),
        Node::Or(a, b) => StoreExpr::Or(part(a)?, part(b)?),
        Node::Not(a) => StoreExpr::Not(part(a)?),
        Node::IsNull(a) => StoreExpr::IsNull(part(a)?),
        Node::Call(..) => return Err("a function of the table's columns".into()),
        Node::In { .. } => return Err("`in` below a condition on the table".into()),
        // does not depend on a row
        Node::Const(_) => return Err("a constant".into()),
    })
}

fn comparison(op: Comparison) -> StoreComparison {
    match op {
        Comparison::Eq => StoreComparison::Eq,
        Comparison::Ne => StoreComparison::Ne,
        Comparison::Lt => StoreComparison::Lt,
        Comparison::Le => StoreComparison::Le,
        Comparison::Gt => StoreComparison::Gt,
        Comparison::Ge => StoreComparison::Ge,
    }
}

fn arithmetic(op: Arithmetic) -> StoreArithmetic {
    match op {
        Arithmetic::Add => StoreArithmetic::Add,
        Arithmetic::Sub => StoreArithmetic::Sub,
        Arithmetic::Mul => StoreArithmetic::Mul,
        Arithmetic::Div => StoreArithmetic::Div,
        Arithmetic::Rem => StoreArithmetic::Rem,
    }
}
