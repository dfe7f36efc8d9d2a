//! Aggregates as SQL for DataFusion.
//!
//! Streams are the tables `events."NAME"`, entities `docs."NAME"`; their fields are columns. Inside a query times and
//! spans are integers of microseconds, whole numbers `BIGINT`, others `DOUBLE`; a value of a document, whose type is
//! not known here, is cast where it meets something of a known type.

mod function;

use std::sync::Arc;

use tidemill_types::{Duration, FieldType, column};

use crate::aggregate::{AggregateInsert, Shape};
use crate::catalog::{Catalog, Entity};
use crate::expr::{AggFunc, Arith, Cmp, Const, Expr, Kind, Ty};
use crate::plan::{Check, Lookup, Slot, Source, Step};

/// The Arrow type of times in tables.
const TIMESTAMP: &str = "Timestamp(Microsecond, Some(\"UTC\"))";

/// What an aggregate begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Stream(usize),
    Entity(usize),
}

/// The part of a query that all inserts of an aggregate share.
pub(crate) struct Query<'q> {
    pub catalog: &'q Catalog,
    pub root: Root,
    /// The name of the event.
    pub event: &'q str,
    pub checks: &'q [Check],
    pub steps: &'q [Step],
    pub slots: &'q [Slot],
    pub groups: &'q [Expr],
    pub over: Option<Duration>,
}

