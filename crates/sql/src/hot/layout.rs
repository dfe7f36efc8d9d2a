//! Where the rows of a block are: the range of each key, their times, and the cells of a key and a time bucket.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, TimestampMicrosecondType};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;

use super::address::{Address, Addresses};

/// Widths of cells, in microseconds, from a second to a day.
const WIDTHS: [i64; 6] = [1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000];

/// Rows per cell from which a synopsis is worth its memory.
const ROWS_PER_CELL: usize = 32;

/// Places of the rows of a block, which are in the order of key (nulls first), then time, then address.
#[derive(Debug)]
pub(crate) struct Layout {
    pub rows: usize,
    /// The source's rows in the order of the block; `None` if the source has this order.
    pub order: Option<UInt32Array>,
    /// The distinct keys; `None` if the table has no key, and all rows are one range.
    pub keys: Option<ArrayRef>,
    /// The distinct keys as bytes that compare as the keys do, with those of other blocks, too.
    encoded: Option<Rows>,
    /// End of the rows of each key.
    ends: Vec<u32>,
    /// Address of the last row of each key; empty for a table without addresses.
    last: Vec<Address>,
    /// Event time of each row, in microseconds.
    pub times: ScalarBuffer<i64>,
    pub cells: Option<Cells>,
}

/// Runs of rows of one key and one time bucket. Buckets count from 1970.
#[derive(Debug)]
pub(crate) struct Cells {
    /// Width of a bucket, in microseconds.
    pub width: i64,
    /// First row of each cell, and the number of rows at the end.
    starts: Vec<u32>,
    /// First cell of each key, and the number of cells at the end.
    of_keys: Vec<u32>,
}

impl Layout {
    /// Finds the places of the rows. `time` must be a column of microseconds without nulls.
    pub fn build(key: Option<&ArrayRef>, time: &ArrayRef, addresses: Option<&Addresses<'_>>) -> Result<Self> {
        let rows = time.len();
        u32::try_from(rows).map_err(|_| {
            DataFusionError::ResourcesExhausted(format!("a tablet of {rows} rows is too large to be decoded"))
        })?;
        let times = time.as_primitive::<TimestampMicrosecondType>().values().clone();
        let converted = key.map(encode).transpose()?;
        let order = sort_order(converted.as_ref(), &times, addresses);
        let times = match &order {
            None => times,
            Some(order) => order.values().iter().map(|row| times[*row as usize]).collect(),
        };
        let ends = key_ends(converted.as_ref(), order.as_ref(), rows);
        let keys = match key {
            None => None,
            Some(key) => {
                let place = |end: &u32| order.as_ref().map_or(end - 1, |o| o.value(*end as usize - 1));
                Some(take(key, &UInt32Array::from_iter_values(ends.iter().map(place)), None)?)
            }
        };
        let encoded = keys.as_ref().map(encode).transpose()?;
        let place = |end: &u32| order.as_ref().map_or(end - 1, |o| o.value(*end as usize - 1)) as usize;
        let last =
            addresses.map(|all| ends.iter().map(|end| all.at(place(end))).collect()).unwrap_or_default();
        let cells = Cells::build(&ends, &times);
        Ok(Self { rows, order, keys, encoded, ends, last, times, cells })
    }

    /// Returns the number of distinct keys, 1 for a table without a key that has rows.
    pub fn key_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the rows of a key.
    pub fn rows_of(&self, key: usize) -> Range<usize> {
        let start = key.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[key] as usize
    }

    /// Returns the address of the last row of a key; `None` for a table without addresses.
    pub fn last_address(&self, key: usize) -> Option<Address> {
        self.last.get(key).copied()
    }

    /// Returns the bytes of a key, which compare as keys do.
    pub fn encoded(&self, key: usize) -> &[u8] {
        self.encoded.as_ref().map_or(&[], |rows| rows.row(key).data())
    }

    /// Returns which keys satisfy `condition`, an expression over the key column alone.
    pub fn select_keys(&self, condition: &dyn PhysicalExpr) -> Result<BooleanArray> {
        let Some(keys) = &self.keys else {
            return internal_err!("a condition on the key of a table without one: {condition}");
        };
        let field = Field::new("key", keys.data_type().clone(), true);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![keys.clone()])?;
        let chosen = condition.evaluate(&batch)?.into_array(keys.len())?;
        Ok(chosen.as_boolean().clone())
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |o| o.get_array_memory_size());
        let keys = self.keys.as_ref().map_or(0, |k| k.get_array_memory_size());
        let cells = self.cells.as_ref().map_or(0, |c| 4 * (c.starts.len() + c.of_keys.len()));
        order
            + keys
            + self.encoded.as_ref().map_or(0, Rows::size)
            + 4 * self.ends.len()
            + size_of::<Address>() * self.last.len()
            + 8 * self.rows
            + cells
    }
}

impl Cells {
    /// Cuts the rows into cells of the smallest width that has about [`ROWS_PER_CELL`] rows a cell or more.
    fn build(ends: &[u32], times: &[i64]) -> Option<Self> {
        WIDTHS.into_iter().find_map(|width| Self::of_width(width, ends, times, times.len() / ROWS_PER_CELL))
    }

