//! Several sources as one, in order of event time.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{RecordBatch, TimestampMicrosecondArray};
use arrow_select::interleave::interleave_record_batch;
use tidemill_types::{BadRow, Error, InterleavedBatches, Result, StreamSchema, Timestamp};

use crate::{Source, SourceBatch};

/// Rows, rejected ones included, after which a batch ends.
const BATCH_ROWS: usize = 4096;
/// Event time that inputs give to rows that have none; the merge replaces it.
const NO_TIME: Timestamp = Timestamp(i64::MIN);

/// Merge of sources by event time; at equal times, the source named first comes first. A row without a time
/// has the greatest time so far (at the beginning 1970), so it precedes all later ones. Each input should be
/// ordered by time; rows that are not stay in the order of their input.
///
/// Positions count the rows of all inputs in merged order, rejected ones included. They mean the same rows
/// as long as the inputs are read from their beginnings and do not change, so a merge that continues reads
/// everything before its position again.
pub struct MergedSource {
    name: String,
    inputs: Vec<Input>,
    /// Greatest time so far, microseconds.
    clock: i64,
    /// Number of the next row.
    number: u64,
    start: u64,
}

/// Source with the rows that it has returned and the merge has not.
struct Input {
    source: Box<dyn Source>,
    batch: SourceBatch,
    /// Part, row and time of each row of the batch, in order of arrival.
    rows: Vec<(usize, usize, i64)>,
    next_row: usize,
    next_rejected: usize,
    ended: bool,
}

/// Next item of an input.
enum Head {
    Row(i64),
    Rejected,
    End,
}

impl MergedSource {
    /// Merges sources that are at their beginnings, and skips what comes before the position `start`.
    pub fn new(name: impl Into<String>, sources: Vec<Box<dyn Source>>, start: u64) -> Self {
        let input = |source| Input {
            source,
            batch: SourceBatch::default(),
            rows: vec![],
            next_row: 0,
            next_rejected: 0,
            ended: false,
        };
        let inputs = sources.into_iter().map(input).collect();
        Self { name: name.into(), inputs, clock: 0, number: 0, start }
    }

    /// Returns the input whose row or rejected row is next; `None` at the end of all.
    fn next_input(&mut self) -> Result<Option<(usize, Head)>> {
        let mut earliest: Option<(usize, i64)> = None;
        for (i, input) in self.inputs.iter_mut().enumerate() {
            match input.head(self.clock)? {
                Head::Rejected => return Ok(Some((i, Head::Rejected))),
                Head::Row(time) if earliest.is_none_or(|(_, least)| time < least) => {
                    earliest = Some((i, time));
                }
                Head::Row(_) | Head::End => {}
            }
        }
        Ok(earliest.map(|(i, time)| (i, Head::Row(time))))
    }
}

impl Source for MergedSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self, _now: Timestamp) -> Result<Option<SourceBatch>> {
        let begin = self.number;
        let mut merged = MergedRows::default();
        while merged.len() < BATCH_ROWS {
            let Some((i, head)) = self.next_input()? else { break };
            let input = &mut self.inputs[i];
            let wanted = self.number >= self.start;
            match head {
                Head::Row(time) => {
                    let (part, row, _) = input.rows[input.next_row];
                    input.next_row += 1;
                    self.clock = self.clock.max(time);
                    if wanted {
                        merged.push(&input.batch.rows.parts[part], row, time, self.number);
                    }
                }
                Head::Rejected => {
                    let bad = &input.batch.rejected[input.next_rejected];
                    input.next_rejected += 1;
                    if wanted {
                        merged.reject(bad, input.source.name(), self.number);
                    }
                }
                Head::End => {}
            }
            self.number += 1;
        }
        if self.number == begin { Ok(None) } else { merged.finish(self.number).map(Some) }
    }
}

impl Input {
    /// Returns what is next. `clock` is the time of rows without one.
    fn head(&mut self, clock: i64) -> Result<Head> {
        loop {
            let row = self.batch.row_numbers.get(self.next_row);
            if let Some(bad) = self.batch.rejected.get(self.next_rejected)
                && row.is_none_or(|row| bad.origin.number < *row)
            {
                return Ok(Head::Rejected);
            }
            if let Some((_, _, time)) = self.rows.get(self.next_row) {
                return Ok(Head::Row(if *time == NO_TIME.0 { clock } else { *time }));
            }
            if self.ended {
                return Ok(Head::End);
            }
            match self.source.next(NO_TIME)? {
                Some(batch) => self.fill(batch)?,
                None => self.ended = true,
            }
        }
    }

