//! Compilation of the syntax tree to expressions: name resolution and type checks.

use std::borrow::Cow;
use std::sync::Arc;

use tidemill_lang::siddhi::ast::{self, Args, BinaryOp, ExprKind, Literal, NullOperand};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{FieldType, did_you_mean};

use crate::catalog::CatalogTable;
use crate::columns::column::{Column, Data};
use crate::columns::value::{Value, numeric_rank};
use crate::eval_error::EvalError;
use crate::expr::{
    ArgumentType, Arithmetic, ColumnarValue, Comparison, Expr, Function, FunctionContext, Node, PushedSearch,
};
use crate::registry::{AggregateCall, Registry};

/// Column to which a name resolves.
#[derive(Debug, Clone)]
pub struct ColumnRef {
    /// Slot of the row.
    pub slot: usize,
    /// Index of the column in the row.
    pub column: usize,
    /// Type of the column.
    pub ty: FieldType,
}

/// Source of the time of the event that matched a pattern step.
#[derive(Debug, Clone)]
pub enum StepTime {
    /// The time of the current event.
    Own,
    /// A column.
    At(ColumnRef),
}

/// Names that an expression may use.
pub trait Scope {
    /// Resolves an attribute to a column. Errors: it is unknown or ambiguous.
    fn attribute(&mut self, attribute: &ast::AttributeRef) -> Result<ColumnRef, Diagnostic>;

    /// Returns the plain names for which `*` stands in `f(*)`, in order.
    fn all_names(&self) -> Vec<String>;

    /// Resolves the operand of `e1 is null` or `e1[2] is null` to a column that is null if the step did not
    /// match. `None` if the step does not exist.
    fn step(&mut self, _step: &ast::SourceRef) -> Option<ColumnRef> {
        None
    }

    /// Resolves a bare name as [`Self::step`] does.
    fn bare_step(&mut self, _name: &ast::Ident) -> Option<ColumnRef> {
        None
    }

    /// Resolves `eventTimestamp(e1)` to the time of the step's event. `None` if the step does not exist.
    fn step_time(&mut self, _name: &ast::Ident) -> Option<StepTime> {
        None
    }

    /// Returns the tables that `(…) in Table` may name.
    fn tables(&self) -> &[CatalogTable] {
        &[]
    }

    /// Returns the slot of a table's row in the condition of `in`.
    fn row_slot(&self) -> usize {
        ROW_SLOT
    }
}

/// First slot after those of a selection.
const ROW_SLOT: usize = 3;

/// Scope of the condition of `in`: `Table.column` is a column of the table's row, other names resolve in the
/// outer scope.
struct InConditionScope<'a> {
    outer: &'a mut dyn Scope,
    table: &'a CatalogTable,
    slot: usize,
}

impl Scope for InConditionScope<'_> {
    fn attribute(&mut self, attribute: &ast::AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let source = attribute.source.as_ref().and_then(|s| s.as_name());
        if source.is_none_or(|name| name.name != self.table.name) {
            return self.outer.attribute(attribute);
        }
        let (name, columns) = (&attribute.name, &self.table.attributes);
        match columns.iter().position(|(known, _)| *known == name.name) {
            Some(column) => Ok(ColumnRef { slot: self.slot, column, ty: columns[column].1 }),
            None => {
                let hint = did_you_mean(&name.name, columns.iter().map(|(known, _)| known.as_str()));
                let message = format!("`{}` has no column `{}`{hint}", self.table.name, name.name);
                Err(Diagnostic::error("F0108", name.span, message))
            }
        }
    }

    fn all_names(&self) -> Vec<String> {
        self.outer.all_names()
    }

    fn step_time(&mut self, name: &ast::Ident) -> Option<StepTime> {
        self.outer.step_time(name)
    }

    fn tables(&self) -> &[CatalogTable] {
        self.outer.tables()
    }

    fn row_slot(&self) -> usize {
        self.slot + 1
    }
}

/// Compiler of expressions.
pub struct Compiler<'c> {
    /// Resolves names.
    pub scope: &'c mut dyn Scope,
    /// Functions and aggregates.
    pub registry: &'c Registry,
    /// Receives the aggregate calls, with the slot from which their values are read. `None` where aggregates
    /// are not allowed.
    pub aggregates: Option<(&'c mut Vec<AggregateCall>, usize)>,
}

type CompileResult = Result<Expr, Diagnostic>;

