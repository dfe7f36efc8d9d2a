//! Names of objects, and the objects with a name.

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use tidemill_types::{Error, did_you_mean};

use super::{Arg, number, text};
use crate::error::to_datafusion;
use crate::pg_catalog::definitions::{self, type_of_oid};
use crate::pg_catalog::functions::sql_type;
use crate::pg_catalog::objects::{DATABASE_OID, Objects, PG_CATALOG, Place, Relation};
use crate::pg_catalog::quoting::quoted;
use crate::pg_catalog::rows::Cell;
use crate::pg_catalog::tables::written_operators;

/// Functions that replace casts to types of objects, and casts of those to texts.
pub(in crate::pg_catalog) const REGCLASS_OID: &str = "__regclass_oid";
pub(in crate::pg_catalog) const REGTYPE_OID: &str = "__regtype_oid";
pub(in crate::pg_catalog) const REGPROC_OID: &str = "__regproc_oid";
pub(in crate::pg_catalog) const REGOPERATOR_OID: &str = "__regoperator_oid";
pub(in crate::pg_catalog) const REGNAMESPACE_OID: &str = "__regnamespace_oid";
pub(in crate::pg_catalog) const REGROLE_OID: &str = "__regrole_oid";
pub(in crate::pg_catalog) const REGCLASS_NAME: &str = "__regclass_name";
pub(in crate::pg_catalog) const REGTYPE_NAME: &str = "__regtype_name";
pub(in crate::pg_catalog) const REGPROC_NAME: &str = "__regproc_name";
pub(in crate::pg_catalog) const REGOPERATOR_NAME: &str = "__regoperator_name";
pub(in crate::pg_catalog) const REGNAMESPACE_NAME: &str = "__regnamespace_name";
pub(in crate::pg_catalog) const REGROLE_NAME: &str = "__regrole_name";

/// A part of a qualified name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    name: String,
    is_quoted: bool,
}

impl Part {
    fn is(&self, name: &str) -> bool {
        match self.is_quoted {
            true => self.name == name,
            false => self.name.eq_ignore_ascii_case(name),
        }
    }
}

/// Splits a name at its dots, which may be in quotes.
fn parts(name: &str) -> Vec<Part> {
    let mut parts = vec![];
    let (mut part, mut is_quoted, mut in_quotes) = (String::new(), false, false);
    let mut chars = name.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if in_quotes && chars.peek() == Some(&'"') => {
                chars.next();
                part.push('"');
            }
            '"' => {
                in_quotes = !in_quotes;
                is_quoted = true;
            }
            '.' if !in_quotes => parts
                .push(Part { name: std::mem::take(&mut part), is_quoted: std::mem::take(&mut is_quoted) }),
            c => part.push(c),
        }
    }
    parts.push(Part { name: part, is_quoted });
    parts
}

/// Returns the relation with a name, and the oid of the relation or of an index.
fn find_relation(objects: &Objects, name: &str) -> Option<u32> {
    let parts = parts(name);
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [schema, name] | [_, schema, name] => (Some(schema), name),
        _ => return None,
    };
    let exact_schema = schema.map(|schema| match schema.is_quoted {
        true => schema.name.clone(),
        false => schema.name.to_lowercase(),
    });
    if let Some(relation) = objects.by_name(exact_schema.as_deref(), &name.name) {
        return Some(relation.oid);
    }
    let fits = |relation: &Relation| match schema {
        Some(schema) => schema.is(relation.schema),
        None => relation.is_visible,
    };
    let all = || objects.relations().iter().filter(|relation| fits(relation));
    let mut alike = all().filter(|relation| name.is(&relation.name));
    if let Some(relation) = alike.next().filter(|_| alike.next().is_none()) {
        return Some(relation.oid);
    }
    let mut indexes = all().flat_map(|relation| &relation.constraints);
    indexes.find(|constraint| constraint.name == name.name).map(|constraint| constraint.index)
}

fn missing(what: &str, name: &str, known: Vec<String>) -> DataFusionError {
    let hint = did_you_mean(name, known.iter().map(String::as_str));
    to_datafusion(Error::not_found(format!("there is no {what} `{name}`{hint}")))
}

pub(super) fn to_regclass(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let found = find_relation(objects, text(args.first()));
    Ok(found.map(i64::from).into())
}

pub(super) fn regclass_oid(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(oid) = number(args.first()) {
        return Ok(Cell::Int(oid));
    }
    let name = text(args.first());
    let found = find_relation(objects, name);
    found.map(Cell::from).ok_or_else(|| {
        let own = objects.relations().iter().filter(|relation| !relation.is_catalog());
        missing("table", name, own.map(Relation::written).collect())
    })
}

