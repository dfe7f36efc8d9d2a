//! Decomposition of a join condition into columns that must be equal and a residual condition.

use tidemill_types::FieldType;

use super::RowView;
use crate::columns::equality::{self, CompareType};
use crate::expr::{Comparison, Expr, Node};

/// A decomposed join condition.
#[derive(Debug, Clone, Default)]
pub struct JoinKeys {
    /// Pairs of a left and a right column that must be equal.
    pub(super) equal_columns: Vec<(usize, usize, CompareType)>,
    /// The remaining condition; `None` if the equal columns are all.
    pub(super) residual: Option<Expr>,
}

impl JoinKeys {
    /// Decomposes a condition whose sides are slots 0 and 1.
    pub(super) fn of(on: &Expr) -> Self {
        let mut keys = Self::default();
        keys.add(on);
        keys
    }

    fn add(&mut self, condition: &Expr) {
        if let Node::And(a, b) = &condition.node {
            self.add(a);
            self.add(b);
            return;
        }
        if let Node::Compare(Comparison::Eq, a, b) = &condition.node
            && let Node::Column { slot: 0, column: left } | Node::Column { slot: 1, column: left } = a.node
            && let Node::Column { slot: 0, column: right } | Node::Column { slot: 1, column: right } = b.node
            && let Some(domain) = CompareType::of(a.ty, b.ty)
        {
            match (slot(a), slot(b)) {
                (0, 1) => return self.equal_columns.push((left, right, domain)),
                (1, 0) => return self.equal_columns.push((right, left, domain)),
                _ => {}
            }
        }
        self.residual = Some(match self.residual.take() {
            None => condition.clone(),
            Some(rest) => {
                Expr { node: Node::And(Box::new(rest), Box::new(condition.clone())), ty: FieldType::Bool }
            }
        });
    }

    /// Returns the column of a side in key `i`.
    #[inline]
    pub(super) fn column(&self, i: usize, side: usize) -> usize {
        if side == 0 { self.equal_columns[i].0 } else { self.equal_columns[i].1 }
    }

    /// Returns whether two rows have equal keys; `a` is a row of side `side`, `b` one of the other.
    #[inline]
    pub(super) fn are_equal(&self, side: usize, a: RowView<'_>, b: RowView<'_>) -> bool {
        (0..self.equal_columns.len()).all(|i| {
            let (x, y) = (self.column(i, side), self.column(i, 1 - side));
            equality::equal(&a.0[x], a.1, &b.0[y], b.1)
        })
    }
}

fn slot(x: &Expr) -> usize {
    match x.node {
        Node::Column { slot, .. } => slot,
        _ => usize::MAX,
    }
}
