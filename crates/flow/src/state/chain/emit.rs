//! Matches that are done, as columns.

use tidemill_types::FieldType;

use super::State;
use super::list::{HEAD, MARKS, TIME};
use super::plan::{ChainPlan, Read};
use super::values::Values;
use crate::batch::{Batch, Kind};
use crate::column::{Column, Data};
use crate::state::matches::Matches;

/// Takes what is done.
pub(super) fn take(layout: &ChainPlan, state: &mut State) -> Option<Matches> {
    if state.ends.is_empty() {
        return None;
    }
    let done = Done { words: &state.done, stride: HEAD + layout.captures.len() };
    let times: Vec<i64> = done.column(TIME).map(|word| word as i64).collect();
    let columns = layout.columns.iter().map(|(read, ty)| done.read(*read, *ty, &state.values)).collect();
    let (ends, clocks) = state.ends.drain(..).unzip();
    let batch = Batch { columns, kinds: vec![Kind::Current; times.len()], times, ..Batch::default() };
    state.done.clear();
    state.done_count = 0;
    Some(Matches { batch, ends, clocks })
}

struct Done<'d> {
    words: &'d [u64],
    stride: usize,
}

impl Done<'_> {
    fn column(&self, at: usize) -> impl ExactSizeIterator<Item = u64> {
        self.words.chunks_exact(self.stride).map(move |found| found[at])
    }

    fn read(&self, read: Read, ty: FieldType, values: &Values) -> Column {
        let len = self.words.len() / self.stride;
        let capture = match read {
            Read::Capture(capture) => capture,
            Read::True => return Column::of(Data::Bool(vec![true; len])),
            Read::Null => {
                let mut column = Column::new(ty);
                (0..len).for_each(|_| column.push_null());
                return column;
            }
        };
        let words = self.column(HEAD + capture);
        let data = match ty {
            FieldType::Bool => Data::Bool(words.map(|w| w != 0).collect()),
            FieldType::Int => Data::Int(words.map(|w| w as i32).collect()),
            FieldType::Long | FieldType::Time => Data::Long(words.map(|w| w as i64).collect()),
            FieldType::Float => Data::Float(words.map(|w| f32::from_bits(w as u32)).collect()),
            FieldType::Double => Data::Double(words.map(f64::from_bits).collect()),
            FieldType::String | FieldType::Object => {
                let mut column = Column::new(ty);
                for (word, marks) in words.zip(self.column(MARKS)) {
                    match marks >> capture & 1 {
                        0 => column.push_from(values.column(ty), word as usize),
                        _ => column.push_null(),
                    }
                }
                return column;
            }
        };
        let null = |marks: u64| marks >> capture & 1 == 1;
        match self.column(MARKS).any(null) {
            true => Column::with_nulls(data, self.column(MARKS).map(null).collect()),
            false => Column::of(data),
        }
    }
}
