//! The operators by name.

use std::ops::RangeInclusive;

use bson::RawDocument;

use super::{
    EvalValue, arithmetic, arrays, compare, convert, date_format, dates, objects, patterns, selections,
    strings,
};
use crate::collation::Collation;
use crate::error::Result;

/// An operator that evaluates all its arguments.
#[derive(Debug)]
pub(super) struct Operator {
    pub name: &'static str,
    pub arity: RangeInclusive<usize>,
    /// Names of the arguments, if they are named; an optional one ends with `?`.
    pub options: &'static [&'static str],
    /// True if the first argument may stand alone instead of named ones.
    pub single: bool,
    pub function: Function,
}

impl Operator {
    /// Returns whether a document has named arguments, and is not the only argument itself.
    pub fn takes_options(&self, document: &RawDocument) -> bool {
        let first = self.options.first().map(|name| name.trim_end_matches('?'));
        !self.single || first.is_some_and(|first| document.get(first).is_ok_and(|value| value.is_some()))
    }
}

/// Evaluates an operator, given its name and its arguments.
type PlainFunction = fn(&str, &[EvalValue]) -> Result<EvalValue>;
/// Evaluates an operator that compares values, given also the collation of strings.
type ComparingFunction = fn(&str, &[EvalValue], Option<&Collation>) -> Result<EvalValue>;

#[derive(Debug)]
pub(super) enum Function {
    Plain(PlainFunction),
    Comparing(ComparingFunction),
}

const MANY: usize = usize::MAX;

const fn operator(name: &'static str, least: usize, most: usize, function: PlainFunction) -> Operator {
    let function = Function::Plain(function);
    Operator { name, arity: RangeInclusive::new(least, most), options: &[], single: false, function }
}

/// An operator that compares values.
const fn comparing(name: &'static str, least: usize, most: usize, function: ComparingFunction) -> Operator {
    let function = Function::Comparing(function);
    Operator { name, arity: RangeInclusive::new(least, most), options: &[], single: false, function }
}

/// An operator with named arguments that compares values.
const fn named_comparing(
    name: &'static str,
    options: &'static [&'static str],
    function: ComparingFunction,
) -> Operator {
    let function = Function::Comparing(function);
    let arity = RangeInclusive::new(options.len(), options.len());
    Operator { name, arity, options, single: false, function }
}

