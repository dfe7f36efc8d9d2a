//! State of a linear pattern in checkpoints.

use std::sync::Arc;

use tidemill_types::FieldType;

use super::LinearMatcher;
use super::match_list::{BEGIN, HEADER_WORDS, MARKS, TIME, waiting};
use super::new_matches::NewMatches;
use super::plan::{LinearPlan, ValueSource};
use super::run::{push_waiting, read_word};
use super::value_arena::ValueArena;
use crate::columns::column::Column;
use crate::snapshot::{Error, Reader, SnapshotWriter};

/// Matches that a checkpoint writes while the pattern continues: copies of their words, which take a tenth of the time of writing them.
struct CopiedMatches {
    layout: Arc<LinearPlan>,
    /// For each step, the new matches, and the words of the waiting ones with the number of words of each.
    steps: Vec<(NewMatches, Vec<u64>, usize)>,
    values: ValueArena,
}

impl CopiedMatches {
    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        self.steps.iter().try_for_each(|(fresh, words, stride)| {
            let number = waiting(words, *stride).count();
            save_step(&self.layout, &self.values, fresh, (number, waiting(words, *stride)), out)
        })
    }
}

impl LinearMatcher {
    /// Lets the next [`Self::save`] copy the matches, to be written later, if there are at least `matches_min`. Objects are written at once.
    pub fn share(&mut self, matches_min: usize) {
        let has_objects = self.layout.captures_type(FieldType::Object);
        self.state.copied_from = if has_objects { usize::MAX } else { matches_min };
        if self.is_copied() {
            self.state.values.share();
        }
    }

    fn is_copied(&self) -> bool {
        self.state.match_count() >= self.state.copied_from
    }

    /// Writes the state.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let state = &self.state;
        out.flag(state.armed)?;
        let steps = state.waiting.iter().zip(&state.new_matches);
        if out.is_freezing() && self.is_copied() {
            let steps = steps.map(|(list, fresh)| {
                let (words, stride) = list.copy_words();
                (fresh.clone(), words, stride)
            });
            let (layout, values) = (self.layout.clone(), state.values.clone());
            let copied = CopiedMatches { layout, steps: steps.collect(), values };
            return out.defer(move |out| copied.save(out));
        }
        for (list, fresh) in steps {
            save_step(&self.layout, &state.values, fresh, (list.len(), list.iter()), out)?;
        }
        Ok(())
    }

    /// Restores a state written by [`Self::save`]. The matcher is unchanged on an error.
    ///
    /// Errors: the state belongs to another pattern.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let mut other = Self::new(self.plan.clone(), self.layout.clone());
        other.state.armed = from.flag()?;
        for i in 0..other.layout.steps.len() {
            for _ in 0..from.number()? {
                let words = other.words(i, from)?;
                other.state.new_matches[i].push(words.into_iter());
            }
            for _ in 0..from.number()? {
                let words = other.words(i, from)?;
                let state = &mut other.state;
                let (list, scratch) = (&mut state.waiting[i], &mut state.scratch.condition_inputs[i]);
                push_waiting(&other.layout, i, list, &state.values, scratch, &words);
            }
        }
        *self = other;
        Ok(())
    }

    fn words(&mut self, i: usize, from: &mut Reader<'_>) -> Result<Vec<u64>, Error> {
        let mut words = vec![0; HEADER_WORDS];
        words[TIME] = from.signed()?.cast_unsigned();
        words[BEGIN] = from.signed()?.cast_unsigned();
        for (at, capture) in self.layout.captures.iter().enumerate().take(self.layout.steps[i].width) {
            let value = from.value()?;
            let null = value.is_null();
            let mut column = Column::new(capture.ty);
            column.push(value);
            let word = self.state.values.keep(column.value_ref(0), capture.ty);
            if word.is_none() != null {
                return Err(from.damaged("the state does not match this pattern: a value has another type"));
            }
            words[MARKS] |= u64::from(null) << at;
            words.push(word.unwrap_or_default());
        }
        Ok(words)
    }
}

/// Writes the new matches of a step, and the waiting ones, given with their number.
fn save_step<'m>(
    layout: &LinearPlan,
    values: &ValueArena,
    fresh: &NewMatches,
    (number, waiting): (usize, impl Iterator<Item = &'m [u64]>),
    out: &mut SnapshotWriter<'_>,
) -> Result<(), Error> {
    out.number(fresh.len() as u64)?;
    fresh.iter().try_for_each(|found| save_match(layout, values, found, out))?;
    out.number(number as u64)?;
    { waiting }.try_for_each(|found| save_match(layout, values, found, out))
}

fn save_match(
    layout: &LinearPlan,
    values: &ValueArena,
    found: &[u64],
    out: &mut SnapshotWriter<'_>,
) -> Result<(), Error> {
    out.signed(found[TIME].cast_signed())?;
    out.signed(found[BEGIN].cast_signed())?;
    for (at, capture) in layout.captures.iter().enumerate().take(found.len() - HEADER_WORDS) {
        out.value(&read_word(layout, values, found, ValueSource::Capture(at), capture.ty))?;
    }
    Ok(())
}
