//! Aggregates of an event table by its key, by time bins, by both, or of the whole table.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, lit, when};

use super::base::Base;
use super::selection::Selected;
use super::{numbered, plan_scan, project_as, scan_column, unalias};
use crate::hot::HotSource;
use crate::hot::aggregate::{Aggregation, Bin, GroupColumn, HotAggregate};
use crate::hot::column::ColumnExpr;
use crate::hot::scan::{HotScan, ScanResult, TimeRange};
use crate::hot::stats::StatKind;
use crate::time_cast::without_time_cast;

/// Maximum number of expressions, beside plain columns, that one scan evaluates.
const EXPRESSIONS_MAX: usize = 16;

/// Bounds of the origin of bins: what `date_bin` can calculate with, in microseconds.
const ORIGIN_MAX: i64 = i64::MAX / 1_000 / 2;

/// Returns the replacement of an aggregate over an event table.
pub(super) fn of_table(node: &Aggregate) -> Option<LogicalPlan> {
    let base = Base::of(&node.input)?;
    let mut scan = AggregateScan::new(&base)?;
    for group in &node.group_expr {
        let group = base.resolve(group)?;
        scan.add_group(&base, &group)?;
    }
    for function in &node.aggr_expr {
        scan.add_function(&base, function)?;
    }
    let fields = node.schema.fields().iter().map(|f| (f.data_type().clone(), f.is_nullable()));
    let scan = scan.finish(numbered(fields))?;
    let columns = (0..node.schema.fields().len()).map(scan_column).collect();
    plan_scan(scan).and_then(|plan| project_as(plan, columns, &node.schema)).ok()
}

/// Scan of aggregates that is being put together.
pub(super) struct AggregateScan {
    source: std::sync::Arc<HotSource>,
    names: DFSchema,
    selected: Selected,
    columns: Vec<ColumnExpr>,
    groups: Vec<GroupColumn>,
    functions: Vec<HotAggregate>,
}

impl AggregateScan {
    pub fn new(base: &Base<'_>) -> Option<Self> {
        let names = DFSchema::try_from(base.source.schema.clone()).ok()?;
        let selected = Selected::of(base)?;
        let source = base.source.clone();
        Some(Self { source, names, selected, columns: vec![], groups: vec![], functions: vec![] })
    }

    /// Adds a group: the key or a bin of the time.
    pub fn add_group(&mut self, base: &Base<'_>, group: &Expr) -> Option<()> {
        if base.is_key(group) {
            self.groups.push(GroupColumn::Key);
            return Some(());
        }
        let (bin, by_field) = time_bin(base, group)?;
        self.selected.selection.by_time_field |= by_field;
        self.groups.push(GroupColumn::Bin(bin));
        Some(())
    }