impl Compiler<'_> {
    /// Compiles `expr`.
    ///
    /// Errors: the first problem found.
    pub fn compile(&mut self, expr: &ast::Expr) -> CompileResult {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(constant(literal)),
            ExprKind::Time(time) => Ok(Expr::constant(Value::Long(time.ms), FieldType::Long)),
            ExprKind::Attribute(attribute) => {
                let found = self.scope.attribute(attribute)?;
                Ok(Expr::column(found.slot, found.column, found.ty))
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::IsNull(operand) => self.is_null(operand),
            ExprKind::Not(inner) => {
                let inner = self.condition(inner, "`not`").map_err(|d| match d.code {
                    "F0102" => d.note("`not` binds more tightly than comparisons: write `not (a > b)`"),
                    _ => d,
                })?;
                Ok(Expr { node: Node::Not(Box::new(inner)), ty: FieldType::Bool })
            }
            ExprKind::Binary { op, left, right } => self.binary(expr.span, *op, left, right),
            ExprKind::In { condition, table } => self.in_table(condition, table),
        }
    }

    /// Compiles an expression that must be a bool. `what` names the construct that requires it, for the
    /// message.
    pub fn condition(&mut self, expr: &ast::Expr, what: &str) -> CompileResult {
        let compiled = self.compile(expr)?;
        if compiled.ty != FieldType::Bool {
            return Err(Diagnostic::error(
                "F0102",
                expr.span,
                format!("{what} needs a bool, found `{expr}` of type {}", compiled.ty.name()),
            )
            .help("compare it with a value, for example `x > 0`"));
        }
        Ok(compiled)
    }

    fn is_null(&mut self, operand: &NullOperand) -> CompileResult {
        let column = |r: ColumnRef| Expr::column(r.slot, r.column, r.ty);
        let inner = match operand {
            NullOperand::Step(step) => self.scope.step(step).map(column).ok_or_else(|| {
                Diagnostic::error("F0103", step.span, format!("there is no step `{}`", step.stream.name.name))
            })?,
            NullOperand::Value(value) => {
                let step = match &value.kind {
                    ExprKind::Attribute(a) if a.source.is_none() => self.scope.bare_step(&a.name),
                    _ => None,
                };
                match step {
                    Some(step) => column(step),
                    None => self.compile(value)?,
                }
            }
        };
        Ok(Expr { node: Node::IsNull(Box::new(inner)), ty: FieldType::Bool })
    }

    fn binary(&mut self, span: Span, op: BinaryOp, left: &ast::Expr, right: &ast::Expr) -> CompileResult {
        let logic = |node| Ok(Expr { node, ty: FieldType::Bool });
        match op {
            BinaryOp::And => {
                let (a, b) = (self.condition(left, "`and`")?, self.condition(right, "`and`")?);
                return logic(Node::And(Box::new(a), Box::new(b)));
            }
            BinaryOp::Or => {
                let (a, b) = (self.condition(left, "`or`")?, self.condition(right, "`or`")?);
                return logic(Node::Or(Box::new(a), Box::new(b)));
            }
            _ => {}
        }
        let (a, b) = (self.compile(left)?, self.compile(right)?);
        if let Some(op) = comparison(op) {
            let texts = (a.ty, b.ty) == (FieldType::String, FieldType::String);
            return match comparable(op, a.ty, b.ty) {
                // an object other than a string equals no string, so a cast to string can be dropped
                true if texts => logic(Node::Compare(op, uncast(left, a).into(), uncast(right, b).into())),
                true => logic(Node::Compare(op, Box::new(a), Box::new(b))),
                false => Err(incomparable(span, (left, a.ty), (right, b.ty))),
            };
        }
        let Some(ty) = wider(a.ty, b.ty) else {
            let diagnostic = Diagnostic::error(
                "F0105",
                span,
                format!(
                    "`{}` needs numbers, found `{left}` of type {} and `{right}` of type {}",
                    op.text(),
                    a.ty.name(),
                    b.ty.name()
                ),
            );
            let texts = op == BinaryOp::Add && [a.ty, b.ty].contains(&FieldType::String);
            return Err(match texts {
                true => {
                    diagnostic.help(format!("to concatenate strings, write `str:concat({left}, {right})`"))
                }
                false => diagnostic,
            });
        };
        let op = match op {
            BinaryOp::Add => Arithmetic::Add,
            BinaryOp::Sub => Arithmetic::Sub,
            BinaryOp::Mul => Arithmetic::Mul,
            BinaryOp::Div => Arithmetic::Div,
            _ => Arithmetic::Rem,
        };
        Ok(Expr { node: Node::Arithmetic(op, Box::new(a), Box::new(b)), ty })
    }

    fn in_table(&mut self, condition: &ast::Expr, table: &ast::Ident) -> CompileResult {
        let registry = self.registry;
        let slot = self.scope.row_slot();
        let tables = self.scope.tables();
        let Some(number) = tables.iter().position(|t| t.name == table.name) else {
            let hint = did_you_mean(&table.name, tables.iter().map(|t| t.name.as_str()));
            let diagnostic =
                Diagnostic::error("F0101", table.span, format!("there is no table `{}`{hint}", table.name));
            return Err(match tables.is_empty() {
                true => diagnostic.note("`in` is not allowed here: no tables are accessible"),
                false => diagnostic,
            });
        };
        let of = tables[number].clone();
        let mut scope = InConditionScope { outer: &mut *self.scope, table: &of, slot };
        let mut inner = Compiler { scope: &mut scope, registry, aggregates: None };
        let span = condition.span;
        let condition = inner.compile(condition)?;
        if of.store.is_some() {
            PushedSearch::of(Some(&condition), slot).map_err(|what| of.not_pushed(&what, span))?;
        }
        Ok(Expr {
            node: Node::In { table: number, slot, condition: Box::new(condition) },
            ty: FieldType::Bool,
        })
    }

    fn call(&mut self, call: &ast::Call) -> CompileResult {
        let name = call_name(call);
        let registry = self.registry;
        let wrong = |what: String| Diagnostic::error("F0106", call.span, format!("{name}: {what}"));
        if let Some(build) = registry.find_aggregator(&name) {
            // aggregates cannot be nested
            let outer = self.aggregates.take();
            let args = self.args(call);
            self.aggregates = outer;
            let args = args?;
            let Some((calls, slot)) = &mut self.aggregates else {
                return Err(wrong("an aggregate is not allowed here".into()));
            };
            let (make, ty) = build(&describe(&args)).map_err(wrong)?;
            calls.push(AggregateCall { name, make, args, ty, span: call.span });
            return Ok(Expr::column(*slot, calls.len() - 1, ty));
        }
        let Some(build) = registry.find_function(&name) else {
            let hint = registry.suggestion(&name);
            return Err(Diagnostic::error(
                "F0107",
                call.name.span,
                format!("there is no function `{name}`{hint}"),
            ));
        };
        let mut args = match self.step_time(call) {
            Some(StepTime::At(time)) => return Ok(Expr::column(time.slot, time.column, time.ty)),
            Some(StepTime::Own) => vec![],
            None => self.args(call)?,
        };
        if let Args::List(list) = &call.args
            && name.starts_with("instanceOf")
        {
            args = list.iter().zip(args).map(|(written, arg)| uncast(written, arg)).collect();
        }
        let (function, ty) = build(&describe(&args)).map_err(wrong)?;
        if registry.is_replayable_only() && function.depends_on_order() {
            return Err(crate::compile::compiler::not_repeatable(
                call.span,
                &format!("`{name}` returns another value on each call"),
            ));
        }
        let function = if ty == FieldType::Bool { Arc::new(NullIsFalse(function)) } else { function };
        Ok(Expr { node: Node::Call(function, args), ty })
    }

    fn step_time(&mut self, call: &ast::Call) -> Option<StepTime> {
        let Args::List(list) = &call.args else { return None };
        match list.as_slice() {
            [ast::Expr { kind: ExprKind::Attribute(step), .. }]
                if step.source.is_none()
                    && call.namespace.is_none()
                    && call.name.name == "eventTimestamp" =>
            {
                self.scope.step_time(&step.name)
            }
            _ => None,
        }
    }

    /// Compiles the arguments of a call. `count(*)` has none.
    pub(crate) fn args(&mut self, call: &ast::Call) -> Result<Vec<Expr>, Diagnostic> {
        if matches!(call.args, Args::All(_)) && call_name(call) == "count" {
            return Ok(vec![]);
        }
        expanded_args(call, self.scope)?.iter().map(|a| self.compile(a)).collect()
    }
}

