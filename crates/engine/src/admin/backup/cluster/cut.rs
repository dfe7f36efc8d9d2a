//! The cut: the offset at which the log of each partition ends in a backup. Pure.
//!
//! The ends of two logs are not read at one moment. Partition 0 got record 7 after its end was read, and emitted an event into partition 1,
//! whose end was read after that:
//!
//! ```text
//! p0  … 5 6 │ 7                   ends as they were read: 7 and 43
//! p1  … 41 42(p0, 7) │            record 42 follows from record 7 of p0
//! ```
//!
//! The copy would have the effect without its cause, and would give the offset 7 to another record. So the end of p0 is raised to 8. The
//! records that this adds may follow from others again, so they are looked at, too. A cause is in its log before its effect is: each raised
//! end is one that the log has, and all that is added was in the logs before the last record that was looked at. So this ends.

use std::ops::Range;

use tidemill_types::{Error, Offset, PartitionId, Result};

/// Partition and offset of a record from which another one follows.
pub type Cause = (PartitionId, Offset);

/// Reads the records from `starts` to `ends`, and raises the ends until the cause of each record is below them. `read` reads a range of a
/// partition once, in the order of offsets, and returns the causes that records in it name.
///
/// Errors: those of `read`; `Corrupt` for a cause in a partition that does not exist.
pub fn read_to_cut(
    starts: &[Offset],
    mut ends: Vec<Offset>,
    mut read: impl FnMut(PartitionId, Range<Offset>) -> Result<Vec<Cause>>,
) -> Result<Vec<Offset>> {
    let mut next = starts.to_vec();
    loop {
        let behind = next.iter().zip(&ends).position(|(next, end)| next < end);
        let Some(p) = behind else { return Ok(ends) };
        let id = PartitionId(p as u32);
        let causes = read(id, next[p]..ends[p])?;
        next[p] = ends[p];
        for (from, offset) in causes {
            let end = ends.get_mut(from.0 as usize).ok_or_else(|| {
                Error::corrupt(format!(
                    "partition {id}: a record follows from one of partition {from}, which does not exist"
                ))
            })?;
            *end = offset.next().max(*end);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Logs of partitions; each record has its causes.
    type Logs = Vec<Vec<Vec<Cause>>>;

    fn offsets(of: &[u64]) -> Vec<Offset> {
        of.iter().copied().map(Offset).collect()
    }

    /// Returns the cut, after it has checked that each record below it is read once, in order.
    fn cut(logs: &Logs, starts: &[u64], ends: &[u64]) -> Result<Vec<Offset>> {
        let mut seen: Vec<u64> = starts.to_vec();
        let cut = read_to_cut(&offsets(starts), offsets(ends), |id, range| {
            let p = id.0 as usize;
            assert_eq!(range.start.0, seen[p], "partition {id}");
            seen[p] = range.end.0;
            Ok(logs[p][range.start.0 as usize..range.end.0 as usize].concat())
        })?;
        assert_eq!(offsets(&seen), cut);
        Ok(cut)
    }

    fn cause(partition: u32, offset: u64) -> Vec<Cause> {
        vec![(PartitionId(partition), Offset(offset))]
    }

    #[test]
    fn ends_are_raised_along_chains_of_causes_and_no_further() {
        // 2 at offset 1 follows from 1 at offset 3, that from 0 at offset 2
        let logs = vec![
            vec![vec![]; 5],
            vec![vec![], vec![], vec![], cause(0, 2), cause(0, 4)],
            vec![vec![], cause(1, 3), vec![]],
        ];
        assert_eq!(cut(&logs, &[0, 0, 0], &[1, 1, 2]).unwrap(), offsets(&[3, 4, 2]));
        // without the effect nothing is raised
        assert_eq!(cut(&logs, &[0, 0, 0], &[1, 1, 1]).unwrap(), offsets(&[1, 1, 1]));
        // partitions that follow from each other
        let logs = vec![vec![vec![], cause(1, 1)], vec![cause(0, 0), vec![], cause(0, 1)]];
        assert_eq!(cut(&logs, &[0, 0], &[0, 3]).unwrap(), offsets(&[2, 3]));
        // what is below the starts is in the states
        assert_eq!(cut(&logs, &[2, 3], &[2, 3]).unwrap(), offsets(&[2, 3]));
        assert!(cut(&vec![vec![cause(7, 0)]], &[0], &[1]).is_err());
    }

    #[test]
    fn a_cut_through_random_logs_is_the_least_one_with_all_causes() {
        for seed in 0..2_000 {
            let mut rng = StdRng::seed_from_u64(seed);
            let partitions = rng.random_range(1..5_usize);
            let mut logs: Logs = vec![Vec::new(); partitions];
            for _ in 0..rng.random_range(0..60) {
                let causes = (0..rng.random_range(0..3)).filter_map(|_| {
                    let from = rng.random_range(0..partitions);
                    let records = logs[from].len() as u64;
                    (records > 0).then(|| (PartitionId(from as u32), Offset(rng.random_range(0..records))))
                });
                let causes = causes.collect();
                logs[rng.random_range(0..partitions)].push(causes);
            }
            let ends: Vec<u64> = logs.iter().map(|log| rng.random_range(0..=log.len() as u64)).collect();
            let found = cut(&logs, &vec![0; partitions], &ends).unwrap();
            // the least fixpoint, one record at a time
            let mut expected = ends.clone();
            while let Some((p, end)) = logs.iter().zip(expected.clone()).find_map(|(log, end)| {
                let causes = log[..end as usize].concat();
                causes.into_iter().find(|(p, at)| at.0 >= expected[p.0 as usize]).map(|(p, at)| (p, at.0 + 1))
            }) {
                expected[p.0 as usize] = end;
            }
            assert_eq!(found, offsets(&expected), "seed {seed}: {logs:?} {ends:?}");
        }
    }
}
