//! Translates aggregate rules to SQL for DataFusion.
//!
//! Streams are the tables `events."NAME"`, entities the tables `docs."NAME"`; their fields are columns.
//! Inside a query, times and spans are integers of microseconds, other integers `BIGINT`, floats `DOUBLE`.
//! Document fields have no static type; they are cast to the type of the value they are combined with.

mod function;

use std::sync::Arc;

use tidemill_types::{Duration, FieldType, column};

use crate::aggregate::{AggregateInsert, FieldLayout};
use crate::catalog::{Entity, RuleCatalog};
use crate::expr::{AggFunc, ArithmeticOp, CompareOp, Const, Expr, ExprNode, ExprType};
use crate::plan::{Check, DocumentLookup, DocumentSlot, DocumentSource, Step};

/// Arrow type of times in tables.
const TIMESTAMP: &str = "Timestamp(Microsecond, Some(\"UTC\"))";

/// Stream or entity of the first condition of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateSource {
    Stream(usize),
    Entity(usize),
}

/// The part of a query that all inserts of an aggregate share.
pub(crate) struct SqlQuery<'q> {
    pub catalog: &'q RuleCatalog,
    pub root: AggregateSource,
    /// Name that the rule binds the event to.
    pub event: &'q str,
    pub checks: &'q [Check],
    pub steps: &'q [Step],
    pub slots: &'q [DocumentSlot],
    pub groups: &'q [Expr],
    pub over: Option<Duration>,
}

/// Builds the query and the document layout of one insert.
pub(crate) fn insert(query: &SqlQuery<'_>, entity: &Entity, fields: &[(Arc<str>, Expr)]) -> AggregateInsert {
    let mut columns = Vec::new();
    let shapes =
        fields.iter().map(|(name, x)| (name.clone(), field_layout(query, x, &mut columns))).collect();
    let selected: Vec<String> = columns.iter().enumerate().map(|(i, sql)| format!("{sql} AS c{i}")).collect();
    let mut sql = format!("SELECT {} FROM {}", selected.join(", "), from(query));
    let mut since = None;
    let mut conditions = conditions(query);
    if let (Some(over), AggregateSource::Stream(_)) = (query.over, query.root) {
        sql.push_str(" WHERE ");
        sql.push_str(&format!("{}.{} > arrow_cast(", event_alias(query), quote(column::TIME)));
        since = Some((sql.len(), over));
        sql.push_str(&format!(", '{TIMESTAMP}')"));
        conditions.iter().for_each(|c| sql.push_str(&format!(" AND {c}")));
        conditions.clear();
    }
    if !conditions.is_empty() {
        sql.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
    }
    if !query.groups.is_empty() {
        let groups: Vec<String> = query.groups.iter().map(|g| value(query, g)).collect();
        sql.push_str(&format!(" GROUP BY {}", groups.join(", ")));
    }
    AggregateInsert { entity: entity.name.clone(), key: entity.key.clone(), sql, since, fields: shapes }
}

fn field_layout(query: &SqlQuery<'_>, expr: &Expr, columns: &mut Vec<String>) -> FieldLayout {
    match &expr.kind {
        ExprNode::Object(fields) => FieldLayout::Object(
            fields.iter().map(|(n, x)| (n.clone(), field_layout(query, x, columns))).collect(),
        ),
        ExprNode::Array(items) => {
            FieldLayout::Array(items.iter().map(|x| field_layout(query, x, columns)).collect())
        }
        _ => {
            columns.push(value(query, expr));
            FieldLayout::Column(columns.len() - 1, expr.ty)
        }
    }
}

/// Builds the `FROM` clause: the tables, joined by the lookups.
fn from(query: &SqlQuery<'_>) -> String {
    let mut sql = match query.root {
        AggregateSource::Stream(stream) => {
            format!("events.{} AS {}", quote(&query.catalog.streams[stream].name), event_alias(query))
        }
        AggregateSource::Entity(entity) => {
            format!("docs.{} AS {}", quote(&query.catalog.entities[entity].name), alias(query, 0))
        }
    };
    for step in query.steps {
        if let Step::Lookup(lookup) = step
            && !lookup.negated
        {
            let on = join_conditions(query, lookup);
            let on = if on.is_empty() { "TRUE".to_owned() } else { on.join(" AND ") };
            sql.push_str(&format!(" JOIN {} ON {on}", table(query, lookup.slot)));
        }
    }
    sql
}

fn table(query: &SqlQuery<'_>, slot: usize) -> String {
    let entity = &query.catalog.entities[query.slots[slot].entity];
    format!("docs.{} AS {}", quote(&entity.name), alias(query, slot))
}

