//! Stores: tables whose rows live in another system.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use tidemill_types::{Offset, PartitionId, Result, StreamSchema};

use crate::mapper::RefusedRow;
use crate::options::{OptionError, OptionSpec, Options};

thread_local! {
    /// True while a caller of this thread reads a store and does not wait for it.
    static IS_READER: Cell<bool> = const { Cell::new(false) };
}

/// Calls `read`, in which calls of stores on this thread do not wait for another system that cannot be reached: they return
/// `Unavailable`. Queries wait, as they cannot be applied without it; a caller who asks can ask again.
pub fn without_waiting<T>(read: impl FnOnce() -> T) -> T {
    /// Ends the mode also if `read` panics.
    struct Reset(bool);

    impl Drop for Reset {
        fn drop(&mut self) {
            IS_READER.set(self.0);
        }
    }

    let _reset = Reset(IS_READER.replace(true));
    read()
}

/// Type of store.
pub trait StoreType: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &'static str;
    /// Returns its purpose in one sentence.
    fn summary(&self) -> &'static str;
    /// Returns all options that it takes.
    fn options(&self) -> &'static [OptionSpec];
    /// Returns the option with the name that a table has in the other system; `None` if it has that of the app.
    fn table_option(&self) -> Option<&'static str> {
        None
    }
    /// Returns whether rows are found by ranges of a column, and not by equal values only, so that aggregations may be kept.
    fn finds_ranges(&self) -> bool {
        true
    }
    /// Returns whether indexes may have orders and options.
    fn takes_special_indexes(&self) -> bool {
        false
    }
    /// Creates a store of a table, without connecting.
    ///
    /// Errors: options that make no sense together.
    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError>;
}

/// Context in which a store is created.
#[derive(Debug, Clone)]
pub struct StoreContext {
    /// Name of the table in the app.
    pub table: String,
    /// Name of the app's file under which the other system remembers what was written, together with that of the table.
    /// Files of other data directories have other names.
    pub writer: String,
    /// Its columns.
    pub schema: Arc<StreamSchema>,
    /// Columns of the primary key; empty without one.
    pub primary_key: Vec<usize>,
    /// Columns with an index.
    pub indexes: Vec<usize>,
    /// Further indexes, which have orders or options.
    pub special_indexes: Vec<StoreIndex>,
    /// Columns whose strings may have any length.
    pub long_texts: Vec<usize>,
    /// Receives problems, and signals when to stop.
    pub monitor: Arc<StoreMonitor>,
}

/// Index with an order or options, as in `@IndexBy('volume 1 {unique:true}')`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreIndex {
    /// Its columns, each with whether it is descending.
    pub columns: Vec<(usize, bool)>,
    /// Name; `None` for that of the store.
    pub name: Option<String>,
    /// True if no two rows may have the same values.
    pub unique: bool,
    /// True if rows without values are left out.
    pub sparse: bool,
    /// Seconds after the time in the column at which the store deletes a row.
    pub expire_after_s: Option<u32>,
}

/// Rows in another system. Queries wait for it: while the other side cannot be reached, a call tries again until it
/// can or until [`StoreMonitor::stop`].
///
/// Writes happen once: each carries its [`WritePosition`], which the other side remembers with it. A write whose
/// position is not behind the remembered one has happened before and does nothing.
pub trait TableStore: Send {
    /// Returns the rows that satisfy `condition`, at most `limit`, with the columns of the table. Row 0 of `parameters`
    /// has the values for [`StoreExpr::Parameter`].
    ///
    /// Errors: `Invalid` if the other side does not evaluate the condition; `Unavailable` after a stop.
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        limit: Option<usize>,
    ) -> Result<RecordBatch>;

    /// Inserts rows in order. Returns those that the other side refuses; all others are written.
    ///
    /// Errors: `Unavailable` after a stop.
    fn insert(&mut self, rows: &RecordBatch, at: Option<WritePosition>) -> Result<Vec<RefusedRow>>;

    /// Deletes the rows that satisfy `condition` for each row of `parameters`, in order. Returns as
    /// [`Self::insert`] does.
    ///
    /// Errors: those of [`Self::find`].
    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>>;

    /// Changes the rows that satisfy the condition of `change` for each row of `parameters`, in order; with
    /// `insert`, inserts the row of `insert` of the same number if no row satisfies it. Returns as
    /// [`Self::insert`] does.
    ///
    /// Errors: those of [`Self::find`].
    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>>;
}

/// Update of the rows that satisfy a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUpdate {
    /// Condition.
    pub condition: StoreExpr,
    /// Columns with their new values.
    pub set: Vec<(usize, StoreExpr)>,
}

/// Place of a write among all writes to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WritePosition {
    /// Partition whose record makes the write.
    pub partition: PartitionId,
    /// Offset of the record.
    pub offset: Offset,
    /// Number of the write among those of the record, from 0.
    pub call: u32,
}

/// Expression over a row of the table and parameters. Comparisons with null are false, as in SiddhiQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreExpr {
    /// Column of the row.
    Column(usize),
    /// Column of the parameters, which have all values that do not depend on the row.
    Parameter(usize),
    /// Comparison.
    Compare(StoreComparison, Box<Self>, Box<Self>),
    /// Arithmetic.
    Arithmetic(StoreArithmetic, Box<Self>, Box<Self>),
    /// Both.
    And(Box<Self>, Box<Self>),
    /// At least one.
    Or(Box<Self>, Box<Self>),
    /// Negation.
    Not(Box<Self>),
    /// True if the value is null.
    IsNull(Box<Self>),
}

impl StoreExpr {
    /// Returns whether the expression reads the row.
    pub fn reads_row(&self) -> bool {
        match self {
            Self::Column(_) => true,
            Self::Parameter(_) => false,
            Self::Compare(_, left, right)
            | Self::Arithmetic(_, left, right)
            | Self::And(left, right)
            | Self::Or(left, right) => left.reads_row() || right.reads_row(),
            Self::Not(inner) | Self::IsNull(inner) => inner.reads_row(),
        }
    }
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreComparison {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl StoreComparison {
    /// Returns the operator for exchanged operands.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            Self::Eq | Self::Ne => self,
        }
    }
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreArithmetic {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}

/// Problems of the stores of an app, and the word to stop.
#[derive(Debug, Default)]
pub struct StoreMonitor {
    stopped: AtomicBool,
    problems: Mutex<BTreeMap<String, String>>,
}

impl StoreMonitor {
    /// Makes calls that wait for another system return an error.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Returns whether calls must not wait: after a stop, and for a [reader](without_waiting).
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || IS_READER.get()
    }

    /// Notes why the store of a table does not work; `None` if it does.
    pub fn report(&self, table: &str, problem: Option<String>) {
        let mut problems = self.problems.lock();
        match problem {
            Some(problem) => drop(problems.insert(table.to_owned(), problem)),
            None => drop(problems.remove(table)),
        }
    }

    /// Returns the problems by table.
    pub fn problems(&self) -> BTreeMap<String, String> {
        self.problems.lock().clone()
    }
}
