//! Directions of orders.

use serde::{Deserialize, Serialize};

/// Order of one field of an index or a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Small values first.
    Ascending,
    /// Large values first.
    Descending,
}

impl Direction {
    /// Returns `1` or `-1`, as MongoDB writes it.
    pub fn sign(self) -> i32 {
        match self {
            Self::Ascending => 1,
            Self::Descending => -1,
        }
    }

    /// Returns the opposite direction.
    pub fn reverse(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }
}
