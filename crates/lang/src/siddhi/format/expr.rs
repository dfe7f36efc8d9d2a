//! Expressions over several lines.

use super::super::ast::{BinaryOp, Expr, ExprKind};
use super::super::parser::Rank;
use super::Printer;
use super::flat::{callee, name, rank};

impl Printer<'_> {
    /// `expr`, in parentheses when it binds less tightly than `min`: on one line if that fits.
    pub(super) fn expr(&mut self, expr: &Expr, min: Rank) {
        if let Some(text) = self.flat(self.room(), |flat| flat.expr(expr, min)) {
            return self.write(&text);
        }
        let parentheses = rank(expr) < min;
        if parentheses {
            self.write("(");
        }
        self.broken(expr);
        if parentheses {
            self.write(")");
        }
    }

    fn broken(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Call(call) if !call.args.list().is_empty() => {
                self.write(&callee(call));
                self.broken_args(call.args.list());
            }
            ExprKind::Not(operand) => {
                self.write("not ");
                self.expr(operand, Rank::Not);
            }
            ExprKind::Binary { op, left, right } => self.chain(*op, left, right),
            ExprKind::In { condition, table } => {
                self.expr(condition, Rank::Primary);
                self.write(&format!(" in {}", name(&table.name)));
            }
            _ => {
                let text = self.flat_anyway(|flat| flat.expr(expr, Rank::Or));
                self.write(&text);
            }
        }
    }

    /// `(a, b)`, a line for each argument.
    pub(super) fn broken_args(&mut self, args: &[Expr]) {
        self.write("(");
        self.indent += 1;
        for (i, arg) in args.iter().enumerate() {
            self.newline();
            self.expr(arg, Rank::Or);
            if i + 1 < args.len() {
                self.write(",");
            }
        }
        self.indent -= 1;
        self.newline();
        self.write(")");
    }

    /// `a op b op c` of one rank, a line for each operator.
    fn chain(&mut self, last: BinaryOp, left: &Expr, right: &Expr) {
        let rank = Rank::of(last);
        let mut rest = vec![(last, right)];
        let mut first = left;
        while let ExprKind::Binary { op, left, right } = &first.kind
            && Rank::of(*op) == rank
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