    /// Returns `None` if there are more than `most` cells.
    fn of_width(width: i64, ends: &[u32], times: &[i64], most: usize) -> Option<Self> {
        let mut starts = Vec::new();
        let mut of_keys = Vec::with_capacity(ends.len() + 1);
        let mut start = 0;
        for end in ends {
            of_keys.push(u32::try_from(starts.len()).ok()?);
            let mut until = None;
            for row in start..*end {
                let time = times[row as usize];
                if until.is_none_or(|until| time >= until) {
                    starts.push(row);
                    until = Some(time.div_euclid(width).checked_add(1)?.checked_mul(width)?);
                }
            }
            if starts.len() > most {
                return None;
            }
            start = *end;
        }
        of_keys.push(u32::try_from(starts.len()).ok()?);
        starts.push(start);
        Some(Self { width, starts, of_keys })
    }

    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the first row of cell `cell`, or the number of rows for the number of cells.
    pub fn start(&self, cell: usize) -> usize {
        self.starts[cell] as usize
    }

    /// Returns the cells of `key` all of whose rows are in `rows`.
    pub fn inside(&self, key: usize, rows: &Range<usize>) -> Range<usize> {
        let (first, last) = (self.of_keys[key] as usize, self.of_keys[key + 1] as usize);
        // one more start than cells: that of the next key, where the last cell ends
        let starts = &self.starts[first..=last];
        let from = first + starts.partition_point(|s| (*s as usize) < rows.start);
        let to = (first + starts.partition_point(|s| (*s as usize) <= rows.end)).saturating_sub(1);
        from..to.max(from)
    }
}

fn encode(key: &ArrayRef) -> Result<Rows> {
    let converter = RowConverter::new(vec![SortField::new(key.data_type().clone())])?;
    Ok(converter.convert_columns(std::slice::from_ref(key))?)
}

/// Returns the order of the rows by key, then time, then address; `None` if they have it.
fn sort_order(keys: Option<&Rows>, times: &[i64], addresses: Option<&Addresses<'_>>) -> Option<UInt32Array> {
    let compare = |a: usize, b: usize| {
        let by_key = keys.map_or(std::cmp::Ordering::Equal, |k| k.row(a).cmp(&k.row(b)));
        let by_address = || addresses.map_or(std::cmp::Ordering::Equal, |all| all.at(a).cmp(&all.at(b)));
        by_key.then_with(|| times[a].cmp(&times[b])).then_with(by_address)
    };
    if (1..times.len()).all(|row| compare(row - 1, row).is_le()) {
        return None;
    }
    let mut order: Vec<u32> = (0..times.len() as u32).collect();
    order.sort_by(|a, b| compare(*a as usize, *b as usize));
    Some(UInt32Array::from(order))
}

fn key_ends(keys: Option<&Rows>, order: Option<&UInt32Array>, rows: usize) -> Vec<u32> {
    let place = |row: usize| order.map_or(row, |o| o.value(row) as usize);
    let mut ends = Vec::new();
    for row in 1..=rows {
        let last = row == rows;
        if last || keys.is_some_and(|k| k.row(place(row - 1)) != k.row(place(row))) {
            ends.push(row as u32);
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, TimestampMicrosecondArray};

    const SECOND: i64 = 1_000_000;

    fn layout(rows: &[(Option<i32>, i64)]) -> Layout {
        let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int32Array>());
        let times: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.1)));
        Layout::build(Some(&keys), &times, None).unwrap()
    }

    #[test]
    fn rows_are_found_by_key_and_time() {
        let sorted = [(None, 5), (None, 7), (Some(-1), 3), (Some(2), 1), (Some(2), 1), (Some(2), 9)];
        let found = layout(&sorted);
        assert!(found.order.is_none());
        let ranges: Vec<_> = (0..found.key_count()).map(|key| found.rows_of(key)).collect();
        assert_eq!(ranges, [0..2, 2..3, 3..6]);
        let mut arrival = sorted;
        arrival.reverse();
        let found = layout(&arrival);
        assert_eq!(found.times.as_ref(), sorted.map(|row| row.1));
        // rows with one key and time stay in the order in which they came
        assert_eq!(found.order.unwrap().values(), &[5, 4, 3, 1, 2, 0]);
    }

    #[test]
    fn cells_are_as_narrow_as_they_can_be() {
        // a row a second: a minute has 60 rows, 10 seconds have 10
        let rows: Vec<_> = (0..7_200).map(|n| (Some(n / 3_600), i64::from(n % 3_600) * SECOND)).collect();
        let found = layout(&rows);
        let cells = found.cells.as_ref().unwrap();
        assert_eq!((cells.width, cells.len()), (60 * SECOND, 120));
        assert_eq!((cells.start(0), cells.start(60), cells.start(120)), (0, 3_600, 7_200));
        assert_eq!(cells.inside(0, &(0..3_600)), 0..60);
        assert_eq!(cells.inside(1, &(3_600..7_200)), 60..120);
        assert_eq!(cells.inside(1, &(3_601..7_199)), 61..119);
        assert!(cells.inside(1, &(3_601..3_659)).is_empty());
        assert!(layout(&rows[..20]).cells.is_none(), "too few rows for a cell");
        let many: Vec<_> = (0..7_200).map(|n| (Some(n), i64::from(n) * SECOND)).collect();
        assert!(layout(&many).cells.is_none(), "too many keys for cells");
    }
}
