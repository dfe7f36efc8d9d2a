//! Text of syntax trees: parsing it gives the same tree.

use std::fmt::{self, Display, Formatter};

use crate::keywords::is_keyword;
use crate::syntax::{
    Cast, Expr, Fill, FillNumber, InfluxStatement, KeyFilter, MeasurementName, Select, SelectSource,
    SelectedField, Show, Subject,
};

/// Returns a name as it may stand in a statement.
pub(crate) fn name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !is_keyword(name);
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")),
    }
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

fn regex(pattern: &str) -> String {
    format!("/{}/", pattern.replace('/', "\\/"))
}

/// Returns a duration in the largest unit that divides it.
pub(crate) fn duration(nanoseconds: i64) -> String {
    const UNITS: [(i64, &str); 8] = [
        (604_800_000_000_000, "w"),
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "u"),
        (1, "ns"),
    ];
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(size, _)| nanoseconds % size == 0);
    unit.map_or_else(|| "0s".to_owned(), |(size, unit)| format!("{}{unit}", nanoseconds / size))
}

fn number(value: f64) -> String {
    let text = format!("{value}");
    if text.contains('.') { text } else { format!("{text}.0") }
}

fn list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

impl Display for Cast {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float => "float",
            Self::Integer => "integer",
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Field => "field",
            Self::Tag => "tag",
        })
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(found, None) => f.write_str(&name(found)),
            Self::Name(found, Some(cast)) => write!(f, "{}::{cast}", name(found)),
            Self::Wildcard(None) => f.write_str("*"),
            Self::Wildcard(Some(cast)) => write!(f, "*::{cast}"),
            Self::Regex(pattern) => f.write_str(&regex(pattern)),
            Self::Call(function, arguments) => {
                write!(f, "{function}(")?;
                list(f, arguments)?;
                f.write_str(")")
            }
            Self::Distinct(found) => write!(f, "DISTINCT {}", name(found)),
            Self::Binary(operator, left, right) => write!(f, "{left} {} {right}", operator.symbol()),
            Self::Paren(inner) => write!(f, "({inner})"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => f.write_str(&number(*value)),
            Self::Text(value) => f.write_str(&text(value)),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Duration(value) => f.write_str(&duration(*value)),
        }
    }
}

impl Display for SelectedField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)?;
        self.alias.as_ref().map_or(Ok(()), |alias| write!(f, " AS {}", name(alias)))
    }
}

impl Display for SelectSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subquery(select) => write!(f, "({select})"),
            Self::Measurement { qualifiers, name: found } => {
                for qualifier in qualifiers {
                    let written = if qualifier.is_empty() { String::new() } else { name(qualifier) };
                    write!(f, "{written}.")?;
                }
                match found {
                    MeasurementName::Name(found) | MeasurementName::Not(found) => f.write_str(&name(found)),
                    MeasurementName::Regex(pattern) | MeasurementName::NotRegex(pattern) => {
                        f.write_str(&regex(pattern))
                    }
                }
            }
        }
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        list(f, &self.fields)?;
        f.write_str(" FROM ")?;
        list(f, &self.sources)?;
        if let Some(condition) = &self.condition {
            write!(f, " WHERE {condition}")?;
        }
        if !self.dimensions.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.dimensions)?;
        }
        match self.fill {
            None => {}
            Some(Fill::Null) => f.write_str(" fill(null)")?,
            Some(Fill::None) => f.write_str(" fill(none)")?,
            Some(Fill::Previous) => f.write_str(" fill(previous)")?,
            Some(Fill::Linear) => f.write_str(" fill(linear)")?,
            Some(Fill::Number(FillNumber::Integer(value))) => write!(f, " fill({value})")?,
            Some(Fill::Number(FillNumber::Float(value))) => write!(f, " fill({})", number(value))?,
        }
        if self.is_descending {
            f.write_str(" ORDER BY time DESC")?;
        }
        limits(
            f,
            &[
                ("LIMIT", self.limit),
                ("OFFSET", self.offset),
                ("SLIMIT", self.slimit),
                ("SOFFSET", self.soffset),
            ],
        )?;
        self.zone.as_ref().map_or(Ok(()), |zone| write!(f, " tz({})", text(zone)))
    }
}

fn limits(f: &mut Formatter<'_>, limits: &[(&str, u64)]) -> fmt::Result {
    limits.iter().filter(|(_, value)| *value > 0).try_for_each(|(word, value)| write!(f, " {word} {value}"))
}

impl Display for Show {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.subject {
            Subject::Databases => "SHOW DATABASES",
            Subject::Measurements => "SHOW MEASUREMENTS",
            Subject::FieldKeys => "SHOW FIELD KEYS",
            Subject::TagKeys => "SHOW TAG KEYS",
            Subject::TagValues(_) => "SHOW TAG VALUES",
            Subject::RetentionPolicies => "SHOW RETENTION POLICIES",
            Subject::Series => "SHOW SERIES",
            Subject::Diagnostics => "SHOW DIAGNOSTICS",
        })?;
        if let Some(database) = &self.database {
            write!(f, " ON {}", name(database))?;
        }
        if let (Subject::Measurements, Some(SelectSource::Measurement { name: wanted, .. })) =
            (&self.subject, self.sources.first())
        {
            match wanted {
                MeasurementName::Name(found) => write!(f, " WITH MEASUREMENT = {}", name(found)),
                MeasurementName::Not(found) => write!(f, " WITH MEASUREMENT != {}", name(found)),
                MeasurementName::Regex(pattern) => write!(f, " WITH MEASUREMENT =~ {}", regex(pattern)),
                MeasurementName::NotRegex(pattern) => write!(f, " WITH MEASUREMENT !~ {}", regex(pattern)),
            }?;
        } else if !self.sources.is_empty() {
            f.write_str(" FROM ")?;
            list(f, &self.sources)?;
        }
        if let Subject::TagValues(filter) = &self.subject {
            match filter {
                KeyFilter::Key(key, is_not) => {
                    write!(f, " WITH KEY {} {}", if *is_not { "!=" } else { "=" }, name(key))
                }
                KeyFilter::In(keys) => {
                    let keys: Vec<String> = keys.iter().map(|key| name(key)).collect();
                    write!(f, " WITH KEY IN ({})", keys.join(", "))
                }
                KeyFilter::Regex(pattern, is_not) => {
                    write!(f, " WITH KEY {} {}", if *is_not { "!~" } else { "=~" }, regex(pattern))
                }
            }?;
        }
        if let Some(condition) = &self.condition {
            write!(f, " WHERE {condition}")?;
        }
        limits(f, &[("LIMIT", self.limit), ("OFFSET", self.offset)])
    }
}

impl Display for InfluxStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select(select) => select.fmt(f),
            Self::Show(show) => show.fmt(f),
            Self::CreateDatabase(database) => write!(f, "CREATE DATABASE {}", name(database)),
            Self::Unsupported { text, .. } => f.write_str(text),
        }
    }
}
