//! Compilation of a query into its row program.

use tidemill_types::FieldType;

use crate::catalog::Catalog;
use crate::expr::RowExpr;
use crate::join::JoinRowPlan;
use crate::pattern::PatternRowPlan;
use crate::processor::row_filters;
use crate::query::{QueryPlan, Target};
use crate::select::RowSelect;
use crate::table::{KeyedUpdate, TableAction};

/// A query compiled for single events.
pub(crate) struct RowProgram {
    /// Conditions before the window.
    pub(crate) filters: Vec<RowExpr>,
    pub(crate) input: RowInput,
    pub(crate) select: RowSelect,
    /// Write into the target table by its key; `None` for other targets and writes.
    pub(crate) keyed_write: Option<KeyedUpdate>,
    /// The target table and the input column with its key, if it is written by an unchanged column of the input.
    pub(crate) written_key: Option<(usize, usize)>,
}

/// The part between filters and select clause.
pub(crate) enum RowInput {
    /// Nothing, or a window.
    Stream,
    /// A pattern or a sequence.
    Pattern(PatternRowPlan),
    /// A join of two streams.
    Join(JoinRowPlan),
}

impl RowProgram {
    /// Compiles a query. Errors: the reason why it gets single events as batches.
    pub(crate) fn of(plan: &QueryPlan, catalog: &Catalog) -> Result<Self, &'static str> {
        if plan.rate.is_some() {
            return Err("its output rate is limited");
        }
        if plan.reads_window {
            return Err("it reads a named window");
        }
        if !plan.after.is_empty() {
            return Err("it has a handler behind its window");
        }
        let input = match (&plan.state, &plan.join) {
            (Some(pattern), _) => RowInput::Pattern(PatternRowPlan::of(pattern, catalog)?),
            (None, Some(join)) => RowInput::Join(JoinRowPlan::of(join, &plan.select)?),
            (None, None) => RowInput::Stream,
        };
        if plan.window.as_ref().is_some_and(|make| make().rewritten_column().is_some()) {
            return Err("its window changes a column of the event");
        }
        let stores = !matches!(input, RowInput::Stream) || plan.window.is_some();
        let select = RowSelect::of(&plan.select, stores)?;
        let projects = select.is_projection() && plan.select.output_events.current;
        if !(matches!(input, RowInput::Stream) || projects) {
            return Err("its selection of matches aggregates, groups or filters");
        }
        let keyed_write = keyed_write(plan, catalog);
        let written_key = match (&plan.target, &keyed_write, &input) {
            (Target::Table(table, _), Some(keyed), RowInput::Stream) => {
                select.input_of(keyed.key_column()).map(|column| (*table, column))
            }
            _ => None,
        };
        Ok(Self { filters: row_filters(&plan.before)?, input, select, keyed_write, written_key })
    }
}

fn keyed_write(plan: &QueryPlan, catalog: &Catalog) -> Option<KeyedUpdate> {
    let Target::Table(table, action) = &plan.target else { return None };
    let table = catalog.tables().get(*table).filter(|table| table.store.is_none())?;
    match &**action {
        TableAction::Update { on, set, insert } => {
            let keyed = KeyedUpdate::of(table, on, set, *insert, &plan.select.types())?;
            let has_object_key =
                table.primary_key.iter().any(|c| table.attributes[*c].1 == FieldType::Object);
            (!has_object_key).then_some(keyed)
        }
        TableAction::Insert | TableAction::Delete(_) => None,
    }
}