    /// Adds an aggregate function, and returns it.
    pub fn add_function(&mut self, base: &Base<'_>, function: &Expr) -> Option<HotAggregate> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = unalias(function) else {
            return None;
        };
        let plain = !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none();
        let [argument] = params.args.as_slice() else { return None };
        if !plain {
            return None;
        }
        let argument = base.resolve(argument)?;
        let filter = match &params.filter {
            None => None,
            Some(filter) => Some(base.resolve(filter)?),
        };
        let function = match (func.name(), &argument, &filter) {
            ("count", Expr::Literal(value, _), None) if !value.is_null() => HotAggregate::Rows,
            ("count", ..) => HotAggregate::Count(self.add_column(argument, filter)?),
            ("sum", ..) => HotAggregate::Sum(self.add_number(argument, filter, true)?),
            ("avg", ..) => HotAggregate::Avg(self.add_number(argument, filter, true)?),
            ("min", ..) => HotAggregate::Min(self.add_number(argument, filter, false)?),
            ("max", ..) => HotAggregate::Max(self.add_number(argument, filter, false)?),
            _ => return None,
        };
        self.functions.push(function);
        Some(function)
    }

    /// Adds a function without looking at an expression.
    pub fn push_function(&mut self, function: HotAggregate) {
        self.functions.push(function);
    }

    /// Replaces the function that was added last.
    pub fn replace_last(&mut self, functions: &[HotAggregate]) {
        self.functions.pop();
        self.functions.extend_from_slice(functions);
    }

    /// Adds the argument of a function of numbers.
    fn add_number(&mut self, argument: Expr, filter: Option<Expr>, sums: bool) -> Option<usize> {
        let argument = if sums { self.without_cast(argument) } else { argument };
        let ty = argument.get_type(&self.names).ok()?;
        let time = matches!(ty, DataType::Timestamp(..));
        if StatKind::of(&ty) == StatKind::Count || (sums && time) {
            return None;
        }
        self.add_column(argument, filter)
    }

    /// Removes the cast with which DataFusion widens the argument of a sum: sums are exact or wide in any case.
    fn without_cast(&self, argument: Expr) -> Expr {
        let Expr::Cast(cast) = &argument else { return argument };
        let inner = cast.expr.get_type(&self.names);
        let widens = matches!(
            (inner, cast.field.data_type()),
            (Ok(DataType::Int32 | DataType::Int64 | DataType::Float32), DataType::Float64)
                | (Ok(DataType::Int32), DataType::Int64)
        );
        if widens { cast.expr.as_ref().clone() } else { argument }
    }

    /// Adds a column that has the value of `argument` in the selected rows that satisfy `filter`, and null in others.
    fn add_column(&mut self, argument: Expr, filter: Option<Expr>) -> Option<usize> {
        let conditions = [self.selected.rows.clone(), filter];
        let expr = match conditions.into_iter().flatten().reduce(Expr::and) {
            None => argument,
            Some(condition) => when(condition, argument).end().ok()?,
        };
        if let Some(known) = self.columns.iter().position(|c| c.expr == expr) {
            return Some(known);
        }
        self.columns.push(ColumnExpr::new(expr, &self.source.schema)?);
        Some(self.columns.len() - 1)
    }

    /// Returns the scan with the result columns `schema`.
    pub fn finish(mut self, schema: arrow::datatypes::SchemaRef) -> Option<HotScan> {
        let selected = match self.selected.rows.is_some() {
            true => Some(self.add_column(lit(true), None)?),
            false => None,
        };
        if self.columns.iter().filter(|c| c.plain().is_none()).count() > EXPRESSIONS_MAX {
            return None;
        }
        let bins: Vec<Bin> = self
            .groups
            .iter()
            .filter_map(|group| match group {
                GroupColumn::Bin(bin) => Some(*bin),
                GroupColumn::Key => None,
            })
            .collect();
        let bin = bins.iter().min_by_key(|bin| bin.width).copied();
        if bin.is_some_and(|finest| bins.iter().any(|other| !other.consists_of(finest))) {
            return None;
        }
        // the number of all rows is in the Delta log
        let all = self.selected.selection.times == TimeRange::ALL && self.selected.selection.keys.is_none();
        if all && self.columns.is_empty() && self.groups.is_empty() {
            return None;
        }
        let by_key = self.groups.iter().any(|group| matches!(group, GroupColumn::Key));
        let aggregation =
            Aggregation { groups: self.groups, by_key, bin, functions: self.functions, selected };
        self.source.scan(self.selected.selection, self.columns, schema, ScanResult::Aggregates(aggregation))
    }
}

/// Returns the bins of `date_bin(interval, time [, origin])` over the time of the table, and whether it names the
/// declared time field.
fn time_bin(base: &Base<'_>, group: &Expr) -> Option<(Bin, bool)> {
    let Expr::ScalarFunction(call) = group else { return None };
    if call.func.name() != "date_bin" {
        return None;
    }
    let (interval, time, origin) = match call.args.as_slice() {
        [interval, time] => (interval, time, 0),
        [interval, time, Expr::Literal(origin, _)] => (interval, time, micros(origin)?),
        _ => return None,
    };
    let by_field = base.is_time(without_time_cast(time))?;
    let width = match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(i)), _) if i.months == 0 => {
            let nanos = i128::from(i.days) * 86_400_000_000_000 + i128::from(i.nanoseconds);
            (nanos % 1_000 == 0).then_some(nanos / 1_000)?
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(i)), _) => {
            i128::from(i.days) * 86_400_000_000 + i128::from(i.milliseconds) * 1_000
        }
        _ => return None,
    };
    let width = i64::try_from(width).ok().filter(|w| (1..=ORIGIN_MAX).contains(w))?;
    (-ORIGIN_MAX..=ORIGIN_MAX).contains(&origin).then_some((Bin { width, origin }, by_field))
}

fn micros(origin: &ScalarValue) -> Option<i64> {
    match origin {
        ScalarValue::TimestampNanosecond(Some(ns), _) => (ns % 1_000 == 0).then_some(ns / 1_000),
        ScalarValue::TimestampMicrosecond(Some(us), _) => Some(*us),
        ScalarValue::TimestampMillisecond(Some(ms), _) => ms.checked_mul(1_000),
        ScalarValue::TimestampSecond(Some(s), _) => s.checked_mul(1_000_000),
        _ => None,
    }
}
