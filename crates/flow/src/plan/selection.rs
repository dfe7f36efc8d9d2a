//! Compilation of the select clause and the output rate.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, EventKind, ExprKind, SelectItems};
use tidemill_types::did_you_mean;

use crate::catalog::Attributes;
use crate::columns::value::Value;
use crate::compile::compiler::{Compiler, Scope};
use crate::compile::scope::HavingScope;
use crate::expr::{Expr, Node};
use crate::output_rate::{OutputRatePlan, RateSelection, SnapshotPlan};
use crate::registry::{AggregateCall, Registry};
use crate::select::{self, OutputEvents};

/// Compiles the select clause. `input` are the attributes that `*` stands for.
pub(crate) fn selection(
    query: &ast::Query,
    input: &Attributes,
    scope: &mut dyn Scope,
    having_sees_input: bool,
    registry: &Registry,
) -> Result<select::SelectPlan, Diagnostic> {
    let mut aggregates: Vec<AggregateCall> = Vec::new();
    let clause = query.select.as_ref();
    let mut items: Vec<(String, Expr)> = Vec::new();
    match clause.map(|c| &c.items) {
        None | Some(SelectItems::All(_)) => {
            let all = input.iter().enumerate();
            items.extend(all.map(|(i, (name, ty))| (name.clone(), Expr::column(crate::expr::INPUT, i, *ty))));
        }
        Some(SelectItems::List(list)) => {
            for item in list {
                let name = item.name().ok_or_else(|| {
                    Diagnostic::error("F0408", item.span, "an expression needs a name: write `… as NAME`")
                })?;
                if items.iter().any(|(known, _)| *known == name.name) {
                    let message = format!("duplicate column `{}`", name.name);
                    return Err(Diagnostic::error("F0409", name.span, message));
                }
                let aggregates = Some((&mut aggregates, crate::expr::AGGREGATES));
                let mut compiler = Compiler { scope: &mut *scope, registry, aggregates };
                items.push((name.name.clone(), compiler.compile(&item.expr)?));
            }
        }
    }
    let output: Attributes = items.iter().map(|(name, expr)| (name.clone(), expr.ty)).collect();
    let mut plan = select::SelectPlan {
        items,
        hidden: 0,
        aggregates: vec![],
        group_by: vec![],
        having: None,
        order_by: vec![],
        offset: 0,
        limit: None,
        output_events: output_events(query.output.kind.map(|k| k.kind)),
        every_event: false,
    };
    if let Some(clause) = clause {
        for attribute in &clause.group_by {
            let found = scope.attribute(attribute)?;
            plan.group_by.push(Expr::column(found.slot, found.column, found.ty));
        }
        if let Some(having) = &clause.having {
            let mut scope = HavingScope { output: &output, input: scope, sees_input: having_sees_input };
            let selected = aggregates.len();
            let mut compiler = Compiler {
                scope: &mut scope,
                registry,
                aggregates: Some((&mut aggregates, crate::expr::AGGREGATES)),
            };
            plan.having = Some(compiler.condition(having, "`having`")?);
            for call in &mut aggregates[selected..] {
                expand_output_columns(call, &plan.items)?;
            }
        }
        for item in &clause.order_by {
            let name = &item.attribute.name;
            let plain = item.attribute.source.is_none();
            let named = output.iter().position(|(known, _)| *known == name.name);
            let wrong = || match named {
                Some(_) => Diagnostic::error(
                    "F0410",
                    item.attribute.span,
                    "`order by` takes names of output columns, without a source",
                )
                .help(format!("write `{}`: `order by` sorts the output", name.name)),
                None => {
                    let hint = did_you_mean(&name.name, output.iter().map(|(known, _)| known.as_str()));
                    let message = format!("`{}` is not selected{hint}", name.name);
                    Diagnostic::error("F0410", name.span, message)
                        .note("`order by` sorts the output by the names of its columns")
                }
            };
            let column = match named.filter(|_| plain) {
                Some(column) => column,
                None if having_sees_input => {
                    let found = scope.attribute(&item.attribute)?;
                    plan.items.push((String::new(), Expr::column(found.slot, found.column, found.ty)));
                    plan.hidden += 1;
                    plan.items.len() - 1
                }
                None => return Err(wrong()),
            };
            plan.order_by.push((column, item.direction == Some(ast::Direction::Descending)));
        }
        plan.limit = clause.limit.as_ref().map(|x| count(x, "limit")).transpose()?;
        plan.offset = clause.offset.as_ref().map(|x| count(x, "offset")).transpose()?.unwrap_or(0);
    }
    plan.aggregates = aggregates;
    Ok(plan)
}

