//! Cache of compiled on-demand queries.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{OnDemandPlan, compile};
use crate::eval_error::EvalError;
use crate::plan::AppPlan;

/// Maximum number of cached queries.
const TEXTS_MAX: usize = 50;
/// Maximum length of the text of a cached query; longer ones are compiled each time.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The most recently run queries of one app, by text.
#[derive(Default)]
pub struct Cache {
    /// In order of use, the most recent one last.
    recent: VecDeque<(Box<str>, Arc<OnDemandPlan>)>,
}

impl Cache {
    /// Returns the compiled query of a text. Errors: its diagnostics; it is not cached then.
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
}
