//! `SELECT`.

use super::StatementParser;
use crate::error::ParseError;
use crate::lexer::InfluxToken;
use crate::syntax::{
    Expr, Fill, FillNumber, InfluxStatement, MeasurementName, Select, SelectSource, SelectedField,
};

impl StatementParser<'_> {
    /// Parses a `SELECT` behind its first word, or takes a `SELECT … INTO`, which is not supported.
    pub(super) fn select_or_into(&mut self, start: usize) -> Result<InfluxStatement, ParseError> {
        let fields = self.fields()?;
        if self.takes_word("INTO")? {
            let InfluxStatement::Unsupported { text, .. } = self.unsupported(start, &[])? else {
                return self.expected("FROM");
            };
            return Ok(InfluxStatement::Unsupported { name: "SELECT INTO".to_owned(), text });
        }
        Ok(InfluxStatement::Select(Box::new(self.select_behind_fields(fields)?)))
    }

    fn select(&mut self) -> Result<Select, ParseError> {
        self.word("SELECT")?;
        let fields = self.fields()?;
        self.select_behind_fields(fields)
    }

    fn fields(&mut self) -> Result<Vec<SelectedField>, ParseError> {
        let mut fields = Vec::new();
        loop {
            self.lexer.skip_space();
            let start = self.lexer.offset();
            let expr = self.expression()?;
            self.no_comparison(&expr, start)?;
            let alias = if self.takes_word("AS")? { Some(self.name()?) } else { None };
            fields.push(SelectedField { expr, alias });
            if !self.takes_symbol(",")? {
                return Ok(fields);
            }
        }
    }

    /// Refuses operators of conditions in a column.
    fn no_comparison(&self, expr: &Expr, start: usize) -> Result<(), ParseError> {
        let mut found = None;
        expr.walk(&mut |part| {
            if let Expr::Binary(operator, ..) = part
                && !operator.is_arithmetic()
            {
                found.get_or_insert(*operator);
            }
        });
        let Some(operator) = found else { return Ok(()) };
        let place = self.lexer.place(start);
        Err(ParseError::said(format!(
            "invalid operator {} in SELECT clause at line {}, char {}; operator is intended for WHERE clause",
            operator.symbol(),
            place.line,
            place.character
        )))
    }

    fn select_behind_fields(&mut self, fields: Vec<SelectedField>) -> Result<Select, ParseError> {
        self.word("FROM")?;
        let sources = self.sources(true)?;
        let condition = self.condition()?;
        let dimensions = self.dimensions()?;
        let fill = self.fill()?;
        let is_descending = self.order()?;
        let (limit, offset) = (self.limit("LIMIT")?, self.limit("OFFSET")?);
        let (slimit, soffset) = (self.limit("SLIMIT")?, self.limit("SOFFSET")?);
        let zone = self.zone()?;
        Ok(Select {
            fields,
            sources,
            condition,
            dimensions,
            fill,
            is_descending,
            limit,
            offset,
            slimit,
            soffset,
            zone,
        })
    }

    pub(super) fn sources(&mut self, may_be_queries: bool) -> Result<Vec<SelectSource>, ParseError> {
        let mut sources = vec![self.source(may_be_queries)?];
        while self.takes_comma(sources.len())? {
            sources.push(self.source(may_be_queries)?);
        }
        Ok(sources)
    }

    fn source(&mut self, may_be_query: bool) -> Result<SelectSource, ParseError> {
        if may_be_query && self.takes_symbol("(")? {
            let select = self.nested(Self::select)?;
            self.symbol(")")?;
            return Ok(SelectSource::Subquery(Box::new(select)));
        }
        if let Some(pattern) = self.takes_regex()? {
            return Ok(SelectSource::Measurement {
                qualifiers: vec![],
                name: MeasurementName::Regex(pattern),
            });
        }
        let mut names = vec![self.name()?];
        while self.takes_symbol(".")? {
            if let Some(pattern) = self.takes_regex()? {
                return Ok(SelectSource::Measurement {
                    qualifiers: names,
                    name: MeasurementName::Regex(pattern),
                });
            }
            // `database..measurement` leaves out the policy
            match matches!(self.peek()?.0, InfluxToken::Symbol(".")) {
                true => names.push(String::new()),
                false => names.push(self.name()?),
            }
        }
        if names.len() > 3 {
            let shown: Vec<String> = names.iter().map(|name| crate::print::name(name)).collect();
            return Err(ParseError::said(format!("too many segments in {}", shown.join("."))));
        }
        let name = names.pop().unwrap_or_default();
        Ok(SelectSource::Measurement { qualifiers: names, name: MeasurementName::Name(name) })
    }

    pub(super) fn condition(&mut self) -> Result<Option<Expr>, ParseError> {
        if self.takes_word("WHERE")? { self.expression().map(Some) } else { Ok(None) }
    }

    fn dimensions(&mut self) -> Result<Vec<Expr>, ParseError> {
        let mut dimensions = Vec::new();
        if self.takes_word("GROUP")? {
            self.word("BY")?;
            loop {
                dimensions.push(self.expression()?);
                if !self.takes_comma(dimensions.len())? {
                    break;
                }
            }
        }
        Ok(dimensions)
    }

    fn fill(&mut self) -> Result<Option<Fill>, ParseError> {
        let start = self.lexer.offset();
        if !(self.takes_word("fill")? && self.takes_symbol("(")?) {
            self.lexer.rewind(start);
            return Ok(None);
        }
        for (word, fill) in [
            ("null", Fill::Null),
            ("none", Fill::None),
            ("previous", Fill::Previous),
            ("linear", Fill::Linear),
        ] {
            if self.takes_word(word)? {
                self.symbol(")")?;
                return Ok(Some(fill));
            }
        }
        let number = match self.expression()? {
            Expr::Integer(value) => FillNumber::Integer(value),
            Expr::Float(value) => FillNumber::Float(value),
            _ => return Err(ParseError::said("expected number argument in fill()".to_owned())),
        };
        self.symbol(")")?;
        Ok(Some(Fill::Number(number)))
    }

    /// Parses `ORDER BY time`. Returns whether the order is descending.
    fn order(&mut self) -> Result<bool, ParseError> {
        if !self.takes_word("ORDER")? {
            return Ok(false);
        }
        self.word("BY")?;
        let refused = || ParseError::said("only ORDER BY time supported at this time".to_owned());
        let mut is_descending = self.direction()?;
        if is_descending.is_none() {
            if self.name()? != "time" {
                return Err(refused());
            }
            is_descending = self.direction()?;
        }
        if self.takes_symbol(",")? {
            return Err(refused());
        }
        Ok(is_descending.unwrap_or(false))
    }

    fn direction(&mut self) -> Result<Option<bool>, ParseError> {
        Ok(match (self.takes_word("ASC")?, self.takes_word("DESC")?) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        })
    }

    fn zone(&mut self) -> Result<Option<String>, ParseError> {
        let start = self.lexer.offset();
        if !(self.takes_word("tz")? && self.takes_symbol("(")?) {
            self.lexer.rewind(start);
            return Ok(None);
        }
        let (InfluxToken::Text(name), _) = self.next()? else {
            return Err(ParseError::said("expected string argument in tz()".to_owned()));
        };
        self.symbol(")")?;
        match jiff::tz::TimeZone::get(&name) {
            Ok(_) => Ok(Some(name)),
            Err(_) => Err(ParseError::said(format!("unable to find time zone {name}"))),
        }
    }
}