/// The query and the form of the documents of one insert.
pub(crate) fn insert(query: &Query<'_>, entity: &Entity, fields: &[(Arc<str>, Expr)]) -> AggregateInsert {
    let mut columns = Vec::new();
    let shapes = fields.iter().map(|(name, x)| (name.clone(), shape(query, x, &mut columns))).collect();
    let selected: Vec<String> = columns.iter().enumerate().map(|(i, sql)| format!("{sql} AS c{i}")).collect();
    let mut sql = format!("SELECT {} FROM {}", selected.join(", "), from(query));
    let mut since = None;
    let mut conditions = conditions(query);
    if let (Some(over), Root::Stream(_)) = (query.over, query.root) {
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

fn shape(query: &Query<'_>, expr: &Expr, columns: &mut Vec<String>) -> Shape {
    match &expr.kind {
        Kind::Object(fields) => {
            Shape::Object(fields.iter().map(|(n, x)| (n.clone(), shape(query, x, columns))).collect())
        }
        Kind::Array(items) => Shape::Array(items.iter().map(|x| shape(query, x, columns)).collect()),
        _ => {
            columns.push(value(query, expr));
            Shape::Column(columns.len() - 1, expr.ty)
        }
    }
}

/// The tables, joined by the relations.
fn from(query: &Query<'_>) -> String {
    let mut sql = match query.root {
        Root::Stream(stream) => {
            format!("events.{} AS {}", quote(&query.catalog.streams[stream].name), event_alias(query))
        }
        Root::Entity(entity) => {
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

fn table(query: &Query<'_>, slot: usize) -> String {
    let entity = &query.catalog.entities[query.slots[slot].entity];
    format!("docs.{} AS {}", quote(&entity.name), alias(query, slot))
}

/// What makes a document the one that is looked for.
fn join_conditions(query: &Query<'_>, lookup: &Lookup) -> Vec<String> {
    let entity = &query.catalog.entities[query.slots[lookup.slot].entity];
    let field = |path: &str| doc_column(query, lookup.slot, path);
    let equal = |path: &str, x: &Expr| format!("{} = {}", typed_column(&field(path), x.ty), value(query, x));
    let mut on = match &lookup.source {
        Source::Key(x) => vec![equal(&entity.key, x)],
        Source::Field(path, x) => vec![equal(path, x)],
        Source::Fields(fields) => fields.iter().map(|(path, x)| equal(path, x)).collect(),
        Source::Scan => vec![],
    };
    // what an entity's condition is looked up by is among its filters, too
    for filter in &lookup.filters {
        let sql = value(query, &filter.expr);
        if !on.contains(&sql) {
            on.push(sql);
        }
    }
    on
}

/// Everything that must hold: conditions, documents that must not be there, groups that must not be missing.
fn conditions(query: &Query<'_>) -> Vec<String> {
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

/// A name in double quotes.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text in single quotes.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// The alias of a document's table.
///
/// It begins with `$`, so that it is no column's name: where the documents have no field `departed` yet,
/// `flight.departed` would be taken for a part of a column `flight` of some other table.
fn alias(query: &Query<'_>, slot: usize) -> String {
    match &query.slots[slot].name {
        Some(name) => quote(&format!("${name}")),
        // no name in the language has a space, unless in backticks
        None => quote(&format!("$no {slot}")),
    }
}

/// The alias of the events' table.
fn event_alias(query: &Query<'_>) -> String {
    quote(&format!("${}", query.event))
}

fn doc_column(query: &Query<'_>, slot: usize, path: &str) -> String {
    let mut parts = path.split('.');
    let mut sql = format!("{}.{}", alias(query, slot), quote(parts.next().unwrap_or_default()));
    for part in parts {
        sql.push_str(&format!("[{}]", text(part)));
    }
    sql
}

/// A column of unknown type, as it must be to meet a value of type `ty`.
fn typed_column(sql: &str, ty: Ty) -> String {
    match ty {
        Ty::Time => format!("CAST(arrow_cast({sql}, '{TIMESTAMP}') AS BIGINT)"),
        // documents keep spans as milliseconds
        Ty::Span => format!("CAST(CAST({sql} AS DOUBLE) * 1000 AS BIGINT)"),
        Ty::Float => format!("CAST({sql} AS DOUBLE)"),
        _ => sql.to_owned(),
    }
}

/// `expr` where its value is used as `ty`.
fn value_as(query: &Query<'_>, expr: &Expr, ty: Ty) -> String {
    let sql = value(query, expr);
    match (expr.ty, ty) {
        (Ty::Any, Ty::Str) => format!("CAST({sql} AS VARCHAR)"),
        (Ty::Any, ty) => typed_column(&sql, ty),
        (Ty::Int, Ty::Float) => format!("CAST({sql} AS DOUBLE)"),
        (Ty::Int | Ty::Float, Ty::Str) => format!("CAST({sql} AS VARCHAR)"),
        _ => sql,
    }
}

/// The SQL of an expression.
fn value(query: &Query<'_>, expr: &Expr) -> String {
    let of = |x: &Expr| value(query, x);
    match &expr.kind {
        Kind::Const(c) => constant(c),
        Kind::Event { column, .. } => event_column(query, *column),
        Kind::Doc { slot, path } => match path {
            Some(path) => doc_column(query, *slot, path.as_str()),
            None => alias(query, *slot),
        },
        Kind::Not(x) => format!("(NOT {})", of(x)),
        Kind::Neg(x) => format!("(- {})", of(x)),
        Kind::And(parts) => joined(query, parts, " AND "),
        Kind::Or(parts) => joined(query, parts, " OR "),
        Kind::Compare(op, a, b) => compare(query, *op, a, b),
        Kind::IsNull(x, negated) => format!("({} IS {}NULL)", of(x), if *negated { "NOT " } else { "" }),
        Kind::Exists(x) => format!("({} IS NOT NULL)", of(x)),
        Kind::Arith(op, a, b) => arith(query, *op, a, b, expr.ty),
        Kind::In(x, list) if list.is_empty() => format!("({} IS NULL AND NULL)", of(x)),
        Kind::In(x, list) => {
            let items: Vec<String> = list.iter().map(|i| value_as(query, i, x.ty)).collect();
            format!("({} IN ({}))", of(x), items.join(", "))
        }
        Kind::InArray(x, array) => format!("array_has({}, {})", of(array), of(x)),
        Kind::Call(func, args) => function::call(query, *func, args, expr.ty),
        Kind::Matches(x, pattern) => {
            format!("regexp_like({}, {})", value_as(query, x, Ty::Str), text(pattern.0.as_str()))
        }
        Kind::If(parts) => {
            let (c, a, b) =
                (of(&parts.0), value_as(query, &parts.1, expr.ty), value_as(query, &parts.2, expr.ty));
            format!("(CASE WHEN {c} THEN {a} WHEN NOT {c} THEN {b} END)")
        }
        Kind::Coalesce(args) => {
            let args: Vec<String> = args.iter().map(|x| value_as(query, x, expr.ty)).collect();
            format!("coalesce({})", args.join(", "))
        }
        Kind::Aggregate(func, args) => aggregate(query, *func, args, expr.ty),
        // objects and arrays are put together from their parts; elsewhere they have no form in SQL
        Kind::Object(_) => "NULL".to_owned(),
        Kind::Array(items) => format!("[{}]", items.iter().map(of).collect::<Vec<_>>().join(", ")),
    }
}

fn joined(query: &Query<'_>, parts: &[Expr], operator: &str) -> String {
    let parts: Vec<String> = parts.iter().map(|p| value(query, p)).collect();
    format!("({})", parts.join(operator))
}

fn constant(c: &Const) -> String {
    match c {
        Const::Null => "NULL".to_owned(),
        Const::Bool(b) => b.to_string().to_uppercase(),
        // the least integer has no literal: its digits without the sign are too large
        Const::Int(n) | Const::Time(n) | Const::Span(n) if *n == i64::MIN => format!("CAST('{n}' AS BIGINT)"),
        Const::Int(n) | Const::Time(n) | Const::Span(n) => n.to_string(),
        Const::Float(x) => format!("{x:?}"),
        Const::Str(s) => text(s),
    }
}

/// A field of the event, as 64-bit integer or double where it is a number or a time.
fn event_column(query: &Query<'_>, position: usize) -> String {
    let Root::Stream(stream) = query.root else { return "NULL".to_owned() };
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

/// Plain columns of times compare with constants as they are, so that files can be skipped by their statistics.
fn compare(query: &Query<'_>, op: Cmp, a: &Expr, b: &Expr) -> String {
    let sign = if op == Cmp::Eq { "=" } else { op.text() };
    let plain = |x: &Expr| matches!(&x.kind, Kind::Event { .. } | Kind::Const(_)) && x.ty == Ty::Time;
    if plain(a) && plain(b) {
        return format!("({} {sign} {})", instant(query, a), instant(query, b));
    }
    // a value of unknown type is cast to what it is compared with; numbers of known types find together
    let side = |x: &Expr, other: &Expr| match (x.ty, other.ty) {
        (Ty::Any, Ty::Int) => value_as(query, x, Ty::Float),
        (Ty::Any, ty) => value_as(query, x, ty),
        _ => value(query, x),
    };
    format!("({} {sign} {})", side(a, b), side(b, a))
}

fn instant(query: &Query<'_>, x: &Expr) -> String {
    match (&x.kind, query.root) {
        (Kind::Const(Const::Time(t)), _) => format!("arrow_cast({t}, '{TIMESTAMP}')"),
        (Kind::Event { column: position, .. }, Root::Stream(stream)) => {
            let field = query.catalog.streams[stream].fields.get(*position);
            format!("{}.{}", event_alias(query), quote(field.map_or(column::TIME, |f| f.name.as_str())))
        }
        _ => value(query, x),
    }
}

fn arith(query: &Query<'_>, op: Arith, a: &Expr, b: &Expr, ty: Ty) -> String {
    if ty == Ty::Str {
        return format!("({} || {})", value_as(query, a, Ty::Str), value_as(query, b, Ty::Str));
    }
    // next to a time an unknown value is a time or a span as the result says; next to a span it is milliseconds
    let operand = |x: &Expr, other: &Expr| -> String {
        let as_ty = match (x.ty, other.ty) {
            (Ty::Any, Ty::Time) if op == Arith::Sub => Ty::Time,
            (Ty::Any, Ty::Time | Ty::Span) if op != Arith::Mul => Ty::Span,
            (Ty::Any, _) => Ty::Float,
            (own, _) if ty == Ty::Float && own.is_number() => Ty::Float,
            (own, _) => own,
        };
        value_as(query, x, as_ty)
    };
    let (left, right) = (operand(a, b), operand(b, a));
    // a value of unknown type is as a document keeps it, and that keeps spans as milliseconds
    if ty == Ty::Any && [a.ty, b.ty].iter().any(|t| matches!(t, Ty::Time | Ty::Span)) {
        let sign = if op == Arith::Add { "+" } else { "-" };
        return match op {
            Arith::Add | Arith::Sub => format!("(CAST({left} {sign} {right} AS DOUBLE) / 1000)"),
            _ => format!("(CAST({left} AS DOUBLE) / {})", divisor(b, &format!("CAST({right} AS DOUBLE)"))),
        };
    }
    match op {
        Arith::Add => format!("({left} + {right})"),
        Arith::Sub => format!("({left} - {right})"),
        Arith::Mul if ty == Ty::Span => format!("CAST(round({left} * {right}) AS BIGINT)"),
        Arith::Mul => format!("({left} * {right})"),
        Arith::Div => {
            let quotient =
                format!("CAST({left} AS DOUBLE) / {}", divisor(b, &format!("CAST({right} AS DOUBLE)")));
            if ty == Ty::Span {
                format!("CAST(round({quotient}) AS BIGINT)")
            } else {
                format!("({quotient})")
            }
        }
        Arith::Rem => format!("({left} % {})", divisor(b, &right)),
    }
}

/// What is divided by: nothing comes of a division by zero.
fn divisor(expr: &Expr, sql: &str) -> String {
    match expr.as_const() {
        Some(Const::Int(n) | Const::Span(n)) if *n != 0 => sql.to_owned(),
        Some(Const::Float(x)) if *x != 0.0 => sql.to_owned(),
        _ => format!("NULLIF({sql}, 0)"),
    }
}

fn aggregate(query: &Query<'_>, func: AggFunc, args: &[Expr], ty: Ty) -> String {
    let Some(x) = args.first() else { return "count(*)".to_owned() };
    let own = value(query, x);
    let number = value_as(query, x, Ty::Float);
    let number =
        if matches!(x.ty, Ty::Time | Ty::Span) { format!("CAST({number} AS DOUBLE)") } else { number };
    let measured = |sql: String| {
        if matches!(ty, Ty::Time | Ty::Span) { format!("CAST(round({sql}) AS BIGINT)") } else { sql }
    };
    match func {
        AggFunc::Count => format!("count({own})"),
        AggFunc::CountDistinct => format!("count(DISTINCT {own})"),
        AggFunc::Sum => format!("sum({})", if x.ty == Ty::Any { number } else { own }),
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
