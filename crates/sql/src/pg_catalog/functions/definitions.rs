//! Definitions and comments of objects as texts.

use datafusion::common::Result;

use super::{Arg, number};
use crate::pg_catalog::definitions::{TypeDefinition, type_of_oid};
use crate::pg_catalog::objects::{Constraint, Objects, Place, Relation};
use crate::pg_catalog::quoting::quoted;
use crate::pg_catalog::rows::Cell;

/// Returns the name of a type in SQL with its modifier, which is -1 for none.
pub(in crate::pg_catalog) fn sql_type(ty: &TypeDefinition, modifier: i64) -> String {
    if ty.category == "A"
        && ty.name.starts_with('_')
        && let Some(element) = type_of_oid(ty.element)
    {
        return format!("{}[]", sql_type(element, modifier));
    }
    match ty.name {
        "numeric" if modifier >= 4 => {
            let packed = modifier - 4;
            format!("numeric({},{})", packed >> 16, packed & 0xffff)
        }
        "varchar" | "bpchar" if modifier >= 4 => format!("{}({})", ty.sql_name, modifier - 4),
        _ => ty.sql_name.to_owned(),
    }
}

pub(super) fn format_type(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    if oid == 0 {
        return Ok("-".into());
    }
    let ty = u32::try_from(oid).ok().and_then(type_of_oid);
    Ok(match ty {
        Some(ty) => sql_type(ty, number(args.get(1)).unwrap_or(-1)).into(),
        None => "???".into(),
    })
}

impl Constraint {
    /// Returns `p` for a primary key and `u` for columns that are unique.
    pub(in crate::pg_catalog) fn kind(&self) -> &'static str {
        if self.is_primary { "p" } else { "u" }
    }

    fn columns(&self) -> String {
        self.columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn constraint(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    let found = objects.constraint(oid).filter(|(_, constraint)| i64::from(constraint.oid) == oid);
    let definition = found.map(|(_, constraint)| {
        let what = if constraint.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
        format!("{what} ({})", constraint.columns())
    });
    Ok(definition.into())
}

/// Returns the statement that would create an index.
pub(in crate::pg_catalog) fn index_definition(relation: &Relation, constraint: &Constraint) -> String {
    format!(
        "CREATE UNIQUE INDEX {} ON {}.{} USING btree ({})",
        quoted(&constraint.name),
        quoted(relation.schema),
        quoted(&relation.name),
        constraint.columns()
    )
}

pub(super) fn index(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    let found = objects.constraint(oid).filter(|(_, constraint)| i64::from(constraint.index) == oid);
    let Some((relation, constraint)) = found else { return Ok(Cell::Null) };
    Ok(match number(args.get(1)).unwrap_or(0) {
        0 => index_definition(relation, constraint).into(),
        at => {
            let at = usize::try_from(at - 1).ok();
            let column = at.and_then(|at| constraint.columns.get(at));
            Cell::from(column.map_or_else(String::new, |name| quoted(name)))
        }
    })
}

pub(super) fn function_arguments(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    of_function(objects, args, "VARIADIC \"any\"")
}

pub(super) fn function_result(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    of_function(objects, args, "\"any\"")
}

fn of_function(objects: &Objects, args: &[Arg], text: &'static str) -> Result<Cell> {
    let oid = number(args.first());
    let is_known = objects.function(oid.unwrap_or(0)).is_some();
    Ok(if is_known { text.into() } else { Cell::Null })
}

pub(super) fn object_comment(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let Some(oid) = number(args.first()) else { return Ok(Cell::Null) };
    let catalog = args.get(1).map(|_| super::text(args.get(1)));
    if let Some(schema) = objects.schemas().iter().find(|schema| i64::from(schema.oid) == oid)
        && catalog.is_none_or(|catalog| catalog == "pg_namespace")
    {
        return Ok(schema.comment.into());
    }
    if catalog.is_some_and(|catalog| catalog != "pg_class") {
        return Ok(Cell::Null);
    }
    Ok(objects.relation(oid).and_then(|relation| relation.comment.clone()).into())
}

pub(super) fn column_comment(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let (Some(oid), Some(at)) = (number(args.first()), number(args.get(1))) else { return Ok(Cell::Null) };
    let Some((Place::Relation(_), relation)) = objects.by_oid(oid) else { return Ok(Cell::Null) };
    let name = relation.declared_column(at);
    let comment = name.and_then(|name| relation.column_comments.iter().find(|(of, _)| *of == name));
    Ok(comment.map(|(_, comment)| *comment).into())
}
