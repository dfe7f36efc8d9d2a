//! Hash index of the window rows of a join, by their keys.
//!
//! Rows of both sides with equal keys share a bucket, which knows the newest row of each side. Each row knows
//! the distance to the previous row of its bucket. So an event that is in the index of its own side finds the
//! rows of the other side without another hash lookup, and eviction does not touch the evicted rows.

use hashbrown::{DefaultHashBuilder, HashTable};

use super::RowView;
use super::keys::JoinKeys;
use crate::columns::column::{Column, Data};
use crate::columns::equality::{self, CompareType, NO_HASH};
use crate::columns::u64_map::U64IndexMap;
use crate::store::RowId;

const NO_BUCKET: u32 = u32::MAX;
/// Number of buckets, in excess of two per live row, above which empty buckets are reclaimed.
const EMPTY_BUCKETS_MAX: usize = 1024;
/// Number of expired rows, in excess of half of all rows, above which they are dropped.
const EXPIRED_ROWS_MAX: usize = 1024;

/// Index of the window rows of one or both sides.
#[derive(Default)]
pub(super) struct JoinIndex {
    state: DefaultHashBuilder,
    /// Ids of the buckets: `exact` for keys that fit in a number, `hashed` for the others by their hash.
    exact: U64IndexMap,
    hashed: HashTable<u32>,
    buckets: Vec<KeyBucket>,
    sides: [SideRows; 2],
}

#[derive(Clone, Copy)]
struct KeyBucket {
    key: BucketKey,
    /// For each side, one past the id of the newest row that has arrived; 0 if there was none.
    ends: [RowId; 2],
}

/// Key, or hash of the key, that the rows of a bucket share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketKey {
    /// Their key, encoded in a number.
    Exact(u64),
    /// The hash of their keys.
    Hash(u64),
}

/// The rows of a side from id `base` on, without gaps; those below `oldest` have expired.
#[derive(Default)]
struct SideRows {
    base: RowId,
    oldest: RowId,
    rows: Vec<IndexedRow>,
}

#[derive(Clone, Copy)]
struct IndexedRow {
    bucket: u32,
    /// Distance to the previous row of the bucket; 0 for the first row, and until the row arrives.
    distance_to_previous: u32,
}

impl SideRows {
    fn end(&self) -> RowId {
        self.base + self.rows.len() as RowId
    }

    fn live_rows(&self) -> &[IndexedRow] {
        &self.rows[((self.oldest - self.base) as usize).min(self.rows.len())..]
    }
}

impl JoinIndex {
    /// Returns the id of the next row of a side.
    pub(super) fn end(&self, side: usize) -> RowId {
        self.sides[side].end()
    }

    /// Computes the bucket key of a row; `None` if its key equals nothing, as null does.
    #[inline]
    fn key(&self, keys: &JoinKeys, side: usize, columns: &[Column], row: usize) -> Option<BucketKey> {
        let of = |i: usize| (&columns[keys.column(i, side)], keys.equal_columns[i].2);
        if let [_] = keys.equal_columns.as_slice()
            && let (column, domain) = of(0)
            && let Some(number) = equality::exact_bits(column, row, domain)
        {
            return Some(BucketKey::Exact(number));
        }
        let hash = |i: usize| {
            let (column, domain) = of(i);
            equality::hash(column, row, domain, &self.state)
        };
        let hash =
            (1..keys.equal_columns.len()).fold(hash(0), |all, i| equality::combine_hashes(all, hash(i)));
        (hash != NO_HASH).then_some(BucketKey::Hash(hash))
    }

    #[inline]
    fn find_bucket(&self, key: BucketKey) -> Option<u32> {
        match key {
            BucketKey::Exact(number) => self.exact.get(number),
            BucketKey::Hash(hash) => {
                self.hashed.find(hash, |n| self.buckets[*n as usize].key == BucketKey::Hash(hash)).copied()
            }
        }
    }

    /// Appends a row to a side; it has not arrived yet.
    #[inline]
    pub(super) fn append(&mut self, keys: &JoinKeys, side: usize, (columns, row): RowView<'_>) {
        let bucket = match self.key(keys, side, columns, row) {
            None => NO_BUCKET,
            Some(key) => self.find_bucket(key).unwrap_or_else(|| self.new_bucket(key)),
        };
        self.sides[side].rows.push(IndexedRow { bucket, distance_to_previous: 0 });
    }

    /// Appends `rows` rows to a side, as [`Self::append`] does.
    pub(super) fn append_all(&mut self, keys: &JoinKeys, side: usize, columns: &[Column], rows: usize) {
        if rows == 0 {
            // an empty batch may have no columns
            return;
        }
        if let [(.., CompareType::Text)] = keys.equal_columns.as_slice()
            && let column = &columns[keys.column(0, side)]
            && column.nulls().is_empty()
            && let Data::Str(texts) = column.data()
            && let Some(numbers) = texts.all_tiny_keys()
        {
            let mut rest = Vec::new();
            let mut buckets = self.exact.get_all(&numbers, &mut rest);
            rest.iter().for_each(|row| buckets[*row as usize] = NO_BUCKET);
            // creating a bucket may renumber all buckets, so the rows must be in the index before
            let first = self.sides[side].end();
            self.sides[side]
                .rows
                .extend(buckets.into_iter().map(|bucket| IndexedRow { bucket, distance_to_previous: 0 }));
            for row in rest {
                let number = numbers[row as usize];
                let bucket =
                    self.exact.get(number).unwrap_or_else(|| self.new_bucket(BucketKey::Exact(number)));
                let SideRows { base, rows, .. } = &mut self.sides[side];
                rows[(first + RowId::from(row) - *base) as usize].bucket = bucket;
            }
            return;
        }
        self.sides[side].rows.reserve(rows);
        (0..rows).for_each(|row| self.append(keys, side, (columns, row)));
    }

