//! A step's filters taken apart: what can be computed before a match is looked at, and what has to wait for it.

use tidemill_types::FieldType;

use super::mask;
use crate::expr::{Comparison, Expr, Node};

/// The slot of the event in filters.
pub(super) const EVENT: usize = 0;
/// The slot of what is read of the match so far.
pub(super) const MATCH: usize = 1;

/// The conditions that a step's filters consist of; all must hold. In `masked`, `alone` and `paired` are those in front
/// of the first one that may fail: they can be computed in any order, and more often than needed.
#[derive(Debug, Clone, Default)]
pub(super) struct FilterConditions {
    /// On the event alone, computed for whole batches.
    pub vectorized: Vec<Expr>,
    /// On the event alone.
    pub event_only: Vec<Expr>,
    /// On event and match.
    pub event_and_match: Vec<Expr>,
    /// The rest, to be computed in order.
    pub rest: Vec<Expr>,
}

impl FilterConditions {
    pub fn of(filters: &[Expr]) -> Self {
        let mut all = Vec::new();
        filters.iter().for_each(|filter| conjuncts(filter, &mut all));
        let mut found = Self::default();
        let mut safe = true;
        for condition in all {
            safe = safe && is_infallible(condition);
            let list = match () {
                () if !safe => &mut found.rest,
                () if reads_slot(condition, MATCH) => &mut found.event_and_match,
                () if mask::is_vectorizable(condition) => &mut found.vectorized,
                () => &mut found.event_only,
            };
            list.push(condition.clone());
        }
        found
    }
}

/// The conditions that are joined by `and`, in order.
pub(crate) fn conjuncts<'e>(expr: &'e Expr, all: &mut Vec<&'e Expr>) {
    match &expr.node {
        Node::And(a, b) => {
            conjuncts(a, all);
            conjuncts(b, all);
        }
        _ => all.push(expr),
    }
}

/// Functions and tables may fail.
fn is_infallible(expr: &Expr) -> bool {
    let mut safe = true;
    expr.walk(&mut |x| safe &= !matches!(x.node, Node::Call(..) | Node::In { .. }));
    safe
}

pub(super) fn reads_slot(expr: &Expr, slot: usize) -> bool {
    let mut found = false;
    expr.walk(&mut |x| found |= matches!(x.node, Node::Column { slot: s, .. } if s == slot));
    found
}

/// How two values are compared; see `expr::compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparisonDomain {
    /// Both as longs.
    Long,
    /// Both as doubles.
    Double,
    /// Both with the precision of floats.
    Float,
    /// As texts.
    String,
}

impl ComparisonDomain {
    /// How `a op b` is computed for values of these types; `None` for what is left to `expr::compare`.
    pub fn of(op: Comparison, a: FieldType, b: FieldType) -> Option<Self> {
        use FieldType::{Double, Float, Int, Long, String};
        let equality = matches!(op, Comparison::Eq | Comparison::Ne);
        Some(match (a, b) {
            (Int | Long, Int | Long) => Self::Long,
            (Float, Int | Long) | (Int | Long, Float) if !equality => Self::Float,
            (Int | Long | Float | Double, Int | Long | Float | Double) => Self::Double,
            (String, String) if equality => Self::String,
            _ => return None,
        })
    }
}

/// `b op a` as `a op b`.
pub(super) fn swap_operands(op: Comparison) -> Comparison {
    match op {
        Comparison::Eq | Comparison::Ne => op,
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
    }
}

/// `a op b`, for values none of which is null.
#[inline]
pub(super) fn holds<T: PartialOrd>(op: Comparison, a: T, b: T) -> bool {
    match op {
        Comparison::Eq => a == b,
        Comparison::Ne => a != b,
        Comparison::Lt => a < b,
        Comparison::Le => a <= b,
        Comparison::Gt => a > b,
        Comparison::Ge => a >= b,
    }
}
