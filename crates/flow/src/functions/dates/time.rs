//! `time:` Functions on dates and times. Strings are read and written in UTC unless they or an argument name
//! a time zone.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use tidemill_types::FieldType;

use crate::columns::value::Value;
use crate::expr::ArgumentType;
use crate::functions::compile_cache::CompileCache;
use crate::functions::dates::time_format::{DAYS, DateFormat, zoned};
use crate::functions::dates::time_week::WeekRule;
use crate::functions::dates::time_zone;
use crate::functions::library::{NamespaceRegistrar, NullPolicy, ScalarFn, constant_text, int, text};

const DEFAULT: &str = "yyyy-MM-dd HH:mm:ss.SSS";
const DATE: &str = "yyyy-MM-dd";
const CLOCK: &str = "HH:mm:ss";
const SECONDS: &str = "yyyy-MM-dd HH:mm:ss";

pub(in crate::functions) fn register(time: &mut NamespaceRegistrar<'_>) {
    now(time, "currentDate", &[" -> string"], DATE);
    now(time, "currentTime", &[" -> string"], CLOCK);
    now(time, "currentTimestamp", &[" -> string", "string zone -> string"], SECONDS);
    time.build("utcTimestamp", &[" -> string", "string format -> string"], NullPolicy::Fail, |args| {
        let formats = DateFormatArgument::of(args, 0, SECONDS)?;
        Ok(Box::new(move |args, state| format_date(&*formats.get(args)?, state.now)))
    });
    time.build("date", &["string date, string format? -> string"], NullPolicy::Fail, |args| {
        let formats = DateFormatArgument::of(args, 1, DEFAULT)?;
        let date = DateFormat::compile(DATE)?;
        Ok(Box::new(move |args, _| format_date(&date, formats.read(args, 0)?)))
    });
    let forms =
        ["string date, string target, string source? -> string", "long date, string target -> string"];
    time.build("dateFormat", &forms, NullPolicy::Fail, |args| {
        let (targets, sources) =
            (DateFormatArgument::of(args, 1, DEFAULT)?, DateFormatArgument::of(args, 2, DEFAULT)?);
        Ok(Box::new(move |args, _| format_date(&*targets.get(args)?, sources.read(args, 0)?)))
    });
    time.build("dateAdd", &SHIFT, NullPolicy::Fail, |args| shift(args, 1));
    time.build("dateSub", &SHIFT, NullPolicy::Fail, |args| shift(args, -1));
    let forms = [
        "string date, string other -> long",
        "long date, long other -> long",
        "string date, string other, string format, string format -> long",
    ];
    time.build("dateDiff", &forms, NullPolicy::Fail, |args| {
        let (first, second) =
            (DateFormatArgument::of(args, 2, DEFAULT)?, DateFormatArgument::of(args, 3, DEFAULT)?);
        Ok(Box::new(move |args, _| {
            let difference = first.read(args, 0)?.checked_sub(second.read(args, 1)?);
            let difference =
                difference.ok_or("the dates are too far apart: the difference is out of range")?;
            Ok(Value::Long(difference / DateUnit::DAY_MS))
        }))
    });
    time.build("dayOfWeek", &["string date, string format? -> string"], NullPolicy::Fail, |args| {
        // a string without a format may end after the date
        let formats = DateFormatArgument::of(args, 1, DATE)?;
        Ok(Box::new(move |args, _| {
            let weekday = zoned(formats.read(args, 0)?, &TimeZone::UTC)?.weekday();
            let name = usize::try_from(weekday.to_monday_zero_offset()).ok().and_then(|i| DAYS.get(i));
            Ok(Value::text(name.copied().unwrap_or_default()))
        }))
    });
    let forms = [
        "const string unit, string date, string format?, const string locale? -> int",
        "long date, const string unit, const string locale? -> int",
    ];
    time.build("extract", &forms, NullPolicy::Fail, extract);
    let forms = [" -> long", "string date, string format? -> long"];
    time.build("timestampInMilliseconds", &forms, NullPolicy::Fail, |args| {
        let formats = DateFormatArgument::of(args, 1, DEFAULT)?;
        Ok(Box::new(move |args, state| {
            Ok(Value::Long(if args.is_empty() { state.now } else { formats.read(args, 0)? }))
        }))
    });
    let form = "string date, string format, string zone, string from? -> string";
    time.build("timezoneConvert", &[form], NullPolicy::Fail, |args| {
        let formats = DateFormatArgument::of(args, 1, DEFAULT)?;
        let (zones, sources) =
            (CompileCache::of(args, 2, time_zone::find)?, CompileCache::of(args, 3, time_zone::find)?);
        Ok(Box::new(move |args, _| {
            let format = formats.get(args)?;
            let source = match args.get(3) {
                Some(_) => TimeZone::clone(&*sources.get(text(args, 3)?)?),
                None => TimeZone::UTC,
            };
            let ms = format.parse(text(args, 0)?, &source)?;
            Ok(Value::text(&format.format(ms, &*zones.get(text(args, 2)?)?)?))
        }))
    });
}

/// Date formats of an argument, with a default if the argument is absent.
struct DateFormatArgument {
    argument: usize,
    compiled: CompileCache<DateFormat>,
    otherwise: Arc<DateFormat>,
}

impl DateFormatArgument {
    fn of(args: &[ArgumentType], argument: usize, otherwise: &str) -> Result<Self, String> {
        let compiled = CompileCache::of(args, argument, DateFormat::compile)?;
        Ok(Self { argument, compiled, otherwise: Arc::new(DateFormat::compile(otherwise)?) })
    }

