//! `length(n)`: the last `n` events.

use std::ops::Range;
use std::sync::Arc;

use super::build::arity;
use super::fifo::Fifo;
use super::{Context, Look, MakeWindow, Needs, Parameter, Slide, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};

pub(super) fn build(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 1..=1, "length(n)")?;
    let n = parameters[0].count("the length")?;
    Ok(Arc::new(move || Box::new(Length { n, held: Fifo::default() })))
}

struct Length {
    n: u64,
    held: Fifo,
}

impl Window for Length {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        for seq in rows {
            let time = context.rows.time(seq);
            if self.n == 0 {
                context.out.current(seq, time);
                context.out.expired(seq, time);
                context.out.reset(context.now);
                continue;
            }
            if self.held.len() == self.n
                && let Some(oldest) = self.held.pop()
            {
                context.out.expired(oldest, context.now);
            }
            context.out.current(seq, time);
            self.held.push(seq);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn slides(&self, _: &RowStore) -> bool {
        self.n > 0
    }

    fn slide(&mut self, rows: Range<Seq>, _: &[i64], _: i64, _: &mut Context<'_>) -> Option<Slide> {
        if self.n == 0 {
            return None;
        }
        let count = rows.end - rows.start;
        let room = (self.n - self.held.len()).min(count);
        let before = (0..count).map(|i| u32::from(i >= room)).collect();
        self.held.push_all(rows);
        self.held.pop_all(count - room);
        Some(Slide { before, behind: 0 })
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
        Waits::sliding(self.held.len(), self.n, "events", between)
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&self.held)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.held = from.state()?;
        Ok(())
    }
}