pub(super) fn regclass_name(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    Ok(match objects.by_oid(oid) {
        Some((Place::Relation(_), relation)) => relation.written().into(),
        Some((Place::Index(_, at), relation)) => quoted(&relation.constraints[at].name).into(),
        _ => oid.to_string().into(),
    })
}

fn find_type(name: &str) -> Option<u32> {
    definitions::type_of_name(name).map(|ty| ty.oid)
}

pub(super) fn to_regtype(_: &Objects, args: &[Arg]) -> Result<Cell> {
    Ok(find_type(text(args.first())).map(i64::from).into())
}

pub(super) fn regtype_oid(_: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(oid) = number(args.first()) {
        return Ok(Cell::Int(oid));
    }
    let name = text(args.first());
    let known = || definitions::types().iter().map(|ty| ty.sql_name.to_owned()).collect();
    find_type(name).map(Cell::from).ok_or_else(|| missing("type", name, known()))
}

pub(super) fn regtype_name(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    if oid == 0 {
        return Ok("-".into());
    }
    let ty = u32::try_from(oid).ok().and_then(type_of_oid);
    Ok(ty.map_or_else(|| oid.to_string(), |ty| sql_type(ty, -1)).into())
}

fn find_function(objects: &Objects, name: &str) -> Option<u32> {
    let name = name.split('(').next().unwrap_or(name).trim();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    let mut all = objects.function_rows().all.iter();
    all.find(|function| function.name.eq_ignore_ascii_case(name)).map(|function| function.oid)
}

pub(super) fn to_regproc(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    Ok(find_function(objects, text(args.first())).map(i64::from).into())
}

pub(super) fn regproc_oid(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(oid) = number(args.first()) {
        return Ok(Cell::Int(oid));
    }
    let name = text(args.first());
    let known = || objects.functions.iter().map(|(name, _)| name.clone()).collect();
    find_function(objects, name).map(Cell::from).ok_or_else(|| missing("function", name, known()))
}

pub(super) fn regproc_name(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    if oid == 0 {
        return Ok("-".into());
    }
    Ok(objects.function(oid).map_or_else(|| oid.to_string(), str::to_owned).into())
}

pub(super) fn regoperator_oid(_: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(oid) = number(args.first()) {
        return Ok(Cell::Int(oid));
    }
    let wanted: String = text(args.first()).chars().filter(|c| !c.is_whitespace()).collect();
    let wanted = wanted.strip_prefix("pg_catalog.").unwrap_or(&wanted);
    let found = written_operators().into_iter().find(|(_, written)| written == wanted);
    let known = || written_operators().into_iter().map(|(_, written)| written).collect();
    found.map(|(oid, _)| Cell::from(oid)).ok_or_else(|| missing("operator", wanted, known()))
}

pub(super) fn regoperator_name(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    let found = written_operators().into_iter().find(|(of, _)| i64::from(*of) == oid);
    Ok(found.map_or_else(|| oid.to_string(), |(_, written)| written).into())
}

fn find_schema(objects: &Objects, name: &str) -> Option<u32> {
    let wanted = parts(name).pop()?;
    objects.schemas().iter().find(|schema| wanted.is(schema.name)).map(|schema| schema.oid)
}

pub(super) fn to_regnamespace(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    Ok(find_schema(objects, text(args.first())).map(i64::from).into())
}

pub(super) fn regnamespace_oid(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(oid) = number(args.first()) {
        return Ok(Cell::Int(oid));
    }
    let name = text(args.first());
    let known = || objects.schemas().iter().map(|schema| schema.name.to_owned()).collect();
    find_schema(objects, name).map(Cell::from).ok_or_else(|| missing("schema", name, known()))
}

pub(super) fn regnamespace_name(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    let schema = objects.schemas().iter().find(|schema| i64::from(schema.oid) == oid);
    Ok(schema.map_or_else(|| oid.to_string(), |schema| quoted(schema.name)).into())
}

fn find_role(objects: &Objects, name: &str) -> Option<u32> {
    let wanted = parts(name).pop()?;
    objects.roles().into_iter().find(|(_, role, _)| wanted.is(role)).map(|(oid, ..)| oid)
}

pub(super) fn to_regrole(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    Ok(find_role(objects, text(args.first())).map(i64::from).into())
}

pub(super) fn regrole_oid(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(oid) = number(args.first()) {
        return Ok(Cell::Int(oid));
    }
    let name = text(args.first());
    let known = || objects.roles().into_iter().map(|(_, role, _)| role.to_owned()).collect();
    find_role(objects, name).map(Cell::from).ok_or_else(|| missing("role", name, known()))
}

pub(super) fn regrole_name(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    Ok(role(objects, oid).map_or_else(|| oid.to_string(), |name| quoted(&name)).into())
}

fn role(objects: &Objects, oid: i64) -> Option<String> {
    let role = objects.roles().into_iter().find(|(of, ..)| i64::from(*of) == oid);
    role.map(|(_, name, _)| name.to_owned())
}

