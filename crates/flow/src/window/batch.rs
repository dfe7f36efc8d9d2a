//! `batch([n])`: the events that were sent together.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::build::arity;
use super::fifo::Fifo;
use super::{Context, Look, MakeWindow, Needs, Parameter, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};

pub(super) fn build(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 0..=1, "batch([n])")?;
    let n = parameters.first().map(|p| p.count("the length")).transpose()?.unwrap_or(0);
    Ok(Arc::new(move || Box::new(Batch { n, state: State::default() })))
}

/// Each chunk is a batch; with `n` it is cut into batches of `n`, which leave together.
struct Batch {
    /// 0 for chunks as they are.
    n: u64,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The last chunk.
    before: Fifo,
    /// Whether a batch went out since the last reset.
    came: bool,
}

impl Window for Batch {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        let state = &mut self.state;
        if rows.is_empty() {
            return Ok(());
        }
        if context.wants_expired && !state.before.is_empty() {
            context.out.all_expired(&state.before, context.now);
            if mem::take(&mut state.came) {
                context.out.reset(context.now);
            }
        }
        state.before.clear();
        for (seq, i) in rows.clone().zip(0_u64..) {
            if i == 0 || self.n > 0 && i.is_multiple_of(self.n) {
                // what expired goes out with the first batch
                if i > 0 {
                    context.out.end_chunk();
                }
                if mem::replace(&mut state.came, true) {
                    context.out.reset(context.now);
                }
            }
            context.out.current(seq, context.rows.time(seq));
        }
        context.out.end_chunk();
        // The reference shows joins nothing where nobody wants expired events; the last chunk is what they look for.
        if context.keeps_batches() {
            state.before.push_all(rows);
        }
        Ok(())
    }

    fn goes_by_clock(&self) -> bool {
        false
    }

    fn fifo(&self) -> Option<&Fifo> {
        Some(&self.state.before)
    }

    fn needs(&self) -> Needs {
        Needs::from(self.state.before.front())
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let held = &self.state.before;
        let between = look.ends(held.front(), held.iter().next_back());
        Waits::new(held.len(), between, "events that are sent together: they go out at once")
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
