//! `SHOW`.

use super::StatementParser;
use crate::error::ParseError;
use crate::lexer::InfluxToken;
use crate::syntax::{InfluxStatement, KeyFilter, MeasurementName, SelectSource, Show, Subject};

/// Words that may follow `SHOW`.
const SUBJECTS: &str = "CONTINUOUS, DATABASES, DIAGNOSTICS, FIELD, GRANTS, MEASUREMENT, MEASUREMENTS, QUERIES, \
    RETENTION, SERIES, SHARD, SHARDS, STATS, SUBSCRIPTIONS, TAG, USERS";

impl StatementParser<'_> {
    /// Parses a statement behind `SHOW`.
    pub(super) fn show(&mut self, start: usize) -> Result<InfluxStatement, ParseError> {
        let (subject, parts) = match self.next()?.0 {
            InfluxToken::Word(word) => match word.to_ascii_uppercase().as_str() {
                "DATABASES" => (Subject::Databases, Parts::None),
                "DIAGNOSTICS" => (Subject::Diagnostics, Parts::None),
                "MEASUREMENTS" => (Subject::Measurements, Parts::Measurement),
                "SERIES" => {
                    if self.is_cardinality(false)? {
                        return self
                            .unsupported(start, &[])
                            .map(|found| named(found, "SHOW SERIES CARDINALITY"));
                    }
                    (Subject::Series, Parts::Condition)
                }
                "RETENTION" => {
                    self.word("POLICIES")?;
                    (Subject::RetentionPolicies, Parts::Database)
                }
                "FIELD" => {
                    if self.is_cardinality(true)? {
                        return self
                            .unsupported(start, &[])
                            .map(|found| named(found, "SHOW FIELD KEY CARDINALITY"));
                    }
                    if !self.takes_word("KEYS")? {
                        return self.expected("KEY, KEYS");
                    }
                    (Subject::FieldKeys, Parts::From)
                }
                "TAG" => {
                    if self.is_cardinality(true)? {
                        return self
                            .unsupported(start, &[])
                            .map(|found| named(found, "SHOW TAG KEY CARDINALITY"));
                    }
                    if self.takes_word("VALUES")? {
                        if self.is_cardinality(false)? {
                            return self
                                .unsupported(start, &[])
                                .map(|found| named(found, "SHOW TAG VALUES CARDINALITY"));
                        }
                        return self.tag_values();
                    }
                    if !self.takes_word("KEYS")? {
                        return self.expected("KEY, KEYS, VALUES");
                    }
                    (Subject::TagKeys, Parts::Condition)
                }
                "MEASUREMENT" => {
                    if !self.is_cardinality(false)? {
                        return self.expected("CARDINALITY, EXACT");
                    }
                    return self
                        .unsupported(start, &[])
                        .map(|found| named(found, "SHOW MEASUREMENT CARDINALITY"));
                }
                "CONTINUOUS" | "GRANTS" | "QUERIES" | "SHARD" | "SHARDS" | "STATS" | "SUBSCRIPTIONS"
                | "USERS" => {
                    let name = format!("SHOW {}", word.to_ascii_uppercase());
                    return self.unsupported(start, &[]).map(|found| named(found, &name));
                }
                _ => return self.unknown_subject(start),
            },
            _ => return self.unknown_subject(start),
        };
        let mut show =
            Show { subject, database: None, sources: vec![], condition: None, limit: 0, offset: 0 };
        if parts == Parts::None {
            return Ok(InfluxStatement::Show(show));
        }
        show.database = self.database()?;
        match parts {
            Parts::None | Parts::Database => return Ok(InfluxStatement::Show(show)),
            Parts::From | Parts::Condition => {
                if self.takes_word("FROM")? {
                    show.sources = self.sources(false)?;
                }
            }
            Parts::Measurement => show.sources = self.with_measurement()?,
        }
        if parts != Parts::From {
            show.condition = self.condition()?;
        }
        self.order_by_names()?;
        (show.limit, show.offset) = (self.limit("LIMIT")?, self.limit("OFFSET")?);
        Ok(InfluxStatement::Show(show))
    }

    fn unknown_subject(&mut self, start: usize) -> Result<InfluxStatement, ParseError> {
        self.lexer.rewind(start);
        self.word("SHOW")?;
        self.expected(SUBJECTS)
    }

    fn database(&mut self) -> Result<Option<String>, ParseError> {
        if self.takes_word("ON")? { self.name().map(Some) } else { Ok(None) }
    }

    /// Returns whether `CARDINALITY` comes, behind `EXACT` and, for keys, behind `KEY`. Takes nothing.
    fn is_cardinality(&mut self, has_key: bool) -> Result<bool, ParseError> {
        let start = self.lexer.offset();
        if has_key && !self.takes_word("KEY")? {
            return Ok(false);
        }
        self.takes_word("EXACT")?;
        let is_next = self.takes_word("CARDINALITY")?;
        self.lexer.rewind(start);
        Ok(is_next)
    }

    fn with_measurement(&mut self) -> Result<Vec<SelectSource>, ParseError> {
        if !self.takes_word("WITH")? {
            return Ok(vec![]);
        }
        self.word("MEASUREMENT")?;
        let name = if self.takes_symbol("=")? {
            MeasurementName::Name(self.name()?)
        } else if self.takes_symbol("!=")? {
            MeasurementName::Not(self.name()?)
        } else if self.takes_symbol("=~")? {
            MeasurementName::Regex(self.regex()?)
        } else if self.takes_symbol("!~")? {
            MeasurementName::NotRegex(self.regex()?)
        } else {
            return self.expected("=, =~");
        };
        Ok(vec![SelectSource::Measurement { qualifiers: vec![], name }])
    }

    fn tag_values(&mut self) -> Result<InfluxStatement, ParseError> {
        let database = self.database()?;
        let sources = if self.takes_word("FROM")? { self.sources(false)? } else { vec![] };
        self.word("WITH")?;
        self.word("KEY")?;
        let filter = if self.takes_symbol("=")? {
            KeyFilter::Key(self.name()?, false)
        } else if self.takes_symbol("!=")? {
            KeyFilter::Key(self.name()?, true)
        } else if self.takes_symbol("=~")? {
            KeyFilter::Regex(self.regex()?, false)
        } else if self.takes_symbol("!~")? {
            KeyFilter::Regex(self.regex()?, true)
        } else if self.takes_word("IN")? {
            self.symbol("(")?;
            let mut keys = vec![self.name()?];
            while self.takes_comma(keys.len())? {
                keys.push(self.name()?);
            }
            self.symbol(")")?;
            KeyFilter::In(keys)
        } else {
            return self.expected("IN, =, =~");
        };
        let condition = self.condition()?;
        self.order_by_names()?;
        let (limit, offset) = (self.limit("LIMIT")?, self.limit("OFFSET")?);
        let subject = Subject::TagValues(filter);
        Ok(InfluxStatement::Show(Show { subject, database, sources, condition, limit, offset }))
    }

    /// Refuses `ORDER BY`: names come in their order.
    fn order_by_names(&mut self) -> Result<(), ParseError> {
        match self.takes_word("ORDER")? {
            true => Err(ParseError::said(
                "ORDER BY of SHOW is not supported: names come in their order".to_owned(),
            )),
            false => Ok(()),
        }
    }
}

/// Clauses that a statement may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    None,
    /// `ON`.
    Database,
    /// `ON`, `WITH MEASUREMENT`, `WHERE`, limits.
    Measurement,
    /// `ON`, `FROM`, limits.
    From,
    /// `ON`, `FROM`, `WHERE`, limits.
    Condition,
}

fn named(statement: InfluxStatement, name: &str) -> InfluxStatement {
    match statement {
        InfluxStatement::Unsupported { text, .. } => {
            InfluxStatement::Unsupported { name: name.to_owned(), text }
        }
        other => other,
    }
}