pub(super) fn user(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let oid = number(args.first()).unwrap_or(0);
    Ok(role(objects, oid).unwrap_or_else(|| format!("unknown (OID={oid})")).into())
}

pub(super) fn table_is_visible(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let found = objects.by_oid(number(args.first()).unwrap_or(0));
    Ok(found
        .filter(|(place, _)| !matches!(place, Place::Constraint(..)))
        .map(|(_, relation)| relation.is_visible)
        .into())
}

pub(super) fn type_is_visible(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let oid = number(args.first()).and_then(|oid| u32::try_from(oid).ok());
    Ok(oid.and_then(type_of_oid).map(|_| true).into())
}

pub(super) fn function_is_visible(_: &Objects, args: &[Arg]) -> Result<Cell> {
    // all are in `pg_catalog`
    Ok(Cell::Bool(number(args.first()).is_some()))
}

pub(super) fn quote_ident(_: &Objects, args: &[Arg]) -> Result<Cell> {
    Ok(quoted(text(args.first())).into())
}

pub(super) fn quote_literal(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let text = text(args.first());
    let escaped = text.replace('\'', "''");
    Ok(match text.contains('\\') {
        true => format!("E'{}'", escaped.replace('\\', "\\\\")).into(),
        false => format!("'{escaped}'").into(),
    })
}

pub(super) fn quote_nullable(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    match args.first() {
        Some(Arg::Null) | None => Ok("NULL".into()),
        _ => quote_literal(objects, args),
    }
}

/// Returns the parts of a qualified name, those without quotes in lower case. `parse_ident`.
///
/// Errors: `Invalid` for a text that is not such a name, or that has more behind it unless the second argument is false.
pub(super) fn parse_ident(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let (text, is_strict) = (text(args.first()), args.get(1) != Some(&Arg::Bool(false)));
    let wrong = |why: &str| {
        to_datafusion(Error::invalid(format!("string is not a valid identifier: \"{text}\": {why}")))
    };
    let (mut names, mut rest) = (vec![], text.trim_start());
    loop {
        let (name, behind) = match rest.strip_prefix('"') {
            Some(inner) => quoted_part(inner).ok_or_else(|| wrong("unclosed double quotes"))?,
            None => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                let name = if name.starts_with(|c: char| c.is_ascii_digit() || c == '$') { "" } else { name };
                (name.to_lowercase(), behind)
            }
        };
        if name.is_empty() {
            return Err(wrong("expected a name"));
        }
        names.push(name);
        rest = behind.trim_start();
        match rest.strip_prefix('.') {
            Some(next) => rest = next.trim_start(),
            None if rest.is_empty() || !is_strict => return Ok(Cell::Texts(names)),
            None => return Err(wrong("expected a dot or the end behind a name")),
        }
    }
}

/// Returns the name up to the closing quote, and what is behind it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(next) => {
                name.push('"');
                rest = next;
            }
            None => return Some((name, behind)),
        }
    }
}

/// Returns the number of the database that an argument names.
pub(super) fn is_database(arg: Option<&Arg>) -> bool {
    match arg {
        Some(Arg::Text(name)) => parts(name).pop().is_some_and(|part| part.is(crate::schema_name::CATALOG)),
        other => number(other) == Some(DATABASE_OID.into()),
    }
}

/// Returns the relation that an argument names or has the number of.
pub(super) fn relation<'o>(objects: &'o Objects, arg: Option<&Arg>) -> Option<&'o Relation> {
    let oid = match arg {
        Some(Arg::Text(name)) if number(arg).is_none() => find_relation(objects, name)?.into(),
        other => number(other)?,
    };
    objects.relation(oid)
}

/// Returns whether an argument names a schema.
pub(super) fn schema(objects: &Objects, arg: Option<&Arg>) -> Option<&'static str> {
    let oid = match arg {
        Some(Arg::Text(name)) if number(arg).is_none() => find_schema(objects, name)?.into(),
        other => number(other)?,
    };
    objects.schemas().iter().find(|schema| i64::from(schema.oid) == oid).map(|schema| schema.name)
}

/// Name of the schema that comes first in lookups.
pub(super) const FIRST: &str = PG_CATALOG;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_dots_outside_of_quotes() {
        let split = |name: &str| -> Vec<(String, bool)> {
            parts(name).into_iter().map(|part| (part.name, part.is_quoted)).collect()
        };
        assert_eq!(split("events.Reading"), [("events".to_owned(), false), ("Reading".to_owned(), false)]);
        assert_eq!(split("docs.\"a.\"\"b\""), [("docs".to_owned(), false), ("a.\"b".to_owned(), true)]);
        assert_eq!(split(""), [(String::new(), false)]);
    }
}
