//! What a statement may know of its session.

use datafusion::common::Result;
use tidemill_types::Error;

use super::{Arg, names, number, text};
use crate::error::to_datafusion;
use crate::pg_catalog::objects::Objects;
use crate::pg_catalog::rows::Cell;
use crate::schema_name::CATALOG;
use crate::schema_name::SchemaName;

/// Number of UTF-8 among PostgreSQL's encodings.
const UTF8: i64 = 6;

pub(super) fn version(objects: &Objects, _: &[Arg]) -> Result<Cell> {
    let server = objects.session.as_ref().and_then(|session| session.setting("server_version"));
    let server =
        server.map_or(concat!("15.0 (Tidemill ", env!("CARGO_PKG_VERSION"), ")"), |known| &known.value);
    Ok(format!("PostgreSQL {server}").into())
}

pub(super) fn database(_: &Objects, _: &[Arg]) -> Result<Cell> {
    Ok(CATALOG.into())
}

pub(super) fn schema(_: &Objects, _: &[Arg]) -> Result<Cell> {
    Ok(SchemaName::Events.name().into())
}

/// Returns the schemas in which a name without one is looked up.
pub(super) fn schemas(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let implicit = (args.first() == Some(&Arg::Bool(true))).then_some(names::FIRST);
    let all = implicit.into_iter().chain(SchemaName::ALL.map(SchemaName::name));
    Ok(Cell::Texts(all.map(str::to_owned).collect()))
}

pub(super) fn user(objects: &Objects, _: &[Arg]) -> Result<Cell> {
    Ok(objects.principal.name().to_owned().into())
}

pub(super) fn process(objects: &Objects, _: &[Arg]) -> Result<Cell> {
    Ok(Cell::Int(objects.session.as_ref().map_or(0, |session| session.process.into())))
}

pub(super) fn setting(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if args.first() == Some(&Arg::Null) {
        return Ok(Cell::Null);
    }
    let name = text(args.first());
    match objects.session.as_ref().and_then(|session| session.setting(name)) {
        Some(setting) => Ok(setting.value.clone().into()),
        None if args.get(1) == Some(&Arg::Bool(true)) => Ok(Cell::Null),
        None => Err(to_datafusion(Error::not_found(format!(
            "no setting `{name}` is known: SHOW ALL lists the settings of a session of PostgreSQL's clients"
        )))),
    }
}

/// Returns the value of a setting if it is the present one: a statement cannot change its session.
pub(super) fn set_config(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let (name, value) = (text(args.first()), text(args.get(1)));
    let known = objects.session.as_ref().and_then(|session| session.setting(name));
    match known {
        Some(setting) if setting.value.eq_ignore_ascii_case(value) => Ok(setting.value.clone().into()),
        _ => Err(to_datafusion(Error::invalid(format!(
            "set_config of `{name}` is not supported in a query: send SET {name} TO '{}' by itself",
            value.replace('\'', "''")
        )))),
    }
}

pub(super) fn encoding(_: &Objects, args: &[Arg]) -> Result<Cell> {
    Ok(if number(args.first()) == Some(UTF8) { "UTF8".into() } else { "".into() })
}

pub(super) fn encoding_number(_: &Objects, args: &[Arg]) -> Result<Cell> {
    let is_utf8 = matches!(text(args.first()).to_ascii_lowercase().as_str(), "utf8" | "utf-8" | "unicode");
    Ok(Cell::Int(if is_utf8 { UTF8 } else { -1 }))
}
