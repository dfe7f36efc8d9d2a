//! Rights of the caller, as PostgreSQL names them.
//!
//! A table that the caller may not read does not exist for it, so the answer for one is null, as for a number that no table has.

use datafusion::common::{Result, exec_err};
use tidemill_access::{Action, Resource};

use super::{Arg, names, number, text};
use crate::pg_catalog::objects::{Objects, Relation};
use crate::pg_catalog::rows::Cell;

/// Returns whether the caller may insert, change and delete rows of a relation.
pub(in crate::pg_catalog) fn may_change(objects: &Objects, relation: &Relation) -> bool {
    relation.schema == "events" && objects.principal.can(Action::Write, &Resource::stream(&relation.name))
}

/// Splits the role before the object, which may be left out; it has to be that of the caller.
fn without_role<'a>(objects: &Objects, args: &'a [Arg], count: usize) -> Result<&'a [Arg]> {
    let Some((role, rest)) = args.split_first().filter(|_| args.len() > count) else { return Ok(args) };
    let is_own = match role {
        Arg::Text(name) => name == objects.principal.name() || name.eq_ignore_ascii_case("public"),
        other => number(Some(other)) == Some(objects.caller().into()),
    };
    match is_own || objects.is_administrator() {
        true => Ok(rest),
        false => exec_err!("the rights of another role are not supported: leave the role out"),
    }
}

/// Returns whether any of the rights in a list such as `SELECT, INSERT` is one of `given`.
fn any(list: &str, given: &[&str]) -> bool {
    let mut rights = list.split(',').map(|right| right.trim().to_ascii_uppercase());
    rights
        .any(|right| given.contains(&right.strip_suffix(" WITH GRANT OPTION").map_or(right.as_str(), |_| "")))
}

pub(super) fn table(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let args = without_role(objects, args, 2)?;
    Ok(of_relation(objects, args.first(), text(args.get(1))))
}

pub(super) fn column(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let args = without_role(objects, args, 3)?;
    Ok(of_relation(objects, args.first(), text(args.get(2))))
}

fn of_relation(objects: &Objects, arg: Option<&Arg>, rights: &str) -> Cell {
    let Some(relation) = names::relation(objects, arg) else { return Cell::Null };
    let given: &[&str] =
        if may_change(objects, relation) { &["INSERT", "SELECT", "UPDATE", "DELETE"] } else { &["SELECT"] };
    Cell::Bool(any(rights, given))
}

pub(super) fn schema(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let args = without_role(objects, args, 2)?;
    let known = names::schema(objects, args.first());
    Ok(known.map(|_| any(text(args.get(1)), &["USAGE"])).into())
}

pub(super) fn database(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let args = without_role(objects, args, 2)?;
    let is_known = names::is_database(args.first());
    Ok(is_known.then(|| any(text(args.get(1)), &["CONNECT"])).into())
}

pub(super) fn usage(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let args = without_role(objects, args, 2)?;
    Ok(Cell::Bool(any(text(args.get(1)), &["USAGE", "EXECUTE"])))
}

pub(super) fn none(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    without_role(objects, args, 2)?;
    Ok(Cell::Bool(false))
}

/// Returns whether the caller has a role: its own only.
pub(super) fn role(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let args = without_role(objects, args, 2)?;
    Ok(Cell::Bool(match args.first() {
        Some(Arg::Text(name)) => name == objects.principal.name(),
        other => number(other) == Some(objects.caller().into()),
    }))
}
