//! Parsing of conditions.

use super::super::ast::{
    Condition, EntityCondition, EventCondition, Expr, ExprKind, Ident, LetCondition, RelationCondition,
    UnaryOp,
};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `{ condition; … }` after the keyword at `keyword`. Reports an error if the first is not an
    /// event.
    pub(super) fn conditions(&mut self, keyword: Span) -> Parse<Vec<Condition>> {
        let context = format!("after `{}`", self.file.slice(keyword));
        let open = self.expect("{", &context)?;
        let (conditions, good) = self.block(open, |p, number| {
            let condition = p.condition(number == 0)?;
            p.semicolon("condition")?;
            Ok(condition)
        })?;
        if good && !matches!(conditions.first(), Some(Condition::Event(_))) {
            self.check_event_first(conditions.first(), keyword);
        }
        Ok(conditions)
    }

    fn check_event_first(&mut self, first: Option<&Condition>, keyword: Span) {
        let help = match first {
            Some(Condition::Expr(Expr { kind: ExprKind::Call { function, .. }, .. })) => {
                format!("give it a name: `x: {}(…)`", function.name)
            }
            _ => "begin with an event: `x: Stream(…);`".to_owned(),
        };
        let span = first.map_or(keyword, Condition::span);
        self.report(
            Diagnostic::error(diagnostic_codes::EVENT_FIRST, span, "the first condition must be an event")
                .expected(["`x: Stream(…)`"])
                .help(help),
        );
    }

    fn condition(&mut self, first: bool) -> Parse<Condition> {
        if self.word(0) == Some("let") {
            return self.let_condition();
        }
        let word = matches!(self.token().kind, TokenKind::Word | TokenKind::Quoted(_));
        if word && self.is_punct(1, ":") {
            return self.bound_condition(first);
        }
        let expr = self.expr()?;
        if self.is_punct(0, ":") && matches!(&expr.kind, ExprKind::Unary { op: UnaryOp::Not, .. }) {
            return Err(self.report_negated_binding(expr.span));
        }
        self.negated_condition(expr)
    }

    fn let_condition(&mut self) -> Parse<Condition> {
        let start = self.bump();
        let name = self.new_name("a value's name")?;
        if !self.is_punct(0, "=") {
            let help = format!("write `let {} = …`", name.name);
            return Err(self.report_unexpected_with(&["`=`"], "after the value's name", Some(help)));
        }
        self.bump();
        let expr = self.expr()?;
        Ok(Condition::Let(LetCondition { name, expr, span: self.span_since(start) }))
    }

    /// Parses `x: Name(…)` or `x: y.rel()(…)`.
    fn bound_condition(&mut self, first: bool) -> Parse<Condition> {
        let binding = self.new_name("a binding's name")?;
        let start = binding.span;
        self.expect(":", "after the binding")?;
        if self.word(0) == Some("not") {
            return Err(self.report_negated_binding(start.to(self.span())));
        }
        let source = self.name("a stream, an entity or a relation")?;
        if self.is_punct(0, ".") {
            return self.relation_condition(binding, source);
        }
        let after = format!("after `{}`", source.name);
        let help = (!self.is_punct(0, "(")).then(|| format!("write `{}: {}()`", binding.name, source.name));
        if help.is_some() {
            return Err(self.report_unexpected_with(&["`(`", "`.`"], &after, help));
        }
        let filters = self.filters()?;
        let span = self.span_since(start);
        Ok(if first {
            Condition::Event(EventCondition { binding, stream: source, filters, span })
        } else {
            Condition::Entity(EntityCondition {
                binding: Some(binding),
                negated: false,
                entity: source,
                filters,
                span,
            })
        })
    }

    fn relation_condition(&mut self, binding: Ident, base: Ident) -> Parse<Condition> {
        let start = binding.span;
        self.bump();
        let relation = self.any_name("a relation's name")?;
        let call = format!("{}: {}.{}()", binding.name, base.name, relation.name);
        if self.is_punct(0, ".") {
            let help = format!("bind each step: `{call}`, then the next from `{}`", binding.name);
            return Err(self.report_unexpected_with(&["`(`"], "after a relation", Some(help)));
        }
        if !self.is_punct(0, "(") {
            let help = format!("write `{call}`, or for a value `let {} = …`", binding.name);
            return Err(self.report_unexpected_with(&["`(`"], "after a relation", Some(help)));
        }
        self.bump();
        if !self.is_punct(0, ")") {
            let help = format!("write conditions on the documents in a second pair of brackets: `{call}(…)`");
            return Err(self.report_unexpected_with(&["`)`"], "after a relation's `(`", Some(help)));
        }
        self.bump();
        let filters = if self.is_punct(0, "(") { Some(self.filters()?) } else { None };
        let span = self.span_since(start);
        Ok(Condition::Relation(RelationCondition {
            binding: Some(binding),
            negated: false,
            base,
            relation,
            filters,
            span,
        }))
    }

    /// Parses `(expr, …)`.
    pub(super) fn filters(&mut self) -> Parse<Vec<Expr>> {
        self.list("(", ")", "", Self::expr)
    }

    /// Returns the condition for an expression without binding: `not x.rel()(…)` and `not Name(…)` require
    /// that no document exists.
    fn negated_condition(&mut self, expr: Expr) -> Parse<Condition> {
        let span = expr.span;
        let ExprKind::Unary { op: UnaryOp::Not, operand } = &expr.kind else {
            return self.plain_condition(expr);
        };
        match &operand.kind {
            ExprKind::Call { function, args } => Ok(Condition::Entity(EntityCondition {
                binding: None,
                negated: true,
                entity: function.clone(),
                filters: args.clone(),
                span,
            })),
            ExprKind::MethodCall { base, method } => match &base.kind {
                ExprKind::Name(base) => self.negated_relation(base.clone(), method.clone(), span),
                _ => self.plain_condition(expr),
            },
            _ => self.plain_condition(expr),
        }
    }

    /// Parses the optional `(expr, …)` after `not base.relation()`, whose source range is `span`.
    fn negated_relation(&mut self, base: Ident, relation: Ident, span: Span) -> Parse<Condition> {
        let filters = if self.is_punct(0, "(") { Some(self.filters()?) } else { None };
        let span = span.to(self.previous());
        Ok(Condition::Relation(RelationCondition {
            binding: None,
            negated: true,
            base,
            relation,
            filters,
            span,
        }))
    }

    fn plain_condition(&mut self, expr: Expr) -> Parse<Condition> {
        if self.is_punct(0, "(") && matches!(expr.kind, ExprKind::MethodCall { .. }) {
            let call = self.file.slice(expr.span);
            let help = format!("give the document a name: `d: {call}(…)`");
            return Err(self.report_unexpected_with(&["an operator", "`;`"], "", Some(help)));
        }
        Ok(Condition::Expr(expr))
    }

    fn report_negated_binding(&mut self, span: Span) -> SyntaxError {
        self.report(
            Diagnostic::error(
                diagnostic_codes::NEGATED_BINDING,
                span,
                "a condition with `not` cannot have a name: it matches no document",
            )
            .help("write it without the name: `not x.rel()` or `not Entity(…)`"),
        );
        SyntaxError::Statement
    }
}
