//! Splits a step's filters into conditions that can be evaluated before a match is read and those that
//! cannot.

use tidemill_types::FieldType;

use super::mask;
use crate::expr::{Comparison, Expr, Node, conjuncts};

/// Slot of the event in filters.
pub(super) const EVENT: usize = 0;
/// Slot of the values that are read of the match so far.
pub(super) const MATCH: usize = 1;

/// The conjuncts of a step's filters; all must hold.
///
/// `vectorized`, `event_only` and `event_and_match` contain those before the first one that may fail: they
/// can be evaluated in any order, and more often than needed.
#[derive(Debug, Clone, Default)]
pub(super) struct FilterConditions {
    /// Conditions on the event alone, evaluated for whole batches.
    pub vectorized: Vec<Expr>,
    /// Other conditions on the event alone.
    pub event_only: Vec<Expr>,
    /// Conditions on event and match.
    pub event_and_match: Vec<Expr>,
    /// The remaining conditions, to be evaluated in order.
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

/// Returns whether evaluation cannot fail. Functions and table lookups may fail.
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

/// Type to which two values are converted for a comparison; see `expr::compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparisonDomain {
    /// Both as `i64`.
    Long,
    /// Both as `f64`.
    Double,
    /// Both rounded to `f32`.
    Float,
    /// Both as strings; equality only.
    String,
}

impl ComparisonDomain {
    /// Returns the domain of `a op b` for values of these types; `None` where `expr::compare` has to decide.
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

/// Returns the operator with which `b op a` is written as `a op b`.
pub(super) fn swap_operands(op: Comparison) -> Comparison {
    match op {
        Comparison::Eq | Comparison::Ne => op,
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
    }
}

/// Evaluates `a op b` for values that are not null.
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
