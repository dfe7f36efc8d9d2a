//! `expression('condition')`: the newest events for which a condition holds.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::build::arity;
use super::condition::{Evaluator, Event, View};
use super::fifo::Fifo;
use super::watch::{self, Origin, Saved};
use super::{Context, Look, MakeWindow, Needs, Parameter, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};

pub(super) fn build(parameters: &[Parameter], source: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 1..=1, "expression('condition')")?;
    let origin = Origin::of(&parameters[0], source)?;
    Ok(Arc::new(move || {
        Box::new(Expression { evaluator: origin.evaluator(), origin: origin.clone(), held: Fifo::default() })
    }))
}

/// An arrival is added; while the condition is false the oldest leave, the last of them perhaps the arrival itself.
///
/// Plain attributes are those of the arrival, and after that of the event that has just left.
struct Expression {
    origin: Origin,
    evaluator: Option<Evaluator>,
    held: Fifo,
}

impl Expression {
    fn slide(&mut self, seq: Seq, context: &mut Context<'_>) -> Result<(), Failure> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(()) };
        let (now, rows) = (context.now, &*context.rows);
        let event = |seq| Event { seq, time: rows.time(seq) };
        let arrival = event(seq);
        let first = self.held.front().map_or(arrival, event);
        let view = View { event: arrival, first, last: arrival, now, rows };
        evaluator.add(&view)?;
        self.held.push(seq);
        let mut holds = match evaluator.holds(&view) {
            Ok(holds) => holds,
            Err(failure) => {
                // the arrival is lost; what is held goes on without it
                self.held.pop_back();
                evaluator.remove(&view)?;
                return Err(failure);
            }
        };
        while !holds && let Some(oldest) = self.held.pop() {
            context.out.expired(oldest, now);
            let leaver = Event { seq: oldest, time: now };
            let first = self.held.front().map_or(leaver, event);
            let last = if oldest == seq { leaver } else { arrival };
            let view = View { event: leaver, first, last, now, rows };
            evaluator.remove(&view)?;
            holds = evaluator.holds(&view)?;
        }
        Ok(())
    }
}

impl Window for Expression {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        for seq in rows {
            if let Some(evaluator) = self.origin.changed(seq, self.evaluator.as_ref(), context.rows)? {
                // under a new condition all that is held comes once more
                self.evaluator = Some(evaluator);
                for held in mem::take(&mut self.held).iter() {
                    self.slide(held, context)?;
                }
            }
            self.slide(seq, context)?;
            context.out.current(seq, context.rows.time(seq));
        }
        context.out.end_chunk();
        Ok(())
    }

    fn goes_by_clock(&self) -> bool {
        false
    }

    fn fifo(&self) -> Option<&Fifo> {
        Some(&self.held)
    }

    fn needs(&self) -> Needs {
        Needs::from(self.held.front())
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let between = look.ends(self.held.front(), self.held.iter().next_back());
        let waits_for = format!(
            "events; the oldest leave while `{}` is not true",
            self.evaluator.as_ref().map_or("the condition that events bring along", Evaluator::text)
        );
        Waits::new(self.held.len(), between, waits_for)
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&(watch::save(self.evaluator.as_ref()), &self.held))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (evaluator, held): (Saved, Fifo) = from.state()?;
        self.evaluator = self.origin.restore(&evaluator).map_err(|e| from.damaged(e.0))?;
        self.held = held;
        Ok(())
    }
}
