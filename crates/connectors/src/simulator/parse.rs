//! Expressions as users write them: `20 + 5 * sin(t / 60) + normal(0, 0.5)`, `'sensor-' + uniform(1, 9)`.

use tidemill_types::did_you_mean;

use super::expression::{SimExpr, SimFunction, SimValue};

/// Depth of nested expressions.
const DEPTH_MAX: usize = 64;
/// Maximum number of operators of an expression. Each is one level of its evaluation.
const OPERATORS_MAX: usize = 200;

/// Parser of the expressions of one source.
pub(super) struct SimParser<'a> {
    /// Names of all fields, in order; those of the first ones may be used.
    pub names: &'a [&'a str],
    pub known: usize,
    /// Number of calls so far.
    pub places: usize,
    /// Number of operators of the expression so far.
    pub operators: usize,
}

/// Text that is not parsed yet.
struct Rest<'t> {
    whole: &'t str,
    text: &'t str,
}

impl SimParser<'_> {
    /// Parses an expression. Errors: what was expected where.
    pub(super) fn parse(&mut self, text: &str) -> Result<SimExpr, String> {
        let mut rest = Rest { whole: text, text };
        self.operators = 0;
        let parsed = self.sum(&mut rest, 0)?;
        match rest.peek() {
            None => Ok(parsed),
            Some(other) => Err(rest.wrong(&format!("expected an operator or the end, found `{other}`"))),
        }
    }

    fn sum(&mut self, rest: &mut Rest<'_>, depth: usize) -> Result<SimExpr, String> {
        let mut left = self.product(rest, depth)?;
        while let Some(operator) = rest.take_if(&['+', '-']) {
            let right = self.product(rest, depth)?;
            left = self.binary(left, operator, right, rest)?;
        }
        Ok(left)
    }

    fn product(&mut self, rest: &mut Rest<'_>, depth: usize) -> Result<SimExpr, String> {
        let mut left = self.operand(rest, depth)?;
        while let Some(operator) = rest.take_if(&['*', '/', '%']) {
            let right = self.operand(rest, depth)?;
            left = self.binary(left, operator, right, rest)?;
        }
        Ok(left)
    }

    fn operand(&mut self, rest: &mut Rest<'_>, depth: usize) -> Result<SimExpr, String> {
        if depth > DEPTH_MAX {
            return Err(rest.wrong("the expression is nested too deeply"));
        }
        match rest.peek() {
            Some('-') => {
                rest.take_if(&['-']);
                let operand = self.operand(rest, depth + 1)?;
                self.binary(SimExpr::Value(SimValue::Int(0)), '-', operand, rest)
            }
            Some('(') => {
                rest.take_if(&['(']);
                let inner = self.sum(rest, depth + 1)?;
                rest.expect(')')?;
                Ok(inner)
            }
            Some(quote @ ('"' | '\'')) => rest.quoted(quote).map(|text| SimExpr::Value(SimValue::Text(text))),
            Some(c) if c.is_ascii_digit() || c == '.' => rest.number().map(SimExpr::Value),
            Some(c) if c.is_alphabetic() || c == '_' => self.name(rest, depth),
            Some(other) => Err(rest.wrong(&format!("expected a value, found `{other}`"))),
            None => Err(rest.wrong("expected a value, found the end")),
        }
    }

    fn binary(
        &mut self,
        left: SimExpr,
        operator: char,
        right: SimExpr,
        rest: &Rest<'_>,
    ) -> Result<SimExpr, String> {
        self.operators += 1;
        match self.operators > OPERATORS_MAX {
            true => Err(rest.wrong(&format!("the expression has more than {OPERATORS_MAX} operators"))),
            false => Ok(SimExpr::Binary(Box::new(left), operator, Box::new(right))),
        }
    }

    fn name(&mut self, rest: &mut Rest<'_>, depth: usize) -> Result<SimExpr, String> {
        let name = rest.take_while(|c| c.is_alphanumeric() || c == '_');
        if rest.take_if(&['(']).is_some() {
            return self.call(&name, rest, depth);
        }
        if let Some(index) = self.names.iter().take(self.known).position(|known| *known == name) {
            return Ok(SimExpr::Field(index));
        }
        match name.as_str() {
            "n" => Ok(SimExpr::Number),
            "t" => Ok(SimExpr::Seconds),
            "true" | "false" => Ok(SimExpr::Value(SimValue::Bool(name == "true"))),
            _ if self.names.contains(&&*name) => Err(rest.wrong(&format!(
                "the attribute `{name}` comes later in the stream; its value is not known yet"
            ))),
            _ if SimFunction::find(&name).is_some() => {
                Err(rest.wrong(&format!("`{name}` is a function; write `{name}(…)`")))
            }
            _ => Err(rest.wrong(&format!(
                "`{name}` is neither `n`, `t` nor an attribute before this one; texts are in quotes"
            ))),
        }
    }

    fn call(&mut self, name: &str, rest: &mut Rest<'_>, depth: usize) -> Result<SimExpr, String> {
        let Some((function, counts)) = SimFunction::find(name) else {
            let hint = did_you_mean(name, SimFunction::NAMES.iter().copied());
            return Err(rest.wrong(&format!("there is no function `{name}`{hint}")));
        };
        // before the arguments are parsed, so that a place does not depend on them
        let place = self.places;
        self.places += 1;
        let mut arguments = vec![];
        if rest.take_if(&[')']).is_none() {
            loop {
                arguments.push(self.sum(rest, depth + 1)?);
                if rest.take_if(&[',']).is_none() {
                    rest.expect(')')?;
                    break;
                }
            }
        }
        if !counts.contains(&arguments.len()) {
            let (min, max) = (counts.start(), counts.end());
            let expected = if min == max { min.to_string() } else { format!("{min} to {max}") };
            return Err(rest.wrong(&format!("`{name}` takes {expected} values, found {}", arguments.len())));
        }
        if function == SimFunction::Walk && arguments.iter().any(|a| !is_constant(a)) {
            return Err(rest.wrong("`walk` takes numbers only"));
        }
        if let (SimFunction::Uniform | SimFunction::Walk, [first, second, ..]) =
            (function, arguments.as_slice())
            && let (SimExpr::Value(min), SimExpr::Value(max)) = (first, second)
            && function == SimFunction::Uniform
            && min.number() > max.number()
        {
            return Err(rest.wrong("`uniform` takes the smaller number first"));
        }
        Ok(SimExpr::Call { function, arguments, place })
    }
}

