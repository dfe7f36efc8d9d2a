//! Random groups and windows.

use super::expressions::TYPES;
use super::random::{Generator, Scope, Statement};
use super::tables::Type;

/// Frames of windows, and whether they need one numeric column in `ORDER BY`.
const FRAMES: [&str; 8] = [
    "rows between 1 preceding and 1 following",
    "rows between unbounded preceding and 1 preceding",
    "rows between current row and unbounded following",
    "range between unbounded preceding and current row",
    "rows 2 preceding",
    "groups between 1 preceding and current row",
    "rows between 2 following and 3 following",
    "range between current row and unbounded following",
];

impl Generator {
    fn aggregate(&mut self, scope: &Scope) -> String {
        let filter = match self.chance(25) {
            true => format!(" filter (where {})", self.predicate(scope, 2)),
            false => String::new(),
        };
        let call = match self.below(18) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", self.value(Type::Text, scope, 1)),
            2 => {
                let ty = self.one(&[Type::Int, Type::Text, Type::Date]);
                format!("count(distinct {})", self.value(ty, scope, 1))
            }
            3 => format!("sum({})", self.value(Type::Int, scope, 2)),
            4 => format!("avg({})", self.value(Type::Float, scope, 1)),
            5 => format!("max({})", self.value(Type::Text, scope, 1)),
            6 => format!("min({})", self.value(Type::Time, scope, 1)),
            7 => format!("{}({})", self.one(&["bool_or", "bool_and"]), self.value(Type::Bool, scope, 2)),
            8 => format!("avg({})", self.value(Type::Int, scope, 1)),
            9 => format!("sum(distinct {})", self.value(Type::Int, scope, 1)),
            10 => format!("sum({})", self.value(Type::Decimal, scope, 1)),
            11 => format!("max({})", self.value(Type::Date, scope, 1)),
            12 => format!(
                "{}({})",
                self.one(&["stddev_samp", "stddev_pop", "var_samp", "var_pop", "stddev"]),
                self.value(Type::Int, scope, 0)
            ),
            13 => {
                // the rows of lists of values and lateral queries have no number
                let value = self.value(Type::Text, scope, 0);
                match scope.sources.iter().all(|source| source.alias.is_empty() || source.columns.len() > 3) {
                    true => format!("string_agg({value}, ',' order by {})", scope.ids().join(", ")),
                    false => format!("string_agg({value}, ',' order by {value})"),
                }
            }
            14 => format!("sum({}) + count(*)", self.value(Type::Int, scope, 0)),
            15 => format!("min({})", self.value(Type::Decimal, scope, 1)),
            16 => format!("count(distinct {})", self.value(Type::Bool, scope, 1)),
            _ => format!("sum(case when {} then 1 else 0 end)", self.predicate(scope, 2)),
        };
        match call.ends_with("count(*)") && call.len() > 8 {
            true => call,
            false => call + &filter,
        }
    }

    pub fn groups(&mut self) -> Statement {
        let joins = self.one(&[0, 0, 1, 2]);
        let (from, scope) = self.from(joins, &[]);
        let mut keys = vec![];
        for _ in 0..self.below(3) {
            let ty = self.one(&[Type::Int, Type::Text, Type::Bool, Type::Time, Type::Date]);
            match self.chance(70) {
                true => keys.extend(self.column(ty, &scope)),
                false => keys.push(self.value(ty, &scope.own(), 1)),
            }
        }
        // a constant is a position in GROUP BY, and a subquery is compared by its text
        keys.retain(|key| key.contains('q') && !key.contains("select"));
        let mut columns = keys.clone();
        for _ in 0..1 + self.below(2) {
            columns.push(self.aggregate(&scope));
        }
        let names: Vec<String> = (0..columns.len()).map(|n| format!("c{n}")).collect();
        let columns: Vec<String> = columns.iter().zip(&names).map(|(c, n)| format!("{c} as {n}")).collect();
        let mut text = format!("select {} from {from}", columns.join(", "));
        if self.chance(50) {
            text += &format!(" where {}", self.predicate(&scope, 2));
        }
        let sets = keys.len() == 2 && self.chance(25);
        if sets {
            let (a, b) = (&keys[0], &keys[1]);
            text += &match self.below(3) {
                0 => format!(" group by rollup ({a}, {b})"),
                1 => format!(" group by cube ({a}, {b})"),
                _ => format!(" group by grouping sets (({a}), ({a}, {b}), ())"),
            };
        } else if !keys.is_empty() {
            let by_position = self.chance(15);
            let positions: Vec<String> = (1..=keys.len()).map(|n| n.to_string()).collect();
            text += &format!(" group by {}", if by_position { &positions } else { &keys }.join(", "));
        }
        if self.chance(40) {
            text += &self.having(&scope);
        }
        if !sets && !keys.is_empty() && self.chance(30) {
            let order: Vec<String> =
                names[..keys.len()].iter().map(|name| format!("{name}{}", self.direction())).collect();
            text += &format!(" order by {}{}", order.join(", "), self.limit());
            return Statement::ordered(text);
        }
        Statement::unordered(text)
    }

    fn having(&mut self, scope: &Scope) -> String {
        let op = self.comparison();
        match self.below(5) {
            0 => {
                let counted = Scope::default();
                let query = self.subquery(Type::Int, &counted, 1);
                let how = self.one(&["in", "not in", "> all", "<= any"]);
                format!(" having count(*) {how} ({query})")
            }
            1 => format!(" having not (sum({}) {op} 2)", self.value(Type::Int, scope, 1)),
            2 => format!(" having max({}) is not null", self.value(Type::Text, scope, 1)),
            3 => format!(" having count(*) > 1 or min({}) {op} 1", self.value(Type::Int, scope, 1)),
            _ => format!(" having count(*) {op} 2"),
        }
    }

    pub fn windows(&mut self) -> Statement {
        let joins = self.one(&[0, 0, 0, 1]);
        let (from, scope) = self.from(joins, &[]);
        let ids = scope.ids().join(", ");
        let mut columns = scope.ids();
        let named = self.chance(20);
        for _ in 0..1 + self.below(2) {
            let function = match self.below(14) {
                0 => "row_number()".to_owned(),
                1 => self.one(&["rank()", "dense_rank()", "percent_rank()", "cume_dist()"]).to_owned(),
                2 => "count(*)".to_owned(),
                3 => format!("sum({})", self.value(Type::Int, &scope, 1)),
                4 => format!("lag({})", self.value(Type::Text, &scope, 1)),
                5 => format!("lead({}, 2)", self.value(Type::Int, &scope, 1)),
                6 => format!("first_value({})", self.value(Type::Int, &scope, 1)),
                7 => format!("last_value({})", self.value(Type::Int, &scope, 1)),
                8 => format!("nth_value({}, 2)", self.value(Type::Text, &scope, 1)),
                9 => format!("ntile({})", self.one(&["2", "3"])),
                10 => format!("lag({}, 1, -9)", self.value(Type::Int, &scope, 0)),
                11 => format!("avg({})", self.value(Type::Float, &scope, 0)),
                12 => format!("count({}) filter (where {})", self.value(Type::Text, &scope, 0), {
                    self.predicate(&scope.own(), 0)
                }),
                _ => format!("max({})", self.value(Type::Time, &scope, 1)),
            };
            if named {
                columns.push(format!("{function} over w"));
                continue;
            }
            let takes_frame = ["s", "f", "n", "c", "m", "a"].iter().any(|first| function.starts_with(first))
                && !["ntile", "cume"].iter().any(|name| function.starts_with(name));
            let over = self.over(&scope, &ids, takes_frame);
            columns.push(format!("{function} over ({over})"));
        }
        let window = match named {
            true => format!(" window w as ({})", self.over(&scope, &ids, false)),
            false => String::new(),
        };
        let columns: Vec<String> = columns.iter().enumerate().map(|(n, c)| format!("{c} as c{n}")).collect();
        let filter = match self.chance(40) {
            true => format!(" where {}", self.predicate(&scope, 2)),
            false => String::new(),
        };
        Statement::unordered(format!("select {} from {from}{filter}{window}", columns.join(", ")))
    }

    fn over(&mut self, scope: &Scope, ids: &str, takes_frame: bool) -> String {
        let mut over = vec![];
        if self.chance(60) {
            let ty = self.one(&TYPES);
            over.push(format!("partition by {}", self.value(ty, scope, 1)));
        }
        let ty = self.one(&TYPES);
        let order = self.value(ty, scope, 1);
        over.push(format!("order by {order}{}, {ids}", self.direction()));
        if takes_frame && self.chance(40) {
            over.push(self.one(&FRAMES).to_owned());
        }
        over.join(" ")
    }
}
