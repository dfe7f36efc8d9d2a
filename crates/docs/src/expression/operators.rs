//! The operators by name.

use std::ops::RangeInclusive;

use super::{EvalValue, arithmetic, arrays, compare, convert, strings};
use crate::error::Result;

/// An operator that evaluates all its arguments.
#[derive(Debug)]
pub(super) struct Operator {
    pub name: &'static str,
    pub arity: RangeInclusive<usize>,
    /// Names of the arguments, if they are named; an optional one ends with `?`.
    pub options: &'static [&'static str],
    pub function: Function,
}

/// Evaluates an operator, given its name and its arguments.
pub(super) type Function = fn(&str, &[EvalValue]) -> Result<EvalValue>;

const MANY: usize = usize::MAX;

const fn operator(name: &'static str, least: usize, most: usize, function: Function) -> Operator {
    Operator { name, arity: RangeInclusive::new(least, most), options: &[], function }
}

const fn named(name: &'static str, options: &'static [&'static str], function: Function) -> Operator {
    Operator { name, arity: RangeInclusive::new(options.len(), options.len()), options, function }
}

/// All operators, ordered by name.
static OPERATORS: &[Operator] = &[
    operator("$abs", 1, 1, arithmetic::abs),
    operator("$add", 0, MANY, arithmetic::add),
    operator("$allElementsTrue", 1, 1, arrays::all_elements_true),
    operator("$anyElementTrue", 1, 1, arrays::any_element_true),
    operator("$arrayElemAt", 2, 2, arrays::element_at),
    operator("$arrayToObject", 1, 1, arrays::to_object),
    operator("$avg", 0, MANY, arithmetic::avg),
    operator("$ceil", 1, 1, arithmetic::ceil),
    operator("$cmp", 2, 2, compare::cmp),
    operator("$concat", 0, MANY, strings::concat),
    operator("$concatArrays", 0, MANY, arrays::concat),
    operator("$divide", 2, 2, arithmetic::divide),
    operator("$eq", 2, 2, compare::eq),
    operator("$exp", 1, 1, arithmetic::exp),
    operator("$first", 1, 1, arrays::first),
    operator("$floor", 1, 1, arithmetic::floor),
    operator("$gt", 2, 2, compare::gt),
    operator("$gte", 2, 2, compare::gte),
    operator("$in", 2, 2, arrays::contains),
    operator("$indexOfArray", 2, 4, arrays::index_of),
    operator("$indexOfCP", 2, 4, strings::index_of),
    operator("$isArray", 1, 1, arrays::is_array),
    operator("$isNumber", 1, 1, convert::is_number),
    operator("$last", 1, 1, arrays::last),
    operator("$ln", 1, 1, arithmetic::ln),
    operator("$log", 2, 2, arithmetic::log),
    operator("$log10", 1, 1, arithmetic::log10),
    operator("$lt", 2, 2, compare::lt),
    operator("$lte", 2, 2, compare::lte),
    named("$ltrim", &["input", "chars?"], strings::trim),
    operator("$max", 0, MANY, compare::max),
    operator("$mergeObjects", 0, MANY, arrays::merge_objects),
    operator("$min", 0, MANY, compare::min),
    operator("$mod", 2, 2, arithmetic::modulo),
    operator("$multiply", 0, MANY, arithmetic::multiply),
    operator("$ne", 2, 2, compare::ne),
    operator("$not", 1, 1, compare::not),
    operator("$objectToArray", 1, 1, arrays::of_object),
    operator("$pow", 2, 2, arithmetic::pow),
    operator("$range", 2, 3, arrays::range),
    named("$replaceAll", &["input", "find", "replacement"], strings::replace),
    named("$replaceOne", &["input", "find", "replacement"], strings::replace),
    operator("$reverseArray", 1, 1, arrays::reverse),
    operator("$round", 1, 2, arithmetic::round),
    named("$rtrim", &["input", "chars?"], strings::trim),
    operator("$setDifference", 2, 2, arrays::set_difference),
    operator("$setEquals", 2, MANY, arrays::set_equals),
    operator("$setIntersection", 0, MANY, arrays::set_intersection),
    operator("$setIsSubset", 2, 2, arrays::set_is_subset),
    operator("$setUnion", 0, MANY, arrays::set_union),
    operator("$size", 1, 1, arrays::size),
    operator("$slice", 2, 3, arrays::slice),
    operator("$split", 2, 2, strings::split),
    operator("$sqrt", 1, 1, arithmetic::sqrt),
    operator("$strLenBytes", 1, 1, strings::length_bytes),
    operator("$strLenCP", 1, 1, strings::length),
    operator("$strcasecmp", 2, 2, strings::compare_ignoring_case),
    operator("$substrCP", 3, 3, strings::substring),
    operator("$subtract", 2, 2, arithmetic::subtract),
    operator("$sum", 0, MANY, arithmetic::sum),
    operator("$toBool", 1, 1, convert::to_bool),
    operator("$toDouble", 1, 1, convert::to_double),
    operator("$toInt", 1, 1, convert::to_int),
    operator("$toLong", 1, 1, convert::to_long),
    operator("$toLower", 1, 1, strings::to_lower),
    operator("$toString", 1, 1, convert::to_string),
    operator("$toUpper", 1, 1, strings::to_upper),
    named("$trim", &["input", "chars?"], strings::trim),
    operator("$trunc", 1, 2, arithmetic::trunc),
    operator("$type", 1, 1, convert::type_of),
];

/// Returns the operator `name`.
pub(super) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name == name)
}