fn is_constant(expr: &SimExpr) -> bool {
    match expr {
        SimExpr::Value(value) => !matches!(value, SimValue::Text(_)),
        SimExpr::Binary(left, _, right) => is_constant(left) && is_constant(right),
        _ => false,
    }
}

impl Rest<'_> {
    fn peek(&mut self) -> Option<char> {
        self.text = self.text.trim_start();
        self.text.chars().next()
    }

    fn take_if(&mut self, wanted: &[char]) -> Option<char> {
        let next = self.peek().filter(|next| wanted.contains(next))?;
        self.text = self.text.get(next.len_utf8()..).unwrap_or_default();
        Some(next)
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match (self.take_if(&[wanted]), self.peek()) {
            (Some(_), _) => Ok(()),
            (None, Some(other)) => Err(self.wrong(&format!("expected `{wanted}`, found `{other}`"))),
            (None, None) => Err(self.wrong(&format!("expected `{wanted}`, found the end"))),
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let end = self.text.find(|c| !wanted(c)).unwrap_or(self.text.len());
        let (taken, rest) = self.text.split_at(end);
        self.text = rest;
        taken.to_owned()
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        self.take_if(&[quote]);
        match self.text.split_once(quote) {
            Some((text, rest)) => {
                self.text = rest;
                Ok(text.to_owned())
            }
            None => Err(self.wrong(&format!("a quote `{quote}` is not closed"))),
        }
    }

    fn number(&mut self) -> Result<SimValue, String> {
        let digits = self.take_while(|c| c.is_ascii_alphanumeric() || c == '.');
        match (digits.parse::<i64>(), digits.parse::<f64>()) {
            (Ok(n), _) => Ok(SimValue::Int(n)),
            (_, Ok(x)) => Ok(SimValue::Float(x)),
            _ => Err(self.wrong(&format!("`{digits}` is no number"))),
        }
    }

    /// Returns a message with the place.
    fn wrong(&self, message: &str) -> String {
        let read = self.whole.len() - self.text.len();
        let column = self.whole.get(..read).unwrap_or_default().chars().count();
        format!("{message}, at character {}", column + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::expression::{SimContext, Walks};
    use super::super::random::Random;
    use super::*;

    fn eval(text: &str, event: u64) -> Result<SimValue, String> {
        let names = ["a", "b", "c"];
        let mut parser = SimParser { names: &names, known: 2, places: 0, operators: 0 };
        let expr = parser.parse(text)?;
        let fields = [SimValue::Int(7), SimValue::Text("x".into())];
        let random = Random { seed: 1, event };
        let mut walks = Walks::default();
        let mut context =
            SimContext { random, seconds: 2.5, time_ms: 1000, fields: &fields, walks: &mut walks };
        Ok(expr.eval(&mut context))
    }

    #[test]
    fn expressions() {
        for (text, expected) in [
            ("1 + 2 * 3", SimValue::Int(7)),
            ("(1 + 2) * -3", SimValue::Int(-9)),
            ("7 / 2", SimValue::Float(3.5)),
            ("n % 4 + a", SimValue::Int(9)),
            ("\"s-\" + n + b", SimValue::Text("s-10x".into())),
            ("'a\"b' + 1", SimValue::Text("a\"b1".into())),
            ("t * 2", SimValue::Float(5.0)),
            ("sequence(100, 5)", SimValue::Int(150)),
            ("sequence()", SimValue::Int(10)),
            ("round(2.345, 2)", SimValue::Float(2.35)),
            ("max(sin(0), 1e1)", SimValue::Float(10.0)),
            ("choice(\"only\")", SimValue::Text("only".into())),
            ("time()", SimValue::Int(1000)),
            ("uniform(3, 3)", SimValue::Int(3)),
            ("chance(1)", SimValue::Bool(true)),
        ] {
            assert_eq!(eval(text, 10), Ok(expected), "{text}");
        }
        let uuid = eval("uuid()", 3).unwrap().text();
        assert_eq!(uuid, eval("uuid()", 3).unwrap().text());
        assert!(uuid::Uuid::parse_str(&uuid).unwrap().get_version_num() == 4);
        let walk = eval("walk(20, 1, 19, 21)", 5000).unwrap().number();
        assert!((19.0..=21.0).contains(&walk));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("", "expected a value, found the end, at character 1"),
            ("1 +", "expected a value, found the end"),
            ("1 2", "expected an operator or the end, found `2`, at character 3"),
            ("unifrom(1, 2)", "there is no function `unifrom`. Did you mean `uniform`?"),
            ("uniform(1, 2, 3)", "`uniform` takes 0 to 2 values, found 3"),
            ("uniform(2, 1)", "the smaller number first"),
            ("choice(red)", "texts are in quotes"),
            ("c + 1", "the attribute `c` comes later"),
            ("uuid", "`uuid` is a function; write `uuid(…)`"),
            ("\"open", "is not closed"),
            ("(1", "expected `)`, found the end"),
            ("12x", "`12x` is no number"),
            ("walk(n, 1)", "`walk` takes numbers only"),
        ] {
            let found = eval(text, 0).unwrap_err();
            assert!(found.contains(message), "{text}: {found}");
        }
        assert!(eval(&"(".repeat(100_000), 0).is_err());
        assert!(eval(&"-".repeat(100_000), 0).is_err());
        assert!(eval(&"1+".repeat(100_000), 0).is_err());
        assert_eq!(eval(&format!("1{}", "+1".repeat(200)), 0), Ok(SimValue::Int(201)));
    }
}
