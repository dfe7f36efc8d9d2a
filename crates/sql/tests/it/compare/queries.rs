//! Random queries.

use rand::rngs::StdRng;

use super::expressions::{Expressions, Random, Scope, Source, TYPES};
use super::tables::{COLUMNS, TABLES, Type};

/// Nested queries of a statement at most.
const DEPTH_MAX: usize = 3;

pub struct Generator {
    random: Random,
}

impl Generator {
    pub fn new(rng: StdRng) -> Self {
        Self { random: Random::new(rng) }
    }

    pub fn statement(&mut self) -> String {
        self.random.restart_names();
        match self.random.below(10) {
            0..=3 => self.rows(),
            4 | 5 => self.groups(),
            6 => self.windows(),
            7 => self.sets(),
            8 => self.nested(),
            _ => self.first_rows(),
        }
    }

    /// Returns a table under a new name.
    fn table(&mut self) -> (String, Source) {
        let alias = self.random.alias();
        let name = TABLES[self.random.below(TABLES.len())].0;
        let columns = COLUMNS.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect();
        (format!("{name} {alias}"), Source { alias, columns })
    }

    /// Returns the text of `FROM` and the tables in it.
    fn from(&mut self, joins: usize, outer: &[Source]) -> (String, Scope) {
        let (mut text, first) = self.table();
        let mut scope = Scope { sources: vec![first], outer: outer.to_vec() };
        for _ in 0..joins {
            let (table, source) = self.table();
            let alias = source.alias.clone();
            scope.sources.push(source);
            let left = scope.sources[self.random.below(scope.sources.len() - 1)].alias.clone();
            let key = self.random.one(&["id", "g", "x"]);
            let other = self.random.one(&["id", "g", "x"]);
            let kind =
                self.random.one(&["join", "left join", "right join", "full join", "cross join", "left join"]);
            if kind == "cross join" {
                text += &format!(" cross join {table}");
                continue;
            }
            let mut on = format!("{left}.{key} = {alias}.{other}");
            if self.random.chance(40) {
                let inner = Scope { sources: scope.sources.clone(), outer: vec![] };
                let more = self.predicate(&inner, 1);
                on += &format!(" and ({more})");
            }
            text += &format!(" {kind} {table} on {on}");
        }
        (text, scope)
    }

    fn joins(&mut self) -> usize {
        self.random.one(&[0, 0, 0, 1, 1, 2])
    }

    fn rows(&mut self) -> String {
        let joins = self.joins();
        let (from, scope) = self.from(joins, &[]);
        let ids: Vec<String> = scope.sources.iter().map(|s| format!("{}.id", s.alias)).collect();
        let mut columns = ids;
        for _ in 0..self.random.below(3) {
            let ty = self.random.one(&TYPES);
            columns.push(self.value(ty, &scope, DEPTH_MAX - 1));
        }
        let columns: Vec<String> = columns.iter().enumerate().map(|(n, c)| format!("{c} as c{n}")).collect();
        let distinct = self.random.one(&["", "", "", "distinct "]);
        let filter = match self.random.chance(80) {
            true => format!(" where {}", self.predicate(&scope, DEPTH_MAX)),
            false => String::new(),
        };
        format!("select {distinct}{} from {from}{filter}", columns.join(", "))
    }

