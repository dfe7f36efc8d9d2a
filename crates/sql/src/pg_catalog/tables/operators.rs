//! Operators and casts.

use arrow::array::RecordBatch;
use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::Result;

use crate::pg_catalog::definitions::Definition;
use crate::pg_catalog::objects::{OWNER_OID, PG_CATALOG_OID};
use crate::pg_catalog::oid::Oids;
use crate::pg_catalog::rows::{Cell, Rows};

/// Oids of the types `"any"` and `boolean`.
const ANY: i64 = 2276;
const BOOLEAN: i64 = 16;

/// Operators with two operands that have a boolean.
const CONDITIONS: [&str; 16] =
    ["=", "<>", "<", "<=", ">", ">=", "~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*", "@>", "<@"];
/// Operators with two operands that have another value.
const OPERATORS: [&str; 14] = ["+", "-", "*", "/", "%", "^", "||", "&", "|", "#", "<<", ">>", "->", "->>"];
/// Operators in front of one operand.
const PREFIXES: [&str; 2] = ["+", "-"];

/// Returns all operators: number, name, `b` for two operands and `l` for one, and the type of the result.
fn all_operators() -> impl Iterator<Item = (u32, &'static str, &'static str, i64)> {
    let of = |names: &'static [&'static str], kind: &'static str, result: i64| {
        names.iter().map(move |name| (*name, kind, result))
    };
    let all = of(&CONDITIONS, "b", BOOLEAN).chain(of(&OPERATORS, "b", ANY)).chain(of(&PREFIXES, "l", ANY));
    let mut oids = Oids::default();
    all.map(move |(name, kind, result)| (oids.give("operator", kind, name), name, kind, result))
}

/// Returns the operators by their numbers, with their operands, as values of `regoperator` are written.
pub(in crate::pg_catalog) fn written_operators() -> Vec<(u32, String)> {
    let written = |name: &str, kind: &str| match kind {
        "b" => format!("{name}(\"any\",\"any\")"),
        _ => format!("{name}(NONE,\"any\")"),
    };
    all_operators().map(|(oid, name, kind, _)| (oid, written(name, kind))).collect()
}

/// Returns `pg_operator`. As functions, operators take operands of many types, so all are described as those of any.
pub(super) fn operators(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        ["oid", "oprname", "oprnamespace", "oprowner", "oprkind", "oprleft", "oprright", "oprresult"],
    );
    for (oid, name, kind, result) in all_operators() {
        rows.push([
            oid.into(),
            name.into(),
            PG_CATALOG_OID.into(),
            OWNER_OID.into(),
            kind.into(),
            Cell::Int(if kind == "b" { ANY } else { 0 }),
            Cell::Int(ANY),
            Cell::Int(result),
        ]);
    }
    rows.finish()
}

/// Types between which casts are listed, by their oids. As in PostgreSQL, a text is cast to all types and from them without a row.
fn types() -> [(i64, DataType); 13] {
    [
        (16, DataType::Boolean),
        (17, DataType::Binary),
        (20, DataType::Int64),
        (21, DataType::Int16),
        (23, DataType::Int32),
        (700, DataType::Float32),
        (701, DataType::Float64),
        (1082, DataType::Date32),
        (1083, DataType::Time64(TimeUnit::Microsecond)),
        (1114, DataType::Timestamp(TimeUnit::Microsecond, None)),
        (1184, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        (1186, DataType::Interval(IntervalUnit::MonthDayNano)),
        (1700, DataType::Decimal128(38, 10)),
    ]
}

/// Returns `pg_cast`: the casts that SQL has here. Those between numbers that lose nothing are implicit.
pub(super) fn casts(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["oid", "castsource", "casttarget", "castcontext", "castmethod"]);
    let mut oids = Oids::default();
    let width = |oid: i64| [21, 23, 20, 1700, 700, 701].iter().position(|known| *known == oid);
    let types = types();
    for (source, from) in &types {
        for (target, to) in &types {
            if source == target || !can_cast_types(from, to) {
                continue;
            }
            let widens = width(*source).zip(width(*target)).is_some_and(|(from, to)| from < to);
            rows.push([
                oids.give("cast", &source.to_string(), &target.to_string()).into(),
                Cell::Int(*source),
                Cell::Int(*target),
                Cell::from(if widens { "i" } else { "e" }),
                "f".into(),
            ]);
        }
    }
    rows.finish()
}