/// Returns the conditions that a looked-up document must satisfy.
fn join_conditions(query: &SqlQuery<'_>, lookup: &DocumentLookup) -> Vec<String> {
    let entity = &query.catalog.entities[query.slots[lookup.slot].entity];
    let field = |path: &str| doc_column(query, lookup.slot, path);
    let equal = |path: &str, x: &Expr| format!("{} = {}", typed_column(&field(path), x.ty), value(query, x));
    let mut on = match &lookup.source {
        DocumentSource::Key(x) => vec![equal(&entity.key, x)],
        DocumentSource::Field(path, x) => vec![equal(path, x)],
        DocumentSource::Fields(fields) => fields.iter().map(|(path, x)| equal(path, x)).collect(),
        DocumentSource::Scan => vec![],
    };
    // an equality that became the source of a lookup is among the filters as well
    for filter in &lookup.filters {
        let sql = value(query, &filter.expr);
        if !on.contains(&sql) {
            on.push(sql);
        }
    }
    on
}

/// Returns all conditions of `WHERE`: checks, documents that must not exist, groups that must not be null.
fn conditions(query: &SqlQuery<'_>) -> Vec<String> {
    let mut all: Vec<String> = query.checks.iter().map(|c| value(query, &c.expr)).collect();
    for step in query.steps {
        match step {
            Step::Filter(check) => all.push(value(query, &check.expr)),
            Step::Lookup(lookup) if lookup.negated => {
                let on = join_conditions(query, lookup);
                let on = if on.is_empty() { String::new() } else { format!(" WHERE {}", on.join(" AND ")) };
                all.push(format!("NOT EXISTS (SELECT 1 FROM {}{on})", table(query, lookup.slot)));
            }
            Step::Lookup(_) => {}
        }
    }
    all.extend(query.groups.iter().map(|g| format!("{} IS NOT NULL", value(query, g))));
    all
}

/// Quotes an identifier.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a string literal.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Returns the alias of a document's table.
///
/// It begins with `$`, so that it equals no column name: as long as no document has a field `departed`,
/// `flight.departed` would be read as a field of a column `flight` of another table.
fn alias(query: &SqlQuery<'_>, slot: usize) -> String {
    match &query.slots[slot].name {
        Some(name) => quote(&format!("${name}")),
        // no name in the language has a space, unless it is in backticks
        None => quote(&format!("$no {slot}")),
    }
}

/// Returns the alias of the events' table.
fn event_alias(query: &SqlQuery<'_>) -> String {
    quote(&format!("${}", query.event))
}

fn doc_column(query: &SqlQuery<'_>, slot: usize, path: &str) -> String {
    let mut parts = path.split('.');
    let mut sql = format!("{}.{}", alias(query, slot), quote(parts.next().unwrap_or_default()));
    for part in parts {
        sql.push_str(&format!("[{}]", text(part)));
    }
    sql
}

/// Casts a column of unknown type so that it can be combined with a value of type `ty`.
fn typed_column(sql: &str, ty: ExprType) -> String {
    match ty {
        ExprType::Time => format!("CAST(arrow_cast({sql}, '{TIMESTAMP}') AS BIGINT)"),
        // documents store spans as milliseconds
        ExprType::Span => format!("CAST(CAST({sql} AS DOUBLE) * 1000 AS BIGINT)"),
        ExprType::Float => format!("CAST({sql} AS DOUBLE)"),
        _ => sql.to_owned(),
    }
}

/// Translates `expr` for use as a value of type `ty`.
fn value_as(query: &SqlQuery<'_>, expr: &Expr, ty: ExprType) -> String {
    let sql = value(query, expr);
    match (expr.ty, ty) {
        (ExprType::Any, ExprType::Str) => format!("CAST({sql} AS VARCHAR)"),
        (ExprType::Any, ty) => typed_column(&sql, ty),
        (ExprType::Int, ExprType::Float) => format!("CAST({sql} AS DOUBLE)"),
        (ExprType::Int | ExprType::Float, ExprType::Str) => format!("CAST({sql} AS VARCHAR)"),
        _ => sql,
    }
}

