//! Parsing of selections.

use super::super::ast::{
    AttributeRef, Direction, Expr, ExprKind, OrderItem, SelectItem, SelectItems, Selection,
};
use super::super::diagnostic_codes;
use super::super::keywords::CLAUSES;
use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::source::Span;

/// Maximum length of an expression that is repeated in a suggestion, in characters.
const SHOWN_CHARS_MAX: usize = 40;

impl Parser<'_> {
    /// Parses `select … offset …`; sets `done` to the last clause that was parsed.
    pub(super) fn selection(&mut self, done: &mut &'static str) -> Parse<Selection> {
        let start = self.bump();
        *done = "select";
        let items = self.select_items()?;
        let group_by = self.group_by()?;
        if !group_by.is_empty() {
            *done = "group by";
        }
        let having = match self.eat_word("having") {
            Some(_) => {
                *done = "having";
                Some(self.expr()?)
            }
            None => None,
        };
        let order_by = self.order_by()?;
        if !order_by.is_empty() {
            *done = "order by";
        }
        let limit = match self.eat_word("limit") {
            Some(_) => {
                *done = "limit";
                Some(self.expr()?)
            }
            None => None,
        };
        let offset = match self.eat_word("offset") {
            Some(_) => {
                *done = "offset";
                Some(self.expr()?)
            }
            None => None,
        };
        let span = self.span_since(start);
        Ok(Selection { items, group_by, having, order_by, limit, offset, span })
    }

    /// Parses `*`, or columns.
    pub(super) fn select_items(&mut self) -> Parse<SelectItems> {
        if let Some(star) = self.eat("*") {
            if self.is_punct(0, ",") {
                self.report_star_with_columns(star);
                self.bump();
                self.columns()?;
            }
            return Ok(SelectItems::All(star));
        }
        self.columns().map(SelectItems::List)
    }

    fn report_star_with_columns(&mut self, star: Span) {
        let message = "`*` cannot be mixed with other columns";
        self.report(
            Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, star, message)
                .help("name the columns instead"),
        );
    }

    fn columns(&mut self) -> Parse<Vec<SelectItem>> {
        let mut items = Vec::new();
        loop {
            if self.is_punct(0, "*") {
                let star = self.bump();
                self.report_star_with_columns(star);
            } else {
                items.push(self.select_item()?);
            }
            if self.eat(",").is_none() {
                return Ok(items);
            }
            if self.begins_clause() {
                self.report_extra_comma("a column");
                return Ok(items);
            }
        }
    }

    /// Parses `expr as name`.
    fn select_item(&mut self) -> Parse<SelectItem> {
        let start = self.span();
        if self.begins_clause() || self.at_end() || self.is_punct(0, ";") {
            return Err(self.report_unexpected(&["a column"], "after `select`"));
        }
        let expr = self.expr()?;
        let alias = if self.eat_word("as").is_some() {
            if self.begins_clause() {
                return Err(self.report_unexpected(&["a column's name"], "after `as`"));
            }
            Some(self.name("a column's name")?)
        } else if self.at_bare_name() {
            let name = self.name("a column's name")?;
            self.report(
                Diagnostic::error(
                    diagnostic_codes::AS_MISSING,
                    name.span,
                    "expected `as` before the column's name",
                )
                .expected(["`as`"])
                .help(format!("write `as {}`", name.name)),
            );
            Some(name)
        } else {
            self.check_nameless(&expr)?;
            None
        };
        Ok(SelectItem { expr, alias, span: self.span_since(start) })
    }

    /// Reports a column that needs a name and has none, or that continues with an operator of another
    /// language.
    fn check_nameless(&mut self, expr: &Expr) -> Parse<()> {
        if let Some(bail) = self.report_foreign_continuation() {
            return Err(bail);
        }
        let bracketed = self.file.slice(expr.span).starts_with('(');
        if matches!(expr.kind, ExprKind::Attribute(_)) && !bracketed {
            return Ok(());
        }
        let ends = self.at_end() || self.is_punct_of(0, &[",", ";"]) || self.is_word_of(0, &CLAUSES);
        if !ends && self.misspelling_of(&CLAUSES).is_none() {
            return Err(self.report_unexpected(&["an operator", "`as`"], "after the value"));
        }
        let written = self.file.slice(expr.span);
        let help = match written.contains('\n') || written.chars().count() > SHOWN_CHARS_MAX {
            true => "write `as NAME` after it".to_owned(),
            false => format!("write `{written} as NAME`"),
        };
        let message = "a column that is not a plain attribute needs a name";
        self.report(
            Diagnostic::error(diagnostic_codes::AS_MISSING, expr.span.at_end(), message)
                .expected(["`as`"])
                .help(help),
        );
        Ok(())
    }

    /// Returns whether the current token is a column name without `as`.
    fn at_bare_name(&self) -> bool {
        let ends = self.is_punct(1, ",") || self.is_word_of(1, &CLAUSES);
        self.is_name(0) && ends && !self.is_word_of(0, &CLAUSES)
    }

    /// Parses `group by a, b`, if present.
    pub(super) fn group_by(&mut self) -> Parse<Vec<AttributeRef>> {
        if self.eat_word("group").is_none() {
            return Ok(Vec::new());
        }
        self.expect_word("by", "after `group`")?;
        self.commas(|p| p.attribute_ref("group by"))
    }

    /// Parses `order by a, b desc`, if present.
    fn order_by(&mut self) -> Parse<Vec<OrderItem>> {
        if self.eat_word("order").is_none() {
            return Ok(Vec::new());
        }
        self.expect_word("by", "after `order`")?;
        self.commas(|p| {
            let start = p.span();
            let attribute = p.attribute_ref("order by")?;
            let direction = if p.eat_word("asc").is_some() {
                Some(Direction::Ascending)
            } else if p.eat_word("desc").is_some() {
                Some(Direction::Descending)
            } else if p.is_word_of(0, &["ascending", "descending"]) {
                let help = format!("write `{}`", if p.is_word(0, "ascending") { "asc" } else { "desc" });
                p.report_unexpected_with(&["`asc`", "`desc`"], "", Some(help));
                p.bump();
                None
            } else {
                None
            };
            Ok(OrderItem { attribute, direction, span: p.span_since(start) })
        })
    }
}
