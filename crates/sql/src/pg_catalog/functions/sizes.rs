//! Bytes of tables.

use datafusion::common::Result;

use super::{Arg, names, number};
use crate::error::to_datafusion;
use crate::pg_catalog::objects::Objects;
use crate::pg_catalog::rows::Cell;
use crate::pg_catalog::tables::{TABLESPACE, TABLESPACE_NAME};

pub(super) fn relation(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if let Some(relation) = names::relation(objects, args.first()) {
        return Ok(Cell::Int(objects.bytes(relation).map_err(to_datafusion)?));
    }
    // an index takes no room of its own
    let constraint = objects.constraint(number(args.first()).unwrap_or(0));
    Ok(constraint.map(|_| 0_i64).into())
}

pub(super) fn database(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    if !names::is_database(args.first()) {
        return Ok(Cell::Null);
    }
    all(objects)
}

/// All tables are in the default tablespace.
pub(super) fn tablespace(objects: &Objects, args: &[Arg]) -> Result<Cell> {
    let is_default = match args.first() {
        Some(Arg::Text(name)) => name == TABLESPACE_NAME,
        other => number(other) == Some(TABLESPACE),
    };
    if is_default { all(objects) } else { Ok(Cell::Int(0)) }
}

fn all(objects: &Objects) -> Result<Cell> {
    let sizes = objects.relations().iter().map(|relation| objects.bytes(relation).map_err(to_datafusion));
    Ok(Cell::Int(sizes.sum::<Result<i64>>()?))
}

/// Writes a number of bytes as PostgreSQL does: each unit up to 10,240 of the one below it, rounded.
pub(super) fn pretty(_: &Objects, args: &[Arg]) -> Result<Cell> {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let bytes = number(args.first()).unwrap_or(0);
    let mut value = i128::from(bytes);
    let mut unit = 0;
    // twice the value from the second unit on, to round by its last bit
    while unit + 1 < UNITS.len() {
        let limit = if unit == 0 { 10 * 1024 } else { 2 * 10 * 1024 - 1 };
        if value.abs() < limit {
            break;
        }
        value /= if unit == 0 { 512 } else { 1024 };
        unit += 1;
    }
    if unit > 0 {
        value = (value + value.signum()) / 2;
    }
    Ok(format!("{value} {}", UNITS[unit]).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg_catalog::functions::Arg;

    #[test]
    fn sizes_are_rounded_as_postgresql_does() {
        let objects = crate::pg_catalog::objects::Objects::of_nothing();
        for (bytes, text) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (10_751, "10 kB"),
            (10_752, "11 kB"),
            (10_485_248, "10 MB"),
            (-10_240, "-10 kB"),
            (i64::MAX, "8192 PB"),
        ] {
            assert_eq!(pretty(&objects, &[Arg::Int(bytes)]).unwrap(), Cell::from(text.to_owned()), "{bytes}");
        }
    }
}