    fn aggregate(&mut self, scope: &Scope) -> String {
        let filter = match self.random.chance(25) {
            true => format!(" filter (where {})", self.predicate(scope, 2)),
            false => String::new(),
        };
        let call = match self.random.below(9) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", self.value(Type::Text, scope, 1)),
            2 => format!("count(distinct {})", self.value(Type::Int, scope, 1)),
            3 => format!("sum({})", self.value(Type::Int, scope, 2)),
            4 => format!("avg({})", self.value(Type::Float, scope, 1)),
            5 => format!("max({})", self.value(Type::Text, scope, 1)),
            6 => format!("min({})", self.value(Type::Time, scope, 1)),
            7 => format!("bool_or({})", self.value(Type::Bool, scope, 2)),
            _ => format!("sum(case when {} then 1 else 0 end)", self.predicate(scope, 2)),
        };
        call + &filter
    }

    fn groups(&mut self) -> String {
        let joins = self.joins();
        let (from, scope) = self.from(joins, &[]);
        let mut keys = vec![];
        for _ in 0..self.random.below(3) {
            let ty = self.random.one(&[Type::Int, Type::Text, Type::Bool, Type::Time]);
            keys.extend(self.column(ty, &scope));
        }
        let mut columns = keys.clone();
        for _ in 0..1 + self.random.below(2) {
            columns.push(self.aggregate(&scope));
        }
        let columns: Vec<String> = columns.iter().enumerate().map(|(n, c)| format!("{c} as c{n}")).collect();
        let mut text = format!("select {} from {from}", columns.join(", "));
        if self.random.chance(50) {
            text += &format!(" where {}", self.predicate(&scope, 2));
        }
        if !keys.is_empty() {
            text += &format!(" group by {}", keys.join(", "));
        }
        if self.random.chance(40) {
            let op = self.comparison();
            text += &match self.random.below(4) {
                0 => {
                    let counted = Scope::default();
                    let query = self.subquery(Type::Int, &counted, 1);
                    let how = self.random.one(&["in", "not in", "> all", "<= any"]);
                    format!(" having count(*) {how} ({query})")
                }
                1 => format!(" having not (sum({}) {op} 2)", self.value(Type::Int, &scope, 1)),
                2 => format!(" having max({}) is not null", self.value(Type::Text, &scope, 1)),
                _ => format!(" having count(*) {op} 2"),
            };
        }
        text
    }

    fn windows(&mut self) -> String {
        let (from, scope) = self.from(0, &[]);
        let id = format!("{}.id", scope.sources[0].alias);
        let mut columns = vec![id.clone()];
        for _ in 0..1 + self.random.below(2) {
            let function = match self.random.below(8) {
                0 => "row_number()".to_owned(),
                1 => "rank()".to_owned(),
                2 => "count(*)".to_owned(),
                3 => format!("sum({})", self.value(Type::Int, &scope, 1)),
                4 => format!("lag({})", self.value(Type::Text, &scope, 1)),
                5 => format!("lead({}, 2)", self.value(Type::Int, &scope, 1)),
                6 => format!("first_value({})", self.value(Type::Int, &scope, 1)),
                _ => format!("max({})", self.value(Type::Time, &scope, 1)),
            };
            let mut over = vec![];
            if self.random.chance(60) {
                let ty = self.random.one(&TYPES);
                over.push(format!("partition by {}", self.value(ty, &scope, 1)));
            }
            let ty = self.random.one(&TYPES);
            over.push(format!(
                "order by {} {}, {id}",
                self.value(ty, &scope, 1),
                self.random.one(&["asc", "desc"])
            ));
            if self.random.chance(30) && !function.starts_with("r") && !function.starts_with('l') {
                over.push(
                    self.random
                        .one(&[
                            "rows between 1 preceding and 1 following",
                            "rows between unbounded preceding and 1 preceding",
                            "rows between current row and unbounded following",
                            "range between unbounded preceding and current row",
                        ])
                        .to_owned(),
                );
            }
            columns.push(format!("{function} over ({})", over.join(" ")));
        }
        let columns: Vec<String> = columns.iter().enumerate().map(|(n, c)| format!("{c} as c{n}")).collect();
        let filter = match self.random.chance(40) {
            true => format!(" where {}", self.predicate(&scope, 2)),
            false => String::new(),
        };
        format!("select {} from {from}{filter}", columns.join(", "))
    }

    /// Returns a query with columns of these types.
    fn columns_of(&mut self, types: &[Type]) -> String {
        let joins = self.random.one(&[0, 0, 1]);
        let (from, scope) = self.from(joins, &[]);
        let columns: Vec<String> = types
            .iter()
            .enumerate()
            .map(|(n, ty)| format!("{} as c{n}", self.value(*ty, &scope, 1)))
            .collect();
        let filter = match self.random.chance(50) {
            true => format!(" where {}", self.predicate(&scope, 2)),
            false => String::new(),
        };
        format!("select {} from {from}{filter}", columns.join(", "))
    }

    fn sets(&mut self) -> String {
        let types: Vec<Type> = (0..1 + self.random.below(2)).map(|_| self.random.one(&TYPES)).collect();
        let mut text = self.columns_of(&types);
        for _ in 0..1 + self.random.below(2) {
            let op = self.random.one(&[
                "union",
                "union all",
                "intersect",
                "intersect all",
                "except",
                "except all",
            ]);
            let other = self.columns_of(&types);
            text = match self.random.chance(50) {
                true => format!("{text} {op} {other}"),
                false => format!("({text}) {op} ({other})"),
            };
        }
        text
    }

    /// Returns a query over a query in `FROM` or `WITH`.
    fn nested(&mut self) -> String {
        let types = [Type::Int, self.random.one(&TYPES), self.random.one(&TYPES)];
        let inner = match self.random.chance(30) {
            true => self.columns_of(&types) + " union all " + &self.columns_of(&types),
            false => self.columns_of(&types),
        };
        let alias = self.random.alias();
        let columns = types.iter().enumerate().map(|(n, ty)| (format!("c{n}"), *ty)).collect();
        let scope = Scope { sources: vec![Source { alias: alias.clone(), columns }], outer: vec![] };
        let ty = self.random.one(&types);
        let value = self.value(ty, &scope, 2);
        let filter = self.predicate(&scope, 2);
        match self.random.chance(50) {
            true => format!("select {alias}.c0, {value} as v from ({inner}) {alias} where {filter}"),
            false => format!(
                "with {alias} as ({inner}) select {alias}.c0, {value} as v from {alias} where {filter}"
            ),
        }
    }

    fn first_rows(&mut self) -> String {
        let (from, scope) = self.from(0, &[]);
        let alias = scope.sources[0].alias.clone();
        let ty = self.random.one(&TYPES);
        let value = self.value(ty, &scope, 2);
        let order = self.value(ty, &scope, 1);
        let direction = self.random.one(&["asc", "desc", "asc nulls first", "desc nulls last"]);
        let offset = self.random.one(&["", " offset 1"]);
        let filter = self.predicate(&scope, 2);
        format!(
            "select {alias}.id, {value} as v from {from} where {filter} order by {order} {direction}, {alias}.id limit 3{offset}"
        )
    }
}

