//! `externalTime(attribute, span)`: the events of the last `span` by an attribute of theirs.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::build::arity;
use super::fifo::Fifo;
use super::{Context, Look, MakeWindow, Needs, Parameter, Slide, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};
use crate::why::when;

pub(super) fn build(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 2..=2, "externalTime(attribute, span)")?;
    let column = parameters[0].column("the time", &[FieldType::Long])?;
    let span = parameters[1].span("the span")?;
    let state = State { held: Fifo::default(), due: i64::MAX };
    Ok(Arc::new(move || Box::new(ExternalTime { column, span, state: state.clone() })))
}

/// The clock does not matter: only arrivals let events go. A value that goes back lets none go.
struct ExternalTime {
    column: usize,
    span: i64,
    state: State,
}

#[derive(Clone, Serialize, Deserialize)]
struct State {
    held: Fifo,
    /// The value at which the head leaves; the end of time when there is none.
    due: i64,
}

/// Checks that every row has a time. Errors: that one is null.
pub(super) fn require_times(rows: Range<Seq>, column: usize, store: &RowStore) -> Result<(), Failure> {
    for seq in rows {
        if store.long(seq, column).is_none() {
            return Err(null());
        }
    }
    Ok(())
}

fn null() -> Failure {
    Failure("the attribute that the window takes the time from is null".into())
}

impl ExternalTime {
    #[inline]
    fn due(&self, rows: &RowStore, seq: Seq) -> i64 {
        rows.long(seq, self.column).unwrap_or(i64::MIN).saturating_add(self.span)
    }
}

impl Window for ExternalTime {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        if rows.end - rows.start > 1 {
            // none of a chunk is held when one of it fails
            require_times(rows.clone(), self.column, context.rows)?;
        }
        for seq in rows {
            let Some(now) = context.rows.long(seq, self.column) else { return Err(null()) };
            while now >= self.state.due
                && let Some(oldest) = self.state.held.pop()
            {
                context.out.expired(oldest, now);
                self.state.due = match self.state.held.front() {
                    Some(head) => self.due(context.rows, head),
                    None => i64::MAX,
                };
            }
            context.out.current(seq, context.rows.time(seq));
            if self.state.held.is_empty() {
                self.state.due = now.saturating_add(self.span);
            }
            self.state.held.push(seq);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn slides(&self, rows: &RowStore) -> bool {
        rows.longs(self.column).is_some()
    }

    fn slide(&mut self, rows: Range<Seq>, _: &[i64], _: i64, context: &mut Context<'_>) -> Option<Slide> {
        let store = &*context.rows;
        let mut arriving = store.longs(self.column)?;
        let mut heads = store.longs(self.column)?;
        let mut due = self.state.due;
        let mut head = self.state.held.front().unwrap_or(rows.start);
        let left = |seq: Seq| {
            let now = arriving.get(seq);
            let first = head;
            while now >= due && head < seq {
                head += 1;
                due = if head < seq { heads.get(head).saturating_add(self.span) } else { i64::MAX };
            }
            if head == seq {
                due = now.saturating_add(self.span);
            }
            (head - first) as u32
        };
        let before = rows.clone().map(left).collect();
        let held = &mut self.state.held;
        let first = held.front().unwrap_or(rows.start);
        held.push_all(rows);
        held.pop_all(head - first);
        self.state.due = due;
        Some(Slide { before, behind: 0 })
    }

    fn goes_by_clock(&self) -> bool {
        false
    }

    fn fifo(&self) -> Option<&Fifo> {
        Some(&self.state.held)
    }

    fn needs(&self) -> Needs {
        Needs::from(self.state.held.front())
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let held = &self.state.held;
        let between = look.ends(held.front(), held.iter().next_back());
        let waits_for = match held.is_empty() {
            true => "an event".to_owned(),
            false => {
                let name = look.name(self.column);
                format!("an event with {name} from {} on: with it the oldest leaves", when(self.state.due))
            }
        };
        Waits::new(held.len(), between, waits_for)
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
