//! The order of the rows of a tablet: by key if there is one, then by time, then as they came.
//!
//! Keys repeat and times mostly climb. So the distinct keys are sorted rather than the rows, rows are counted into
//! their keys, and only the keys whose times do not climb are sorted by time.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use tidemill_types::{Error, Result};

use crate::error::internal;

/// Returns the numbers of the rows of `batches`, counted through all of them, ordered by the column `key` (nulls
/// first), then by the column `time`, then by number.
///
/// Bounds: 16 bytes for each row, and the bytes of each distinct key.
/// Errors: `LimitReached` for more than `u32::MAX` rows.
pub(crate) fn row_order(batches: &[RecordBatch], key: Option<usize>, time: usize) -> Result<Vec<u32>> {
    let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let rows = u32::try_from(count)
        .map_err(|_| Error::limit(format!("a flush of {count} rows: expected at most {}", u32::MAX)))?;
    let times = times(batches, time, count)?;
    let (mut order, ends) = match key {
        Some(key) => {
            let columns: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(key)).collect();
            group_by_rank(&ranks(&columns, count)?)
        }
        None => ((0..rows).collect(), vec![count]),
    };
    let mut start = 0;
    for end in ends {
        let group = &mut order[start..end];
        if !group.is_sorted_by_key(|row| times[*row as usize]) {
            group.sort_by_key(|row| times[*row as usize]);
        }
        start = end;
    }
    Ok(order)
}

fn times(batches: &[RecordBatch], column: usize, count: usize) -> Result<Vec<i64>> {
    let mut times = Vec::with_capacity(count);
    for batch in batches {
        let column = batch.column(column).as_primitive_opt::<TimestampMicrosecondType>();
        times.extend(column.ok_or_else(|| Error::internal("`_time` has another type"))?.values());
    }
    Ok(times)
}

/// For each row the rank of its key among the distinct keys, and how many of those there are.
struct Ranks {
    of_rows: Vec<u32>,
    distinct: usize,
}

fn ranks(columns: &[&ArrayRef], count: usize) -> Result<Ranks> {
    let Some(first) = columns.first() else { return Ok(Ranks { of_rows: Vec::new(), distinct: 0 }) };
    let failed = |e| internal("keys cannot be ordered", e);
    let converter = RowConverter::new(vec![SortField::new(first.data_type().clone())]).map_err(failed)?;
    let hasher = DefaultHashBuilder::default();
    let mut distinct = converter.empty_rows(0, 0);
    let mut table: HashTable<u32> = HashTable::new();
    let mut ids = Vec::with_capacity(count);
    for column in columns {
        let keys = converter.convert_columns(&[(*column).clone()]).map_err(failed)?;
        for key in keys.iter() {
            let hash = hasher.hash_one(key.data());
            let known = table.find(hash, |id| distinct.row(*id as usize) == key).copied();
            ids.push(known.unwrap_or_else(|| {
                let id = distinct.num_rows() as u32;
                distinct.push(key);
                table.insert_unique(hash, id, |id| hasher.hash_one(distinct.row(*id as usize).data()));
                id
            }));
        }
    }
    let ranks = rank_distinct(&distinct);
    ids.iter_mut().for_each(|id| *id = ranks[*id as usize]);
    Ok(Ranks { of_rows: ids, distinct: distinct.num_rows() })
}

/// The rank of each key among `keys`, which are distinct.
fn rank_distinct(keys: &Rows) -> Vec<u32> {
    let mut heads: Vec<(u128, u32)> =
        (0..keys.num_rows()).map(|id| (key_prefix(keys, id), id as u32)).collect();
    // most pairs differ in the first 16 bytes; only the others need to be looked up
    heads.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| keys.row(a.1 as usize).cmp(&keys.row(b.1 as usize)))
    });
    let mut ranks = vec![0; heads.len()];
    for (rank, (_, id)) in heads.iter().enumerate() {
        ranks[*id as usize] = rank as u32;
    }
    ranks
}

/// The rows by rank, those of one rank in their order; and where each rank ends.
fn group_by_rank(ranks: &Ranks) -> (Vec<u32>, Vec<usize>) {
    let mut ends = vec![0; ranks.distinct];
    for rank in &ranks.of_rows {
        ends[*rank as usize] += 1;
    }
    let mut next = Vec::with_capacity(ranks.distinct);
    let mut total = 0;
    for end in &mut ends {
        next.push(total);
        total += *end;
        *end = total;
    }
    let mut order = vec![0; total];
    for (row, rank) in ranks.of_rows.iter().enumerate() {
        let place = &mut next[*rank as usize];
        order[*place] = row as u32;
        *place += 1;
    }
    (order, ends)
}

/// The first 16 bytes of a key, as a number that orders as the keys do. Shorter keys are filled with zeros,
/// which may make different keys equal but never turns their order around.
fn key_prefix(keys: &Rows, row: usize) -> u128 {
    let key = keys.row(row);
    let bytes = key.data();
    let mut head = [0; 16];
    let length = bytes.len().min(16);
    head[..length].copy_from_slice(&bytes[..length]);
    u128::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::row_order;

    #[test]
    fn rows_are_ordered_by_key_then_time_then_arrival() {
        let mut random = StdRng::seed_from_u64(20_261_123);
        for round in 0..200 {
            let mut model: Vec<(Option<String>, i64, u32)> = Vec::new();
            let mut batches = Vec::new();
            let names = random.random_range(1..40);
            for _ in 0..random.random_range(0..5) {
                let start = model.len();
                for _ in 0..random.random_range(0..60) {
                    // shared prefixes beyond 16 bytes, empty keys and nulls
                    let key = match random.random_range(0..names) {
                        0 => None,
                        1 => Some(String::new()),
                        n => Some(format!("{}{n}", "prefix-of-20-bytes--".repeat(n % 3))),
                    };
                    let climbs = model.len() as i64;
                    let time = if round % 2 == 0 { climbs } else { random.random_range(-3..3) };
                    model.push((key, time, model.len() as u32));
                }
                let rows = &model[start..];
                let keys: StringArray = rows.iter().map(|(key, ..)| key.clone()).collect();
                let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.1));
                let columns: [(&str, ArrayRef); 2] = [("key", Arc::new(keys)), ("time", Arc::new(times))];
                batches.push(RecordBatch::try_from_iter(columns).expect("equal lengths"));
            }
            let mut by_key = model.clone();
            by_key.sort();
            let expected: Vec<u32> = by_key.iter().map(|row| row.2).collect();
            assert_eq!(row_order(&batches, Some(0), 1).expect("ordered"), expected, "round {round}");
            let mut by_time = model.clone();
            by_time.sort_by_key(|row| (row.1, row.2));
            let expected: Vec<u32> = by_time.iter().map(|row| row.2).collect();
            assert_eq!(row_order(&batches, None, 1).expect("ordered"), expected, "round {round}");
        }
    }
}