impl Expressions for Generator {
    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn subquery(&mut self, ty: Type, outer: &Scope, depth: usize) -> String {
        let joins = self.random.one(&[0, 0, 0, 0, 1]);
        // conditions of nested queries use only the query around them, as most people write them
        let visible: &[Source] = if self.random.chance(65) { &outer.sources } else { &[] };
        let (from, scope) = self.from(joins, visible);
        let own = Scope { sources: scope.sources.clone(), outer: vec![] };
        let depth = depth.min(1);
        let kind = self.random.below(10);
        let value = match kind {
            0 if ty != Type::Bool => {
                format!("{}({})", self.random.one(&["max", "min"]), self.value(ty, &own, 1))
            }
            1 if ty == Type::Int => "count(*)".to_owned(),
            _ => self.value(ty, &own, 1),
        };
        let mut conditions = vec![];
        if !visible.is_empty() {
            let inner = own.sources[0].alias.clone();
            let other = visible[self.random.below(visible.len())].clone();
            let (column, ty) = other.columns[self.random.below(other.columns.len())].clone();
            let names: Vec<&str> = COLUMNS.iter().filter(|c| c.1 == ty).map(|c| c.0).collect();
            let name = self.random.one(&names);
            let op = self.random.one(&["=", "=", "=", "<", ">=", "<>"]);
            conditions.push(format!("{inner}.{name} {op} {}.{column}", other.alias));
        }
        if self.random.chance(40) {
            let scope = if self.random.chance(30) { &scope } else { &own };
            let text = self.predicate(scope, depth);
            conditions.push(format!("({text})"));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" where {}", conditions.join(" and ")),
        };
        let is_aggregate =
            value.starts_with("max(") || value.starts_with("min(") || value.starts_with("count(");
        let tail = match self.random.below(12) {
            0 if is_aggregate => format!(" group by {}.g", own.sources[0].alias),
            1 if !is_aggregate => format!(" order by {}.id limit 2", own.sources[0].alias),
            _ => String::new(),
        };
        let distinct =
            if !is_aggregate && tail.is_empty() && self.random.chance(10) { "distinct " } else { "" };
        format!("select {distinct}{value} from {from}{filter}{tail}")
    }

    fn scalar_subquery(&mut self, ty: Type, outer: &Scope, depth: usize) -> String {
        let visible: &[Source] = if self.random.chance(50) { &outer.sources } else { &[] };
        let (from, scope) = self.from(0, visible);
        let own = Scope { sources: scope.sources.clone(), outer: vec![] };
        let inner = own.sources[0].alias.clone();
        let value = match ty {
            Type::Int if self.random.chance(40) => "count(*)".to_owned(),
            Type::Int if self.random.chance(30) => format!("coalesce(sum({inner}.x), -7)"),
            ty => format!("{}({})", self.random.one(&["max", "min"]), self.value(ty, &own, depth.min(1))),
        };
        let mut conditions = vec![];
        if !visible.is_empty() {
            let other = &visible[self.random.below(visible.len())];
            let ints: Vec<String> =
                other.columns.iter().filter(|c| c.1 == Type::Int).map(|c| c.0.clone()).collect();
            if !ints.is_empty() {
                let column = &ints[self.random.below(ints.len())];
                let name = self.random.one(&["id", "g", "x", "y"]);
                let op = self.random.one(&["=", "=", "=", "="]);
                conditions.push(format!("{inner}.{name} {op} {}.{column}", other.alias));
            }
        }
        if self.random.chance(40) {
            let text = self.predicate(&own, 1);
            conditions.push(format!("({text})"));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" where {}", conditions.join(" and ")),
        };
        format!("(select {value} from {from}{filter})")
    }
}