/// Translates an expression.
fn value(query: &SqlQuery<'_>, expr: &Expr) -> String {
    let of = |x: &Expr| value(query, x);
    match &expr.kind {
        ExprNode::Const(c) => constant(c),
        ExprNode::Event { column, .. } => event_column(query, *column),
        ExprNode::Doc { slot, path } => match path {
            Some(path) => doc_column(query, *slot, path.as_str()),
            None => alias(query, *slot),
        },
        ExprNode::Not(x) => format!("(NOT {})", of(x)),
        ExprNode::Neg(x) => format!("(- {})", of(x)),
        ExprNode::And(parts) => joined(query, parts, " AND "),
        ExprNode::Or(parts) => joined(query, parts, " OR "),
        ExprNode::Compare(op, a, b) => compare(query, *op, a, b),
        ExprNode::IsNull(x, negated) => format!("({} IS {}NULL)", of(x), if *negated { "NOT " } else { "" }),
        ExprNode::Exists(x) => format!("({} IS NOT NULL)", of(x)),
        ExprNode::Arith(op, a, b) => arith(query, *op, a, b, expr.ty),
        ExprNode::In(x, list) if list.is_empty() => format!("({} IS NULL AND NULL)", of(x)),
        ExprNode::In(x, list) => {
            let items: Vec<String> = list.iter().map(|i| value_as(query, i, x.ty)).collect();
            format!("({} IN ({}))", of(x), items.join(", "))
        }
        ExprNode::InArray(x, array) => format!("array_has({}, {})", of(array), of(x)),
        ExprNode::Call(func, args) => function::call(query, *func, args, expr.ty),
        ExprNode::Matches(x, pattern) => {
            format!("regexp_like({}, {})", value_as(query, x, ExprType::Str), text(pattern.0.as_str()))
        }
        ExprNode::If(parts) => {
            let (c, a, b) =
                (of(&parts.0), value_as(query, &parts.1, expr.ty), value_as(query, &parts.2, expr.ty));
            format!("(CASE WHEN {c} THEN {a} WHEN NOT {c} THEN {b} END)")
        }
        ExprNode::Coalesce(args) => {
            let args: Vec<String> = args.iter().map(|x| value_as(query, x, expr.ty)).collect();
            format!("coalesce({})", args.join(", "))
        }
        ExprNode::Aggregate(func, args) => aggregate(query, *func, args, expr.ty),
        // documents to insert are assembled by `field_layout`; an object elsewhere has no SQL form
        ExprNode::Object(_) => "NULL".to_owned(),
        ExprNode::Array(items) => format!("[{}]", items.iter().map(of).collect::<Vec<_>>().join(", ")),
    }
}

fn joined(query: &SqlQuery<'_>, parts: &[Expr], operator: &str) -> String {
    let parts: Vec<String> = parts.iter().map(|p| value(query, p)).collect();
    format!("({})", parts.join(operator))
}

fn constant(c: &Const) -> String {
    match c {
        Const::Null => "NULL".to_owned(),
        Const::Bool(b) => b.to_string().to_uppercase(),
        // i64::MIN has no literal: its digits without the sign are too large
        Const::Int(n) | Const::Time(n) | Const::Span(n) if *n == i64::MIN => format!("CAST('{n}' AS BIGINT)"),
        Const::Int(n) | Const::Time(n) | Const::Span(n) => n.to_string(),
        Const::Float(x) => format!("{x:?}"),
        Const::Str(s) => text(s),
    }
}

/// Returns a field of the event; small integers and times are cast to `BIGINT`, `float` to `DOUBLE`.
fn event_column(query: &SqlQuery<'_>, position: usize) -> String {
    let AggregateSource::Stream(stream) = query.root else { return "NULL".to_owned() };
    let schema = &query.catalog.streams[stream];
    let (name, ty) = match schema.fields.get(position) {
        Some(field) => (field.name.as_str(), field.ty),
        None => (column::TIME, FieldType::Time),
    };
    let plain = format!("{}.{}", event_alias(query), quote(name));
    match ty {
        FieldType::Int | FieldType::Time => format!("CAST({plain} AS BIGINT)"),
        FieldType::Float => format!("CAST({plain} AS DOUBLE)"),
        _ => plain,
    }
}

/// Compares plain time columns with constants without a cast, so that files can be pruned by their
/// statistics.
fn compare(query: &SqlQuery<'_>, op: CompareOp, a: &Expr, b: &Expr) -> String {
    let sign = if op == CompareOp::Eq { "=" } else { op.text() };
    let plain =
        |x: &Expr| matches!(&x.kind, ExprNode::Event { .. } | ExprNode::Const(_)) && x.ty == ExprType::Time;
    if plain(a) && plain(b) {
        return format!("({} {sign} {})", instant(query, a), instant(query, b));
    }
    // a value of unknown type is cast to the other side's type; SQL itself coerces numbers of known types
    let side = |x: &Expr, other: &Expr| match (x.ty, other.ty) {
        (ExprType::Any, ExprType::Int) => value_as(query, x, ExprType::Float),
        (ExprType::Any, ty) => value_as(query, x, ty),
        _ => value(query, x),
    };
    format!("({} {sign} {})", side(a, b), side(b, a))
}

