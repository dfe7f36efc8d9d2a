//! Expressions.

use super::StatementParser;
use crate::error::ParseError;
use crate::keywords::is_keyword;
use crate::lexer::InfluxToken;
use crate::syntax::{BinaryOperator, Cast, Expr, HEIGHT_MAX};

/// Tokens that may begin an operand.
const OPERAND: &str = "identifier, string, number, bool";

impl StatementParser<'_> {
    /// Parses an expression.
    pub(super) fn expression(&mut self) -> Result<Expr, ParseError> {
        Ok(self.operators(1)?.0)
    }

    /// Parses operators of at least a precedence. Returns the tree with its height.
    fn operators(&mut self, lowest: u8) -> Result<(Expr, usize), ParseError> {
        let (mut left, mut height) = self.operand()?;
        while let Some(operator) = self.takes_operator(lowest)? {
            let (right, right_height) = match operator {
                BinaryOperator::Matches | BinaryOperator::MatchesNot => (Expr::Regex(self.regex()?), 1),
                _ => self.operators(operator.precedence() + 1)?,
            };
            height = height.max(right_height) + 1;
            if height > HEIGHT_MAX {
                let place = self.lexer.place(self.lexer.offset());
                return Err(ParseError::said(format!(
                    "more than {HEIGHT_MAX} operators in one chain at line {}, char {}: use a regular expression such as \
                     \"host\" =~ /^(a|b)$/",
                    place.line, place.character
                )));
            }
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok((left, height))
    }

    fn takes_operator(&mut self, lowest: u8) -> Result<Option<BinaryOperator>, ParseError> {
        let at = self.lexer.offset();
        let operator = match self.lexer.next()?.0 {
            InfluxToken::Symbol(symbol) => BinaryOperator::of_symbol(symbol),
            InfluxToken::Word(word) => BinaryOperator::of_symbol(&word),
            _ => None,
        };
        let operator = operator.filter(|operator| operator.precedence() >= lowest);
        if operator.is_none() {
            self.lexer.rewind(at);
        }
        Ok(operator)
    }

    fn operand(&mut self) -> Result<(Expr, usize), ParseError> {
        if let Some(pattern) = self.takes_regex()? {
            return Ok((Expr::Regex(pattern), 1));
        }
        if self.takes_symbol("(")? {
            let (inner, height) = self.nested(|parser| parser.operators(1))?;
            self.symbol(")")?;
            return Ok((Expr::Paren(Box::new(inner)), height + 1));
        }
        if self.takes_symbol("*")? {
            let cast = match self.takes_symbol("::")? {
                false => None,
                true if self.takes_word("field")? => Some(Cast::Field),
                true if self.takes_word("tag")? => Some(Cast::Tag),
                true => return self.expected("field, tag"),
            };
            return Ok((Expr::Wildcard(cast), 1));
        }
        for (symbol, sign) in [("-", -1), ("+", 1)] {
            if self.takes_symbol(symbol)? {
                return self.signed(sign);
            }
        }
        if self.takes_word("DISTINCT")? {
            if self.takes_symbol("(")? {
                return self.arguments("distinct".to_owned());
            }
            return Ok((Expr::Distinct(self.name()?), 1));
        }
        let start = self.lexer.offset();
        let (token, at) = self.next()?;
        let leaf = match token {
            InfluxToken::Text(text) => Expr::Text(text),
            InfluxToken::Integer(Some(value)) => Expr::Integer(value),
            InfluxToken::Integer(None) => {
                let place = self.lexer.place(at);
                return Err(ParseError::said(format!(
                    "unable to parse integer at line {}, char {}",
                    place.line, place.character
                )));
            }
            InfluxToken::Number(value) => Expr::Float(value),
            InfluxToken::Duration(value) => Expr::Duration(value),
            InfluxToken::Word(word) if word.eq_ignore_ascii_case("true") => Expr::Boolean(true),
            InfluxToken::Word(word) if word.eq_ignore_ascii_case("false") => Expr::Boolean(false),
            InfluxToken::Word(word) if !is_keyword(&word) => {
                let behind = self.lexer.offset();
                if self.takes_symbol("(")? {
                    return self.arguments(word.to_ascii_lowercase());
                }
                self.lexer.rewind(behind);
                return self.name_with_cast(word);
            }
            InfluxToken::Quoted(name) => return self.name_with_cast(name),
            _ => {
                self.lexer.rewind(start);
                return self.expected(OPERAND);
            }
        };
        Ok((leaf, 1))
    }

    /// Parses what follows a sign: a number, or another operand that is multiplied by it.
    fn signed(&mut self, sign: i64) -> Result<(Expr, usize), ParseError> {
        let start = self.lexer.offset();
        let number = match self.next()?.0 {
            InfluxToken::Integer(Some(value)) => value.checked_mul(sign).map(Expr::Integer),
            InfluxToken::Number(value) => Some(Expr::Float(sign as f64 * value)),
            InfluxToken::Duration(value) => value.checked_mul(sign).map(Expr::Duration),
            _ => None,
        };
        if let Some(number) = number {
            return Ok((number, 1));
        }
        self.lexer.rewind(start);
        let is_operand = matches!(
            self.peek()?.0,
            InfluxToken::Symbol("(") | InfluxToken::Quoted(_) | InfluxToken::Word(_)
        );
        if !is_operand {
            return self.expected("identifier, number, duration, (");
        }
        let (operand, height) = self.operand()?;
        if sign > 0 {
            return Ok((operand, height));
        }
        let product = Expr::Binary(BinaryOperator::Multiply, Box::new(Expr::Integer(-1)), Box::new(operand));
        Ok((Expr::Paren(Box::new(product)), height + 2))
    }

    /// Parses the rest of a name: further segments and a type.
    fn name_with_cast(&mut self, first: String) -> Result<(Expr, usize), ParseError> {
        let mut name = first;
        while self.takes_symbol(".")? {
            name.push('.');
            name.push_str(&self.name()?);
        }
        if !self.takes_symbol("::")? {
            return Ok((Expr::Name(name, None), 1));
        }
        const CASTS: [(&str, Cast); 6] = [
            ("float", Cast::Float),
            ("integer", Cast::Integer),
            ("string", Cast::String),
            ("boolean", Cast::Boolean),
            ("field", Cast::Field),
            ("tag", Cast::Tag),
        ];
        for (word, cast) in CASTS {
            if self.takes_word(word)? {
                return Ok((Expr::Name(name, Some(cast)), 1));
            }
        }
        self.expected("float, integer, unsigned, string, boolean, field, tag")
    }

    fn arguments(&mut self, function: String) -> Result<(Expr, usize), ParseError> {
        let mut arguments = Vec::new();
        let mut height = 0;
        if !self.takes_symbol(")")? {
            loop {
                let (argument, argument_height) = self.nested(|parser| parser.operators(1))?;
                height = height.max(argument_height);
                arguments.push(argument);
                if !self.takes_comma(arguments.len())? {
                    break;
                }
            }
            self.symbol(")")?;
        }
        Ok((Expr::Call(function, arguments), height + 1))
    }
}
