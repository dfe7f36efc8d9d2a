//! Windows: which events a query holds, and when they leave.
//!
//! A window sees rows by their numbers in a [`RowStore`] and says what goes on as [`Signals`]; the rows themselves are
//! put together by whoever runs it.

mod length;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::Kind;
use crate::expr::{Expr, Failure, Frame, NoHost};
use crate::store::{RowStore, Seq};
use crate::value::Value;

/// What a window says of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// What happened to it.
    pub kind: Kind,
    /// The row; nothing for a reset.
    pub seq: Seq,
    /// The timestamp that the event has from here on.
    pub time: i64,
}

/// What a window puts out, in chunks.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    /// The events in order.
    pub items: Vec<Signal>,
    /// Where each chunk ends.
    pub ends: Vec<usize>,
}

impl Signals {
    /// A row arrived; it keeps its timestamp `time`.
    pub fn current(&mut self, seq: Seq, time: i64) {
        self.items.push(Signal { kind: Kind::Current, seq, time });
    }

    /// A row left; `time` is its timestamp from here on.
    pub fn expired(&mut self, seq: Seq, time: i64) {
        self.items.push(Signal { kind: Kind::Expired, seq, time });
    }

    /// A batch ended.
    pub fn reset(&mut self, time: i64) {
        self.items.push(Signal { kind: Kind::Reset, seq: 0, time });
    }

    /// What was put out since the last end is one chunk.
    pub fn end_chunk(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.items.len() {
            self.ends.push(self.items.len());
        }
    }
}

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
    /// Whether anybody wants expired events; some windows do not put them out otherwise.
    pub wants_expired: bool,
}

impl Context<'_> {
    /// The value of an expression on a row.
    pub fn eval(&self, expr: &Expr, seq: Seq) -> Result<Value, Failure> {
        let rows = [Some(self.rows.row(seq))];
        expr.eval(&Frame { rows: &rows, time: self.rows.time(seq), now: self.now, host: &NoHost })
    }
}

/// A window. It holds numbers of rows.
pub trait Window: Send {
    /// A chunk arrived, in order. The clock stands at its time already, and timers due before it have run.
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure>;

    /// A due time that it asked for was reached.
    fn timer(&mut self, _due: i64, _context: &mut Context<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// The app starts; the clock stands at `context.now`.
    fn start(&mut self, _context: &mut Context<'_>) {}

    /// What joins and on-demand queries find, oldest first.
    fn held(&self) -> Vec<Seq>;

    /// Rows below are not needed any more; none are, when there is no such row.
    fn oldest(&self) -> Option<Seq>;

    /// Its state, for a checkpoint.
    fn save(&self) -> serde_json::Value;

    /// Takes a saved state back. Errors: that it is none of this window.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), Failure>;
}

/// Makes a window without events.
pub type MakeWindow = Arc<dyn Fn() -> Box<dyn Window> + Send + Sync>;

/// A parameter of a window.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// What it computes on a row.
    pub expr: Expr,
    /// The attribute's name, when it is nothing but an attribute.
    pub attribute: Option<String>,
    /// As it is written, for errors.
    pub text: String,
}

impl Parameter {
    /// A time or a number of milliseconds: a constant int or long.
    pub fn span(&self, what: &str) -> Result<i64, String> {
        let value = self.expr.as_const().and_then(Value::as_i64);
        value
            .ok_or_else(|| format!("{what} is to be a time or a number of milliseconds, not `{}`", self.text))
    }

    /// A constant int.
    pub fn int(&self, what: &str) -> Result<i32, String> {
        match self.expr.as_const() {
            Some(Value::Int(n)) => Ok(*n),
            _ => Err(format!("{what} is to be a whole number, not `{}`", self.text)),
        }
    }
}

/// Makes windows by name. Errors: what is wrong with the parameters.
///
/// `compile` compiles the text of an `expression` window over the window's rows.
pub fn build(
    name: &str,
    parameters: &[Parameter],
    _compile: &dyn Fn(&str) -> Result<Expr, String>,
) -> Option<Result<MakeWindow, String>> {
    Some(match name {
        "length" => length::build(parameters),
        _ => return None,
    })
}
