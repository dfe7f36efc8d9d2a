//! The starts of the buckets of a time range.

use arrow::array::timezone::Tz;
use arrow::array::types::TimestampMicrosecondType;

/// Distance of two buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Microseconds; positive.
    Fixed(i64),
    /// Calendar months; positive.
    Months(i32),
}

/// Buckets from `first` to `last`, both included; none if `first` is after `last`. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buckets {
    pub first: i64,
    pub last: i64,
    pub step: Step,
}

impl Buckets {
    /// Returns the first bucket, if there is one.
    pub fn start(&self) -> Option<i64> {
        (self.first <= self.last).then_some(self.first)
    }

    /// Returns the bucket after `bucket`, if there is one.
    pub fn after(&self, bucket: i64) -> Option<i64> {
        let next = match self.step {
            Step::Fixed(width) => bucket.checked_add(width),
            Step::Months(months) => add_months(bucket, months),
        };
        next.filter(|next| *next <= self.last && *next > bucket)
    }

    /// Returns the number of buckets, or a larger one for months.
    pub fn count_estimate(&self) -> u64 {
        let width = match self.step {
            Step::Fixed(width) => width.unsigned_abs(),
            // the shortest
            Step::Months(months) => u64::from(months.unsigned_abs()).saturating_mul(28 * 86_400_000_000),
        };
        match self.start() {
            None => 0,
            Some(first) => {
                self.last.abs_diff(first).checked_div(width).map_or(u64::MAX, |n| n.saturating_add(1))
            }
        }
    }
}

fn add_months(time: i64, months: i32) -> Option<i64> {
    let utc: Tz = "+00:00".parse().ok()?;
    TimestampMicrosecondType::add_year_months(time, months, utc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_the_calendar() {
        const SECOND: i64 = 1_000_000;
        // 2024-01-01 to 2024-04-01
        let (first, last) = (1_704_067_200 * SECOND, 1_711_929_600 * SECOND);
        let buckets = Buckets { first, last, step: Step::Months(1) };
        let all: Vec<i64> = std::iter::successors(buckets.start(), |b| buckets.after(*b)).collect();
        assert_eq!(all, [1_704_067_200, 1_706_745_600, 1_709_251_200, 1_711_929_600].map(|s| s * SECOND));
        assert!(buckets.count_estimate() >= 4);
    }

    #[test]
    fn ends_at_the_largest_time() {
        let all = Buckets { first: i64::MAX - 1, last: i64::MAX, step: Step::Fixed(1) };
        assert_eq!(all.after(i64::MAX - 1), Some(i64::MAX));
        assert_eq!(all.after(i64::MAX), None);
        let none = Buckets { first: 1, last: 0, ..all };
        assert_eq!((none.start(), none.count_estimate()), (None, 0));
        let huge = Buckets { first: i64::MIN, ..all };
        assert_eq!(huge.count_estimate(), u64::MAX);
    }
}
