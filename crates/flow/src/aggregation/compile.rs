//! Compilation of `define aggregation`.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{
    AggregationDefinition, Annotation, ExprKind, Period, PeriodUnit, Periods, SelectItem, SelectItems,
};
use tidemill_types::FieldType;

use super::accumulators::type_of;
use super::purge;
use super::store_layout::{self, StoredParts};
use crate::catalog::{AGG_TIMESTAMP, AccumulatorKind, AccumulatorSpec, AggregationPlan, Catalog, ROW};
use crate::compile::compiler::{Compiler, Scope, call_name};
use crate::compile::scope::StreamScope;
use crate::expr::{AGGREGATES, Expr, INPUT, Node};
use crate::query_input::stateless_handlers;
use crate::registry::{AggregateCall, Registry};

/// Aggregates that have a mergeable accumulator.
const INCREMENTAL_AGGREGATES: [&str; 6] = ["sum", "avg", "count", "min", "max", "distinctCount"];

/// Compiles a definition.
///
/// Errors: the first problem found.
pub(crate) fn compile_definition(
    d: &AggregationDefinition,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<AggregationPlan, Diagnostic> {
    let stream = catalog.read(&d.input.stream)?;
    let name = &catalog.streams()[stream].name;
    let mut attributes = catalog.streams()[stream].attributes.clone();
    if let Some(window) = &d.input.window {
        let message = "an aggregation cannot read a stream with a window: its buckets take that role";
        return Err(Diagnostic::error("F0711", window.span, message)
            .help("let a query insert the output of the window into a stream, and aggregate that stream"));
    }
    let before = stateless_handlers(&d.input.handlers, name, &mut attributes, catalog.tables(), registry)?;
    let mut scope = StreamScope { stream: name, attributes: &attributes, tables: &[] };
    let mut group_by = Vec::new();
    for attribute in &d.group_by {
        let found = scope.attribute(attribute)?;
        group_by.push((found.column, found.ty));
    }
    let by = match &d.by {
        None => None,
        Some(attribute) => {
            let found = scope.attribute(attribute)?;
            if !matches!(found.ty, FieldType::Long | FieldType::String) {
                let name = &attribute.name.name;
                let message = format!(
                    "`aggregate by` needs an attribute of type long or string, found `{name}` of type {}",
                    found.ty.name()
                );
                return Err(Diagnostic::error("F0713", attribute.name.span, message)
                    .help("a long holds milliseconds since 1970, a string `yyyy-MM-dd HH:mm:ss`"));
            }
            Some(found.column)
        }
    };
    let units = units(&d.every)?;
    let mut keeper = AccumulatorPlanner { group_by: &group_by, args: vec![], cells: vec![] };
    let items = match &d.items {
        SelectItems::All(_) => {
            let all = attributes.iter().enumerate();
            all.map(|(i, (name, ty))| (name.clone(), keeper.last_value(Expr::column(INPUT, i, *ty))))
                .collect()
        }
        SelectItems::List(list) => items(list, &mut scope, &mut keeper, registry)?,
    };
    let (args, cells) = (keeper.args, keeper.cells);
    check_not_shared(&d.annotations)?;
    let purge = purge::parse_purge(&d.annotations, &units)?;
    let (name, span) = (d.name.name.clone(), d.name.span);
    let parts = StoredParts {
        name: &name,
        span,
        attributes: &attributes,
        group_by: &group_by,
        units: &units,
        args: &args,
        accumulators: &cells,
        items: &items,
    };
    let store = store_layout::compile(&d.annotations, &parts, catalog, registry)?;
    Ok(AggregationPlan {
        name,
        span,
        stream,
        handlers: before,
        group_by,
        time_column: by,
        units,
        args,
        accumulators: cells,
        items,
        purge,
        store,
    })
}

/// Rejects annotations that share the work of an aggregation among several servers.
fn check_not_shared(annotations: &[Annotation]) -> Result<(), Diagnostic> {
    let on = |a: &Annotation| a.element("enable").is_none_or(|e| e.value.value.eq_ignore_ascii_case("true"));
    let what = annotations.iter().find_map(|a| {
        let message = if a.is("PartitionById") && on(a) {
            "`@PartitionById` is not supported: it needs a store that several servers write"
        } else if a.is("persistedAggregation") && on(a) {
            "`@persistedAggregation` is not supported: it needs a database that computes the larger buckets"
        } else {
            return None;
        };
        Some(Diagnostic::error("F0719", a.span, message).help("remove the annotation"))
    });
    what.map_or(Ok(()), Err)
}

/// Returns the granularities, from the finest to the coarsest.
fn units(every: &Periods) -> Result<Vec<PeriodUnit>, Diagnostic> {
    let no_week = |period: &Period| match period.unit {
        PeriodUnit::Week => {
            let message = "an aggregation has no buckets of weeks: months do not consist of whole weeks";
            Err(Diagnostic::error("F0714", period.span, message)
                .help("write `day`, and sum seven days in the query"))
        }
        _ => Ok(()),
    };
    match every {
        Periods::Range(from, to) => {
            no_week(from)?;
            no_week(to)?;
            if from.unit > to.unit {
                let (from_text, to_text) = (from.unit.text(), to.unit.text());
                let message =
                    format!("`{from_text}` is longer than `{to_text}`: a range starts with the shorter unit");
                return Err(Diagnostic::error("F0715", from.span.to(to.span), message)
                    .help(format!("write `{to_text} ... {from_text}`")));
            }
            let all = [
                PeriodUnit::Second,
                PeriodUnit::Minute,
                PeriodUnit::Hour,
                PeriodUnit::Day,
                PeriodUnit::Month,
                PeriodUnit::Year,
            ];
            Ok(all.into_iter().filter(|unit| (from.unit..=to.unit).contains(unit)).collect())
        }
        Periods::List(list) => {
            list.iter().try_for_each(no_week)?;
            let mut units: Vec<PeriodUnit> = list.iter().map(|period| period.unit).collect();
            units.sort_unstable();
            units.dedup();
            Ok(units)
        }
    }
}

/// Compiles the selected items.
fn items(
    list: &[SelectItem],
    scope: &mut StreamScope<'_>,
    keeper: &mut AccumulatorPlanner<'_>,
    registry: &Registry,
) -> Result<Vec<(String, Expr)>, Diagnostic> {
    let mut items: Vec<(String, Expr)> = Vec::with_capacity(list.len());
    for item in list {
        let name = item.name().ok_or_else(|| {
            Diagnostic::error("F0712", item.span, "an expression needs a name: write `… as NAME`")
        })?;
        if name.name == AGG_TIMESTAMP || items.iter().any(|(known, _)| *known == name.name) {
            let message = format!("duplicate column `{}`", name.name);
            let wrong = Diagnostic::error("F0727", name.span, message);
            return Err(match name.name == AGG_TIMESTAMP {
                true => wrong.note("every aggregation has this column; it holds the start of the bucket"),
                false => wrong,
            });
        }
        let mut calls: Vec<AggregateCall> = Vec::new();
        let aggregates = Some((&mut calls, AGGREGATES));
        let compiled = Compiler { scope: &mut *scope, registry, aggregates }.compile(&item.expr)?;
        if let (ExprKind::Call(call), Node::Column { slot: AGGREGATES, .. }) =
            (&item.expr.kind, &compiled.node)
        {
            let other = call.args.list().iter().find(|arg| !matches!(arg.kind, ExprKind::Attribute(_)));
            if let Some(other) = other {
                let name = call_name(call);
                let message = format!("in an aggregation {name}() takes an attribute, found `{other}`");
                return Err(Diagnostic::error("F0717", other.span, message)
                    .help("compute it in a query that inserts into a stream, and aggregate that stream"));
            }
        }
        let kept = calls.into_iter().map(|call| keeper.aggregate(call)).collect::<Result<Vec<_>, _>>()?;
        items.push((name.name.clone(), keeper.item(compiled, &kept)));
    }
    Ok(items)
}

/// Collects the accumulators of a row and their arguments.
struct AccumulatorPlanner<'a> {
    group_by: &'a [(usize, FieldType)],
    args: Vec<Expr>,
    cells: Vec<AccumulatorSpec>,
}

