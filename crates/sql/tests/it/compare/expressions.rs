//! Random expressions over the columns in scope.

use rand::Rng;
use rand::rngs::StdRng;

use super::tables::Type;

/// A table of a query, and what its columns are called.
#[derive(Debug, Clone)]
pub struct Source {
    pub alias: String,
    pub columns: Vec<(String, Type)>,
}

/// Tables whose columns an expression may use: those of its query, and of the queries around it.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub sources: Vec<Source>,
    pub outer: Vec<Source>,
}

pub const TYPES: [Type; 5] = [Type::Int, Type::Float, Type::Text, Type::Bool, Type::Time];
/// Types of operands of comparisons, often whole numbers.
const COMPARED: [Type; 8] =
    [Type::Int, Type::Int, Type::Int, Type::Text, Type::Float, Type::Time, Type::Text, Type::Int];

/// Source of random choices and of new names.
pub struct Random {
    pub rng: StdRng,
    aliases: usize,
}

impl Random {
    pub fn new(rng: StdRng) -> Self {
        Self { rng, aliases: 0 }
    }

    pub fn restart_names(&mut self) {
        self.aliases = 0;
    }

    pub fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("q{}", self.aliases)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Returns `text` in brackets, or sometimes without, so that the operators around decide.
    pub fn bracket(&mut self, text: String) -> String {
        match self.chance(75) {
            true => format!("({text})"),
            false => text,
        }
    }
}

/// Random expressions. Subqueries come from [`super::queries`].
pub trait Expressions {
    fn random(&mut self) -> &mut Random;

    /// Returns a query with one column of type `ty` that may use the columns of `outer`.
    fn subquery(&mut self, ty: Type, outer: &Scope, depth: usize) -> String;

    /// Returns a query with one row and one column.
    fn scalar_subquery(&mut self, ty: Type, outer: &Scope, depth: usize) -> String;

    fn column(&mut self, ty: Type, scope: &Scope) -> Option<String> {
        let use_outer = !scope.outer.is_empty() && self.random().chance(25);
        let sources = if use_outer || scope.sources.is_empty() { &scope.outer } else { &scope.sources };
        let fitting: Vec<String> = sources
            .iter()
            .flat_map(|s| s.columns.iter().filter(|c| c.1 == ty).map(|c| format!("{}.{}", s.alias, c.0)))
            .collect();
        (!fitting.is_empty()).then(|| fitting[self.random().below(fitting.len())].clone())
    }

    fn literal(&mut self, ty: Type) -> String {
        if self.random().chance(8) {
            let name = match ty {
                Type::Int => "bigint",
                Type::Float => "double precision",
                Type::Text => "text",
                Type::Bool => "boolean",
                Type::Time => "timestamp",
            };
            return format!("cast(null as {name})");
        }
        let random = self.random();
        match ty {
            Type::Int => random.one(&["0", "1", "2", "3", "5", "-1", "4"]).into(),
            Type::Float => {
                random.one(&["0.5", "2.5", "-1.25", "10.0", "cast(7.75 as decimal(10, 2))", "0.0"]).into()
            }
            Type::Text => random.one(&["'ab'", "'b'", "'abc'", "'B'", "''", "'c_d'", "'zz'"]).into(),
            Type::Bool => random.one(&["true", "false"]).into(),
            Type::Time => random
                .one(&[
                    "timestamp '2026-01-05 09:00:00'",
                    "timestamp '2026-01-06 00:00:00'",
                    "timestamp '2026-02-28 12:00:00.5'",
                    "timestamp '1969-12-31 23:59:59'",
                    "timestamp '2030-06-01 00:00:00'",
                ])
                .into(),
        }
    }

    /// Returns an expression of type `ty`.
    fn value(&mut self, ty: Type, scope: &Scope, depth: usize) -> String {
        if depth == 0 || self.random().chance(35) {
            let column = if self.random().chance(80) { self.column(ty, scope) } else { None };
            return column.unwrap_or_else(|| self.literal(ty));
        }
        let depth = depth - 1;
        match self.random().below(12) {
            0 => {
                let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
                return format!("coalesce({a}, {b})");
            }
            1 => {
                let condition = self.predicate(scope, depth);
                let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
                return match self.random().chance(70) {
                    true => format!("case when {condition} then {a} else {b} end"),
                    false => format!("case when {condition} then {a} end"),
                };
            }
            2 if ty != Type::Bool => {
                let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
                return format!("nullif({a}, {b})");
            }
            3 if ty != Type::Bool && self.random().chance(50) => {
                return self.scalar_subquery(ty, scope, depth);
            }
            _ => {}
        }
        match ty {
            Type::Int => self.whole_number(scope, depth),
            Type::Float => {
                let a = self.value(Type::Float, scope, depth);
                let b = match self.random().chance(50) {
                    true => self.value(Type::Float, scope, depth),
                    false => self.value(Type::Int, scope, depth),
                };
                let op = self.random().one(&["+", "-", "*", "^"]);
                let text = match op {
                    "^" => format!("{a} ^ 2"),
                    op => format!("{a} {op} {b}"),
                };
                self.random().bracket(text)
            }
            Type::Text => self.text(scope, depth),
            Type::Bool => {
                let text = self.predicate(scope, depth);
                format!("({text})")
            }
            Type::Time => {
                let a = self.value(Type::Time, scope, depth);
                match self.random().below(4) {
                    0 => format!(
                        "date_trunc('{}', {a})",
                        self.random().one(&["day", "hour", "month", "year", "week"])
                    ),
                    1 => format!("({a} + interval '90 minutes')"),
                    2 => format!("({a} - interval '1 month')"),
                    _ => format!("({a} + interval '2 days')"),
                }
            }
        }
    }