fn instant(query: &SqlQuery<'_>, x: &Expr) -> String {
    match (&x.kind, query.root) {
        (ExprNode::Const(Const::Time(t)), _) => format!("arrow_cast({t}, '{TIMESTAMP}')"),
        (ExprNode::Event { column: position, .. }, AggregateSource::Stream(stream)) => {
            let field = query.catalog.streams[stream].fields.get(*position);
            format!("{}.{}", event_alias(query), quote(field.map_or(column::TIME, |f| f.name.as_str())))
        }
        _ => value(query, x),
    }
}

fn arith(query: &SqlQuery<'_>, op: ArithmeticOp, a: &Expr, b: &Expr, ty: ExprType) -> String {
    if ty == ExprType::Str {
        return format!("({} || {})", value_as(query, a, ExprType::Str), value_as(query, b, ExprType::Str));
    }
    // beside a time, a value of unknown type is a time in a subtraction, else a span; beside a span it
    // is a number of milliseconds
    let operand = |x: &Expr, other: &Expr| -> String {
        let as_ty = match (x.ty, other.ty) {
            (ExprType::Any, ExprType::Time) if op == ArithmeticOp::Sub => ExprType::Time,
            (ExprType::Any, ExprType::Time | ExprType::Span) if op != ArithmeticOp::Mul => ExprType::Span,
            (ExprType::Any, _) => ExprType::Float,
            (own, _) if ty == ExprType::Float && own.is_number() => ExprType::Float,
            (own, _) => own,
        };
        value_as(query, x, as_ty)
    };
    let (left, right) = (operand(a, b), operand(b, a));
    // a result of unknown type has the form that documents store, where spans are milliseconds
    if ty == ExprType::Any && [a.ty, b.ty].iter().any(|t| matches!(t, ExprType::Time | ExprType::Span)) {
        let sign = if op == ArithmeticOp::Add { "+" } else { "-" };
        return match op {
            ArithmeticOp::Add | ArithmeticOp::Sub => {
                format!("(CAST({left} {sign} {right} AS DOUBLE) / 1000)")
            }
            _ => format!("(CAST({left} AS DOUBLE) / {})", divisor(b, &format!("CAST({right} AS DOUBLE)"))),
        };
    }
    match op {
        ArithmeticOp::Add => format!("({left} + {right})"),
        ArithmeticOp::Sub => format!("({left} - {right})"),
        ArithmeticOp::Mul if ty == ExprType::Span => format!("CAST(round({left} * {right}) AS BIGINT)"),
        ArithmeticOp::Mul => format!("({left} * {right})"),
        ArithmeticOp::Div => {
            let quotient =
                format!("CAST({left} AS DOUBLE) / {}", divisor(b, &format!("CAST({right} AS DOUBLE)")));
            if ty == ExprType::Span {
                format!("CAST(round({quotient}) AS BIGINT)")
            } else {
                format!("({quotient})")
            }
        }
        ArithmeticOp::Rem => format!("({left} % {})", divisor(b, &right)),
    }
}

/// Makes a division by zero yield null.
fn divisor(expr: &Expr, sql: &str) -> String {
    match expr.as_const() {
        Some(Const::Int(n) | Const::Span(n)) if *n != 0 => sql.to_owned(),
        Some(Const::Float(x)) if *x != 0.0 => sql.to_owned(),
        _ => format!("NULLIF({sql}, 0)"),
    }
}

fn aggregate(query: &SqlQuery<'_>, func: AggFunc, args: &[Expr], ty: ExprType) -> String {
    let Some(x) = args.first() else { return "count(*)".to_owned() };
    let own = value(query, x);
    let number = value_as(query, x, ExprType::Float);
    let number = if matches!(x.ty, ExprType::Time | ExprType::Span) {
        format!("CAST({number} AS DOUBLE)")
    } else {
        number
    };
    let measured = |sql: String| {
        if matches!(ty, ExprType::Time | ExprType::Span) {
            format!("CAST(round({sql}) AS BIGINT)")
        } else {
            sql
        }
    };
    match func {
        AggFunc::Count => format!("count({own})"),
        AggFunc::CountDistinct => format!("count(DISTINCT {own})"),
        AggFunc::Sum => format!("sum({})", if x.ty == ExprType::Any { number } else { own }),
        AggFunc::Min => format!("min({own})"),
        AggFunc::Max => format!("max({own})"),
        AggFunc::Avg => measured(format!("avg({number})")),
        AggFunc::Stddev => measured(format!("stddev({number})")),
        AggFunc::Median => measured(format!("median({number})")),
        AggFunc::Percentile => {
            let p = match args.get(1).and_then(Expr::as_const) {
                Some(Const::Float(p)) => *p,
                Some(Const::Int(n)) => *n as f64,
                // checked when the rule was resolved
                _ => 0.5,
            };
            measured(format!("percentile_cont({p:?}) WITHIN GROUP (ORDER BY {number})"))
        }
    }
}
