//! Windows: which events a query holds, and when they leave.
//!
//! A window sees rows by their numbers in a [`RowStore`] and says what goes on as [`Signals`]; the rows themselves are
//! put together by whoever runs it. What a window emits is a function of its state, the chunks and the clock.

mod aging;
mod batch;
mod build;
mod condition;
mod cron;
mod expression;
mod expression_batch;
mod external_time;
mod external_time_batch;
mod fifo;
mod frequent;
mod key;
mod length;
mod length_batch;
mod lossy_frequent;
mod session;
mod signals;
mod sort;
mod time;
mod time_batch;
mod time_length;
mod unique;
mod waits;
mod watch;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use build::register;
pub use build::{Attribute, Parameter, Source};
pub use fifo::Fifo;
pub use signals::{Mark, Signal, Signals};
pub use waits::{Look, Waits};

use crate::expr::{Expr, Failure, Frame, NoHost};
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, SEGMENT_ROWS, Seq};
use crate::value::Value;

/// The due times that one scheduler was asked for, in the order in which it was asked, not sorted: a due time behind a
/// later one waits for it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Timers {
    due: VecDeque<i64>,
}

impl Timers {
    /// Asks for a call at `due`.
    pub fn ask(&mut self, due: i64) {
        self.due.push_back(due);
    }

    /// The head, if it is due at `now`; it is taken.
    pub fn take_due(&mut self, now: i64) -> Option<i64> {
        self.due.front().copied().filter(|due| *due <= now)?;
        self.due.pop_front()
    }

    /// Writes what was asked for.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.numbers(self.due.iter().map(|due| due.cast_unsigned()))
    }

    /// What was written.
    pub(crate) fn restored(from: &mut Reader<'_>) -> Result<Self, Error> {
        // in the same memory
        let due: Vec<i64> = from.numbers()?.into_iter().map(u64::cast_signed).collect();
        Ok(Self { due: due.into() })
    }

    /// The head.
    pub fn next(&self) -> Option<i64> {
        self.due.front().copied()
    }
}

/// What a window works with.
pub struct Context<'a> {
    /// The clock, milliseconds.
    pub now: i64,
    /// The rows.
    pub rows: &'a mut RowStore,
    /// What goes on.
    pub out: &'a mut Signals,
    /// When it wants to be called.
    pub timers: &'a mut Timers,
    /// Whether anybody wants expired events; some windows do not put them out otherwise. The same for a window's life.
    pub wants_expired: bool,
    /// Whether joins or on-demand queries look at what it holds; some windows hold less otherwise. The same for a
    /// window's life.
    pub searched: bool,
}

impl Context<'_> {
    /// The value of an expression on a row.
    pub fn eval(&self, expr: &Expr, seq: Seq) -> Result<Value, Failure> {
        let rows = [Some(self.rows.row(seq))];
        expr.eval(&Frame { rows: &rows, time: self.rows.time(seq), now: self.now, host: &NoHost })
    }

    /// Whether a batch that went out is still needed.
    fn keeps_batches(&self) -> bool {
        self.wants_expired || self.searched
    }
}

/// What leaves a window while rows arrive: always its oldest.
#[derive(Debug)]
pub struct Slide {
    /// For each row that arrives how many leave before it.
    pub before: Vec<u32>,
    /// How many leave behind the last one.
    pub behind: u32,
}

/// A batch that comes out of a window.
#[derive(Debug)]
pub struct Tumbled {
    /// The number of the row with whose arrival it does, among those that arrive.
    pub at: u32,
    /// Its rows.
    pub rows: Range<Seq>,
}

/// Which rows a window still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None that arrived so far.
    Nothing,
    /// This one and all later ones.
    From(Seq),
    /// So many, here and there: [`Window::scattered`] says which.
    Scattered(usize),
}

impl Needs {
    fn from(oldest: Option<Seq>) -> Self {
        oldest.map_or(Self::Nothing, Self::From)
    }

    fn scattered(rows: usize) -> Self {
        if rows == 0 { Self::Nothing } else { Self::Scattered(rows) }
    }
}

/// A window. It holds numbers of rows; they arrive with ever greater numbers, not without gaps.
///
/// On an error, what it put out in the failed call counts for nothing: see [`Signals::rewind`].
pub trait Window: Send {
    /// A chunk arrived, in order. The clock stands at its time already, and timers due before it have run.
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure>;