impl AccumulatorPlanner<'_> {
    /// Rewrites an item to read the group's values and the accumulators.
    fn item(&mut self, mut expr: Expr, kept: &[Expr]) -> Expr {
        if kept.is_empty() {
            return self.last_value(expr);
        }
        expr.walk_mut(&mut |inner| match inner.node {
            Node::Column { slot: AGGREGATES, column } => *inner = kept[column].clone(),
            Node::Column { .. } => *inner = self.last_value(inner.clone()),
            _ => {}
        });
        expr
    }

    /// Returns the grouped column, or else an accumulator of the latest event's value.
    fn last_value(&mut self, expr: Expr) -> Expr {
        let ty = expr.ty;
        if let Node::Column { column, .. } = expr.node
            && let Some(group) = self.group_by.iter().position(|(grouped, _)| *grouped == column)
        {
            return Expr::column(ROW, group, ty);
        }
        self.accumulator(AccumulatorKind::Last, Some(expr), ty)
    }

    fn aggregate(&mut self, call: AggregateCall) -> Result<Expr, Diagnostic> {
        let arg = call.args.into_iter().next();
        let keep = match (call.name.as_str(), call.ty) {
            ("sum", FieldType::Long) => AccumulatorKind::IntegerSum,
            ("sum", _) => AccumulatorKind::FloatSum,
            ("avg", _) => AccumulatorKind::Avg,
            ("count", _) => return Ok(self.accumulator(AccumulatorKind::Count, None, FieldType::Long)),
            ("min", _) => AccumulatorKind::Min,
            ("max", _) => AccumulatorKind::Max,
            ("distinctCount", _) => AccumulatorKind::DistinctCount,
            (other, _) => {
                let message = format!(
                    "{other}() is not supported in an aggregation: it cannot be computed from buckets"
                );
                return Err(Diagnostic::error("F0716", call.span, message)
                    .expected(INCREMENTAL_AGGREGATES)
                    .help(format!("write one of {}", INCREMENTAL_AGGREGATES.join(", "))));
            }
        };
        let ty = arg.as_ref().map_or(call.ty, |arg| type_of(keep, arg.ty));
        Ok(self.accumulator(keep, arg, ty))
    }

    fn accumulator(&mut self, keep: AccumulatorKind, arg: Option<Expr>, ty: FieldType) -> Expr {
        let arg = arg.map(|arg| {
            self.args.push(arg);
            self.args.len() - 1
        });
        self.cells.push(AccumulatorSpec { kind: keep, arg, ty });
        Expr::column(ROW, self.group_by.len() + self.cells.len() - 1, ty)
    }
}