const fn named(name: &'static str, options: &'static [&'static str], function: PlainFunction) -> Operator {
    Operator {
        name,
        arity: RangeInclusive::new(options.len(), options.len()),
        options,
        single: false,
        function: Function::Plain(function),
    }
}

/// An operator whose first argument may stand alone.
const fn single(name: &'static str, options: &'static [&'static str], function: PlainFunction) -> Operator {
    Operator {
        name,
        arity: RangeInclusive::new(1, options.len()),
        options,
        single: true,
        function: Function::Plain(function),
    }
}

/// All operators, ordered by name.
static OPERATORS: &[Operator] = &[
    operator("$abs", 1, 1, arithmetic::abs),
    operator("$acos", 1, 1, arithmetic::acos),
    operator("$acosh", 1, 1, arithmetic::acosh),
    operator("$add", 0, MANY, arithmetic::add),
    operator("$allElementsTrue", 1, 1, arrays::all_elements_true),
    operator("$anyElementTrue", 1, 1, arrays::any_element_true),
    operator("$arrayElemAt", 2, 2, arrays::element_at),
    operator("$arrayToObject", 1, 1, arrays::to_object),
    operator("$asin", 1, 1, arithmetic::asin),
    operator("$asinh", 1, 1, arithmetic::asinh),
    operator("$atan", 1, 1, arithmetic::atan),
    operator("$atan2", 2, 2, arithmetic::atan2),
    operator("$atanh", 1, 1, arithmetic::atanh),
    operator("$avg", 0, MANY, arithmetic::avg),
    operator("$binarySize", 1, 1, objects::binary_size),
    operator("$bitAnd", 0, MANY, objects::bit_and),
    operator("$bitNot", 1, 1, objects::bit_not),
    operator("$bitOr", 0, MANY, objects::bit_or),
    operator("$bitXor", 0, MANY, objects::bit_xor),
    operator("$bsonSize", 1, 1, objects::bson_size),
    operator("$ceil", 1, 1, arithmetic::ceil),
    comparing("$cmp", 2, 2, compare::cmp),
    operator("$concat", 0, MANY, strings::concat),
    operator("$concatArrays", 0, MANY, arrays::concat),
    named("$convert", &["input", "to", "onError?", "onNull?"], convert::convert),
    operator("$cos", 1, 1, arithmetic::cos),
    operator("$cosh", 1, 1, arithmetic::cosh),
    named("$dateAdd", &["startDate", "unit", "amount", "timezone?"], dates::add),
    named("$dateDiff", &["startDate", "endDate", "unit", "timezone?", "startOfWeek?"], dates::difference),
    named(
        "$dateFromParts",
        &[
            "year?",
            "month?",
            "day?",
            "hour?",
            "minute?",
            "second?",
            "millisecond?",
            "isoWeekYear?",
            "isoWeek?",
            "isoDayOfWeek?",
            "timezone?",
        ],
        dates::from_parts,
    ),
    named(
        "$dateFromString",
        &["dateString", "format?", "timezone?", "onError?", "onNull?"],
        date_format::from_string,
    ),
    named("$dateSubtract", &["startDate", "unit", "amount", "timezone?"], dates::subtract),
    named("$dateToParts", &["date", "timezone?", "iso8601?"], dates::to_parts),
    named("$dateToString", &["date", "format?", "timezone?", "onNull?"], date_format::to_string),
    named("$dateTrunc", &["date", "unit", "binSize?", "timezone?", "startOfWeek?"], dates::truncated),
    single("$dayOfMonth", &["date", "timezone?"], dates::day_of_month),
    single("$dayOfWeek", &["date", "timezone?"], dates::day_of_week),
    single("$dayOfYear", &["date", "timezone?"], dates::day_of_year),
    operator("$degreesToRadians", 1, 1, arithmetic::to_radians),
    operator("$divide", 2, 2, arithmetic::divide),
    comparing("$eq", 2, 2, compare::eq),
    operator("$exp", 1, 1, arithmetic::exp),
    operator("$first", 1, 1, arrays::first),
    named("$firstN", &["n", "input"], selections::first_n),
    operator("$floor", 1, 1, arithmetic::floor),
    single("$getField", &["field", "input?"], objects::get_field),
    comparing("$gt", 2, 2, compare::gt),
    comparing("$gte", 2, 2, compare::gte),
    single("$hour", &["date", "timezone?"], dates::hour),
    comparing("$in", 2, 2, arrays::contains),
    comparing("$indexOfArray", 2, 4, arrays::index_of),
    operator("$indexOfBytes", 2, 4, strings::index_of_bytes),
    operator("$indexOfCP", 2, 4, strings::index_of),
    operator("$isArray", 1, 1, arrays::is_array),
    operator("$isNumber", 1, 1, convert::is_number),
    single("$isoDayOfWeek", &["date", "timezone?"], dates::iso_day_of_week),
    single("$isoWeek", &["date", "timezone?"], dates::iso_week),
    single("$isoWeekYear", &["date", "timezone?"], dates::iso_week_year),
    operator("$last", 1, 1, arrays::last),
    named("$lastN", &["n", "input"], selections::last_n),
    operator("$ln", 1, 1, arithmetic::ln),
    operator("$log", 2, 2, arithmetic::log),
    operator("$log10", 1, 1, arithmetic::log10),
    comparing("$lt", 2, 2, compare::lt),
    comparing("$lte", 2, 2, compare::lte),
    named("$ltrim", &["input", "chars?"], strings::trim),
    comparing("$max", 0, MANY, compare::max),
    named_comparing("$maxN", &["n", "input"], selections::max_n),
    named("$median", &["input", "method"], selections::median),
    operator("$mergeObjects", 0, MANY, arrays::merge_objects),
    single("$millisecond", &["date", "timezone?"], dates::millisecond),
    comparing("$min", 0, MANY, compare::min),
    named_comparing("$minN", &["n", "input"], selections::min_n),
    single("$minute", &["date", "timezone?"], dates::minute),
    operator("$mod", 2, 2, arithmetic::modulo),
    single("$month", &["date", "timezone?"], dates::month),
    operator("$multiply", 0, MANY, arithmetic::multiply),
    comparing("$ne", 2, 2, compare::ne),
    operator("$not", 1, 1, compare::not),
    operator("$objectToArray", 1, 1, arrays::of_object),
    named("$percentile", &["input", "p", "method"], selections::percentile),
    operator("$pow", 2, 2, arithmetic::pow),
    operator("$radiansToDegrees", 1, 1, arithmetic::to_degrees),
    operator("$range", 2, 3, arrays::range),
    named("$regexFind", &["input", "regex", "options?"], patterns::find),
    named("$regexFindAll", &["input", "regex", "options?"], patterns::find_all),
    named("$regexMatch", &["input", "regex", "options?"], patterns::is_match),
    named("$replaceAll", &["input", "find", "replacement"], strings::replace),
    named("$replaceOne", &["input", "find", "replacement"], strings::replace),
    operator("$reverseArray", 1, 1, arrays::reverse),
    operator("$round", 1, 2, arithmetic::round),
    named("$rtrim", &["input", "chars?"], strings::trim),
    single("$second", &["date", "timezone?"], dates::second),
    comparing("$setDifference", 2, 2, arrays::set_difference),
    comparing("$setEquals", 2, MANY, arrays::set_equals),
    named("$setField", &["field", "input", "value"], objects::set_field),
    comparing("$setIntersection", 0, MANY, arrays::set_intersection),
    comparing("$setIsSubset", 2, 2, arrays::set_is_subset),
    comparing("$setUnion", 0, MANY, arrays::set_union),
    operator("$sin", 1, 1, arithmetic::sin),
    operator("$sinh", 1, 1, arithmetic::sinh),
    operator("$size", 1, 1, arrays::size),
    operator("$slice", 2, 3, arrays::slice),
    named_comparing("$sortArray", &["input", "sortBy"], selections::sort_array),
    operator("$split", 2, 2, strings::split),
    operator("$sqrt", 1, 1, arithmetic::sqrt),
    operator("$strcasecmp", 2, 2, strings::compare_ignoring_case),
    operator("$strLenBytes", 1, 1, strings::length_bytes),
    operator("$strLenCP", 1, 1, strings::length),
    operator("$substr", 3, 3, strings::substring_bytes),
    operator("$substrBytes", 3, 3, strings::substring_bytes),
    operator("$substrCP", 3, 3, strings::substring),
    operator("$subtract", 2, 2, arithmetic::subtract),
    operator("$sum", 0, MANY, arithmetic::sum),
    operator("$tan", 1, 1, arithmetic::tan),
    operator("$tanh", 1, 1, arithmetic::tanh),
    operator("$toBool", 1, 1, convert::to_bool),
    operator("$toDate", 1, 1, convert::to_date),
    operator("$toDecimal", 1, 1, convert::to_decimal),
    operator("$toDouble", 1, 1, convert::to_double),
    operator("$toInt", 1, 1, convert::to_int),
    operator("$toLong", 1, 1, convert::to_long),
    operator("$toLower", 1, 1, strings::to_lower),
    operator("$toObjectId", 1, 1, convert::to_object_id),
    operator("$toString", 1, 1, convert::to_string),
    operator("$toUpper", 1, 1, strings::to_upper),
    operator("$toUUID", 1, 1, convert::to_uuid),
    named("$trim", &["input", "chars?"], strings::trim),
    operator("$trunc", 1, 2, arithmetic::trunc),
    operator("$tsIncrement", 1, 1, dates::ts_increment),
    operator("$tsSecond", 1, 1, dates::ts_second),
    operator("$type", 1, 1, convert::type_of),
    named("$unsetField", &["field", "input"], objects::unset_field),
    single("$week", &["date", "timezone?"], dates::week),
    single("$year", &["date", "timezone?"], dates::year),
    named("$zip", &["inputs", "useLongestLength?", "defaults?"], selections::zip),
];

/// Returns the operator `name`.
pub(super) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name == name)
}
