//! Random `FROM` clauses.

use super::expressions::TYPES;
use super::random::{Generator, Scope, Source};
use super::tables::{COLUMNS, TABLES, Type};

impl Generator {
    /// Returns a table under a new name.
    pub fn table(&mut self) -> (String, Source) {
        let alias = self.alias();
        let name = TABLES[self.below(TABLES.len())].0;
        let columns = COLUMNS.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect();
        (format!("{name} {alias}"), Source { alias, columns })
    }

    pub fn joins(&mut self) -> usize {
        self.one(&[0, 0, 0, 1, 1, 1, 2, 3])
    }

    /// Returns the text of `FROM` and the tables in it.
    pub fn from(&mut self, joins: usize, outer: &[Source]) -> (String, Scope) {
        let (mut text, first) = self.table();
        let mut scope = Scope { sources: vec![first], outer: outer.to_vec() };
        if joins == 1 && self.chance(12) {
            return self.join_using(text, scope);
        }
        for _ in 0..joins {
            match self.below(12) {
                0 => self.join_lateral(&mut text, &mut scope),
                1 => self.join_brackets(&mut text, &mut scope),
                2 => self.join_values(&mut text, &mut scope),
                _ => self.join_table(&mut text, &mut scope),
            }
        }
        (text, scope)
    }

    fn join_table(&mut self, text: &mut String, scope: &mut Scope) {
        let (table, source) = self.table();
        let kind = self.one(&[
            "join",
            "left join",
            "right join",
            "full join",
            "cross join",
            "left join",
            "inner join",
            "left outer join",
        ]);
        let alias = source.alias.clone();
        scope.sources.push(source);
        if kind == "cross join" {
            *text += &format!(" cross join {table}");
            return;
        }
        let on = self.on(&alias, scope);
        *text += &format!(" {kind} {table} on {on}");
    }

    /// Returns the condition of a join with the last table of the scope.
    fn on(&mut self, alias: &str, scope: &Scope) -> String {
        let tables: Vec<&Source> =
            scope.sources[..scope.sources.len() - 1].iter().filter(|s| !s.columns.is_empty()).collect();
        let left = tables[self.below(tables.len())];
        let keys: Vec<String> = left.of_type(Type::Int).collect();
        let key = &keys[self.below(keys.len())];
        let other = self.one(&["id", "g", "x"]);
        let op = self.one(&["=", "=", "=", "=", "=", "<", ">=", "<>"]);
        let mut on = format!("{key} {op} {alias}.{other}");
        if self.chance(40) {
            let inner = scope.own();
            let more = self.predicate(&inner, 1);
            on += &format!(" {} ({more})", self.one(&["and", "and", "and", "or"]));
        }
        on
    }

    /// Joins with a query that may use the tables before it.
    fn join_lateral(&mut self, text: &mut String, scope: &mut Scope) {
        let before = scope.sources.clone();
        let (from, inner) = self.from(0, &before);
        let own = inner.own();
        let types = [Type::Int, self.one(&TYPES)];
        let columns: Vec<String> =
            types.iter().enumerate().map(|(n, ty)| format!("{} as c{n}", self.value(*ty, &own, 1))).collect();
        let condition = self.correlation(&own, &before).unwrap_or_else(|| "true".to_owned());
        let (columns, tail) = match self.below(6) {
            0 => (format!("count(*) as c0, max({}.s) as c1", own.sources[0].alias), String::new()),
            1 => (columns.join(", "), format!(" order by {}.id limit 1", own.sources[0].alias)),
            _ => (columns.join(", "), String::new()),
        };
        let alias = self.alias();
        let second = if columns.starts_with("count") { Type::Text } else { types[1] };
        let query = format!("lateral (select {columns} from {from} where {condition}{tail}) {alias}");
        *text += &match self.below(3) {
            0 => format!(" cross join {query}"),
            1 => format!(" join {query} on true"),
            _ => format!(" left join {query} on true"),
        };
        let columns = vec![("c0".to_owned(), Type::Int), ("c1".to_owned(), second)];
        scope.sources.push(Source { alias, columns });
    }

    /// Joins with a join in brackets.
    fn join_brackets(&mut self, text: &mut String, scope: &mut Scope) {
        let ((table, first), (other, second)) = (self.table(), self.table());
        let (a, b) = (first.alias.clone(), second.alias.clone());
        let left = &scope.sources[0];
        let keys: Vec<String> = left.of_type(Type::Int).collect();
        let key = keys[self.below(keys.len())].clone();
        let kind = self.one(&["join", "left join", "full join", "right join"]);
        let inside = self.one(&["join", "left join", "full join"]);
        let (c, d) = (self.one(&["id", "g", "x"]), self.one(&["id", "g", "x"]));
        *text += &format!(" {kind} ({table} {inside} {other} on {a}.{c} = {b}.{d}) on {key} = {b}.{c}");
        scope.sources.extend([first, second]);
    }

    fn join_values(&mut self, text: &mut String, scope: &mut Scope) {
        let alias = self.alias();
        let keys: Vec<String> = scope.sources[0].of_type(Type::Int).collect();
        let key = keys[self.below(keys.len())].clone();
        let kind = self.one(&["join", "left join", "right join"]);
        *text += &format!(
            " {kind} (values (1, 'ab'), (2, null), (3, 'b'), (null, 'zz')) {alias}(k, v) on {key} = {alias}.k"
        );
        let columns = vec![("k".to_owned(), Type::Int), ("v".to_owned(), Type::Text)];
        scope.sources.push(Source { alias, columns });
    }

    /// Joins two tables by `USING`, whose columns have no table afterwards.
    fn join_using(&mut self, mut text: String, mut scope: Scope) -> (String, Scope) {
        let (table, source) = self.table();
        let kind = self.one(&["join", "left join", "right join", "full join"]);
        let names = self.one(&[&["g"][..], &["x"], &["g", "x"], &["id"]]);
        text += &format!(" {kind} {table} using ({})", names.join(", "));
        scope.sources.push(source);
        let columns = names.iter().map(|name| ((*name).to_owned(), Type::Int)).collect();
        scope.sources.push(Source { alias: String::new(), columns });
        (text, scope)
    }
}
