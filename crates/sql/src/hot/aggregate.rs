//! What an aggregation of hot data groups by and computes.

use std::fmt;

/// Time bins of equal width, as `date_bin` makes them. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bin {
    pub width: i64,
    pub origin: i64,
}

impl Bin {
    /// Returns the start of the bin that contains `time`. Blocks only have times for which this does not overflow.
    pub fn start(self, time: i64) -> i64 {
        time - (time - self.origin).rem_euclid(self.width)
    }

    /// Returns whether every bin consists of whole bins of `inner`.
    pub fn consists_of(self, inner: Bin) -> bool {
        self.width % inner.width == 0 && (self.origin - inner.origin) % inner.width == 0
    }
}

/// Column of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GroupColumn {
    Key,
    Bin(Bin),
}

/// Aggregate function; the numbers are those of [`HotScan::columns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HotAggregate {
    /// Number of selected rows.
    Rows,
    Count(usize),
    Sum(usize),
    Avg(usize),
    Min(usize),
    Max(usize),
}

/// Groups and aggregates of a scan.
#[derive(Debug, Clone)]
pub(crate) struct Aggregation {
    /// Columns of the result before the aggregates.
    pub groups: Vec<GroupColumn>,
    pub by_key: bool,
    /// The finest bin; the others consist of whole ones.
    pub bin: Option<Bin>,
    pub functions: Vec<HotAggregate>,
    /// Column that has a value in each selected row; `None` if all rows in the time range are selected.
    pub selected: Option<usize>,
}

impl Aggregation {
    /// Returns the columns whose minimum or maximum is needed.
    pub fn extremes(&self) -> impl Iterator<Item = usize> + '_ {
        self.functions.iter().filter_map(|f| match f {
            HotAggregate::Min(column) | HotAggregate::Max(column) => Some(*column),
            _ => None,
        })
    }
}

impl fmt::Display for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by=[")?;
        for (n, group) in self.groups.iter().enumerate() {
            write!(f, "{}", if n > 0 { ", " } else { "" })?;
            match group {
                GroupColumn::Key => write!(f, "key")?,
                GroupColumn::Bin(bin) => write!(f, "{}s", bin.width as f64 / 1e6)?,
            }
        }
        write!(f, "]")
    }
}