    fn get(&self, args: &[Value]) -> Result<Arc<DateFormat>, String> {
        match args.get(self.argument).and_then(Value::as_str) {
            Some(format) => self.compiled.get(format),
            None => Ok(self.otherwise.clone()),
        }
    }

    /// Reads argument `i`: milliseconds, or a string in this format.
    fn read(&self, args: &[Value], i: usize) -> Result<i64, String> {
        match &args[i] {
            Value::Long(ms) => Ok(*ms),
            _ => self.get(args)?.parse(text(args, i)?, &TimeZone::UTC),
        }
    }
}

fn format_date(format: &DateFormat, ms: i64) -> Result<Value, String> {
    Ok(Value::text(&format.format(ms, &TimeZone::UTC)?))
}

/// Registers a function that formats the current time, in the time zone that the argument names.
fn now(time: &mut NamespaceRegistrar<'_>, name: &'static str, forms: &[&'static str], format: &'static str) {
    time.build(name, forms, NullPolicy::Fail, move |args| {
        let format = DateFormat::compile(format)?;
        let zones = CompileCache::of(args, 0, time_zone::find)?;
        Ok(Box::new(move |args, state| match args.first() {
            Some(_) => Ok(Value::text(&format.format(state.now, &*zones.get(text(args, 0)?)?)?)),
            None => format_date(&format, state.now),
        }))
    });
}

/// Calendar field of a date.
#[derive(Debug, Clone, Copy)]
enum DateUnit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
}

impl DateUnit {
    const DAY_MS: i64 = 86_400_000;

    /// Returns the unit that argument `i` names; case is ignored.
    fn of(args: &[ArgumentType], i: usize) -> Result<Self, String> {
        let name = constant_text(args, i).unwrap_or_default();
        Ok(match name.to_ascii_uppercase().as_str() {
            "YEAR" => Self::Year,
            "QUARTER" => Self::Quarter,
            "MONTH" => Self::Month,
            "WEEK" => Self::Week,
            "DAY" => Self::Day,
            "HOUR" => Self::Hour,
            "MINUTE" => Self::Minute,
            "SECOND" => Self::Second,
            _ => {
                return Err(format!(
                    "unknown unit `{name}`: expected YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND"
                ));
            }
        })
    }

    /// Returns the length in months (`Ok`) or in milliseconds (`Err`).
    fn length(self) -> Result<i64, i64> {
        match self {
            Self::Year => Ok(12),
            Self::Quarter => Ok(3),
            Self::Month => Ok(1),
            Self::Week => Err(7 * Self::DAY_MS),
            Self::Day => Err(Self::DAY_MS),
            Self::Hour => Err(3_600_000),
            Self::Minute => Err(60_000),
            Self::Second => Err(1000),
        }
    }

    /// Adds `n` units to `ms`. A day that the resulting month lacks becomes its last day. `None` beyond the
    /// calendar.
    fn add(self, ms: i64, n: i64) -> Option<i64> {
        match self.length() {
            Err(length) => ms.checked_add(n.checked_mul(length)?),
            Ok(length) => {
                let at = zoned(ms, &TimeZone::UTC).ok()?.datetime();
                let months = i64::from(at.year()) * 12 + i64::from(at.month()) - 1 + n.checked_mul(length)?;
                let year = i16::try_from(months.div_euclid(12)).ok()?;
                let first = Date::new(year, i8::try_from(months.rem_euclid(12)).ok()? + 1, 1).ok()?;
                let day = at.day().min(first.days_in_month());
                let date = Date::new(year, first.month(), day).ok()?;
                let then = date.to_datetime(at.time()).to_zoned(TimeZone::UTC).ok()?;
                Some(then.timestamp().as_millisecond())
            }
        }
    }
}

const SHIFT: [&str; 2] = [
    "string date, int count, const string unit, string format? -> string",
    "long date, int count, const string unit -> string",
];

fn shift(args: &[ArgumentType], sign: i64) -> Result<Box<ScalarFn>, String> {
    let unit = DateUnit::of(args, 2)?;
    let formats = DateFormatArgument::of(args, 3, DEFAULT)?;
    Ok(Box::new(move |args, _| {
        let shifted = unit.add(formats.read(args, 0)?, sign * i64::from(int(args, 1)?));
        let shifted = shifted.ok_or("the resulting date is out of range")?;
        match args[0] {
            Value::Long(_) => Ok(Value::text(&shifted.to_string())),
            _ => format_date(&*formats.get(args)?, shifted),
        }
    }))
}

fn extract(args: &[ArgumentType]) -> Result<Box<ScalarFn>, String> {
    let by_text = args[0].ty == FieldType::String;
    let (unit, date, format, locale) = if by_text { (0, 1, 2, 3) } else { (1, 0, usize::MAX, 2) };
    let unit = DateUnit::of(args, unit)?;
    let weeks = constant_text(args, locale).map_or(Ok(WeekRule::ENGLISH), WeekRule::of)?;
    let formats = DateFormatArgument::of(args, format, DEFAULT)?;
    Ok(Box::new(move |args, _| {
        let at = zoned(formats.read(args, date)?, &TimeZone::UTC)?;
        Ok(Value::Int(match unit {
            DateUnit::Year => i32::from(at.year()),
            DateUnit::Quarter => (i32::from(at.month()) - 1) / 3 + 1,
            DateUnit::Month => i32::from(at.month()),
            DateUnit::Week => weeks.week(at.date()).1,
            DateUnit::Day => i32::from(at.day()),
            DateUnit::Hour => i32::from(at.hour()),
            DateUnit::Minute => i32::from(at.minute()),
            DateUnit::Second => i32::from(at.second()),
        }))
    }))
}
