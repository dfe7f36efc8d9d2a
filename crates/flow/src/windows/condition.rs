//! Conditions of `expression` windows: expressions over an event, the first and the last buffered event, and
//! aggregates over all buffered events.

use std::sync::Arc;

use tidemill_lang::siddhi::ast::{
    Args, AttributeRef, Expr as Ast, ExprKind, Ident, NullOperand, SourceRef, StreamRef,
};
use tidemill_lang::siddhi::{ast, parse_expression};
use tidemill_lang::{Diagnostic, FileId, SourceFile, Span};
use tidemill_types::FieldType;

use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::compile::compiler::{ColumnRef, Compiler, Scope};
use crate::eval_error::EvalError;
use crate::expr::{Expr, Frame, NoContext};
use crate::registry::{AggregateCall, Aggregator, Attribute, Registry, WindowInput};
use crate::store::{RowId, RowStore};

/// Row slots of a condition's frame: the event, the first and the last buffered event.
const EVENT: usize = 0;
const FIRST: usize = 1;
const LAST: usize = 2;
/// Slot of the aggregate values.
const AGGREGATES: usize = 3;
/// Slot of the timestamps of the first and of the last event.
const TIMES: usize = 4;

/// Attribute name that replaces `eventTimestamp(first)` and `eventTimestamp(last)` in the syntax tree. It
/// cannot occur in source text.
const TIMESTAMP: &str = "\0";

/// A compiled condition.
pub(super) struct Condition {
    text: String,
    expr: Expr,
    calls: Vec<AggregateCall>,
}

/// Compiler for conditions; events may bring conditions while the app runs.
pub(super) struct ConditionCompiler {
    names: Vec<String>,
    attributes: Vec<Attribute>,
    registry: Registry,
}

impl ConditionCompiler {
    pub(super) fn new(source: &WindowInput<'_>) -> Self {
        Self {
            names: source.names.iter().map(ToString::to_string).collect(),
            attributes: source.attributes.to_vec(),
            registry: source.registry.clone(),
        }
    }

    /// Compiles source text. Errors: the first diagnostic.
    pub(super) fn compile(&self, text: &str) -> Result<Arc<Condition>, String> {
        let file = SourceFile::new(FileId::default(), "condition", text);
        let first = |diagnostics: Vec<Diagnostic>| diagnostics.into_iter().next().map(|d| d.message);
        let wrong =
            |message: Option<String>| format!("the condition `{text}`: {}", message.unwrap_or_default());
        let mut ast = parse_expression(&file).map_err(|d| wrong(first(d)))?;
        mark_timestamps(&mut ast);
        let mut calls = vec![];
        let mut scope = ConditionScope { conditions: self };
        let mut compiler = Compiler {
            scope: &mut scope,
            registry: &self.registry,
            aggregates: Some((&mut calls, AGGREGATES)),
        };
        let expr = compiler.condition(&ast, "the window").map_err(|d| wrong(Some(d.message)))?;
        Ok(Arc::new(Condition { text: text.to_owned(), expr, calls }))
    }
}

/// Rewrites `eventTimestamp(first)` and `eventTimestamp(last)` as the attribute [`TIMESTAMP`] of `first` and
/// `last`.
fn mark_timestamps(expr: &mut Ast) {
    match &mut expr.kind {
        ExprKind::Literal(_) | ExprKind::Time(_) | ExprKind::Attribute(_) => {}
        ExprKind::Call(call) => {
            if let Some(event) = timestamp_of(call) {
                let span = event.span;
                expr.kind = ExprKind::Attribute(timestamp(event, span));
                return;
            }
            if let Args::List(list) = &mut call.args {
                list.iter_mut().for_each(mark_timestamps);
            }
        }
        ExprKind::IsNull(NullOperand::Value(value)) => mark_timestamps(value),
        ExprKind::IsNull(NullOperand::Step(_)) => {}
        ExprKind::Not(inner) => mark_timestamps(inner),
        ExprKind::Binary { left, right, .. } => {
            mark_timestamps(left);
            mark_timestamps(right);
        }
        ExprKind::In { condition, .. } => mark_timestamps(condition),
    }
}

fn timestamp_of(call: &ast::Call) -> Option<Ident> {
    if call.namespace.is_some() || call.name.name != "eventTimestamp" {
        return None;
    }
    match call.args.list() {
        [Ast { kind: ExprKind::Attribute(AttributeRef { source: None, name, .. }), .. }]
            if matches!(name.name.as_str(), "first" | "last") =>
        {
            Some(name.clone())
        }
        _ => None,
    }
}

fn timestamp(event: Ident, span: Span) -> AttributeRef {
    let stream = StreamRef { name: event, scope: ast::Scope::App, span };
    let source = SourceRef { stream, index: None, inner: None, span };
    AttributeRef { source: Some(Box::new(source)), name: Ident { name: TIMESTAMP.to_owned(), span }, span }
}

struct ConditionScope<'c> {
    conditions: &'c ConditionCompiler,
}

