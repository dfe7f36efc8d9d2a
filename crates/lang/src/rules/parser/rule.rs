//! Parsing of rules.

use super::super::ast::{AggregateDecl, GroupItem, Ident, Item, RuleDecl, SpanLiteral};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

/// Name and clauses of a rule before its opening brace.
struct RuleHeader {
    start: Span,
    name: Ident,
    priority: Option<(i32, Span)>,
    every: Option<SpanLiteral>,
}

impl Parser<'_> {
    /// Parses `rule NAME … { … }`.
    pub(super) fn rule(&mut self) -> Parse<Item> {
        let header = self.rule_header()?;
        let open = self.expect("{", "after the rule's name")?;
        match self.word(0) {
            Some("when") => self.when_rule(header, open),
            Some("aggregate") => self.aggregate_rule(header, open),
            _ => {
                let name = &header.name.name;
                let help = match self.word(0) {
                    Some("then" | "do") => {
                        format!("conditions come first: `rule {name} {{ when {{ … }} then {{ … }} }}`")
                    }
                    _ => format!("write `rule {name} {{ when {{ … }} then {{ … }} }}`"),
                };
                Err(self.report_unexpected_with(&["`when`", "`aggregate`"], "", Some(help)))
            }
        }
    }

    fn rule_header(&mut self) -> Parse<RuleHeader> {
        let start = self.bump();
        let name = self.new_name("a rule's name")?;
        let mut header = RuleHeader { start, name, priority: None, every: None };
        loop {
            let clause = self.span();
            if self.eat_word("priority").is_some() {
                let value = self.priority()?;
                if header.priority.is_some() {
                    self.report_duplicate_clause("priority", clause);
                }
                header.priority = Some((value, clause));
            } else if self.eat_word("every").is_some() {
                let every = self.span_clause("every", clause)?;
                if header.every.is_some() {
                    self.report_duplicate_clause("every", clause);
                }
                header.every = Some(every);
            } else {
                return Ok(header);
            }
        }
    }

    /// Parses the number after `priority`. One out of range is reported and replaced by zero.
    fn priority(&mut self) -> Parse<i32> {
        let start = self.span();
        let negative = self.eat("-").is_some();
        let TokenKind::Int(number) = self.token().kind else {
            let help = "write a whole number: `priority 10`".to_owned();
            return Err(self.report_unexpected_with(&["a whole number"], "after `priority`", Some(help)));
        };
        self.bump();
        let value = i64::try_from(number).ok().map(|n| if negative { -n } else { n });
        Ok(value.and_then(|n| i32::try_from(n).ok()).unwrap_or_else(|| {
            let message = format!("a priority must be from {} to {}", i32::MIN, i32::MAX);
            self.report(
                Diagnostic::error(diagnostic_codes::RANGE, self.span_since(start), message)
                    .help("write a smaller number"),
            );
            0
        }))
    }

    pub(super) fn report_duplicate_clause(&mut self, clause: &str, span: Span) {
        let message = format!("duplicate `{clause}`");
        self.report(Diagnostic::error(diagnostic_codes::TWICE, span, message).help("remove one of them"));
    }

    /// Parses the rest of a rule from `when`.
    fn when_rule(&mut self, header: RuleHeader, open: Span) -> Parse<Item> {
        let when = self.bump();
        if let Some(every) = &header.every {
            let message = "`every` is only allowed in rules with `aggregate`: a rule with `when` runs when its event arrives";
            let span = every.span;
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, span, message).help("remove `every`"),
            );
        }
        let conditions = self.conditions(when)?;
        let Some(then) = self.eat_word("then") else {
            return Err(self.report_missing_then(&header.name));
        };
        let actions = self.actions(then)?;
        self.close_rule(open)?;
        let priority = header.priority.map_or(0, |(p, _)| p);
        let span = self.span_since(header.start);
        Ok(Item::Rule(RuleDecl { name: header.name, priority, conditions, actions, span }))
    }

    fn report_missing_then(&mut self, name: &Ident) -> SyntaxError {
        let message = format!("the rule `{}` has no `then`", name.name);
        let help = match self.word(0) {
            Some("do") => "the keyword after `when` is `then`: write `then {`",
            _ => "after the `}` of `when`, write `then { … }`",
        };
        let found = format!("found {}", self.describe_token());
        let place = self.span();
        self.report(
            Diagnostic::error(diagnostic_codes::NO_ACTIONS, name.span, message)
                .expected(["`then`"])
                .help(help)
                .note_at(place, format!("expected `then` here, {found}")),
        );
        SyntaxError::Item
    }

    fn close_rule(&mut self, open: Span) -> Parse<()> {
        if self.eat("}").is_some() {
            return Ok(());
        }
        if self.at_end() || self.at_item() {
            self.report_unclosed(open);
            return Err(SyntaxError::Item);
        }
        let help = match self.word(0) {
            Some("else") => {
                Some("there is no `else`: write a second rule with the opposite condition".to_owned())
            }
            Some("when" | "aggregate") => Some("a rule has one `when`: write a second rule".to_owned()),
            _ => None,
        };
        Err(self.report_unexpected_with(&["`}`"], "at the end of the rule", help))
    }

    /// Parses the rest of a rule from `aggregate`.
    fn aggregate_rule(&mut self, header: RuleHeader, open: Span) -> Parse<Item> {
        let aggregate = self.bump();
        if let Some((_, span)) = header.priority {
            let message = "`priority` is only allowed in rules with `when`";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, span, message)
                    .help("remove `priority`"),
            );
        }
        let conditions = self.conditions(aggregate)?;
        let over = match self.eat_word("over") {
            Some(keyword) => Some(self.span_clause("over", keyword)?),
            None => None,
        };
        let group_by = match self.eat_word("groupby") {
            Some(_) => self.list("{", "}", "after `groupby`", Self::group_item)?,
            None => Vec::new(),
        };
        let Some(keyword) = self.eat_word("do") else {
            return Err(self.report_missing_do(over.is_some()));
        };
        let inserts = self.inserts(keyword)?;
        self.close_rule(open)?;
        let span = self.span_since(header.start);
        let (name, every) = (header.name, header.every);
        Ok(Item::Aggregate(AggregateDecl { name, every, over, conditions, group_by, inserts, span }))
    }

    fn report_missing_do(&mut self, has_over: bool) -> SyntaxError {
        let help = match self.word(0) {
            Some("group" | "GROUP") => "write `groupby { … }` in one word",
            Some("then") => "the keyword after `aggregate` is `do`: write `do {`",
            Some("having") => "write the condition on the documents where they are read",
            Some("over") if !has_over => "write `over` before `groupby`",
            _ => "write `groupby { expression, … } do { insert … }`",
        };
        self.report_unexpected_with(&["`groupby`", "`do`"], "", Some(help.to_owned()))
    }

    /// Parses `[name:] expr`.
    fn group_item(&mut self) -> Parse<GroupItem> {
        let start = self.span();
        let word = matches!(self.token().kind, TokenKind::Word | TokenKind::Quoted(_));
        let name = if word && self.is_punct(1, ":") {
            let name = self.new_name("a group's name")?;
            self.bump();
            Some(name)
        } else {
            None
        };
        let expr = self.expr()?;
        Ok(GroupItem { name, expr, span: self.span_since(start) })
    }
}
