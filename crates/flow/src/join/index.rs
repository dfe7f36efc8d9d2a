//! The rows that the sides of a join hold, by their keys.
//!
//! Rows of both sides with the same hash of their keys share a bucket, which knows the first and the last of each side;
//! each row knows the next one. So an event that has entered its own side finds the rows of the other one without
//! another look into a table of hashes, oldest first; and rows leave, oldest first, without one.

use std::collections::VecDeque;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Rows;
use super::keys::Keys;
use crate::column::Column;
use crate::equality::{self, NONE};
use crate::store::Seq;

const NO_BUCKET: u32 = u32::MAX;
/// Buckets kept though none of their rows is there any more, whatever there are of rows.
const EMPTY_BUCKETS: usize = 1024;

/// An index of the held rows of one or both sides.
#[derive(Default)]
pub(super) struct Index {
    state: DefaultHashBuilder,
    /// The numbers of the buckets by their hashes.
    numbers: HashTable<u32>,
    buckets: Vec<Bucket>,
    sides: [Side; 2],
}

#[derive(Clone, Copy)]
struct Bucket {
    hash: u64,
    /// For each side the first row and the last one; the first is behind the last when there is none.
    ends: [(Seq, Seq); 2],
}

const NO_ROWS: (Seq, Seq) = (Seq::MAX, 0);

/// The rows of a side from `base` on, without gaps.
#[derive(Default)]
struct Side {
    base: Seq,
    rows: VecDeque<Row>,
}

#[derive(Clone, Copy)]
struct Row {
    bucket: u32,
    /// How far away the next row of the bucket is; 0 for the last one.
    next: u32,
}

impl Side {
    fn end(&self) -> Seq {
        self.base + self.rows.len() as Seq
    }
}

impl Index {
    /// The number that the next row of a side will have.
    pub(super) fn end(&self, side: usize) -> Seq {
        self.sides[side].end()
    }

    /// The hash of a row of a side; [`NONE`] when its key is equal to nothing.
    #[inline]
    fn hash(&self, keys: &Keys, side: usize, columns: &[Column], row: usize) -> u64 {
        let of = |i: usize| equality::hash(&columns[keys.column(i, side)], row, keys.equal[i].2, &self.state);
        (1..keys.equal.len()).fold(of(0), |hash, i| equality::both(hash, of(i)))
    }

    /// Adds a row to a side, behind those that are there.
    #[inline]
    pub(super) fn push(&mut self, keys: &Keys, side: usize, (columns, row): Rows<'_>) {
        let hash = self.hash(keys, side, columns, row);
        let seq = self.sides[side].end();
        if hash == NONE {
            return self.sides[side].rows.push_back(Row { bucket: NO_BUCKET, next: 0 });
        }
        let buckets = &self.buckets;
        let bucket = match self.numbers.find(hash, |number| buckets[*number as usize].hash == hash) {
            Some(number) => *number,
            None => self.bucket(hash),
        };
        let Side { base, rows } = &mut self.sides[side];
        let (first, last) = &mut self.buckets[bucket as usize].ends[side];
        if *first > *last {
            *first = seq;
        } else {
            rows[(*last - *base) as usize].next = (seq - *last) as u32;
        }
        *last = seq;
        rows.push_back(Row { bucket, next: 0 });
    }

    #[cold]
    fn bucket(&mut self, hash: u64) -> u32 {
        let rows = self.sides[0].rows.len() + self.sides[1].rows.len();
        if self.buckets.len() > 2 * rows + EMPTY_BUCKETS {
            self.sweep();
        }
        let number = self.buckets.len() as u32;
        self.buckets.push(Bucket { hash, ends: [NO_ROWS; 2] });
        let buckets = &self.buckets;
        self.numbers.insert_unique(hash, number, |number| buckets[*number as usize].hash);
        number
    }

    /// Gives back the buckets that are empty.
    fn sweep(&mut self) {
        let mut moved = vec![NO_BUCKET; self.buckets.len()];
        let mut kept: Vec<Bucket> = Vec::new();
        for (number, bucket) in self.buckets.iter().enumerate() {
            if bucket.ends.iter().any(|(first, last)| first <= last) {
                moved[number] = kept.len() as u32;
                kept.push(*bucket);
            }
        }
        for row in self.sides.iter_mut().flat_map(|side| &mut side.rows) {
            if row.bucket != NO_BUCKET {
                row.bucket = moved[row.bucket as usize];
            }
        }
        self.numbers.clear();
        for (number, bucket) in kept.iter().enumerate() {
            self.numbers.insert_unique(bucket.hash, number as u32, |n| kept[*n as usize].hash);
        }
        self.buckets = kept;
    }

    /// Lets go of the rows of a side below `seq`.
    #[inline]
    pub(super) fn forget_below(&mut self, side: usize, seq: Seq) {
        let Side { base, rows } = &mut self.sides[side];
        while *base < seq
            && let Some(row) = rows.pop_front()
        {
            if row.bucket != NO_BUCKET {
                let (first, last) = &mut self.buckets[row.bucket as usize].ends[side];
                match row.next {
                    0 => (*first, *last) = NO_ROWS,
                    next => *first = *base + Seq::from(next),
                }
            }
            *base += 1;
        }
    }

    /// A side has no rows; the next one gets the number `next`.
    pub(super) fn clear(&mut self, side: usize, next: Seq) {
        self.forget_below(side, Seq::MAX);
        self.sides[side].base = next;
    }

    /// The next row is not there.
    pub(super) fn skip(&mut self, side: usize) {
        self.sides[side].rows.push_back(Row { bucket: NO_BUCKET, next: 0 });
    }

    /// The bucket of a row of a side that is in the index.
    #[inline]
    pub(super) fn bucket_of(&self, side: usize, seq: Seq) -> Option<u32> {
        let Side { base, rows } = &self.sides[side];
        let row = rows.get(seq.checked_sub(*base)? as usize)?;
        (row.bucket != NO_BUCKET).then_some(row.bucket)
    }

    /// The bucket for the key of a row of a side that is not.
    pub(super) fn find(&self, keys: &Keys, side: usize, (columns, row): Rows<'_>) -> Option<u32> {
        let hash = self.hash(keys, side, columns, row);
        if hash == NONE {
            return None;
        }
        self.numbers.find(hash, |number| self.buckets[*number as usize].hash == hash).copied()
    }

    /// The rows of a side in a bucket, oldest first.
    #[inline]
    pub(super) fn rows(&self, bucket: u32, side: usize) -> impl Iterator<Item = Seq> + '_ {
        let (first, last) = self.buckets[bucket as usize].ends[side];
        let Side { base, rows } = &self.sides[side];
        let mut next = (first <= last).then_some(first);
        std::iter::from_fn(move || {
            let seq = next?;
            next = match rows[(seq - base) as usize].next {
                0 => None,
                on => Some(seq + Seq::from(on)),
            };
            Some(seq)
        })
    }
}
