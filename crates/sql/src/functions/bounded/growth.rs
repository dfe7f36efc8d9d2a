//! Upper bounds of a function's result size, computed from its arguments.

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

use super::super::chain::CHAIN;
use super::sizes::{bytes, elements, integers};

/// Maximum bytes of a character.
const CHAR: u128 = 4;
/// Bytes of a list element besides its value, or of a number written as a string.
const ELEMENT: u128 = 32;
/// Comparisons that a function of quadratic time may make, per byte of the limit.
pub(super) const WORK_PER_BYTE: u128 = 16;

/// Rule by which the size of a function's result grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// At most the sum of all arguments.
    Sum,
    /// A small multiple of the arguments: characters become longer, lists of parts have offsets.
    Parts,
    /// The first argument, repeated as often as the second specifies.
    Times,
    /// As many characters or elements as the second argument specifies.
    Length,
    /// Numbers or times from the first argument to the second, in steps of the third.
    Series,
    /// The third argument for each occurrence of the second in the first.
    Replace,
    /// [`Self::Replace`] with a regular expression.
    ReplacePattern,
    /// The third argument for each element of the first.
    ReplaceElements,
    /// The elements of the first argument as strings, with the other arguments between them.
    Write,
    /// A date or number formatted by the second argument.
    Format,
    /// All other arguments, separated by the first.
    Between,
    /// Fixed size of the type named by the second argument.
    Type,
    /// The strings among the operands, if `||` is one of the operators.
    Chain,
    /// A number, computed in time that grows with the product of the arguments' lengths.
    Work,
}

impl Growth {
    /// Returns the rule for the function `name`, or `None` if the result has a fixed size or is one of the
    /// arguments.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "repeat" | "array_repeat" => Self::Times,
            "lpad" | "rpad" | "array_resize" => Self::Length,
            "generate_series" | "range" => Self::Series,
            "replace" => Self::Replace,
            "regexp_replace" => Self::ReplacePattern,
            "array_replace" | "array_replace_n" | "array_replace_all" => Self::ReplaceElements,
            "array_to_string" => Self::Write,
            "to_char" => Self::Format,
            "concat_ws" => Self::Between,
            "arrow_cast" | "arrow_try_cast" => Self::Type,
            "levenshtein" => Self::Work,
            CHAIN => Self::Chain,
            "concat" | "overlay" | "make_array" | "struct" | "named_struct" | "map" | "array_append"
            | "array_prepend" | "array_concat" | "array_union" | "array_intersect" | "array_except"
            | "arrays_zip" | "array_remove" | "array_remove_n" | "array_remove_all" | "array_slice"
            | "array_distinct" | "array_sort" | "array_reverse" | "array_pop_back" | "array_pop_front"
            | "array_compact" | "array_add" | "array_subtract" | "array_scale" | "array_normalize"
            | "array_positions" | "array_element" | "array_any_value" | "array_first" | "flatten"
            | "map_entries" | "map_keys" | "map_values" | "map_extract" | "substr" | "substr_index"
            | "left" | "right" | "split_part" | "reverse" | "btrim" | "ltrim" | "rtrim" | "nullif"
            | "nvl" | "nvl2" | "coalesce" | "greatest" | "least" | "decode" => Self::Sum,
            "string_to_array" | "regexp_match" | "translate" | "upper" | "lower" | "initcap" | "encode"
            | "json_get" | "json_get_array" | "json_get_json" | "json_get_str" | "json_as_text"
            | "json_object_keys" | "json_from_scalar" | "json_union_to_text" => Self::Parts,
            _ => return None,
        })
    }

    /// Returns an upper bound, in bytes, of the result of a call with `args` for `rows` rows; 0 when the call
    /// will fail because of its arguments.
    ///
    /// When a cheap bound exceeds `bytes_max`, the size is computed exactly if possible.
    pub fn bytes(self, args: &[ColumnarValue], rows: usize, bytes_max: usize) -> Result<u128> {
        let scalar = args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { rows };
        match (self, args) {
            (Self::Sum, _) => sum(args, rows),
            (Self::Parts, _) => Ok(sum(args, rows)?.saturating_mul(CHAR + 4)),
            (Self::Times, [value, times, ..]) => {
                let (value, times) = (bytes(value)?, integers(times)?);
                Ok(total(rows, |row| (value.at(row) + 4).saturating_mul(positive(times.at(row)))))
            }
            (Self::Length, [value, length, fill @ ..]) => {
                let (value, length) = (bytes(value)?, integers(length)?);
                let fill = fill.first().map(bytes).transpose()?;
                let each = |row| fill.as_ref().map_or(0, |f| f.at(row)).max(CHAR) + CHAR;
                let text =
                    matches!(args[0].data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
                Ok(total(rows, |row| {
                    let each = if text { CHAR } else { each(row) };
                    each.saturating_mul(positive(length.at(row))).saturating_add(value.at(row))
                }))
            }
            (Self::Series, _) => series(args, rows),
            (Self::Replace, [text, from, to]) => {
                let quick = replaced(text, from, to, rows)?;
                if quick <= bytes_max as u128 { Ok(quick) } else { replaced_exactly(text, from, to, rows) }
            }
            (Self::ReplacePattern, [text, pattern, to, flags @ ..]) => {
                let all = match flags.first() {
                    None => false,
                    Some(ColumnarValue::Array(_)) => true,
                    Some(flags) => text_at(flags, 0).is_some_and(|f| f.contains('g')),
                };
                let quick = replaced_pattern(text, to, all, rows)?;
                if quick <= bytes_max as u128 {
                    return Ok(quick);
                }
                let flags = flags.first().and_then(|f| text_at(f, 0)).unwrap_or_default();
                Ok(replaced_pattern_exactly(text, pattern, to, flags, rows)?.unwrap_or(quick))
            }
            (Self::ReplaceElements, [list, _, to, ..]) => {
                let (list, count, to) = (bytes(list)?, elements(list)?, bytes(to)?);
                Ok(total(rows, |row| list.at(row) + count.at(row).saturating_mul(to.at(row) + 4)))
            }
            (Self::Write, [list, between @ ..]) => {
                let (list, count) = (bytes(list)?, elements(list)?);
                let between = between.iter().map(bytes).collect::<Result<Vec<_>>>()?;
                Ok(total(rows, |row| {
                    let each: u128 = between.iter().map(|b| b.at(row)).sum();
                    list.at(row) + count.at(row).saturating_mul(each + ELEMENT)
                }))
            }
            (Self::Format, [_, format, ..]) => {
                let format = bytes(format)?;
                Ok(total(rows, |row| format.at(row).saturating_mul(ELEMENT)))
            }
            (Self::Between, [between, values @ ..]) => {
                let between = bytes(between)?;
                let gaps = values.len() as u128;
                let all = total(rows, |row| between.at(row).saturating_mul(gaps));
                Ok(sum(values, rows)?.saturating_add(all))
            }
            (Self::Type, [_, ty]) => Ok((rows as u128).saturating_mul(text_at(ty, 0).map_or(0, width))),
            (Self::Chain, [operators, operands @ ..]) => {
                if text_at(operators, 0).is_none_or(|o| !o.contains('|')) {
                    return Ok(0);
                }
                sum(operands, rows)
            }
            (Self::Work, [a, b]) => {
                let (a, b) = (bytes(a)?, bytes(b)?);
                Ok(total(rows, |row| a.at(row).saturating_mul(b.at(row))) / WORK_PER_BYTE)
            }
            _ => sum(args, rows),
        }
    }
}

