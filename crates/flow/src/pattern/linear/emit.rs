//! Conversion of completed matches to columns.

use tidemill_types::FieldType;

use super::LinearState;
use super::match_list::{HEADER_WORDS, MARKS, TIME};
use super::plan::{LinearPlan, ValueSource};
use super::value_arena::ValueArena;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data};
use crate::pattern::matches::PatternMatches;

/// Takes the completed matches as columns; `None` without matches.
pub(super) fn take_matches(layout: &LinearPlan, state: &mut LinearState) -> Option<PatternMatches> {
    if state.ends.is_empty() {
        return None;
    }
    let done = CompletedMatches { words: &state.completed, stride: HEADER_WORDS + layout.captures.len() };
    let times: Vec<i64> = done.column(TIME).map(|word| word as i64).collect();
    let columns = layout.columns.iter().map(|(read, ty)| done.read(*read, *ty, &state.values)).collect();
    let (ends, clocks) = state.ends.drain(..).unzip();
    let batch = Batch { columns, kinds: vec![EventKind::Current; times.len()], times, ..Batch::default() };
    state.completed.clear();
    state.completed_count = 0;
    Some(PatternMatches { batch, group_ends: ends, group_clocks: clocks })
}

struct CompletedMatches<'d> {
    words: &'d [u64],
    stride: usize,
}

impl CompletedMatches<'_> {
    fn column(&self, at: usize) -> impl ExactSizeIterator<Item = u64> {
        self.words.chunks_exact(self.stride).map(move |found| found[at])
    }

    fn read(&self, read: ValueSource, ty: FieldType, values: &ValueArena) -> Column {
        let len = self.words.len() / self.stride;
        let capture = match read {
            ValueSource::Capture(capture) => capture,
            ValueSource::True => return Column::of(Data::Bool(vec![true; len])),
            ValueSource::Null => {
                let mut column = Column::new(ty);
                (0..len).for_each(|_| column.push_null());
                return column;
            }
        };
        let words = self.column(HEADER_WORDS + capture);
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
