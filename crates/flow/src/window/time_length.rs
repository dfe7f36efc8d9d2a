//! `timeLength(span, n)`: the events of the last `span`, at most `n` of them.

use std::ops::Range;
use std::sync::Arc;

use super::aging::Aging;
use super::build::arity;
use super::fifo::Fifo;
use super::{Context, Look, MakeWindow, Needs, Parameter, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};

pub(super) fn build(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 2..=2, "timeLength(span, n)")?;
    let span = parameters[0].span("the span")?;
    let n = parameters[1].count("the length")?;
    Ok(Arc::new(move || Box::new(TimeLength { n, rows: Aging::new(span) })))
}

/// By age as in `time`, by number as in `length`. With `n` = 0 events pass and never leave.
struct TimeLength {
    n: u64,
    rows: Aging,
}

impl TimeLength {
    fn leave(&mut self, context: &mut Context<'_>) {
        while let Some(seq) = self.rows.pop_due(context.now, context.rows) {
            context.out.expired(seq, context.now);
        }
    }
}

impl Window for TimeLength {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        for seq in rows {
            self.leave(context);
            if self.rows.held().len() >= self.n
                && let Some(oldest) = self.rows.pop(context.rows)
            {
                context.out.expired(oldest, context.now);
            }
            let time = context.rows.time(seq);
            context.out.current(seq, time);
            if self.n > 0 {
                self.rows.push(seq, time);
            }
            context.timers.ask(self.rows.due(time));
        }
        context.out.end_chunk();
        Ok(())
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
        let mut waits = Waits::aging(held.len(), between, due, "leaves").of(self.n);
        if held.len() >= self.n && self.n > 0 {
            waits.waits_for += ", or with the next event: it is full";
        }
        waits
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(self.rows.state())
    }

    // the reference loses this window's state; here it comes back as that of any other
    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.rows.resume(from.state()?);
        Ok(())
    }
}