fn positive(n: i64) -> u128 {
    u128::try_from(n).unwrap_or(0)
}

fn total(rows: usize, of: impl Fn(usize) -> u128) -> u128 {
    (0..rows).fold(0, |sum: u128, row| sum.saturating_add(of(row)))
}

/// Sums the bytes of all arguments; a constant counts once per row.
fn sum(args: &[ColumnarValue], rows: usize) -> Result<u128> {
    args.iter().try_fold(0_u128, |sum, arg| {
        let bytes = bytes(arg)?;
        Ok(sum.saturating_add(total(rows, |row| bytes.at(row))))
    })
}

fn series(args: &[ColumnarValue], rows: usize) -> Result<u128> {
    let (start, stop, step) = match args {
        [stop] => (None, stop, None),
        [start, stop] => (Some(start), stop, None),
        [start, stop, step, ..] => (Some(start), stop, Some(step)),
        [] => return Ok(0),
    };
    let start = start.map(integers).transpose()?;
    let stop = integers(stop)?;
    let steps =
        step.map(|s| if matches!(s.data_type(), DataType::Interval(_)) { micros(s) } else { integers(s) });
    let step = steps.transpose()?;
    Ok(total(rows, |row| {
        let from = i128::from(start.as_ref().map_or(0, |s| s.at(row)));
        let by = step.as_ref().map_or(1, |s| s.at(row)).unsigned_abs().max(1);
        ((i128::from(stop.at(row)) - from).unsigned_abs() / u128::from(by) + 1) * 8
    }))
}