    fn whole_number(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Int, scope, depth);
        match self.random().below(9) {
            0 => format!("abs({a})"),
            1 => format!("- {a}"),
            2 => {
                let text = self.value(Type::Text, scope, depth);
                format!("length({text})")
            }
            3 => {
                let text = format!("{a} % 3");
                self.random().bracket(text)
            }
            4 => {
                let part = self.random().one(&["year", "month", "day", "hour"]);
                let time = self.value(Type::Time, scope, depth);
                format!("cast(extract({part} from {time}) as bigint)")
            }
            _ => {
                let op = self.random().one(&["+", "-", "*", "+", "-"]);
                let b = self.value(Type::Int, scope, depth);
                let text = format!("{a} {op} {b}");
                self.random().bracket(text)
            }
        }
    }

    fn text(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Text, scope, depth);
        match self.random().below(7) {
            0 => format!("upper({a})"),
            1 => format!("lower({a})"),
            2 => format!("substr({a}, 1, 2)"),
            3 => format!("replace({a}, 'b', 'xy')"),
            4 => format!("concat({a}, '-')"),
            _ => {
                let b = self.value(Type::Text, scope, depth);
                let text = format!("{a} || {b}");
                self.random().bracket(text)
            }
        }
    }

    fn comparison(&mut self) -> &'static str {
        self.random().one(&["=", "<>", "<", "<=", ">", ">=", "="])
    }

    /// Returns a condition.
    fn predicate(&mut self, scope: &Scope, depth: usize) -> String {
        let choice = self.random().below(if depth == 0 { 8 } else { 24 });
        let ty = self.random().one(&COMPARED);
        let below = depth.saturating_sub(1);
        match choice {
            0 | 1 => {
                let (a, b) = (self.value(ty, scope, below), self.value(ty, scope, below));
                format!("{a} {} {b}", self.comparison())
            }
            2 => {
                let a = self.value(ty, scope, below);
                format!("{a} is {}null", self.random().one(&["", "not "]))
            }
            3 => self.value(Type::Bool, scope, 0),
            4 => {
                let (a, b, c) =
                    (self.value(ty, scope, below), self.value(ty, scope, 0), self.value(ty, scope, 0));
                format!("{a} {}between {b} and {c}", self.random().one(&["", "not "]))
            }
            5 => {
                let a = self.value(ty, scope, below);
                let count = 1 + self.random().below(3);
                let list: Vec<String> = (0..count).map(|_| self.value(ty, scope, 0)).collect();
                format!("{a} {}in ({})", self.random().one(&["", "not "]), list.join(", "))
            }
            6 => {
                let a = self.value(Type::Text, scope, below);
                if self.random().chance(20) {
                    return format!("{a} {} '[bc]'", self.random().one(&["~", "!~"]));
                }
                let pattern = self.random().one(&["'a%'", "'%b%'", "'_b'", "'%'", "''", "'c\\_d'"]);
                format!("{a} {}like {pattern}", self.random().one(&["", "not "]))
            }
            7 => {
                let (a, b) = (self.value(ty, scope, below), self.value(ty, scope, below));
                format!("{a} is {}distinct from {b}", self.random().one(&["", "not "]))
            }
            8..=12 => {
                let (a, b) = (self.predicate(scope, below), self.predicate(scope, below));
                let op = self.random().one(&["and", "or", "or"]);
                let text = format!("{a} {op} {b}");
                self.random().bracket(text)
            }
            13 | 14 => {
                let a = self.predicate(scope, below);
                let a = self.random().bracket(a);
                format!("not {a}")
            }
            15 => {
                let a = self.predicate(scope, below);
                let is = self.random().one(&[
                    "true",
                    "false",
                    "unknown",
                    "not true",
                    "not false",
                    "not unknown",
                    "null",
                ]);
                format!("({a}) is {is}")
            }
            16 | 17 => {
                let a = self.value(ty, scope, below);
                let query = self.subquery(ty, scope, below);
                format!("{a} in ({query})")
            }
            18 | 19 => {
                let a = self.value(ty, scope, below);
                let query = self.subquery(ty, scope, below);
                format!("{a} not in ({query})")
            }
            20 | 21 => {
                let a = self.value(ty, scope, below);
                let query = self.subquery(ty, scope, below);
                let op = self.comparison();
                format!("{a} {op} {} ({query})", self.random().one(&["any", "all", "some"]))
            }
            22 => {
                let query = self.subquery(ty, scope, below);
                format!("{}exists ({query})", self.random().one(&["", "not "]))
            }
            _ => {
                let (a, b) = (self.predicate(scope, below), self.predicate(scope, below));
                format!("({a}) {} ({b})", self.random().one(&["=", "<>"]))
            }
        }
    }
}