    fn fill(&mut self, batch: SourceBatch) -> Result<()> {
        let times: Vec<&TimestampMicrosecondArray> = batch
            .rows
            .parts
            .iter()
            .map(|(stream, rows)| {
                let column = rows.columns().get(stream.fields.len());
                column.and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>()).ok_or_else(no_time)
            })
            .collect::<Result<_>>()?;
        self.rows.clear();
        batch.rows.for_each_arrival(|_, part, row| self.rows.push((part, row, times[part].value(row))));
        (self.batch, self.next_row, self.next_rejected) = (batch, 0, 0);
        Ok(())
    }
}

/// Rows of the batch under construction, by stream.
#[derive(Default)]
struct MergedRows {
    parts: Vec<MergedPart>,
    by_stream: BTreeMap<String, usize>,
    order: Vec<u16>,
    row_numbers: Vec<u64>,
    rejected: Vec<BadRow>,
}

struct MergedPart {
    stream: Arc<StreamSchema>,
    batches: Vec<RecordBatch>,
    /// Batch and row of each row.
    rows: Vec<(usize, usize)>,
    times: Vec<i64>,
}

impl MergedRows {
    fn len(&self) -> usize {
        self.order.len() + self.rejected.len()
    }

    fn push(&mut self, from: &(Arc<StreamSchema>, RecordBatch), row: usize, time: i64, number: u64) {
        let (stream, batch) = from;
        let part = match self.by_stream.get(&stream.name) {
            Some(part) => *part,
            None => {
                let (batches, rows, times) = (vec![], vec![], vec![]);
                self.parts.push(MergedPart { stream: stream.clone(), batches, rows, times });
                self.by_stream.insert(stream.name.clone(), self.parts.len() - 1);
                self.parts.len() - 1
            }
        };
        self.parts[part].push(batch, row, time);
        self.order.push(part as u16);
        self.row_numbers.push(number);
    }

    /// Adds a rejected row. Its number becomes that of the merge; where it is in its input goes into the
    /// message.
    fn reject(&mut self, bad: &BadRow, input: &str, number: u64) {
        let message = format!("{input}: {bad}");
        let mut bad = BadRow { message, ..bad.clone() };
        bad.origin.number = number;
        self.rejected.push(bad);
    }

    fn finish(self, position: u64) -> Result<SourceBatch> {
        let order = (self.parts.len() > 1).then_some(self.order);
        let parts = self.parts.into_iter().map(MergedPart::finish).collect::<Result<_>>()?;
        Ok(SourceBatch {
            rows: InterleavedBatches { parts, order },
            row_numbers: self.row_numbers,
            rejected: self.rejected,
            position,
            ..SourceBatch::default()
        })
    }
}

impl MergedPart {
    fn push(&mut self, batch: &RecordBatch, row: usize, time: i64) {
        // batches of an input that was merged before are found from the end
        let same = |known: &RecordBatch| {
            known.columns().iter().zip(batch.columns()).all(|(known, column)| Arc::ptr_eq(known, column))
        };
        let index = self.batches.iter().rposition(same).unwrap_or_else(|| {
            self.batches.push(batch.clone());
            self.batches.len() - 1
        });
        self.rows.push((index, row));
        self.times.push(time);
    }

    fn finish(self) -> Result<(Arc<StreamSchema>, RecordBatch)> {
        let failed = |e| Error::internal("rows of several sources do not make a batch").with_source(e);
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let merged = interleave_record_batch(&batches, &self.rows).map_err(failed)?;
        let mut columns = merged.columns().to_vec();
        let time = columns.get_mut(self.stream.fields.len()).ok_or_else(no_time)?;
        *time = Arc::new(TimestampMicrosecondArray::from(self.times).with_timezone("UTC"));
        Ok((self.stream, RecordBatch::try_new(merged.schema(), columns).map_err(failed)?))
    }
}

