//! State that the queries of an app share: tables, named windows and aggregations.

use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::aggregation::Aggregation;
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, EvalContext, Expr, Frame, StoreRef, TableSearch};
use crate::models::Models;
use crate::named_window::NamedWindow;
use crate::statement_calls::StatementCalls;
use crate::table::Table;

/// Tables, named windows and aggregations of an app, by index.
#[derive(Default)]
pub struct AppStores {
    /// Tables.
    pub tables: Vec<Table>,
    /// Named windows.
    pub windows: Vec<NamedWindow>,
    /// Aggregations.
    pub aggregations: Vec<Aggregation>,
    /// Models that queries train and predict by.
    pub models: Models,
    /// Databases that queries send statements to.
    pub statements: StatementCalls,
    /// Source of random values.
    pub rng: DeterministicRng,
}

/// Random number generator that draws equal numbers when equal inputs are replayed. A number is a hash of the
/// seed, the number of the current input, the count of draws since that input, and the event's time.
#[derive(Debug, Default)]
pub struct DeterministicRng {
    seed: u64,
    input: AtomicU64,
    drawn: AtomicU64,
}

impl DeterministicRng {
    /// Creates a generator whose seed is a string, usually the name of the app.
    pub fn seeded(name: &str) -> Self {
        Self { seed: xxh3_64(name.as_bytes()), ..Self::default() }
    }

    /// Creates a generator with this seed in its initial state.
    pub fn restarted(&self) -> Self {
        Self { seed: self.seed, ..Self::default() }
    }

    /// Advances to the next input.
    pub fn next_input(&mut self) {
        self.next_inputs(1);
    }

    /// Advances by `inputs` inputs; nothing may be drawn before the last one.
    pub fn next_inputs(&mut self, inputs: u64) {
        *self.input.get_mut() += inputs;
        *self.drawn.get_mut() = 0;
    }

    /// Returns the position for a checkpoint: the number of the input, and the count of draws since.
    pub fn position(&self) -> (u64, u64) {
        (self.input.load(Ordering::Relaxed), self.drawn.load(Ordering::Relaxed))
    }

    /// Restores a saved position.
    pub fn set_position(&mut self, (input, drawn): (u64, u64)) {
        *self.input.get_mut() = input;
        *self.drawn.get_mut() = drawn;
    }

    fn next_u64(&self, time: i64) -> u64 {
        let (input, drawn) = (self.input.load(Ordering::Relaxed), self.drawn.fetch_add(1, Ordering::Relaxed));
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&input.to_le_bytes());
        bytes[8..16].copy_from_slice(&drawn.to_le_bytes());
        bytes[16..].copy_from_slice(&time.to_le_bytes());
        xxh3_64_with_seed(&bytes, self.seed)
    }
}

impl EvalContext for AppStores {
    fn models(&self) -> Option<&Models> {
        Some(&self.models)
    }

    fn statements(&self) -> Option<&StatementCalls> {
        Some(&self.statements)
    }

    fn random_u64(&self, time: i64) -> u64 {
        self.rng.next_u64(time)
    }

    fn is_external(&self, table: usize) -> bool {
        matches!(self.tables.get(table), Some(Table::External(_)))
    }

    fn any_row(
        &self,
        table: usize,
        slot: usize,
        condition: &Expr,
        frame: &Frame<'_>,
    ) -> Result<bool, EvalError> {
        let mut any = false;
        if let Some(table) = self.tables.get(table) {
            let search = TableSearch::new(Some(condition.clone()), slot, table.plan());
            table.find(&search, frame, &mut |_, _| {
                any = true;
                false
            })?;
        }
        Ok(any)
    }

    fn find(
        &self,
        table: usize,
        search: &TableSearch,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        match self.tables.get(table) {
            Some(table) => table.find(search, frame, &mut |columns, row| {
                visit(columns, row);
                true
            }),
            None => Ok(()),
        }
    }

    fn search(
        &self,
        place: StoreRef,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        match place {
            StoreRef::Table(number) => match self.tables.get(number) {
                Some(table) => {
                    self.find(number, &TableSearch::new(condition.cloned(), slot, table.plan()), frame, visit)
                }
                None => Ok(()),
            },
            StoreRef::Window(window) => match self.windows.get(window) {
                Some(window) => {
                    window.operator.find(condition, slot, frame, &mut |columns, row, _| visit(columns, row))
                }
                None => Ok(()),
            },
        }
    }

    fn buckets(
        &self,
        aggregation: usize,
        read: &BucketQuery,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        match self.aggregations.get(aggregation) {
            Some(aggregation) => aggregation.search(read, slot, condition, frame, visit),
            None => Ok(()),
        }
    }
}
