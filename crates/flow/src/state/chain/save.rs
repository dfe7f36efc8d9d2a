//! The state of a chain for checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Chain;
use super::list::{BEGIN, HEAD, MARKS, TIME};
use super::plan::Read;
use super::run::{admit, read_word};
use crate::aggregators::state::{decode, encode};
use crate::column::Column;
use crate::expr::Failure;

#[derive(Serialize, Deserialize)]
struct Saved {
    chain: Vec<SavedStep>,
    armed: bool,
}

#[derive(Serialize, Deserialize)]
struct SavedStep {
    fresh: Vec<SavedMatch>,
    waiting: Vec<SavedMatch>,
}

#[derive(Serialize, Deserialize)]
struct SavedMatch {
    time: i64,
    begin: i64,
    values: Vec<Json>,
}

impl Chain {
    /// Its state.
    pub fn save(&self) -> Json {
        let state = &self.state;
        let one = |found: &[u64]| {
            let captures = self.layout.captures.iter().enumerate().take(found.len() - HEAD);
            let value = |(at, c): (usize, &super::plan::Capture)| {
                encode(&read_word(&self.layout, &state.values, found, Read::Capture(at), c.ty))
            };
            SavedMatch {
                time: found[TIME] as i64,
                begin: found[BEGIN] as i64,
                values: captures.map(value).collect(),
            }
        };
        let steps = state.waiting.iter().zip(&state.fresh).map(|(waiting, fresh)| SavedStep {
            fresh: fresh.chunks_exact(waiting.stride()).map(one).collect(),
            waiting: waiting.iter().map(one).collect(),
        });
        serde_json::to_value(Saved { chain: steps.collect(), armed: state.armed }).unwrap_or_default()
    }

    /// Takes a saved state back.
    ///
    /// Errors: it is none of this pattern.
    pub fn restore(&mut self, saved: &Json) -> Result<(), Failure> {
        let wrong = || Failure("no state of this pattern".into());
        let saved = Saved::deserialize(saved).map_err(|_| wrong())?;
        if saved.chain.len() != self.layout.steps.len() {
            return Err(wrong());
        }
        let mut other = Self::new(self.plan.clone(), self.layout.clone());
        other.state.armed = saved.armed;
        for (i, step) in saved.chain.iter().enumerate() {
            for found in &step.fresh {
                let words = other.words(i, found).ok_or_else(wrong)?;
                other.state.fresh[i].extend(words);
            }
            for found in &step.waiting {
                let words = other.words(i, found).ok_or_else(wrong)?;
                let state = &mut other.state;
                let (list, scratch) = (&mut state.waiting[i], &mut state.work.scratch[i]);
                admit(&other.layout, i, list, &state.values, scratch, &words);
            }
        }
        *self = other;
        Ok(())
    }

    fn words(&mut self, i: usize, saved: &SavedMatch) -> Option<Vec<u64>> {
        if saved.values.len() != self.layout.steps[i].width {
            return None;
        }
        let mut words = vec![0; HEAD];
        words[TIME] = saved.time as u64;
        words[BEGIN] = saved.begin as u64;
        for (at, (value, capture)) in saved.values.iter().zip(&self.layout.captures).enumerate() {
            let value = decode(value)?;
            let null = value.is_null();
            let mut column = Column::new(capture.ty);
            column.push(value);
            let word = self.state.values.keep(&column, 0);
            if word.is_none() != null {
                return None;
            }
            words[MARKS] |= u64::from(null) << at;
            words.push(word.unwrap_or_default());
        }
        Some(words)
    }
}
