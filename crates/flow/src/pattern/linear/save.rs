//! State of a linear pattern in checkpoints.

use super::LinearMatcher;
use super::match_list::{BEGIN, HEADER_WORDS, MARKS, TIME};
use super::plan::ValueSource;
use super::run::{push_waiting, read_word};
use crate::columns::column::Column;
use crate::snapshot::{Error, Reader, SnapshotWriter};

impl LinearMatcher {
    /// Writes the state.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let state = &self.state;
        out.flag(state.armed)?;
        for (waiting, fresh) in state.waiting.iter().zip(&state.new_matches) {
            out.number(fresh.len() as u64)?;
            fresh.iter().try_for_each(|found| self.save_match(found, out))?;
            out.number(waiting.len() as u64)?;
            waiting.iter().try_for_each(|found| self.save_match(found, out))?;
        }
        Ok(())
    }

    fn save_match(&self, found: &[u64], out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.signed(found[TIME].cast_signed())?;
        out.signed(found[BEGIN].cast_signed())?;
        for (at, capture) in self.layout.captures.iter().enumerate().take(found.len() - HEADER_WORDS) {
            out.value(&read_word(
                &self.layout,
                &self.state.values,
                found,
                ValueSource::Capture(at),
                capture.ty,
            ))?;
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
