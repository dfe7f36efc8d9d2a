//! Source texts and names of a query, whose plan has only indexes.

use tidemill_lang::siddhi::ast::{self, BinaryOp, ExprKind, HandlerKind};

use crate::catalog::Attributes;
use crate::compile::compiler::call_name;

/// Source texts and names of a query.
#[derive(Debug, Clone, Default)]
pub struct QueryText {
    /// The input before the window; empty for a join.
    pub input: InputText,
    /// The sides of a join, left first.
    pub sides: Vec<InputText>,
    /// Condition of a join.
    pub on: String,
    /// Condition of `having`.
    pub having: String,
    /// Clause `output …`.
    pub rate: String,
}

/// Source texts and names of one input.
#[derive(Debug, Clone, Default)]
pub struct InputText {
    /// Name of the input.
    pub name: String,
    /// Names of the columns after the handlers.
    pub names: Vec<String>,
    /// For each handler before the window, the conjuncts of its condition; empty for a function.
    pub filters: Vec<Vec<String>>,
    /// Call of the window, such as `length(3)`.
    pub window: String,
}

impl InputText {
    /// Returns the texts of an input whose columns have these names after its handlers.
    pub(crate) fn of(input: &ast::StreamInput, name: &str, attributes: &Attributes) -> Self {
        let filters = input.handlers.iter().map(|handler| match &handler.kind {
            HandlerKind::Filter(condition) => {
                let mut all = Vec::new();
                conjuncts(condition, &mut all);
                all
            }
            HandlerKind::Function(_) => vec![],
        });
        Self {
            name: name.to_owned(),
            names: attributes.iter().map(|(name, _)| name.clone()).collect(),
            filters: filters.collect(),
            window: input.window.as_ref().map(|window| call(&window.call)).unwrap_or_default(),
        }
    }
}

impl InputText {
    /// Returns the texts of a named window.
    pub(crate) fn of_window(window: &ast::Call, name: &str, attributes: &Attributes) -> Self {
        let names = attributes.iter().map(|(name, _)| name.clone()).collect();
        Self { name: name.to_owned(), names, filters: vec![], window: call(window) }
    }
}

fn call(call: &ast::Call) -> String {
    let args: Vec<String> = call.args.list().iter().map(ToString::to_string).collect();
    format!("{}({})", call_name(call), args.join(", "))
}

/// Formats `output last every 5 events`.
pub(crate) fn rate(rate: &ast::RateLimit) -> String {
    let which = |which: Option<ast::RateEvents>| match which {
        None => "",
        Some(ast::RateEvents::All) => "all ",
        Some(ast::RateEvents::First) => "first ",
        Some(ast::RateEvents::Last) => "last ",
    };
    match &rate.kind {
        ast::RateKind::Events { which: w, count, .. } => format!("output {}every {count} events", which(*w)),
        ast::RateKind::Time { which: w, every } => format!("output {}every {} ms", which(*w), every.ms),
        ast::RateKind::Snapshot { every } => format!("output snapshot every {} ms", every.ms),
    }
}

/// Appends the source texts of the conditions joined by `and`, in order.
pub(crate) fn conjuncts(condition: &ast::Expr, texts: &mut Vec<String>) {
    match &condition.kind {
        ExprKind::Binary { op: BinaryOp::And, left, right } => {
            conjuncts(left, texts);
            conjuncts(right, texts);
        }
        _ => texts.push(condition.to_string()),
    }
}

impl QueryText {
    /// Returns the texts of a query apart from its input.
    pub(crate) fn of(query: &ast::Query) -> Self {
        let having = query.select.as_ref().and_then(|select| select.having.as_ref());
        Self {
            having: having.map(ToString::to_string).unwrap_or_default(),
            rate: query.rate.as_ref().map(rate).unwrap_or_default(),
            ..Self::default()
        }
    }
}
