//! Random statements.

use super::expressions::TYPES;
use super::random::{Generator, Scope, Source, Statement};
use super::tables::Type;

/// Nested queries of a statement at most.
const DEPTH_MAX: usize = 3;

impl Generator {
    pub fn statement(&mut self) -> Statement {
        self.restart_names();
        match self.below(20) {
            0..=4 => self.rows(),
            5..=7 => self.groups(),
            8 | 9 => self.windows(),
            10 | 11 => self.sets(),
            12 | 13 => self.nested(),
            14 | 15 => self.first_rows(),
            16 => self.distinct(),
            17 => self.merged(),
            _ => self.chain(),
        }
    }

    /// Returns what follows an expression in `ORDER BY`.
    pub fn direction(&mut self) -> &'static str {
        self.one(&["", " asc", " desc", " nulls first", " desc nulls last", " asc nulls last"])
    }

    pub fn limit(&mut self) -> &'static str {
        self.one(&["", " limit 3", " limit 2 offset 1", " offset 2", " fetch first 2 rows only", " limit 0"])
    }

    fn filter(&mut self, percent: usize, scope: &Scope, depth: usize) -> String {
        match self.chance(percent) {
            true => format!(" where {}", self.predicate(scope, depth)),
            false => String::new(),
        }
    }

    fn rows(&mut self) -> Statement {
        let joins = self.joins();
        let (from, scope) = self.from(joins, &[]);
        let mut columns = scope.ids();
        for _ in 0..self.below(3) {
            let ty = self.one(&TYPES);
            columns.push(self.value(ty, &scope, DEPTH_MAX - 1));
        }
        let columns: Vec<String> = columns.iter().enumerate().map(|(n, c)| format!("{c} as c{n}")).collect();
        let distinct = self.one(&["", "", "", "distinct "]);
        let filter = self.filter(80, &scope, DEPTH_MAX);
        Statement::unordered(format!("select {distinct}{} from {from}{filter}", columns.join(", ")))
    }

    /// Returns a query with columns of these types.
    fn columns_of(&mut self, types: &[Type]) -> String {
        let joins = self.one(&[0, 0, 1]);
        let (from, scope) = self.from(joins, &[]);
        let columns: Vec<String> = types
            .iter()
            .enumerate()
            .map(|(n, ty)| format!("{} as c{n}", self.value(*ty, &scope, 1)))
            .collect();
        let filter = self.filter(50, &scope, 2);
        format!("select {} from {from}{filter}", columns.join(", "))
    }

    fn sets(&mut self) -> Statement {
        let types: Vec<Type> = (0..1 + self.below(2)).map(|_| self.one(&TYPES)).collect();
        let mut text = self.columns_of(&types);
        for _ in 0..1 + self.below(3) {
            let op = self.one(&["union", "union all", "intersect", "intersect all", "except", "except all"]);
            let other = self.columns_of(&types);
            text = match self.chance(50) {
                true => format!("{text} {op} {other}"),
                false => format!("({text}) {op} ({other})"),
            };
        }
        if self.chance(35) {
            let order: Vec<String> = (1..=types.len()).map(|n| format!("{n}{}", self.direction())).collect();
            return Statement::ordered(format!("{text} order by {}{}", order.join(", "), self.limit()));
        }
        Statement::unordered(text)
    }

    /// Returns a query over a query in `FROM` or `WITH`.
    fn nested(&mut self) -> Statement {
        let types = [Type::Int, self.one(&TYPES), self.one(&TYPES)];
        let inner = match self.chance(30) {
            true => self.columns_of(&types) + " union all " + &self.columns_of(&types),
            false => self.columns_of(&types),
        };
        let alias = self.alias();
        let columns: Vec<(String, Type)> =
            types.iter().enumerate().map(|(n, ty)| (format!("c{n}"), *ty)).collect();
        let source = |alias: &str| Source { alias: alias.to_owned(), columns: columns.clone() };
        let mut scope = Scope { sources: vec![source(&alias)], outer: vec![] };
        let ty = self.one(&types);
        Statement::unordered(match self.below(6) {
            0 | 1 => {
                let (value, filter) = (self.value(ty, &scope, 2), self.predicate(&scope, 2));
                format!("select {alias}.c0, {value} as v from ({inner}) {alias} where {filter}")
            }
            2 | 3 => {
                let (value, filter) = (self.value(ty, &scope, 2), self.predicate(&scope, 2));
                format!(
                    "with {alias} as ({inner}) select {alias}.c0, {value} as v from {alias} where {filter}"
                )
            }
            4 => {
                // a query that is used twice, and one over it
                let (second, a, b) = (self.alias(), self.alias(), self.alias());
                let filter = self.predicate(&scope, 1);
                scope.sources = vec![source(&a), source(&b)];
                let value = self.value(ty, &scope, 1);
                let kind = self.one(&["join", "left join", "full join"]);
                format!(
                    "with {alias} as ({inner}), {second} as (select * from {alias} where {filter}) select {a}.c0, {b}.c0 as d, \
                     {value} as v from {alias} {a} {kind} {second} {b} on {a}.c0 = {b}.c0"
                )
            }
            _ => {
                let value = self.value(Type::Int, &scope, 0);
                format!(
                    "with recursive {alias}(c0) as (select x from R where x is not null union {}select c0 + 1 from {alias} \
                     where c0 < {}) select {alias}.c0, {} as v from {alias}",
                    self.one(&["all ", ""]),
                    self.one(&["3", "5"]),
                    value.replace("c1", "c0").replace("c2", "c0")
                )
            }
        })
    }

    fn first_rows(&mut self) -> Statement {
        let joins = self.one(&[0, 0, 0, 1]);
        let (from, scope) = self.from(joins, &[]);
        let ids = scope.ids();
        let ty = self.one(&TYPES);
        let value = self.value(ty, &scope, 2);
        let ty = self.one(&TYPES);
        let order = match self.chance(25) {
            true => "v".to_owned(),
            false => self.value(ty, &scope, 1),
        };
        // a constant would be the position of a column
        let order = if order.contains('q') || order == "v" { order } else { "v".to_owned() };
        let direction = self.direction();
        let by_ids: Vec<String> = ids.iter().map(|id| format!("{id}{}", self.direction())).collect();
        let filter = self.filter(70, &scope, 2);
        let limit = self.limit();
        // the rows of a join with a list of values or a lateral query may be equal in their ids
        let is_total = scope.sources.iter().all(|s| s.alias.is_empty() || s.columns.len() > 3);
        let text = format!(
            "select {}, {value} as v from {from}{filter} order by {order}{direction}, {}",
            ids.join(", "),
            by_ids.join(", ")
        );
        match is_total {
            true => Statement::ordered(text + limit),
            false => Statement::unordered(text),
        }
    }

    /// Returns `SELECT DISTINCT`, or `DISTINCT ON`.
    fn distinct(&mut self) -> Statement {
        let (from, scope) = self.from(0, &[]);
        let id = scope.ids().remove(0);
        let ty = self.one(&TYPES);
        let key = self.column(key_type(ty), &scope).unwrap_or_else(|| id.clone());
        let value = self.value(ty, &scope, 1);
        let filter = self.filter(50, &scope, 2);
        if self.chance(50) {
            let (a, b) = (self.direction(), self.direction());
            let limit = self.limit();
            return Statement::ordered(format!(
                "select distinct on ({key}) {key} as k, {id} as i, {value} as v from {from}{filter} order by {key}{a}, {id}{b}{limit}"
            ));
        }
        let (a, b) = (self.direction(), self.direction());
        Statement::ordered(format!(
            "select distinct {key} as k, {value} as v from {from}{filter} order by k{a}, v{b}{}",
            self.limit()
        ))
    }

    /// Returns a join whose columns have no table.
    fn merged(&mut self) -> Statement {
        let (a, b) = (self.alias(), self.alias());
        let (first, second) = (self.one(&["R", "S", "T"]), self.one(&["R", "S", "T"]));
        let kind = self.one(&["join", "left join", "right join", "full join"]);
        let (left, right) =
            (self.one(&["id, g, s", "g, x", "id, x, b"]), self.one(&["id, g, d", "g, y", "id, x, t"]));
        let (natural, using) = match self.below(3) {
            0 => ("natural ", String::new()),
            1 if left.contains('x') && right.contains('x') => ("", " using (x)".to_owned()),
            _ if left.contains('g') && right.contains('g') => ("", " using (g)".to_owned()),
            _ => ("natural ", String::new()),
        };
        // the column that both tables have comes first in `SELECT *` of other systems
        let merged = |name: &str| !natural.is_empty() || using.contains(name);
        let shared = |name: &str| left.split(", ").any(|n| n == name) && right.split(", ").any(|n| n == name);
        let mut names: Vec<&str> = left.split(", ").chain(right.split(", ")).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !shared(name) || merged(name));
        let columns = match self.chance(80) {
            true => names.join(", "),
            false => format!("{}, count(*) as n", names[0]),
        };
        let tail = if columns.ends_with(" n") { format!(" group by {}", names[0]) } else { String::new() };
        Statement::unordered(format!(
            "select {columns} from (select {left} from {first}) {a} {natural}{kind} (select {right} from {second}) {b}{using}{tail}"
        ))
    }
}

fn key_type(ty: Type) -> Type {
    match ty {
        Type::Decimal | Type::Date | Type::Json => Type::Int,
        ty => ty,
    }
}
