//! Random conditions.

use super::random::{Generator, Scope};
use super::tables::Type;

/// Types of operands of comparisons, often whole numbers.
const COMPARED: [Type; 10] = [
    Type::Int,
    Type::Int,
    Type::Int,
    Type::Text,
    Type::Float,
    Type::Time,
    Type::Text,
    Type::Int,
    Type::Decimal,
    Type::Date,
];

impl Generator {
    pub fn comparison(&mut self) -> &'static str {
        self.one(&["=", "<>", "<", "<=", ">", ">=", "=", "!="])
    }

    /// Returns a condition.
    pub fn predicate(&mut self, scope: &Scope, depth: usize) -> String {
        let choice = self.below(if depth == 0 { 10 } else { 28 });
        let ty = self.one(&COMPARED);
        let below = depth.saturating_sub(1);
        match choice {
            0 | 1 => self.compared(ty, scope, below),
            2 => {
                let a = self.value(ty, scope, below);
                format!("{a} is {}null", self.one(&["", "not "]))
            }
            3 => self.value(Type::Bool, scope, 0),
            4 => {
                let (a, b, c) =
                    (self.value(ty, scope, below), self.value(ty, scope, 0), self.value(ty, scope, 0));
                format!("{a} {}between {b} and {c}", self.one(&["", "not "]))
            }
            5 => {
                let a = self.value(ty, scope, below);
                let count = 1 + self.below(3);
                let list: Vec<String> = (0..count).map(|_| self.value(ty, scope, 0)).collect();
                format!("{a} {}in ({})", self.one(&["", "not "]), list.join(", "))
            }
            6 => self.pattern(scope, below),
            7 => {
                let (a, b) = (self.value(ty, scope, below), self.value(ty, scope, below));
                format!("{a} is {}distinct from {b}", self.one(&["", "not "]))
            }
            8 => self.json_condition(scope),
            9 => self.mixed(scope, below),
            10..=14 => {
                let (a, b) = (self.predicate(scope, below), self.predicate(scope, below));
                let op = self.one(&["and", "or", "or"]);
                let text = format!("{a} {op} {b}");
                self.bracket(text)
            }
            15 | 16 => {
                let a = self.predicate(scope, below);
                let a = self.bracket(a);
                format!("not {a}")
            }
            17 => {
                let a = self.predicate(scope, below);
                let is =
                    self.one(&["true", "false", "unknown", "not true", "not false", "not unknown", "null"]);
                format!("({a}) is {is}")
            }
            18 | 19 => {
                let a = self.value(ty, scope, below);
                let query = self.subquery(ty, scope, below);
                format!("{a} in ({query})")
            }
            20 | 21 => {
                let a = self.value(ty, scope, below);
                let query = self.subquery(ty, scope, below);
                format!("{a} not in ({query})")
            }
            22 | 23 => {
                let a = self.value(ty, scope, below);
                let query = self.subquery(ty, scope, below);
                let op = self.comparison();
                format!("{a} {op} {} ({query})", self.one(&["any", "all", "some"]))
            }
            24 => {
                let query = self.subquery(ty, scope, below);
                format!("{}exists ({query})", self.one(&["", "not "]))
            }
            25 => self.rows_compared(scope),
            26 => {
                let (a, b) = (self.predicate(scope, below), self.predicate(scope, 0));
                format!("coalesce({a}, {b})")
            }
            _ => {
                let (a, b) = (self.predicate(scope, below), self.predicate(scope, below));
                format!("({a}) {} ({b})", self.one(&["=", "<>"]))
            }
        }
    }

    fn compared(&mut self, ty: Type, scope: &Scope, depth: usize) -> String {
        let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
        format!("{a} {} {b}", self.comparison())
    }

    fn pattern(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Text, scope, depth);
        match self.below(10) {
            0 | 1 => format!("{a} {} '[bc]'", self.one(&["~", "!~", "~*", "!~*"])),
            2 => format!("{a} {}ilike {}", self.one(&["", "not "]), self.one(&["'A%'", "'%B%'", "'_b'"])),
            3 => {
                let pattern = self.one(&["'a%'", "'(a|b)%'", "'ab'", "'_+'", "'a.c'"]);
                format!("{a} {}similar to {pattern}", self.one(&["", "not "]))
            }
            4 => format!("starts_with({a}, {})", self.one(&["'a'", "''", "'b'"])),
            5 => format!("{a} like {} escape '!'", self.one(&["'a!%'", "'!_%'", "'a%'", "'c!_d'"])),
            _ => {
                let pattern = self.one(&["'a%'", "'%b%'", "'_b'", "'%'", "''", "'c\\_d'", "'%c'"]);
                format!("{a} {}like {pattern}", self.one(&["", "not "]))
            }
        }
    }

    fn json_condition(&mut self, scope: &Scope) -> String {
        let Some(json) = self.column(Type::Json, scope) else {
            return self.compared(Type::Text, scope, 0);
        };
        let text = self.one(&[
            "{} ->> 'b' = 'x'",
            "{} ->> 'a' in ('1', '2')",
            "{} -> 'n' is null",
            "{} ->> 'n' is null",
            "{} -> 'c' ->> 'y' like 'p%'",
            "{} -> 'l' ->> 0 <> '5'",
            "({} ->> 'a')::bigint > 1",
            "{} ->> 'b' || 'k' = 'xk'",
            "{} ->> 'a' between '1' and '2'",
            "({} ->> 't')::boolean",
            "{} -> 'c' -> 'x' is not null",
        ]);
        text.replace("{}", &json)
    }

    /// Returns a comparison of two types.
    fn mixed(&mut self, scope: &Scope, depth: usize) -> String {
        let (a, b) = self.one(&[
            (Type::Int, Type::Float),
            (Type::Decimal, Type::Int),
            (Type::Float, Type::Decimal),
            (Type::Date, Type::Time),
            (Type::Time, Type::Date),
        ]);
        if self.chance(30) {
            let time = self.value(Type::Time, scope, depth);
            let text = self.one(&["'2026-01-05'", "'2026-01-05 10:30:00'", "'2026-01-06T00:00:00Z'"]);
            return format!("{time} {} {text}", self.comparison());
        }
        if self.chance(20) {
            let (a, b) = (self.value(Type::Time, scope, depth), self.value(Type::Time, scope, 0));
            return format!("{a} - {b} {} interval '1 day'", self.comparison());
        }
        let (a, b) = (self.value(a, scope, depth), self.value(b, scope, depth));
        format!("{a} {} {b}", self.comparison())
    }

    /// Returns a comparison of rows of two columns.
    fn rows_compared(&mut self, scope: &Scope) -> String {
        let mut pair = || (self.value(Type::Int, scope, 0), self.value(Type::Text, scope, 0));
        let ((a, b), (c, d)) = (pair(), pair());
        match self.below(4) {
            0 => format!("({a}, {b}) in (({c}, {d}), (1, 'ab'))"),
            1 => format!("({a}, {b}) is not distinct from ({c}, {d})"),
            _ => format!("({a}, {b}) {} ({c}, {d})", self.one(&["=", "<>", "<", ">="])),
        }
    }
}
