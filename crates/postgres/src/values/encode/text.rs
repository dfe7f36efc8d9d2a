//! Values as text, in the styles that PostgreSQL has by default: ISO for dates, `postgres` for intervals, hexadecimal for bytes.

use std::io::Write;

use arrow_buffer::IntervalMonthDayNano;
use jiff::tz::TimeZone;

use crate::values::times::{DAY_MICROS, Day, SECOND_MICROS, offset_seconds};

/// Appends formatted text. A vector takes all that is written.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => {{
        let _ = write!($out, $($arguments)*);
    }};
}

pub(super) fn put_date(days: i64, out: &mut Vec<u8>) {
    let Day { year, month, day } = Day::after_1970(days);
    put_day(year, month, day, out);
    put_era(year, out);
}

fn put_day(year: i64, month: u8, day: u8, out: &mut Vec<u8>) {
    // there is no year 0: the year before 1 is 1 BC
    let shown = if year > 0 { year } else { 1 - year };
    put!(out, "{shown:04}-{month:02}-{day:02}");
}

fn put_era(year: i64, out: &mut Vec<u8>) {
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Appends a time of the day in microseconds.
pub(super) fn put_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros / SECOND_MICROS;
    put!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    put_fraction(micros % SECOND_MICROS, out);
}

/// Appends the microseconds of a second without the zeros at their end.
fn put_fraction(micros: i64, out: &mut Vec<u8>) {
    if micros != 0 {
        put!(out, ".{micros:06}");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Appends a time of a calendar, or an instant in `zone`.
pub(super) fn put_timestamp(micros: i64, zone: Option<&TimeZone>, out: &mut Vec<u8>) {
    let offset = zone.map(|zone| offset_seconds(zone, micros));
    // the sum may have more bits
    let local = i128::from(micros) + i128::from(offset.unwrap_or(0)) * i128::from(SECOND_MICROS);
    let day_micros = i128::from(DAY_MICROS);
    // a number of days and the microseconds of a day are small
    let days = local.div_euclid(day_micros) as i64;
    let of_day = local.rem_euclid(day_micros) as i64;
    let Day { year, month, day } = Day::after_1970(days);
    put_day(year, month, day, out);
    out.push(b' ');
    put_time(of_day, out);
    if let Some(offset) = offset {
        let seconds = offset.unsigned_abs();
        put!(out, "{}{:02}", if offset < 0 { '-' } else { '+' }, seconds / 3600);
        if seconds % 3600 != 0 {
            put!(out, ":{:02}", seconds / 60 % 60);
        }
        if seconds % 60 != 0 {
            put!(out, ":{:02}", seconds % 60);
        }
    }
    put_era(year, out);
}

/// Appends an interval in the style `postgres`: `1 year 2 mons -3 days +04:05:06.7`.
pub(super) fn put_interval(value: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let IntervalMonthDayNano { months, days, nanoseconds } = value;
    let micros = nanoseconds / 1_000;
    let start = out.len();
    let mut after_negative = false;
    for (number, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if number != 0 {
            let space = if out.len() > start { " " } else { "" };
            let plus = if after_negative && number > 0 { "+" } else { "" };
            let plural = if number == 1 { "" } else { "s" };
            put!(out, "{space}{plus}{number} {unit}{plural}");
            after_negative = number < 0;
        }
    }
    if micros != 0 || out.len() == start {
        if out.len() > start {
            out.push(b' ');
        }
        match (micros < 0, after_negative) {
            (true, _) => out.push(b'-'),
            (false, true) => out.push(b'+'),
            (false, false) => {}
        }
        // microseconds from nanoseconds are far from the limits
        put_time(micros.abs(), out);
    }
}

pub(super) fn put_hexadecimal(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Appends an item of a list, in double quotes if it could be taken for something else.
pub(super) fn put_item(item: &[u8], out: &mut Vec<u8>) {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || is_space(*byte);
    if !item.is_empty() && !item.eq_ignore_ascii_case(b"null") && !item.iter().any(is_special) {
        return out.extend_from_slice(item);
    }
    out.push(b'"');
    for byte in item {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}