/// Replaces output columns in the arguments of an aggregate in `having` by their expressions.
///
/// Errors: such a column is an aggregate itself.
fn expand_output_columns(call: &mut AggregateCall, items: &[(String, Expr)]) -> Result<(), Diagnostic> {
    let mut total = None;
    for arg in &mut call.args {
        arg.walk_mut(&mut |part| {
            if let Node::Column { slot: crate::expr::OUTPUT, column } = part.node {
                let (name, value) = &items[column];
                value.walk(&mut |x| {
                    if matches!(x.node, Node::Column { slot: crate::expr::AGGREGATES, .. }) {
                        total = Some(name);
                    }
                });
                *part = value.clone();
            }
        });
    }
    match total {
        None => Ok(()),
        Some(name) => {
            let message = format!("{}: aggregates cannot be nested, and `{name}` is an aggregate", call.name);
            Err(Diagnostic::error("F0106", call.span, message))
        }
    }
}

/// Compiles the output clause. A snapshot makes the selection emit every event of every group.
pub(super) fn rate(
    rate: &ast::RateLimit,
    query: &ast::Query,
    select: &mut select::SelectPlan,
    window: bool,
) -> Result<OutputRatePlan, Diagnostic> {
    let which = |which: Option<ast::RateEvents>| match which {
        None | Some(ast::RateEvents::All) => RateSelection::All,
        Some(ast::RateEvents::First) => RateSelection::First,
        Some(ast::RateEvents::Last) => RateSelection::Last,
    };
    match &rate.kind {
        ast::RateKind::Events { count: 0, count_span, .. } => {
            Err(Diagnostic::error("F0412", *count_span, "the number of events must be at least 1"))
        }
        ast::RateKind::Events { which: w, count, .. } => {
            Ok(OutputRatePlan::Events(which(*w), u64::from(*count)))
        }
        ast::RateKind::Time { which: w, every } => Ok(OutputRatePlan::Time(which(*w), every.ms.max(1))),
        ast::RateKind::Snapshot { every } => {
            match query.output.kind {
                None => select.output_events = OutputEvents { current: true, expired: true },
                Some(kind) if kind.kind != EventKind::All => {
                    return Err(Diagnostic::error(
                        "F0413",
                        kind.span,
                        "`output snapshot` needs `all events`",
                    ));
                }
                Some(_) => {}
            }
            select.every_event = true;
            let aggregates = select.outputs().iter().map(|(_, expr)| {
                matches!(expr.node, crate::expr::Node::Column { slot: crate::expr::AGGREGATES, .. })
            });
            let snapshot = SnapshotPlan {
                window,
                aggregates: aggregates.collect(),
                grouped: !select.group_by.is_empty(),
            };
            Ok(OutputRatePlan::Snapshot(every.ms.max(1), snapshot.into()))
        }
    }
}

pub(super) fn output_events(kind: Option<EventKind>) -> OutputEvents {
    match kind {
        None | Some(EventKind::Current) => OutputEvents { current: true, expired: false },
        Some(EventKind::Expired) => OutputEvents { current: false, expired: true },
        Some(EventKind::All) => OutputEvents { current: true, expired: true },
    }
}

/// Returns the value of a constant, non-negative whole number.
fn count(expr: &ast::Expr, what: &str) -> Result<usize, Diagnostic> {
    let value = match &expr.kind {
        ExprKind::Literal(ast::Literal::Int(n)) => Value::Int(*n).as_i64(),
        ExprKind::Literal(ast::Literal::Long(n)) => Some(*n),
        ExprKind::Time(time) => Some(time.ms),
        _ => None,
    };
    value.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        let message = format!("`{what}` must be a whole number from 0, found `{expr}`");
        Diagnostic::error("F0411", expr.span, message)
    })
}
