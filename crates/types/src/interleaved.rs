//! Rows of several streams in order of arrival.

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::StreamSchema;

/// Batches of several streams with the order in which their rows arrived.
#[derive(Debug, Clone, Default)]
pub struct InterleavedBatches {
    /// Stream and rows of each part.
    pub parts: Vec<(Arc<StreamSchema>, RecordBatch)>,
    /// For each row in order of arrival, the index of its part; `None` if the parts follow one another.
    pub order: Option<Vec<u16>>,
}

impl InterleavedBatches {
    /// Returns the number of rows of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, b)| b.num_rows()).sum()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits the rows into chunks of at most `max` rows, in order.
    pub fn chunks(&self, max: usize) -> Vec<InterleavedBatches> {
        if self.len() <= max {
            return if self.is_empty() { Vec::new() } else { vec![self.clone()] };
        }
        let mut next = vec![0_usize; self.parts.len()];
        let mut arrivals = Vec::with_capacity(self.len());
        self.for_each_arrival(|_, part, _| arrivals.push(part as u16));
        let mut chunks = Vec::new();
        for order in arrivals.chunks(max) {
            let mut chunk = InterleavedBatches { parts: Vec::new(), order: Some(order.to_vec()) };
            let mut renumber = vec![0_u16; self.parts.len()];
            for (i, (stream, batch)) in self.parts.iter().enumerate() {
                let n = order.iter().filter(|part| usize::from(**part) == i).count();
                if n > 0 {
                    renumber[i] = chunk.parts.len() as u16;
                    chunk.parts.push((stream.clone(), batch.slice(next[i], n)));
                    next[i] += n;
                }
            }
            chunk.order = (chunk.parts.len() > 1)
                .then(|| order.iter().map(|part| renumber[usize::from(*part)]).collect());
            chunks.push(chunk);
        }
        chunks
    }

    /// Calls `f` with the arrival index, part and row of each row, in order of arrival.
    pub fn for_each_arrival(&self, mut f: impl FnMut(usize, usize, usize)) {
        match &self.order {
            Some(order) => {
                let mut next = vec![0; self.parts.len()];
                for (arrival, part) in order.iter().enumerate() {
                    let part = usize::from(*part);
                    f(arrival, part, next[part]);
                    next[part] += 1;
                }
            }
            None => {
                let rows = self
                    .parts
                    .iter()
                    .enumerate()
                    .flat_map(|(i, (_, b))| (0..b.num_rows()).map(move |r| (i, r)));
                for (arrival, (part, row)) in rows.enumerate() {
                    f(arrival, part, row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::BatchBuilder;
    use crate::{Field, FieldType, Timestamp, Value, row_value};

    fn part(name: &str, numbers: &[i64]) -> (Arc<StreamSchema>, RecordBatch) {
        let fields = vec![Field::new("n", FieldType::Long)];
        let schema = Arc::new(StreamSchema { name: name.into(), fields, key: None, id: vec![], time: None });
        let mut builder = BatchBuilder::new(schema.clone());
        for n in numbers {
            builder.push_json(format!(r#"{{"n":{n}}}"#).as_bytes(), Timestamp(0)).unwrap();
        }
        (schema, builder.finish())
    }

    fn numbers(rows: &InterleavedBatches) -> Vec<i64> {
        let mut numbers = Vec::new();
        rows.for_each_arrival(|_, part, row| match row_value(&rows.parts[part].1, 0, row) {
            Value::Int(n) => numbers.push(n),
            other => panic!("{other:?}"),
        });
        numbers
    }

    #[test]
    fn chunks_keep_the_order_of_arrival() {
        let parts = vec![part("A", &[0, 3, 4]), part("B", &[1, 2, 5])];
        for (order, expected) in
            [(Some(vec![0, 1, 1, 0, 0, 1]), [0, 1, 2, 3, 4, 5]), (None, [0, 3, 4, 1, 2, 5])]
        {
            let rows = InterleavedBatches { parts: parts.clone(), order };
            for max in 1..8 {
                let chunks = rows.chunks(max);
                assert!(chunks.iter().all(|c| c.len() <= max && !c.is_empty()));
                assert_eq!(chunks.iter().flat_map(numbers).collect::<Vec<_>>(), expected, "{max}");
            }
        }
    }
}
