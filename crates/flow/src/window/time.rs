//! `time(span)`: the events of the last `span` of the clock. `delay(span)`: events come out when they are `span` old.

use std::ops::Range;
use std::sync::Arc;

use super::aging::Aging;
use super::build::arity;
use super::fifo::Fifo;
use super::{Context, Look, MakeWindow, Needs, Parameter, Slide, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};

pub(super) fn build(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 1..=1, "time(span)")?;
    let span = parameters[0].span("the span")?;
    Ok(Arc::new(move || Box::new(Time { rows: Aging::new(span), asked: i64::MIN, delays: false })))
}

pub(super) fn delay(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 1..=1, "delay(span)")?;
    let span = parameters[0].span("the span")?;
    Ok(Arc::new(move || Box::new(Time { rows: Aging::new(span), asked: i64::MIN, delays: true })))
}

/// An event leaves when its age reaches the span: just before an arrival, or by a timer.
struct Time {
    rows: Aging,
    /// The greatest timestamp so far: only a greater one asks for a timer.
    asked: i64,
    /// Events come out only when they leave; nothing ever expires, and what is held still waits.
    delays: bool,
}

impl Time {
    #[inline]
    fn leave(&mut self, context: &mut Context<'_>) {
        while let Some(seq) = self.rows.pop_due(context.now, context.rows) {
            match self.delays {
                true => context.out.current(seq, context.now),
                false => context.out.expired(seq, context.now),
            }
        }
    }
}

impl Window for Time {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        for seq in rows {
            // also for the second event of a chunk: the first one may be too old already
            self.leave(context);
            let time = context.rows.time(seq);
            if !self.delays {
                context.out.current(seq, time);
            }
            self.rows.push(seq, time);
            if self.asked < time {
                self.asked = time;
                context.timers.ask(self.rows.due(time));
            }
        }
        context.out.end_chunk();
        Ok(())
    }

    fn slides(&self, _: &RowStore) -> bool {
        !self.delays
    }

    fn slide(
        &mut self,
        rows: Range<Seq>,
        clocks: &[i64],
        until: i64,
        context: &mut Context<'_>,
    ) -> Option<Slide> {
        if self.delays {
            return None;
        }
        let mut times = context.rows.times();
        for seq in rows.clone() {
            let time = times.get(seq);
            if self.asked < time {
                self.asked = time;
                context.timers.ask(self.rows.due(time));
            }
        }
        // those that are due before an arrival let nothing go that it would not
        let due = std::iter::from_fn(|| context.timers.take_due(until)).last();
        Some(self.rows.slide(rows, clocks, due.map(|_| until), context.rows))
    }

    fn timer(&mut self, _due: i64, context: &mut Context<'_>) -> Result<(), Failure> {
        self.leave(context);
        context.out.end_chunk();
        Ok(())
    }

    fn fifo(&self) -> Option<&Fifo> {
        Some(self.rows.held())
    }

    fn needs(&self) -> Needs {
        Needs::from(self.rows.held().front())
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let held = self.rows.held();
        let between = look.ends(held.front(), held.iter().next_back());
        let due = between.map(|(oldest, _)| self.rows.due(oldest));
        Waits::aging(held.len(), between, due, if self.delays { "comes out" } else { "leaves" })
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&(self.rows.state(), self.asked))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (rows, asked) = from.state()?;
        self.rows.resume(rows);
        self.asked = asked;
        Ok(())
    }
}
