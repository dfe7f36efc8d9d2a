//! Random chains of operators without brackets, so that precedence and associativity decide.

use super::random::{Generator, Statement};

const INTS: [&str; 8] = ["1", "2", "3", "x", "y", "g", "- x", "- 2"];
const TEXTS: [&str; 6] = ["'a'", "'ab'", "s", "'1'", "j ->> 'b'", "cast(x as text)"];

impl Generator {
    /// Returns a query of a chain over a table. Some have no meaning, which PostgreSQL says.
    pub fn chain(&mut self) -> Statement {
        let table = self.one(&["R", "S", "T"]);
        let value = match self.chance(75) {
            true => self.condition_chain(),
            false => self.number_chain(),
        };
        match self.chance(60) {
            true => Statement::unordered(format!("select id, {value} as v from {table}")),
            false => Statement::unordered(format!("select id from {table} where ({value}) is not null")),
        }
    }

    fn number_chain(&mut self) -> String {
        let mut text = self.one(&INTS).to_owned();
        for _ in 0..1 + self.below(4) {
            let op = self.one(&["+", "-", "*", "%", "+", "-", "*", "^", "&", "|", "<<"]);
            let operand = match op {
                "^" | "<<" | "%" => self.one(&["2", "3"]),
                _ => self.one(&INTS),
            };
            text += &format!(" {op} {operand}");
        }
        text
    }

    fn text_chain(&mut self) -> String {
        let mut text = self.one(&TEXTS).to_owned();
        for _ in 0..self.below(3) {
            text += &format!(" || {}", self.one(&TEXTS));
        }
        text
    }

    /// Returns one condition, as what stands between `AND` and `OR`.
    fn simple(&mut self) -> String {
        match self.below(12) {
            0 => {
                let (a, b) = (self.number_chain(), self.number_chain());
                format!("{a} {} {b}", self.comparison())
            }
            1 => {
                let (a, b) = (self.text_chain(), self.text_chain());
                format!("{a} {} {b}", self.comparison())
            }
            2 => format!("{} is {}null", self.number_chain(), self.one(&["", "not "])),
            3 => {
                let (a, b, c) = (self.number_chain(), self.number_chain(), self.number_chain());
                format!("{a} {}between {b} and {c}", self.one(&["", "not "]))
            }
            4 => {
                let (a, b) = (self.number_chain(), self.number_chain());
                format!("{a} {}in ({b}, 2)", self.one(&["", "not "]))
            }
            5 => {
                let a = self.text_chain();
                format!("{a} {}like {}", self.one(&["", "not "]), self.one(&["'a%'", "'%' || 'b'", "s"]))
            }
            6 => format!("{} {} '[ab]'", self.text_chain(), self.one(&["~", "!~", "~*"])),
            7 => {
                let (a, b) = (self.number_chain(), self.number_chain());
                format!("{a} is {}distinct from {b}", self.one(&["", "not "]))
            }
            8 => format!("{} = {}", self.one(&["b", "true", "x = 1", "not b"]), self.one(&["b", "false"])),
            9 => format!("{} is {}", self.one(&["b", "x = y", "x < 2", "not b"]), {
                self.one(&["true", "not true", "unknown", "false", "not null", "distinct from true"])
            }),
            // chains of comparisons, which are no expressions
            10 => {
                let (a, b, c) = (self.one(&INTS), self.one(&INTS), self.one(&["b", "true", "3", "x"]));
                format!("{a} {} {b} {} {c}", self.comparison(), self.comparison())
            }
            _ => "b".to_owned(),
        }
    }

    fn condition_chain(&mut self) -> String {
        let mut text = String::new();
        for n in 0..1 + self.below(4) {
            if n > 0 {
                text += &format!(" {} ", self.one(&["and", "or", "and", "or", "=", "<>"]));
            }
            text += self.one(&["", "", "not ", "not not "]);
            text += &self.simple();
            text += self.one(&[
                "",
                "",
                "",
                "",
                " is true",
                " is not false",
                " is null",
                " = b",
                "::text = 'true'",
            ]);
        }
        text
    }
}
