//! The unique windows that let events out in batches.

use std::mem;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::super::key::Keys;
use super::super::time_batch::Spans;
use super::super::waits::more;
use super::super::{Context, Look, Needs, Waits, Window};
use super::UniqueBatch;
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};
use crate::why::when;

/// When a batch goes out.
pub(super) enum Until {
    /// With so many keys.
    Length(usize),
    /// At the end of a span of the clock.
    Time(Spans),
    /// Whichever comes first.
    Either {
        spans: Spans,
        n: usize,
        /// The keys came before the span's end: what still comes in it is ignored.
        full: bool,
    },
}

impl Until {
    fn spans(&mut self) -> Option<&mut Spans> {
        match self {
            Self::Length(_) => None,
            Self::Time(spans) | Self::Either { spans, .. } => Some(spans),
        }
    }
}

/// One event per key and batch: `[batch before-…, R, batch+…]`. The events of a batch get the clock as timestamp.
pub(super) struct UniqueTumbling {
    keys: Keys,
    /// The first event of a key stays, not the newest.
    first: bool,
    until: Until,
    current: UniqueBatch,
    /// The batch that went out.
    before: Vec<Seq>,
}

#[derive(Serialize, Deserialize)]
struct State {
    current: UniqueBatch,
    before: Vec<Seq>,
    spans: Option<Spans>,
    full: bool,
}

impl UniqueTumbling {
    pub(super) fn new(keys: Keys, first: bool, until: Until) -> Self {
        Self { keys, first, until, current: UniqueBatch::default(), before: vec![] }
    }

    fn put(&mut self, seq: Seq, context: &Context<'_>) -> Result<(), Failure> {
        let key = self.keys.of(seq, context)?;
        if self.first {
            self.current.put_first(key, seq);
        } else {
            self.current.put(key, seq);
        }
        Ok(())
    }

    fn flush(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        for seq in mem::take(&mut self.before) {
            if context.wants_expired {
                context.out.expired(seq, now);
            }
        }
        if !self.current.rows().is_empty() {
            context.out.reset(now);
        }
        for seq in self.current.rows() {
            context.out.current(*seq, now);
        }
        if context.keeps_batches() {
            self.before.extend(self.current.rows());
        }
        self.current.clear();
        context.out.end_chunk();
    }

    /// Whether the running span has ended. The next one is begun; what came until now goes out with it, if it has not
    /// before.
    fn span_ends(&mut self, context: &mut Context<'_>) -> bool {
        self.until.spans().is_some_and(|spans| spans.ends(context))
    }

    fn next_span(&mut self, context: &mut Context<'_>) {
        let nothing_left = self.before.is_empty() && self.current.rows().is_empty();
        if let Some(spans) = self.until.spans() {
            spans.go_on(nothing_left, context);
        }
    }
}

impl Window for UniqueTumbling {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        let ends = self.span_ends(context);
        if let Until::Either { full, .. } = &mut self.until
            && *full
        {
            *full = !ends;
            if ends {
                self.next_span(context);
            }
            return Ok(());
        }
        for seq in rows {
            self.put(seq, context)?;
            match &mut self.until {
                Until::Length(n) if self.current.rows().len() == *n => self.flush(context),
                Until::Either { n, full, .. } if self.current.rows().len() == *n => {
                    *full = true;
                    self.flush(context);
                    break;
                }
                _ => {}
            }
        }
        if ends {
            if !matches!(self.until, Until::Either { full: true, .. }) {
                self.flush(context);
            }
            self.next_span(context);
        }
        Ok(())
    }

    fn timer(&mut self, _due: i64, context: &mut Context<'_>) -> Result<(), Failure> {
        if !self.span_ends(context) {
            return Ok(());
        }
        match &mut self.until {
            Until::Either { full, .. } if *full => *full = false,
            _ => self.flush(context),
        }
        self.next_span(context);
        Ok(())
    }

    fn held(&self) -> Vec<Seq> {
        self.before.clone()
    }

    fn needs(&self) -> Needs {
        Needs::scattered(self.before.len() + self.current.rows().len())
    }

    fn scattered(&self) -> Vec<Seq> {
        [&self.before, self.current.rows()].concat()
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let rows = self.current.rows();
        let (held, between) = (rows.len() as u64, look.between(rows.iter().copied()));
        match &self.until {
            Until::Length(n) => Waits::filling(held, *n as u64, "keys", between),
            Until::Time(spans) => Waits::spanning(held, between, spans.end()),
            Until::Either { spans, n, full: false } => {
                let mut waits = Waits::spanning(held, between, spans.end()).of(*n as u64);
                waits.waits_for += &format!(", or {}", more((*n as u64).saturating_sub(held), "keys"));
                waits
            }
            Until::Either { spans, full: true, .. } => {
                let end = spans.end();
                let begins = end.map_or_else(String::new, |end| format!(" at {}", when(end)));
                Waits::new(
                    0,
                    None,
                    format!("the next span{begins}: this one went out, what comes is ignored"),
                )
                .due(end)
            }
        }
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let (spans, full) = match &self.until {
            Until::Length(_) => (None, false),
            Until::Time(spans) => (Some(spans.clone()), false),
            Until::Either { spans, full, .. } => (Some(spans.clone()), *full),
        };
        out.state(&State { current: self.current.clone(), before: self.before.clone(), spans, full })
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let state: State = from.state()?;
        if let Some((spans, saved)) = self.until.spans().zip(state.spans.as_ref()) {
            spans.resume(saved);
        }
        if let Until::Either { full, .. } = &mut self.until {
            *full = state.full;
        }
        (self.current, self.before) = (state.current, state.before);
        Ok(())
    }
}
