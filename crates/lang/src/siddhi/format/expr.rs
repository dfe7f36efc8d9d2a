//! Formatting of expressions over several lines.

use super::super::ast::{BinaryOp, Expr, ExprKind};
use super::super::parser::Precedence;
use super::Printer;
use super::inline::{callee, name, precedence};

impl Printer<'_> {
    /// Prints `expr`, in parentheses if it binds less tightly than `min`, on one line if it fits.
    pub(super) fn expr(&mut self, expr: &Expr, min: Precedence) {
        if let Some(text) = self.inline_within(self.room(), |flat| flat.expr(expr, min)) {
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
            ExprKind::Call(call) if !call.args.list().is_empty() => {
                self.write(&callee(call));
                self.multiline_args(call.args.list());
            }
            ExprKind::Not(operand) => {
                self.write("not ");
                self.expr(operand, Precedence::Not);
            }
            ExprKind::Binary { op, left, right } => self.chain(*op, left, right),
            ExprKind::In { condition, table } => {
                self.expr(condition, Precedence::Primary);
                self.write(&format!(" in {}", name(&table.name)));
            }
            _ => {
                let text = self.inline_unbounded(|flat| flat.expr(expr, Precedence::Or));
                self.write(&text);
            }
        }
    }

    /// Prints `(a, b)`, one argument per line.
    pub(super) fn multiline_args(&mut self, args: &[Expr]) {
        self.write("(");
        self.indent += 1;
        for (i, arg) in args.iter().enumerate() {
            self.newline();
            self.expr(arg, Precedence::Or);
            if i + 1 < args.len() {
                self.write(",");
            }
        }
        self.indent -= 1;
        self.newline();
        self.write(")");
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
        self.expr(first, rank);
        self.indent += 1;
        for (op, operand) in rest.into_iter().rev() {
            self.newline();
            self.write(&format!("{} ", op.text()));
            self.expr(operand, rank.tighter());
        }
        self.indent -= 1;
    }
}