impl Scope for ConditionScope<'_> {
    fn all_names(&self) -> Vec<String> {
        self.conditions.attributes.iter().map(|known| known.name.clone()).collect()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let wrong = |what: String| Err(Diagnostic::error("F0111", attribute.span, what));
        let slot = match &attribute.source {
            None => EVENT,
            Some(source) => match source.as_name().map(|name| name.name.as_str()) {
                Some("first") => FIRST,
                Some("last") => LAST,
                Some(name) if self.conditions.names.iter().any(|known| known == name) => EVENT,
                _ => return wrong(format!("unknown stream `{}`", source.stream.name.name)),
            },
        };
        let name = &attribute.name.name;
        if name == TIMESTAMP {
            return Ok(ColumnRef { slot: TIMES, column: slot - FIRST, ty: FieldType::Long });
        }
        match self.conditions.attributes.iter().find(|known| known.name == *name) {
            Some(known) => Ok(ColumnRef { slot, column: known.column, ty: known.ty }),
            None => wrong(format!("unknown attribute `{name}`")),
        }
    }
}

/// A row with its current timestamp.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedRow {
    pub(super) seq: RowId,
    pub(super) time: i64,
}

/// Input of one evaluation of a condition.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConditionInput<'r> {
    pub(super) event: TimedRow,
    pub(super) first: TimedRow,
    pub(super) last: TimedRow,
    pub(super) now: i64,
    pub(super) rows: &'r RowStore,
}

/// A condition with the state of its aggregates.
pub(super) struct Evaluator {
    condition: Arc<Condition>,
    aggregates: Vec<Box<dyn Aggregator>>,
    /// Aggregate values, one row per column, for slot [`AGGREGATES`]; `times` likewise for slot [`TIMES`].
    values: Vec<Column>,
    times: [Column; 2],
}

impl Evaluator {
    pub(super) fn new(condition: Arc<Condition>) -> Self {
        let aggregates = condition.calls.iter().map(|call| (call.make)()).collect();
        let values = condition.calls.iter().map(|call| Column::new(call.ty)).collect();
        let times = [Column::new(FieldType::Long), Column::new(FieldType::Long)];
        Self { condition, aggregates, values, times }
    }

    pub(super) fn text(&self) -> &str {
        &self.condition.text
    }

    /// Adds the event to all aggregates.
    ///
    /// In Siddhi 5.1, an aggregate on the right of an `and` or `or` whose left side decides misses the event
    /// for good.
    pub(super) fn add(&mut self, view: &ConditionInput<'_>) -> Result<(), EvalError> {
        self.change(view, |aggregate, args| aggregate.add(args))
    }

    /// Removes the event from all aggregates.
    pub(super) fn remove(&mut self, view: &ConditionInput<'_>) -> Result<(), EvalError> {
        self.change(view, |aggregate, args| aggregate.remove(args))
    }

    /// Resets the aggregates and adds the event.
    pub(super) fn restart(&mut self, view: &ConditionInput<'_>) -> Result<(), EvalError> {
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.reset());
        self.add(view)
    }

    fn change(
        &mut self,
        view: &ConditionInput<'_>,
        change: impl Fn(&mut dyn Aggregator, &[Value]) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        self.load_input(view);
        let Self { condition, aggregates, values, times } = self;
        for (call, aggregate) in condition.calls.iter().zip(aggregates) {
            let args = call.args.iter().map(|arg| eval(arg, view, values, times));
            change(aggregate.as_mut(), &args.collect::<Result<Vec<_>, _>>()?)?;
        }
        Ok(())
    }

    /// Returns whether the condition is true; null counts as false.
    pub(super) fn holds(&mut self, view: &ConditionInput<'_>) -> Result<bool, EvalError> {
        self.load_input(view);
        for (value, aggregate) in self.values.iter_mut().zip(&self.aggregates) {
            value.truncate(0);
            value.push(aggregate.value());
        }
        Ok(eval(&self.condition.expr, view, &self.values, &self.times)?.is_true())
    }

    fn load_input(&mut self, view: &ConditionInput<'_>) {
        for (column, event) in self.times.iter_mut().zip([view.first, view.last]) {
            column.truncate(0);
            column.push(Value::Long(event.time));
        }
    }

    pub(super) fn save(&self) -> serde_json::Value {
        self.aggregates.iter().map(|aggregate| aggregate.save()).collect()
    }

    pub(super) fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError> {
        let saved = state.as_array().filter(|saved| saved.len() == self.aggregates.len());
        let saved = saved.ok_or_else(|| {
            EvalError::state("the saved state does not match the aggregates of this condition")
        })?;
        self.aggregates.iter_mut().zip(saved).try_for_each(|(aggregate, saved)| aggregate.restore(saved))
    }
}

fn eval(
    expr: &Expr,
    view: &ConditionInput<'_>,
    values: &[Column],
    times: &[Column],
) -> Result<Value, EvalError> {
    let row = |event: TimedRow| Some(view.rows.row(event.seq));
    let rows = [row(view.event), row(view.first), row(view.last), Some((values, 0)), Some((times, 0))];
    expr.eval(&Frame { rows: &rows, time: view.event.time, now: view.now, host: &NoContext })
}
