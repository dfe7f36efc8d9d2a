//! Renders explanations as text.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::explain::{BoundDocument, Explanation, Outcome};
use crate::exec::id_of;
use crate::expr::eval::{eval, truth};
use crate::expr::{Bindings, Expr, ExprNode, RuleValue};
use crate::plan::{DocumentLookup, DocumentSource, RulePlan};
use crate::program::Program;

/// Limit on the characters of a rendered value.
const VALUE_CHARS_MAX: usize = 200;

/// A part of a condition and its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RenderedTerm {
    /// Source text, with the owner's name before fields that are written without it.
    pub text: String,
    /// Formatted value; `missing` for a missing value.
    pub value: String,
}

/// Joins source text into one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn display(value: &RuleValue<'_>) -> String {
    let text = value.to_string();
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    format!("{}…", text.chars().take(VALUE_CHARS_MAX).collect::<String>())
}

/// Returns the source text of an expression. Fields of documents written without their owner, and fields that
/// a relation uses implicitly, get the owner's name.
fn name(program: &Program, rule: &RulePlan, expr: &Expr) -> String {
    let written = one_line(program.text(expr.span));
    match &expr.kind {
        ExprNode::Event { column, .. }
            if !ends_with_field(&written, &column_name(program, rule, *column)) =>
        {
            if written == "now" {
                written
            } else {
                format!("{}.{}", rule.event, column_name(program, rule, *column))
            }
        }
        ExprNode::Doc { slot, path: Some(path) }
            if written == path.as_str() || !ends_with_field(&written, path.as_str()) =>
        {
            match rule.slots[*slot].name.as_deref() {
                Some(name) => format!("{name}.{path}"),
                None => path.to_string(),
            }
        }
        _ => written,
    }
}

/// Returns whether `written` is a use of the field: `x`, `toe.x`, `toe.x()`.
fn ends_with_field(written: &str, field: &str) -> bool {
    let last = field.rsplit('.').next().unwrap_or(field);
    let written = written.trim_end_matches([' ', '(', ')']);
    !written.contains(char::is_whitespace)
        && written.trim_matches('`').ends_with(last)
        && !written.contains('(')
}

fn column_name(program: &Program, rule: &RulePlan, column: usize) -> String {
    let fields = &program.catalog().streams[rule.stream].fields;
    fields.get(column).map_or_else(|| "_time".to_owned(), |f| f.name.clone())
}

/// Renders an expression with its value.
pub(super) fn rendered_term(
    program: &Program,
    rule: &RulePlan,
    expr: &Expr,
    frame: &Bindings<'_>,
) -> RenderedTerm {
    RenderedTerm { text: name(program, rule, expr), value: display(&eval(expr, frame)) }
}

/// Renders the values that a condition depends on: the sides of a comparison, then the fields in it.
pub(super) fn condition_terms(
    program: &Program,
    rule: &RulePlan,
    expr: &Expr,
    frame: &Bindings<'_>,
) -> Vec<RenderedTerm> {
    let mut all: Vec<RenderedTerm> = Vec::new();
    let mut add = |x: &Expr| {
        let shown = rendered_term(program, rule, x, frame);
        if !all.iter().any(|s| s.text == shown.text) {
            all.push(shown);
        }
    };
    if let ExprNode::Compare(_, a, b) = &expr.kind {
        [a, b].into_iter().filter(|x| x.as_const().is_none()).for_each(|x| add(x));
    }
    expr.walk(&mut |x| {
        if matches!(x.kind, ExprNode::Event { .. } | ExprNode::Doc { .. }) {
            add(x);
        }
    });
    all
}

/// Explains why a condition does not hold.
pub(super) fn reason(program: &Program, rule: &RulePlan, expr: &Expr, frame: &Bindings<'_>) -> String {
    let text = one_line(program.text(expr.span));
    if truth(expr, frame) == Some(false) {
        let values: Vec<String> = condition_terms(program, rule, expr, frame)
            .iter()
            .filter(|s| s.text != text)
            .map(|s| format!("{} = {}", s.text, s.value))
            .collect();
        if values.is_empty() {
            return format!("{text} is false");
        }
        return format!("{text} is false: {}", values.join(", "));
    }
    if let Some(missing) = first_missing(expr, frame) {
        return format!("{} is missing", name(program, rule, missing));
    }
    if let ExprNode::Compare(_, a, b) = &expr.kind {
        let (left, right) = (eval(a, frame), eval(b, frame));
        if !left.is_absent() && !right.is_absent() {
            return format!("{text} compares {} with {}", left.type_name(), right.type_name());
        }
    }
    format!("{text} cannot be computed from these values")
}

/// Returns the first absent field in `expr`, except where absence is handled (`== null`, `exists`,
/// `coalesce`).
fn first_missing<'e>(expr: &'e Expr, frame: &Bindings<'_>) -> Option<&'e Expr> {
    match &expr.kind {
        ExprNode::Event { .. } | ExprNode::Doc { .. } => {
            let missing = is_absent(expr, frame);
            missing.then_some(expr)
        }
        ExprNode::IsNull(..) | ExprNode::Exists(_) | ExprNode::Coalesce(_) => None,
        _ => expr.children().into_iter().find_map(|child| first_missing(child, frame)),
    }
}