/// Wrapper of a function of type bool that turns null into false.
#[derive(Debug)]
struct NullIsFalse(Arc<dyn Function>);

impl Function for NullIsFalse {
    fn call(&self, args: &[Value], state: &FunctionContext<'_>) -> Result<Value, EvalError> {
        let value = self.0.call(args, state)?;
        Ok(if value.is_null() { Value::Bool(false) } else { value })
    }

    fn call_batch(&self, args: &[ColumnarValue<'_>], rows: usize) -> Option<Column> {
        let column = self.0.call_batch(args, rows)?;
        if column.nulls().is_empty() {
            return Some(column);
        }
        Some(Column::of(Data::Bool((0..rows).map(|row| column.get(row).is_true()).collect())))
    }

    fn depends_on_order(&self) -> bool {
        self.0.depends_on_order()
    }
}

/// Returns the arguments of a call, with `*` expanded to all attributes of `scope`. Errors: two of these have
/// one name.
pub(crate) fn expanded_args<'a>(
    call: &'a ast::Call,
    scope: &dyn Scope,
) -> Result<Cow<'a, [ast::Expr]>, Diagnostic> {
    let span = match &call.args {
        Args::List(list) => return Ok(Cow::Borrowed(list)),
        Args::All(star) => *star,
    };
    let names = scope.all_names();
    if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(*name)) {
        let message = format!("`*` stands for all attributes, but two of them are named `{}`", twice.1);
        return Err(Diagnostic::error("F0112", span, message).help("name the attributes instead of `*`"));
    }
    let written = |name| {
        let name = ast::Ident { name, span };
        ast::Expr { kind: ExprKind::Attribute(ast::AttributeRef { source: None, name, span }), span }
    };
    Ok(names.into_iter().map(written).collect())
}

