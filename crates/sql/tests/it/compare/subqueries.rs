//! Random queries inside of expressions.

use super::random::{Generator, Scope, Source};
use super::tables::{COLUMNS, Type};

impl Generator {
    /// Returns a query with one column of type `ty` that may use the columns of `outer`.
    pub fn subquery(&mut self, ty: Type, outer: &Scope, depth: usize) -> String {
        let joins = self.one(&[0, 0, 0, 0, 1]);
        // conditions of nested queries use only the query around them, as most people write them
        let visible: &[Source] = if self.chance(65) { &outer.sources } else { &[] };
        let (from, scope) = self.from(joins, visible);
        let own = scope.own();
        let depth = depth.min(1);
        let kind = self.below(10);
        let value = match kind {
            0 if ty != Type::Bool => {
                format!("{}({})", self.one(&["max", "min"]), self.value(ty, &own, 1))
            }
            1 if ty == Type::Int => "count(*)".to_owned(),
            _ => self.value(ty, &own, 1),
        };
        let mut conditions = vec![];
        if let Some(condition) = self.correlation(&own, visible) {
            conditions.push(condition);
        }
        if self.chance(40) {
            let scope = if self.chance(30) { &scope } else { &own };
            let text = self.predicate(scope, depth);
            conditions.push(format!("({text})"));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" where {}", conditions.join(" and ")),
        };
        let is_aggregate =
            value.starts_with("max(") || value.starts_with("min(") || value.starts_with("count(");
        let inner = &own.sources[0].alias;
        let tail = match self.below(14) {
            0 if is_aggregate => format!(" group by {inner}.g"),
            1 if !is_aggregate => format!(" order by {inner}.id limit 2"),
            2 if is_aggregate => format!(" having count(*) {} 1", self.comparison()),
            _ => String::new(),
        };
        let is_plain = !is_aggregate && tail.is_empty();
        if is_plain && self.chance(6) {
            let (other, scope) = self.from(0, &[]);
            let second = self.value(ty, &scope, 0);
            let op = self.one(&["union all", "union", "except", "intersect"]);
            return format!("select {value} from {from}{filter} {op} select {second} from {other}");
        }
        let distinct = if is_plain && self.chance(10) { "distinct " } else { "" };
        format!("select {distinct}{value} from {from}{filter}{tail}")
    }

    /// Returns a condition on a column of the query around.
    pub fn correlation(&mut self, own: &Scope, visible: &[Source]) -> Option<String> {
        if visible.is_empty() {
            return None;
        }
        let inner = own.sources[0].alias.clone();
        let other = visible[self.below(visible.len())].clone();
        let (_, ty) = other.columns[self.below(other.columns.len())].clone();
        let columns: Vec<String> = other.of_type(ty).collect();
        let column = &columns[self.below(columns.len())];
        let names: Vec<&str> = COLUMNS.iter().filter(|c| c.1 == ty).map(|c| c.0).collect();
        if names.is_empty() || ty == Type::Json {
            return None;
        }
        let name = self.one(&names);
        let op = self.one(&["=", "=", "=", "<", ">=", "<>"]);
        Some(format!("{inner}.{name} {op} {column}"))
    }

    /// Returns a query with one row and one column.
    pub fn scalar_subquery(&mut self, ty: Type, outer: &Scope, depth: usize) -> String {
        let visible: &[Source] = if self.chance(50) { &outer.sources } else { &[] };
        let (from, scope) = self.from(0, visible);
        let own = scope.own();
        let inner = own.sources[0].alias.clone();
        let value = match ty {
            Type::Int if self.chance(40) => "count(*)".to_owned(),
            Type::Int if self.chance(30) => format!("coalesce(sum({inner}.x), -7)"),
            ty => format!("{}({})", self.one(&["max", "min"]), self.value(ty, &own, depth.min(1))),
        };
        let mut conditions = vec![];
        if !visible.is_empty() {
            let ints: Vec<String> = visible[self.below(visible.len())].of_type(Type::Int).collect();
            if !ints.is_empty() {
                let column = &ints[self.below(ints.len())];
                conditions.push(format!("{inner}.{} = {column}", self.one(&["id", "g", "x", "y"])));
            }
        }
        if self.chance(40) {
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
