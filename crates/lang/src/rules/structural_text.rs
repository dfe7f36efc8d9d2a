//! Text form of the tree without source ranges: two files are equivalent if their structural texts are equal.

use std::fmt::Write as _;

use super::ast::{
    Action, Condition, EmitArgs, EntityDecl, EventDecl, Expr, ExprKind, InsertAction, Item, Literal, Module,
    ObjectField, RelationDecl, UnaryOp,
};
use crate::lexer::text::quote;

/// Returns the structural text of `module`: nested brackets, with a line for each declaration, condition and
/// action.
pub fn structural_text(module: &Module) -> String {
    let mut out = String::new();
    for item in &module.items {
        match item {
            Item::Event(event) => self::event(&mut out, event),
            Item::Entity(entity) => self::entity(&mut out, entity),
            Item::Relation(relation) => line(&mut out, 0, &self::relation(relation)),
            Item::Rule(rule) => {
                line(&mut out, 0, &format!("rule {} priority {}", rule.name.name, rule.priority));
                conditions(&mut out, &rule.conditions);
                for action in &rule.actions {
                    line(&mut out, 1, &self::action(action));
                }
            }
            Item::Aggregate(rule) => {
                line(&mut out, 0, &format!("aggregate {}", rule.name.name));
                for (name, span) in [("every", &rule.every), ("over", &rule.over)] {
                    if let Some(span) = span {
                        line(&mut out, 1, &format!("{name} {}us", span.micros));
                    }
                }
                conditions(&mut out, &rule.conditions);
                for group in &rule.group_by {
                    let name = group.name.as_ref().map_or(String::new(), |n| format!("{}: ", n.name));
                    line(&mut out, 1, &format!("group {name}{}", expr(&group.expr)));
                }
                for insert in &rule.inserts {
                    line(&mut out, 1, &self::insert(insert));
                }
            }
        }
    }
    out
}

fn line(out: &mut String, level: usize, text: &str) {
    let _ = writeln!(out, "{}{text}", "  ".repeat(level));
}

fn event(out: &mut String, event: &EventDecl) {
    let mut head = format!("event {}", event.name.name);
    if let Some(key) = &event.key {
        let _ = write!(head, " key {}", key.name);
    }
    if !event.id.is_empty() {
        let fields: Vec<&str> = event.id.iter().map(|f| f.name.as_str()).collect();
        let _ = write!(head, " id {}", fields.join(","));
    }
    if let Some(time) = &event.time {
        let _ = write!(head, " time {}", time.name);
    }
    line(out, 0, &head);
    for field in &event.fields {
        line(out, 1, &format!("{}: {}", field.name.name, field.ty));
    }
    for relation in &event.relations {
        line(out, 1, &self::relation(relation));
    }
}

fn entity(out: &mut String, entity: &EntityDecl) {
    let mut head = format!("entity {} key {}", entity.name.name, entity.key.name);
    if let Some(shard) = &entity.shard {
        let _ = write!(head, " shard {}", shard.name);
    }
    if entity.replicated.is_some() {
        head.push_str(" replicated");
    }
    line(out, 0, &head);
    for index in &entity.indexes {
        let fields: Vec<String> = index.fields.iter().map(|f| f.dotted()).collect();
        line(out, 1, &format!("{}index {}", if index.unique { "unique " } else { "" }, fields.join(",")));
    }
}

fn relation(relation: &RelationDecl) -> String {
    let owner = relation.owner.as_ref().map_or(String::new(), |o| format!("{}.", o.name));
    let on = relation.on.as_ref().map_or(String::new(), |o| format!(" on {}", o.name));
    format!("relation {owner}{}: {} by {}{on}", relation.name.name, relation.target.name, relation.by.name)
}

fn conditions(out: &mut String, conditions: &[Condition]) {
    for condition in conditions {
        line(out, 1, &self::condition(condition));
    }
}

fn condition(condition: &Condition) -> String {
    let not = |negated| if negated { "not " } else { "" };
    let binding = condition.binding().map_or(String::new(), |b| format!("{}: ", b.name));
    match condition {
        Condition::Event(c) => format!("event {binding}{}{}", c.stream.name, list(&c.filters)),
        Condition::Entity(c) => {
            format!("entity {}{binding}{}{}", not(c.negated), c.entity.name, list(&c.filters))
        }
        Condition::Relation(c) => {
            let filters = c.filters.as_deref().map_or(String::new(), list);
            format!("relation {}{binding}{}.{}{filters}", not(c.negated), c.base.name, c.relation.name)
        }
        Condition::Let(c) => format!("let {} = {}", c.name.name, expr(&c.expr)),
        Condition::Expr(e) => format!("holds {}", expr(e)),
    }
}

fn action(action: &Action) -> String {
    match action {
        Action::Update(update) => {
            let mut out = format!("update {}", update.target.name);
            for assign in &update.assignments {
                let _ =
                    write!(out, " ({} {} {})", assign.op.text(), assign.path.dotted(), expr(&assign.value));
            }
            out
        }
        Action::Unset(unset) => format!("unset {} {}", unset.target.name, unset.path.dotted()),
        Action::Insert(insert) => self::insert(insert),
        Action::Delete(delete) => format!("delete {}", delete.target.name),
        Action::Emit(emit) => match &emit.args {
            EmitArgs::Positional(args) => format!("emit {}{}", emit.stream.name, list(args)),
            EmitArgs::Named(fields) => format!("emit {} {}", emit.stream.name, object(fields)),
        },
    }
}

fn insert(insert: &InsertAction) -> String {
    format!(
        "{} {} {}",
        if insert.upsert { "upsert" } else { "insert" },
        insert.entity.name,
        object(&insert.fields)
    )
}

fn list(exprs: &[Expr]) -> String {
    let exprs: Vec<String> = exprs.iter().map(expr).collect();
    format!("[{}]", exprs.join(" "))
}

fn object(fields: &[ObjectField]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|f| format!("{}: {}", quote(&f.name.name), expr(&f.value))).collect();
    format!("{{{}}}", fields.join(" "))
}

fn expr(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Literal(Literal::Null) => "null".to_owned(),
        ExprKind::Literal(Literal::Bool(b)) => b.to_string(),
        ExprKind::Literal(Literal::Int(n)) => n.to_string(),
        ExprKind::Literal(Literal::Float(x)) => format!("{x:?}"),
        ExprKind::Literal(Literal::Str(s)) => quote(s),
        ExprKind::Span(span) => format!("{}us", span.micros),
        ExprKind::Now => "now".to_owned(),
        ExprKind::Name(name) => format!("`{}`", name.name),
        ExprKind::Field { base, field } => format!("(. {} {})", expr(base), field.name),
        ExprKind::MethodCall { base, method } => format!("(.() {} {})", expr(base), method.name),
        ExprKind::Call { function, args } => format!("({}{})", function.name, list(args)),
        ExprKind::Unary { op: UnaryOp::Not, operand } => format!("(not {})", expr(operand)),
        ExprKind::Unary { op: UnaryOp::Neg, operand } => format!("(neg {})", expr(operand)),
        ExprKind::Binary { op, left, right } => format!("({} {} {})", op.text(), expr(left), expr(right)),
        ExprKind::In { value, list } => format!("(in {} {})", expr(value), expr(list)),
        ExprKind::Object(fields) => object(fields),
        ExprKind::Array(elements) => list(elements),
    }
}