    #[cold]
    fn new_bucket(&mut self, key: BucketKey) -> u32 {
        let rows = self.sides[0].live_rows().len() + self.sides[1].live_rows().len();
        if self.buckets.len() > 2 * rows + EMPTY_BUCKETS_MAX {
            self.reclaim_empty_buckets();
        }
        let number = self.buckets.len() as u32;
        self.buckets.push(KeyBucket { key, ends: [0; 2] });
        self.register_bucket(number)
    }

    /// Enters a bucket into the map from keys to buckets.
    fn register_bucket(&mut self, number: u32) -> u32 {
        match self.buckets[number as usize].key {
            BucketKey::Exact(key) => self.exact.insert(key, number),
            BucketKey::Hash(hash) => {
                let hash_of = |n: &u32| match self.buckets[*n as usize].key {
                    BucketKey::Hash(hash) => hash,
                    BucketKey::Exact(_) => NO_HASH,
                };
                self.hashed.insert_unique(hash, number, hash_of);
                number
            }
        }
    }

    /// Drops the buckets without rows, and renumbers the others.
    fn reclaim_empty_buckets(&mut self) {
        let mut moved = vec![NO_BUCKET; self.buckets.len()];
        let mut kept: Vec<KeyBucket> = Vec::new();
        for side in &mut self.sides {
            side.drop_expired();
            for row in side.rows.iter_mut().filter(|row| row.bucket != NO_BUCKET) {
                let to = &mut moved[row.bucket as usize];
                if *to == NO_BUCKET {
                    *to = kept.len() as u32;
                    kept.push(self.buckets[row.bucket as usize]);
                }
                row.bucket = *to;
            }
        }
        self.buckets = kept;
        self.exact.clear();
        self.hashed.clear();
        for number in 0..self.buckets.len() as u32 {
            self.register_bucket(number);
        }
    }

    /// Marks a row as arrived, after all rows that have arrived before. Returns its bucket.
    #[inline]
    pub(super) fn mark_arrived(&mut self, side: usize, seq: RowId) -> Option<u32> {
        let SideRows { base, rows, .. } = &mut self.sides[side];
        let row = &mut rows[(seq - *base) as usize];
        if row.bucket == NO_BUCKET {
            return None;
        }
        let end = &mut self.buckets[row.bucket as usize].ends[side];
        // a previous row too far away for 32 bits has expired, because so many rows do not fit in memory
        row.distance_to_previous = if *end == 0 { 0 } else { u32::try_from(seq + 1 - *end).unwrap_or(0) };
        *end = seq + 1;
        Some(row.bucket)
    }

    /// Marks the rows of a side below `seq` as expired; [`Self::evict_below`] drops them.
    #[inline]
    pub(super) fn expire_below(&mut self, side: usize, seq: RowId) {
        self.sides[side].oldest = seq;
    }

    /// Marks the rows of a side below `seq` as expired, and drops expired rows once there are many.
    pub(super) fn evict_below(&mut self, side: usize, seq: RowId) {
        let side = &mut self.sides[side];
        side.oldest = side.oldest.max(seq);
        let left = side.oldest - side.base;
        if left as usize > EXPIRED_ROWS_MAX + side.rows.len() / 2 {
            side.drop_expired();
        }
    }

    /// Removes all rows of a side; the next one gets the id `next`.
    pub(super) fn clear(&mut self, side: usize, next: RowId) {
        self.sides[side] = SideRows { base: next, oldest: next, rows: vec![] };
    }

    /// Appends a placeholder for a row that is not in the window.
    pub(super) fn skip_row(&mut self, side: usize) {
        self.sides[side].rows.push(IndexedRow { bucket: NO_BUCKET, distance_to_previous: 0 });
    }

    /// Returns the bucket of a row of a side; `None` if the row is not in the index, or its key equals
    /// nothing.
    #[inline]
    pub(super) fn bucket_of(&self, side: usize, seq: RowId) -> Option<u32> {
        let SideRows { base, rows, .. } = &self.sides[side];
        let row = rows.get(seq.checked_sub(*base)? as usize)?;
        (row.bucket != NO_BUCKET).then_some(row.bucket)
    }

    /// Looks up the bucket for the key of a row that is not in the index.
    pub(super) fn find(&self, keys: &JoinKeys, side: usize, (columns, row): RowView<'_>) -> Option<u32> {
        self.find_bucket(self.key(keys, side, columns, row)?)
    }

    /// Returns whether the rows of a bucket have equal keys, not only equal hashes.
    #[inline]
    pub(super) fn is_exact(&self, bucket: u32) -> bool {
        matches!(self.buckets[bucket as usize].key, BucketKey::Exact(_))
    }

    /// Iterates over the rows of a side in a bucket that have arrived and not expired, newest first.
    #[inline]
    pub(super) fn rows(&self, bucket: u32, side: usize) -> impl Iterator<Item = RowId> + '_ {
        let end = self.buckets[bucket as usize].ends[side];
        let SideRows { base, oldest, rows } = &self.sides[side];
        let mut next = end.checked_sub(1);
        std::iter::from_fn(move || {
            let seq = next.filter(|seq| seq >= oldest)?;
            next = match rows[(seq - base) as usize].distance_to_previous {
                0 => None,
                back => seq.checked_sub(RowId::from(back)),
            };
            Some(seq)
        })
    }
}

impl SideRows {
    /// Drops the expired rows.
    fn drop_expired(&mut self) {
        let left = ((self.oldest - self.base) as usize).min(self.rows.len());
        self.rows.drain(..left);
        self.base += left as RowId;
    }
}