/// Returns `name` or `namespace:name`.
pub(crate) fn call_name(call: &ast::Call) -> String {
    match &call.namespace {
        Some(namespace) => format!("{}:{}", namespace.name, call.name.name),
        None => call.name.name.clone(),
    }
}

pub(crate) fn describe(args: &[Expr]) -> Vec<ArgumentType> {
    args.iter().map(|a| ArgumentType { ty: a.ty, constant: a.as_const().cloned() }).collect()
}

/// Returns the operand of a cast from object, for callers that inspect the run-time type of a value, not its
/// declared type.
fn uncast(written: &ast::Expr, compiled: Expr) -> Expr {
    let is_cast = matches!(&written.kind, ExprKind::Call(call) if call_name(call) == "cast");
    match compiled.node {
        Node::Call(_, args) if is_cast && args[0].ty == FieldType::Object => args[0].clone(),
        node => Expr { node, ..compiled },
    }
}

fn constant(literal: &Literal) -> Expr {
    let (value, ty) = match literal {
        Literal::Bool(b) => (Value::Bool(*b), FieldType::Bool),
        Literal::Int(n) => (Value::Int(*n), FieldType::Int),
        Literal::Long(n) => (Value::Long(*n), FieldType::Long),
        Literal::Float(n) => (Value::Float(*n), FieldType::Float),
        Literal::Double(n) => (Value::Double(*n), FieldType::Double),
        Literal::Text(s) => (Value::text(s), FieldType::String),
    };
    Expr::constant(value, ty)
}

fn comparison(op: BinaryOp) -> Option<Comparison> {
    Some(match op {
        BinaryOp::Eq => Comparison::Eq,
        BinaryOp::Ne => Comparison::Ne,
        BinaryOp::Lt => Comparison::Lt,
        BinaryOp::Le => Comparison::Le,
        BinaryOp::Gt => Comparison::Gt,
        BinaryOp::Ge => Comparison::Ge,
        _ => return None,
    })
}

fn wider(a: FieldType, b: FieldType) -> Option<FieldType> {
    match (numeric_rank(a), numeric_rank(b)) {
        (Some(x), Some(y)) => Some(if x >= y { a } else { b }),
        // accepted, but null at run time; in Siddhi 5.1 the event fails
        (Some(_), None) if b == FieldType::String => Some(a),
        (None, Some(_)) if a == FieldType::String => Some(b),
        _ => None,
    }
}

/// Builds the error for two values that cannot be compared, with a suggestion.
fn incomparable(span: Span, a: (&ast::Expr, FieldType), b: (&ast::Expr, FieldType)) -> Diagnostic {
    let ((left, a), (right, b)) = (a, b);
    let message = format!("cannot compare `{left}` of type {} with `{right}` of type {}", a.name(), b.name());
    let diagnostic = Diagnostic::error("F0104", span, message);
    let number = |ty: FieldType| numeric_rank(ty).is_some();
    let help = match (a, b) {
        (FieldType::String | FieldType::Bool, _) if a == b => {
            return diagnostic
                .note("strings and bools can only be compared by `==` and `!=`; `<` and `>` need numbers");
        }
        (FieldType::Bool, _) => format!("use the bool as the condition: `{left}` or `not {left}`"),
        (_, FieldType::Bool) => format!("use the bool as the condition: `{right}` or `not {right}`"),
        (FieldType::String, _) if number(b) => format!("write `convert({left}, '{}')`", b.name()),
        (_, FieldType::String) if number(a) => format!("write `convert({right}, '{}')`", a.name()),
        _ => {
            return diagnostic
                .note("objects have no operators: read them by functions such as `json:getString(…)`");
        }
    };
    diagnostic.help(help)
}

fn comparable(op: Comparison, a: FieldType, b: FieldType) -> bool {
    let numbers = numeric_rank(a).is_some() && numeric_rank(b).is_some();
    let equality = matches!(op, Comparison::Eq | Comparison::Ne);
    numbers || equality && a == b && matches!(a, FieldType::String | FieldType::Bool)
}

/// Builds the error for an element that cannot process events again.
pub(crate) fn not_repeatable(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("F0510", span, what)
        .note("with `@late(policy='correct')` the app processes events again when late ones arrive")
        .help("move this to another file, which reads the output of this one")
}