    /// Whether [`Self::slide`] works for the rows that are held and those that are about to arrive, all in `rows`.
    fn slides(&self, _rows: &RowStore) -> bool {
        false
    }

    /// Rows arrive one after the other at the instants `clocks`, and the clock goes on to `until`: the same as
    /// [`Self::arrive`] and [`Self::timer`] in their order, for somebody who looks only at what arrives.
    ///
    /// `None`: not every row comes out as it arrives, or what leaves is not the oldest; then nothing has changed.
    fn slide(
        &mut self,
        _rows: Range<Seq>,
        _clocks: &[i64],
        _until: i64,
        _context: &mut Context<'_>,
    ) -> Option<Slide> {
        None
    }

    /// Rows arrive one after the other: the same as [`Self::arrive`], where what comes out is large batches of rows
    /// that follow each other, each behind a reset.
    ///
    /// `None`: that is not so; then nothing has changed.
    fn tumble(&mut self, _rows: Range<Seq>, _context: &mut Context<'_>) -> Option<Vec<Tumbled>> {
        None
    }

    /// A due time that it asked for was reached; the clock may stand later.
    fn timer(&mut self, _due: i64, _context: &mut Context<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether it may ask for timers.
    fn goes_by_clock(&self) -> bool {
        true
    }

    /// The app starts; the clock stands at `context.now`.
    fn start(&mut self, _context: &mut Context<'_>) {}

    /// The first instant of its schedule later than `after`. The clock stops there on its way, runs the timers that
    /// are due, and calls [`Self::instant`]. Only windows that go by a calendar have one; it is never saved.
    fn next_instant(&self, _after: i64) -> Option<i64> {
        None
    }

    /// An instant of its schedule was reached; the clock stands there.
    fn instant(&mut self, _at: i64, _context: &mut Context<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// What joins and on-demand queries find, in the window's order.
    fn held(&self) -> Vec<Seq> {
        self.fifo().map_or_else(Vec::new, |held| held.iter().collect())
    }

    /// The same where it lies, when its order is that of arrival.
    fn fifo(&self) -> Option<&Fifo> {
        None
    }

    /// Which rows it needs, held or not; [`forget`] lets the others go.
    fn needs(&self) -> Needs;

    /// The rows it needs, in no particular order, when they are [`Needs::Scattered`].
    fn scattered(&self) -> Vec<Seq> {
        vec![]
    }

    /// The column that it writes in arriving rows. What is computed from it must be computed behind the window.
    fn rewrites(&self) -> Option<usize> {
        None
    }

    /// What it holds and waits for, for whoever asks why nothing comes out.
    fn waits(&self, look: &Look<'_>) -> Waits {
        let mut held = self.held();
        if held.is_empty() {
            held = self.scattered();
        }
        Waits::new(held.len() as u64, look.between(held.into_iter()), "events")
    }

    /// Its state, for a checkpoint.
    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error>;

    /// Takes a saved state back; the rows are there again under the same numbers. Errors: that it is none of this
    /// window.
    fn restore(&mut self, from: &mut Reader<'_>, rows: &RowStore) -> Result<(), Error>;
}

/// Makes a window without events.
pub type MakeWindow = Arc<dyn Fn() -> Box<dyn Window> + Send + Sync>;

/// The rows that a window needs, ascending: what a checkpoint keeps of its store.
pub fn needed(window: &dyn Window, rows: &RowStore) -> Vec<Seq> {
    match window.needs() {
        Needs::Nothing => vec![],
        Needs::From(oldest) => rows.numbers_from(oldest),
        Needs::Scattered(_) => {
            let mut kept = window.scattered();
            kept.sort_unstable();
            kept
        }
    }
}

/// Lets go of the rows that a window does not need, to be called when all rows of the store have arrived at it and its
/// signals have been worked off.
///
/// Cost: nothing much, and now and then a copy of the rows that are needed; per row that arrives it is bounded. Bounds: a
/// store keeps at most about twice the rows that are needed and two segments.
pub fn forget(window: &dyn Window, rows: &mut RowStore) {
    match window.needs() {
        Needs::Nothing => rows.forget_below(rows.next()),
        Needs::From(oldest) => rows.forget_below(oldest),
        Needs::Scattered(count) => {
            if rows.rows() > 2 * (count as u64 + SEGMENT_ROWS) {
                rows.keep_only(&needed(window, rows));
            }
        }
    }
}