fn is_absent(expr: &Expr, frame: &Bindings<'_>) -> bool {
    eval(expr, frame).is_absent()
}

/// Explains why a lookup found no document, or found one that must not exist.
pub(super) fn not_found(
    program: &Program,
    rule: &RulePlan,
    lookup: &DocumentLookup,
    frame: &Bindings<'_>,
) -> String {
    let entity = &program.catalog().entities[rule.slots[lookup.slot].entity];
    if lookup.negated {
        let which =
            frame.docs[lookup.slot].map(|doc| format!(" with {} {}", entity.key, display(&id_of(doc))));
        return format!(
            "{}{} exists, but the condition requires that it does not",
            entity.name,
            which.unwrap_or_default()
        );
    }
    if let Some(missing) = lookup.source.values().into_iter().find(|x| is_absent(x, frame)) {
        return format!(
            "{} is missing, so no {} can be looked up",
            name(program, rule, missing),
            entity.name
        );
    }
    let with = |path: &str, value: &Expr| format!("{path} {}", display(&eval(value, frame)));
    let wanted = match &lookup.source {
        DocumentSource::Key(value) => vec![with(&entity.key, value)],
        DocumentSource::Field(path, value) => vec![with(path, value)],
        DocumentSource::Fields(fields) => fields.iter().map(|(path, value)| with(path, value)).collect(),
        DocumentSource::Scan => return format!("there is no {} document", entity.name),
    };
    format!("{} with {} not found", entity.name, wanted.join(" and "))
}

/// Returns whether a field has the value that the user typed.
pub(super) fn equals_json(value: &RuleValue<'_>, wanted: &serde_json::Value) -> bool {
    let typed = match wanted {
        serde_json::Value::Null => return value.is_absent(),
        serde_json::Value::Bool(b) => RuleValue::Bool(*b),
        serde_json::Value::Number(n) => match n.as_i64() {
            Some(n) => RuleValue::Int(n),
            None => RuleValue::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(s) => {
            return match value {
                RuleValue::Str(text) => text == s,
                RuleValue::Time(t) => tidemill_types::Timestamp::parse(s).is_ok_and(|wanted| wanted.0 == *t),
                other => other.to_string() == *s,
            };
        }
        _ => return false,
    };
    crate::expr::ops::compare(crate::expr::CompareOp::Eq, value, &typed) == Some(true)
        || matches!(value, RuleValue::Str(text) if text.as_ref() == typed.to_string())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}: {}", self.stream, self.id, self.event)?;
        if let Some(again) = &self.evaluated_again {
            let events =
                if again.events == 1 { "1 event".to_owned() } else { format!("{} events", again.events) };
            writeln!(
                f,
                "evaluated again over {events} as stored, by the rules deployed now: the original explanation is no longer kept"
            )?;
            again.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))?;
        }
        if self.rules.is_empty() {
            writeln!(f, "no rule runs on {} events", self.stream)?;
        }
        for rule in &self.rules {
            outcome(f, &rule.rule, &rule.outcome)?;
        }
        Ok(())
    }
}

fn outcome(f: &mut fmt::Formatter<'_>, rule: &str, outcome: &Outcome) -> fmt::Result {
    match outcome {
        Outcome::Fired { firings, more } => {
            let times = firings.len() + *more as usize;
            let times = if times == 1 { String::new() } else { format!(" {times} times") };
            writeln!(f, "{rule} fired{times}")?;
            for firing in firings {
                documents(f, &firing.bindings)?;
                firing.actions.iter().try_for_each(|a| writeln!(f, "  did {a}"))?;
                firing.emitted.iter().try_for_each(|e| writeln!(f, "  emitted {e}"))?;
            }
            if *more > 0 {
                writeln!(f, "  and {more} more")?;
            }
        }
        Outcome::NotFired { condition, text, line, values, reason, bindings } => {
            writeln!(f, "{rule} did not fire")?;
            writeln!(f, "  condition {condition}, line {line}: {text}")?;
            writeln!(f, "  {reason}")?;
            values.iter().try_for_each(|s| writeln!(f, "    {} = {}", s.text, s.value))?;
            documents(f, bindings)?;
        }
        Outcome::Failed { message, bindings } => {
            writeln!(f, "{rule} failed: {message}")?;
            documents(f, bindings)?;
        }
        Outcome::Duplicate => writeln!(f, "{rule} did not run: the event is a duplicate")?,
        Outcome::Unknown => writeln!(f, "{rule}: no explanation of this event was kept")?,
    }
    Ok(())
}

fn documents(f: &mut fmt::Formatter<'_>, bindings: &[BoundDocument]) -> fmt::Result {
    bindings.iter().try_for_each(|b| writeln!(f, "  {} = {} {}", b.name, b.entity, b.document))
}
