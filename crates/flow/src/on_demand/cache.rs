//! The texts that were run last, compiled.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{OnDemandPlan, compile};
use crate::expr::EvalError;
use crate::plan::AppPlan;

/// Most texts that are kept.
const TEXTS_MAX: usize = 50;
/// Longer texts are compiled each time.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The queries of one app that were run last, by their texts.
#[derive(Default)]
pub struct Cache {
    /// The one that was run last is the last one.
    recent: VecDeque<(Box<str>, Arc<OnDemandPlan>)>,
}

impl Cache {
    /// The query of a text. Errors: what is wrong with it; it is not kept then.
    pub fn compile(&mut self, text: &str, plan: &AppPlan) -> Result<Arc<OnDemandPlan>, EvalError> {
        if let Some(place) = self.recent.iter().position(|(known, _)| **known == *text)
            && let Some((text, query)) = self.recent.remove(place)
        {
            self.recent.push_back((text, query.clone()));
            return Ok(query);
        }
        let query = Arc::new(compile(text, plan, &plan.registry)?);
        if text.len() <= TEXT_BYTES_MAX {
            if self.recent.len() == TEXTS_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((text.into(), query.clone()));
        }
        Ok(query)
    }

    /// How many it keeps.
    pub fn len(&self) -> usize {
        self.recent.len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }
}