/// Returns the smallest number of microseconds that each interval can represent.
fn micros(arg: &ColumnarValue) -> Result<super::sizes::PerRow<i64>> {
    const DAY: i64 = 86_400_000_000;
    let array = match arg {
        ColumnarValue::Array(array) => array.clone(),
        ColumnarValue::Scalar(scalar) => scalar.to_array()?,
    };
    let target = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    let array = arrow::compute::cast(&array, &target)?;
    let intervals = array.as_primitive::<arrow::datatypes::IntervalMonthDayNanoType>();
    let each = (0..intervals.len()).map(|row| {
        let interval = intervals.value(row);
        let days = i64::from(interval.months) * 28 + i64::from(interval.days);
        days.saturating_mul(DAY).saturating_add(interval.nanoseconds / 1_000)
    });
    let each: Vec<i64> = each.collect();
    Ok(match arg {
        ColumnarValue::Scalar(_) => super::sizes::PerRow::All(each.first().copied().unwrap_or_default()),
        ColumnarValue::Array(_) => super::sizes::PerRow::Each(each),
    })
}

fn replaced(text: &ColumnarValue, from: &ColumnarValue, to: &ColumnarValue, rows: usize) -> Result<u128> {
    let (text, from, to) = (bytes(text)?, bytes(from)?, bytes(to)?);
    Ok(total(rows, |row| {
        let text = text.at(row);
        let times = text.checked_div(from.at(row)).unwrap_or(text + 1);
        text.saturating_add(times.saturating_mul(to.at(row)))
    }))
}

fn replaced_exactly(
    text: &ColumnarValue,
    from: &ColumnarValue,
    to: &ColumnarValue,
    rows: usize,
) -> Result<u128> {
    let to = bytes(to)?;
    Ok(total(rows, |row| {
        let (text, from) = (text_at(text, row).unwrap_or_default(), text_at(from, row).unwrap_or_default());
        let times = text.matches(from).count() as u128;
        (text.len() as u128).saturating_add(times.saturating_mul(to.at(row)))
    }))
}

/// Returns the bytes that `times` replacements of `matched` bytes in all can produce. Each group reference in
/// `to` can repeat the matched text.
fn replacement(to: &str, times: u128, matched: u128) -> u128 {
    let names = to.bytes().filter(|b| matches!(b, b'$' | b'\\')).count() as u128;
    times.saturating_mul(to.len() as u128).saturating_add(names.saturating_mul(matched))
}

fn replaced_pattern(text: &ColumnarValue, to: &ColumnarValue, all: bool, rows: usize) -> Result<u128> {
    let text = bytes(text)?;
    Ok(total(rows, |row| {
        let text = text.at(row);
        let times = if all { text + 1 } else { 1 };
        text.saturating_add(replacement(text_at(to, row).unwrap_or_default(), times, text))
    }))
}

/// Computes the bound of [`replaced_pattern`] from the actual matches. Returns `None` if the pattern is not
/// constant or not valid.
fn replaced_pattern_exactly(
    text: &ColumnarValue,
    pattern: &ColumnarValue,
    to: &ColumnarValue,
    flags: &str,
    rows: usize,
) -> Result<Option<u128>> {
    let ColumnarValue::Scalar(_) = pattern else { return Ok(None) };
    let inline: String = flags.chars().filter(|c| *c != 'g').collect();
    let pattern = text_at(pattern, 0).unwrap_or_default();
    let pattern = if inline.is_empty() { pattern.to_owned() } else { format!("(?{inline}){pattern}") };
    let Ok(pattern) = regex::Regex::new(&pattern) else { return Ok(None) };
    Ok(Some(total(rows, |row| {
        let text = text_at(text, row).unwrap_or_default();
        let most = if flags.contains('g') { usize::MAX } else { 1 };
        let (times, matched) = pattern
            .find_iter(text)
            .take(most)
            .fold((0, 0), |(times, bytes), m| (times + 1, bytes + m.len() as u128));
        (text.len() as u128).saturating_add(replacement(text_at(to, row).unwrap_or_default(), times, matched))
    })))
}

/// Returns 8 times the product of the numbers in the name of a fixed-size type such as `FixedSizeList(5 x
/// Int64)`; 0 for other types.
pub(super) fn width(ty: &str) -> u128 {
    if !ty.contains("FixedSize") {
        return 0;
    }
    let numbers = ty.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u128>().ok());
    numbers.filter(|n| *n > 0).fold(8, u128::saturating_mul)
}

/// Returns the string of one row; `None` for nulls and other types.
fn text_at(arg: &ColumnarValue, row: usize) -> Option<&str> {
    match arg {
        ColumnarValue::Scalar(
            ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text),
        ) => text.as_deref(),
        ColumnarValue::Scalar(_) => None,
        ColumnarValue::Array(array) if array.is_null(row) => None,
        ColumnarValue::Array(array) => match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(array.as_string_view().value(row)),
            _ => None,
        },
    }
}
