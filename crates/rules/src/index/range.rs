//! Index over rules that bound a field by constants: sorted bounds, and the rules that hold between two
//! neighbours.

use crate::expr::block::{integer_const, plain_column};
use crate::expr::{CompareOp, Const, Expr, ExprNode, ExprType};
use crate::plan::RulePlan;

/// Limit on the entries of all lists; beyond it, the rules are computed instead.
const ENTRIES_MAX: usize = 4 << 20;

/// The values that satisfy a rule's bounds on a field: both ends are included, empty when `low > high`.
///
/// Floats are mapped to integers of equal order, see [`float_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub low: i64,
    pub high: i64,
}

/// Maps the value of a column to the ranks of the rules whose interval contains it.
#[derive(Debug)]
pub(super) struct RangeIndex {
    pub column: usize,
    /// Ascending. Segment `i` is `bounds[i]..bounds[i + 1]`; the last one is open.
    bounds: Vec<i64>,
    /// Ranks whose interval covers each segment, ascending.
    ranks: Vec<Vec<u32>>,
}

impl Interval {
    pub const EMPTY: Interval = Interval { low: i64::MAX, high: i64::MIN };
    const ALL: Interval = Interval { low: i64::MIN, high: i64::MAX };

    /// Intersects all bounds of `plan` on `column`; `None` without bounds.
    pub fn of(plan: &RulePlan, column: usize) -> Option<Interval> {
        let bounds = plan.checks.iter().filter_map(|c| bound(&c.expr)).filter(|(c, _)| *c == column);
        bounds.map(|(_, interval)| interval).reduce(Interval::and)
    }

    /// Returns the columns that `plan` bounds.
    pub fn columns(plan: &RulePlan) -> Vec<usize> {
        plan.checks.iter().filter_map(|c| bound(&c.expr)).map(|(column, _)| column).collect()
    }

    fn and(self, other: Interval) -> Interval {
        Interval { low: self.low.max(other.low), high: self.high.min(other.high) }
    }
}

/// Returns the column and the interval of a comparison of a field with a constant.
pub(super) fn bound(expr: &Expr) -> Option<(usize, Interval)> {
    let ExprNode::Compare(op, a, b) = &expr.kind else { return None };
    let (column, op, field, constant) = match (plain_column(a), plain_column(b)) {
        (Some(column), None) => (column, *op, a, b),
        (None, Some(column)) => (column, op.flip(), b, a),
        _ => return None,
    };
    let key = match field.ty {
        ExprType::Int | ExprType::Time => integer_const(constant, field.ty)?,
        ExprType::Float => match constant.as_const()? {
            Const::Float(x) => float_key(*x)?,
            Const::Int(n) if n.unsigned_abs() <= 1 << 53 => float_key(*n as f64)?,
            _ => return None,
        },
        _ => return None,
    };
    let interval = match op {
        CompareOp::Lt => {
            key.checked_sub(1).map_or(Interval::EMPTY, |high| Interval { high, ..Interval::ALL })
        }
        CompareOp::Le => Interval { high: key, ..Interval::ALL },
        CompareOp::Gt => key.checked_add(1).map_or(Interval::EMPTY, |low| Interval { low, ..Interval::ALL }),
        CompareOp::Ge => Interval { low: key, ..Interval::ALL },
        CompareOp::Eq => Interval { low: key, high: key },
        CompareOp::Ne => return None,
    };
    Some((column, interval))
}

/// Maps a float to an integer of equal order; adjacent floats differ by 1. `None` for NaN, which is in no
/// interval.
pub(super) fn float_key(x: f64) -> Option<i64> {
    if x.is_nan() {
        return None;
    }
    // adding 0.0 turns -0.0 into 0.0
    let bits = (x + 0.0).to_bits() as i64;
    Some(if bits < 0 { i64::MIN.wrapping_sub(bits).wrapping_sub(1) } else { bits })
}

impl RangeIndex {
    /// Returns `None` when the lists would exceed [`ENTRIES_MAX`].
    pub fn new(column: usize, list: &[(u32, Interval)]) -> Option<Self> {
        let list: Vec<_> = list.iter().filter(|(_, i)| i.low <= i.high).collect();
        let mut bounds: Vec<i64> =
            list.iter().flat_map(|(_, i)| [Some(i.low), i.high.checked_add(1)]).flatten().collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut ranks: Vec<Vec<u32>> = vec![Vec::new(); bounds.len()];
        let mut entries = 0;
        for (rank, interval) in list {
            let first = bounds.partition_point(|b| *b < interval.low);
            let last = bounds.partition_point(|b| *b <= interval.high);
            entries += last - first;
            if entries > ENTRIES_MAX {
                return None;
            }
            ranks[first..last].iter_mut().for_each(|r| r.push(*rank));
        }
        Some(Self { column, bounds, ranks })
    }

    /// Returns the ranks whose interval contains `key`.
    #[inline]
    pub fn find(&self, key: i64) -> Option<&[u32]> {
        let segment = self.bounds.partition_point(|b| *b <= key).checked_sub(1)?;
        Some(&self.ranks[segment])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_keys_keep_the_order() {
        let values =
            [f64::NEG_INFINITY, -1e300, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 1e-300, 1.0, 2.0, f64::INFINITY];
        for pair in values.windows(2) {
            let (a, b) = (float_key(pair[0]).unwrap(), float_key(pair[1]).unwrap());
            assert_eq!(a.cmp(&b), pair[0].partial_cmp(&pair[1]).unwrap(), "{pair:?}");
        }
        assert_eq!(float_key(1.0).unwrap() + 1, float_key(1.0_f64.next_up()).unwrap());
        assert_eq!(float_key(-1.0).unwrap() + 1, float_key((-1.0_f64).next_up()).unwrap());
        assert_eq!(float_key(f64::NAN), None);
    }

    #[test]
    fn segments_hold_the_intervals_around_them() {
        let list = [
            (0, Interval { low: 10, high: 20 }),
            (1, Interval { low: 15, high: i64::MAX }),
            (2, Interval { low: i64::MIN, high: 12 }),
            (3, Interval::EMPTY),
        ];
        let index = RangeIndex::new(0, &list).unwrap();
        assert_eq!(index.find(i64::MIN), Some(&[2][..]));
        assert_eq!(index.find(10), Some(&[0, 2][..]));
        assert_eq!(index.find(13), Some(&[0][..]));
        assert_eq!(index.find(20), Some(&[0, 1][..]));
        assert_eq!(index.find(i64::MAX), Some(&[1][..]));
    }
}