fn no_time() -> Error {
    Error::internal("a batch of a source has no event times")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::decode::BatchBuilder;
    use tidemill_types::{Field, FieldType, RowOrigin, Value, row_value};

    /// Source of rows `name` with these times, in batches of two; `Err` is a rejected row.
    struct Rows {
        name: String,
        stream: Arc<StreamSchema>,
        rows: Vec<std::result::Result<Option<i64>, ()>>,
        next: usize,
    }

    impl Source for Rows {
        fn name(&self) -> &str {
            &self.name
        }

        fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
            let end = self.rows.len().min(self.next + 2);
            if self.next == end {
                return Ok(None);
            }
            let mut builder = BatchBuilder::new(self.stream.clone());
            let mut batch = SourceBatch { position: end as u64, ..SourceBatch::default() };
            for (n, row) in self.rows.iter().enumerate().take(end).skip(self.next) {
                match row {
                    Ok(time) => {
                        let time = time.map_or_else(String::new, |t| format!(",\"at\":\"{}\"", Timestamp(t)));
                        let row = format!("{{\"name\":\"{} {n}\"{time}}}", self.name);
                        builder.push_json(row.as_bytes(), now)?;
                        batch.row_numbers.push(n as u64);
                    }
                    Err(()) => {
                        batch.rejected.push(BadRow::new(RowOrigin::of_row(n as u64), None, "bad", b""));
                    }
                }
            }
            self.next = end;
            if !builder.is_empty() {
                batch.rows.parts.push((self.stream.clone(), builder.finish()));
            }
            Ok(Some(batch))
        }
    }

    fn source(name: &str, stream: &str, rows: &[std::result::Result<Option<i64>, ()>]) -> Box<dyn Source> {
        let fields = vec![Field::new("name", FieldType::String), Field::new("at", FieldType::Time)];
        let stream = StreamSchema { name: stream.into(), fields, key: None, id: vec![], time: Some(1) };
        Box::new(Rows { name: name.into(), stream: Arc::new(stream), rows: rows.to_vec(), next: 0 })
    }

    fn sources() -> Vec<Box<dyn Source>> {
        let at = |ms: i64| Ok(Some(ms * 1000));
        vec![
            source("a", "S", &[at(10), at(20), Ok(None), Err(()), at(50)]),
            source("b", "T", &[at(5), at(20), Err(()), at(30)]),
            source("c", "S", &[at(20), at(60), at(60)]),
        ]
    }

    /// Reads from `start`: number, stream, name and time of each row, and the rejected rows.
    fn read(start: u64) -> (Vec<String>, u64) {
        let mut merged = MergedSource::new("m", sources(), start);
        let (mut items, mut position) = (Vec::new(), 0);
        while let Some(batch) = merged.next(Timestamp(1)).unwrap() {
            batch.rows.for_each_arrival(|arrival, part, row| {
                let (stream, rows) = &batch.rows.parts[part];
                let Value::Time(time) = row_value(rows, 2, row) else { panic!() };
                let name = row_value(rows, 0, row).to_string().replace('"', "");
                let ms = time.0 / 1000;
                items.push(format!("{:02} {} {name} {ms}", batch.row_numbers[arrival], stream.name));
            });
            items.extend(batch.rejected.iter().map(|b| format!("{:02} {}", b.origin.number, b.message)));
            position = batch.position;
        }
        items.sort();
        (items, position)
    }

    #[test]
    fn rows_are_merged_by_time() {
        let (items, position) = read(0);
        assert_eq!(
            items,
            [
                "00 T b 0 5",
                "01 S a 0 10",
                "02 S a 1 20",
                "03 S a 2 20",
                "04 a: row 4: bad",
                "05 T b 1 20",
                "06 b: row 3: bad",
                "07 S c 0 20",
                "08 T b 3 30",
                "09 S a 4 50",
                "10 S c 1 60",
                "11 S c 2 60",
            ]
        );
        assert_eq!(position, 12);
    }

    #[test]
    fn a_merge_continues_at_every_position() {
        let (whole, end) = read(0);
        for start in 0..=end {
            assert_eq!(read(start), (whole[start as usize..].to_vec(), end), "from {start}");
        }
    }
}
