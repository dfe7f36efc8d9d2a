//! Formatting of expressions over several lines.

use super::super::ast::{BinaryOp, Expr, ExprKind, UnaryOp};
use super::super::parser::Precedence;
use super::inline::{left_min, operand_min, precedence, unary_text};
use super::{Printer, member, reference};

impl Printer<'_> {
    /// Prints `expr`, in parentheses if it binds less tightly than `min`, on one line if it fits and no list
    /// in it contains comments.
    pub(super) fn expr(&mut self, expr: &Expr, min: Precedence) {
        if !self.has_comments_in_lists(expr)
            && let Some(text) = self.inline_within(self.room(), |flat| flat.expr(expr, min))
        {
            return self.write(&text);
        }
        let parentheses = precedence(expr) < min;
        if parentheses {
            self.write("(");
        }
        self.multiline(expr);
        if parentheses {
            self.write(")");
        }
    }

    fn multiline(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Span(_) | ExprKind::Now | ExprKind::Name(_) => {
                self.unbreakable(expr)
            }
            ExprKind::Field { base, field } => {
                self.expr(base, Precedence::Primary);
                self.write(&format!(".{}", member(&field.name)));
            }
            ExprKind::MethodCall { base, method } => {
                self.expr(base, Precedence::Primary);
                self.write(&format!(".{}()", member(&method.name)));
            }
            ExprKind::Call { function, args } => {
                self.write(&reference(&function.name));
                self.list(self.bracket_from(function.span.end, "("), ("(", ")"), args);
            }
            ExprKind::Unary { op, operand } => match (op, &operand.kind) {
                (UnaryOp::Not, ExprKind::In { value, list }) => self.membership(value, " not in ", list),
                _ => {
                    self.write(unary_text(*op));
                    self.expr(operand, operand_min(*op));
                }
            },
            ExprKind::Binary { op, left, right } if Precedence::of(*op) == Precedence::Compare => {
                self.expr(left, Precedence::Sum);
                self.write(&format!(" {} ", op.text()));
                self.expr(right, Precedence::Sum);
            }
            ExprKind::Binary { op, left, right } => self.chain(*op, left, right),
            ExprKind::In { value, list } => self.membership(value, " in ", list),
            ExprKind::Object(fields) => {
                self.list(self.bracket_from(expr.span.start, "{"), ("{", "}"), fields);
            }
            ExprKind::Array(elements) => {
                self.list(self.bracket_from(expr.span.start, "["), ("[", "]"), elements);
            }
        }
    }

    fn unbreakable(&mut self, expr: &Expr) {
        if let Some(text) = self.inline_within(usize::MAX, |flat| flat.expr(expr, Precedence::Or)) {
            self.write(&text);
        }
    }

    fn membership(&mut self, value: &Expr, operator: &str, list: &Expr) {
        self.expr(value, Precedence::Sum);
        self.write(operator);
        self.expr(list, Precedence::Sum);
    }

    /// Prints `a op b op c` with operators of one precedence, a line for each operator.
    fn chain(&mut self, last: BinaryOp, left: &Expr, right: &Expr) {
        let rank = Precedence::of(last);
        let mut rest = vec![(last, right)];
        let mut first = left;
        while let ExprKind::Binary { op, left, right } = &first.kind
            && Precedence::of(*op) == rank
        {
            rest.push((*op, right));
            first = left;
        }
        self.expr(first, left_min(last));
        self.indent += 1;
        for (op, operand) in rest.into_iter().rev() {
            self.newline();
            self.write(&format!("{} ", op.text()));
            self.expr(operand, rank.tighter());
        }
        self.indent -= 1;
    }

    /// Returns whether a list in `expr` contains a comment.
    fn has_comments_in_lists(&self, expr: &Expr) -> bool {
        // fast path: most expressions contain no comments
        if !self.has_comment(expr.span.start, expr.span.end) {
            return false;
        }
        let in_list = |open: u32| self.has_comment(open, self.closer(open));
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Span(_) | ExprKind::Now | ExprKind::Name(_) => false,
            ExprKind::Field { base, .. } | ExprKind::MethodCall { base, .. } => {
                self.has_comments_in_lists(base)
            }
            ExprKind::Call { function, .. } => in_list(self.bracket_from(function.span.end, "(")),
            ExprKind::Unary { operand, .. } => self.has_comments_in_lists(operand),
            ExprKind::Binary { left, right, .. } => {
                self.has_comments_in_lists(left) || self.has_comments_in_lists(right)
            }
            ExprKind::In { value, list } => {
                self.has_comments_in_lists(value) || self.has_comments_in_lists(list)
            }
            ExprKind::Object(_) => in_list(self.bracket_from(expr.span.start, "{")),
            ExprKind::Array(_) => in_list(self.bracket_from(expr.span.start, "[")),
        }
    }
}
