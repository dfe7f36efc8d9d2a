//! The generator's choices, and the names that its expressions may use.

use rand::Rng;
use rand::rngs::StdRng;

use super::tables::Type;

/// A table of a query, and what its columns are called.
#[derive(Debug, Clone)]
pub struct Source {
    /// Empty for columns that `USING` has merged, which have no table.
    pub alias: String,
    pub columns: Vec<(String, Type)>,
}

impl Source {
    /// Returns the names of the columns of a type.
    pub fn of_type(&self, ty: Type) -> impl Iterator<Item = String> {
        let name = move |column: &String| match self.alias.as_str() {
            "" => column.clone(),
            alias => format!("{alias}.{column}"),
        };
        self.columns.iter().filter(move |c| c.1 == ty).map(move |c| name(&c.0))
    }
}

/// Tables whose columns an expression may use: those of its query, and of the queries around it.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub sources: Vec<Source>,
    pub outer: Vec<Source>,
}

impl Scope {
    /// Returns the scope without the queries around.
    pub fn own(&self) -> Self {
        Self { sources: self.sources.clone(), outer: vec![] }
    }

    /// Returns columns that no two rows of the tables have in common, if every table has an `id`.
    pub fn ids(&self) -> Vec<String> {
        let tables = self.sources.iter().filter(|source| !source.alias.is_empty());
        tables.flat_map(|source| source.of_type(Type::Int).take(1)).collect()
    }
}

/// A statement, and whether it says in which order its rows come.
#[derive(Debug, Clone)]
pub struct Statement {
    pub text: String,
    pub ordered: bool,
}

impl Statement {
    pub fn unordered(text: String) -> Self {
        Self { text, ordered: false }
    }

    pub fn ordered(text: String) -> Self {
        Self { text, ordered: true }
    }
}

/// Source of random statements. What it writes is in the modules beside this one.
pub struct Generator {
    rng: StdRng,
    aliases: usize,
}

impl Generator {
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
