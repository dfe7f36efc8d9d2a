//! Ranges of rows that are tried within a transaction.
//!
//! A server that refuses a row refuses the whole statement, so a failed range is halved until the refused
//! rows stand alone; a savepoint before each attempt leaves the good rows in the transaction. SQL Server ends
//! a transaction by some refusals, such as a text that is not a number or a trigger that rolls back: then a
//! new transaction starts, and what was written before is tried again without the refused row.

use tidemill_connect::RefusedRow;

use crate::database::DatabaseConnection;
use crate::error::{DbError, DbErrorKind};

/// Part of a batch that is written by one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub from: usize,
    pub to: usize,
    /// True if the server has to check each row, because it did not while it loaded this range.
    pub careful: bool,
}

impl Attempt {
    /// Returns the number of rows.
    pub fn count(self) -> usize {
        self.to - self.from
    }
}

/// Attempts that are left, with what became of the others.
#[derive(Debug)]
pub struct Attempts {
    /// The next one is the last.
    open: Vec<Attempt>,
    /// In order.
    written: Vec<Attempt>,
    refused: Vec<RefusedRow>,
}

impl Attempts {
    /// Starts with one attempt for all rows.
    pub fn new(rows: usize) -> Self {
        Self { open: vec![Attempt { from: 0, to: rows, careful: false }], written: vec![], refused: vec![] }
    }

    /// Sets a savepoint and returns the next attempt; `None` if all rows are written or refused.
    ///
    /// Errors: those of the server.
    pub async fn next(&mut self, db: &mut DatabaseConnection) -> Result<Option<Attempt>, DbError> {
        let Some(attempt) = self.pop() else { return Ok(None) };
        db.savepoint().await?;
        Ok(Some(attempt))
    }

    fn pop(&mut self) -> Option<Attempt> {
        self.open.retain(|attempt| attempt.from < attempt.to);
        self.open.pop()
    }

    /// Takes note of the result of an attempt. `row` is the first row of the attempt in the batch.
    ///
    /// Errors: those of the attempt other than refusals, and those of the server.
    pub async fn finish(
        &mut self,
        db: &mut DatabaseConnection,
        attempt: Attempt,
        row: usize,
        result: Result<Checked, DbError>,
    ) -> Result<(), DbError> {
        if self.note(attempt, row, result)? && !db.return_to_savepoint().await? {
            db.begin().await?;
            self.restart();
        }
        Ok(())
    }

    /// Takes note of a result. Returns whether what the attempt has done must be taken back.
    fn note(
        &mut self,
        attempt: Attempt,
        row: usize,
        result: Result<Checked, DbError>,
    ) -> Result<bool, DbError> {
        let next = match result {
            Ok(Checked::Yes) => {
                self.written.push(attempt);
                return Ok(false);
            }
            Ok(Checked::No) => vec![Attempt { careful: true, ..attempt }],
            Err(e) if e.kind == DbErrorKind::RowRefused && attempt.count() == 1 => {
                self.refused.push(RefusedRow { row, reason: e.to_string() });
                vec![]
            }
            Err(e) if e.kind == DbErrorKind::RowRefused => {
                let middle = attempt.from + attempt.count() / 2;
                vec![Attempt { from: middle, ..attempt }, Attempt { to: middle, ..attempt }]
            }
            Err(e) => return Err(e),
        };
        self.open.extend(next);
        Ok(true)
    }

    /// Opens all that was written once more, before what is left, because the transaction is gone.
    fn restart(&mut self) {
        self.open.extend(self.written.drain(..).rev());
    }

    /// Returns the refused rows in order.
    pub fn into_refused(mut self) -> Vec<RefusedRow> {
        self.refused.sort_by_key(|refused| refused.row);
        self.refused
    }
}

/// Result of an attempt that the server did not refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// They are written.
    Yes,
    /// They must be written carefully.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `rows` rows, refusing those in `bad`; `ends` says whether a refusal ends the transaction.
    /// Returns the rows in the transaction that is left, in the order of the writes, and the refused ones.
    fn write(rows: usize, bad: &[usize], ends: bool) -> (Vec<usize>, Vec<usize>) {
        let mut attempts = Attempts::new(rows);
        let mut table = vec![];
        while let Some(attempt) = attempts.pop() {
            let range = attempt.from..attempt.to;
            let result = match bad.iter().any(|row| range.contains(row)) {
                true => Err(DbError::new(DbErrorKind::RowRefused, "bad")),
                false => Ok(Checked::Yes),
            };
            if result.is_ok() {
                table.extend(range);
            }
            if attempts.note(attempt, attempt.from, result).unwrap() && ends {
                table.clear();
                attempts.restart();
            }
        }
        (table, attempts.into_refused().iter().map(|refused| refused.row).collect())
    }

    #[test]
    fn refused_rows_are_left_out_and_the_others_keep_their_order() {
        for ends in [false, true] {
            for bad in [vec![], vec![0], vec![7], vec![2, 3, 9], (0..10).collect()] {
                let (table, refused) = write(10, &bad, ends);
                let good: Vec<usize> = (0..10).filter(|row| !bad.contains(row)).collect();
                assert_eq!((table, refused), (good, bad), "{ends}");
            }
        }
    }

    #[test]
    fn other_errors_end_the_batch() {
        let mut attempts = Attempts::new(2);
        let attempt = attempts.pop().unwrap();
        let lost = DbError::unavailable("lost");
        assert_eq!(attempts.note(attempt, 0, Err(lost.clone())), Err(lost));
    }
}
