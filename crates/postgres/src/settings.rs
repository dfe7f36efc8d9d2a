//! Settings of a session: `SET`, `SHOW`, `RESET`.
//!
//! Each known name has a default and a rule for its values. A value that would change how results look and that is not supported is
//! refused; one that has no effect here is kept, so that `SHOW` returns it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::{Offset, TimeZone};
use tidemill_database::{BadRows, SessionSetting};

use crate::command::{Isolation, serializable};
use crate::error::{PgError, Result, code};

/// Version of PostgreSQL whose protocol and catalogs clients may expect.
pub(crate) const SERVER_VERSION: &str = concat!("15.0 (Tidemill ", env!("CARGO_PKG_VERSION"), ")");

/// Rule for the values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The server's own, which no client can set.
    Constant,
    /// One of these, in lower case; the first is how it is shown.
    OneOf(&'static [&'static str]),
    /// One of these, in lower case.
    Choice(&'static [&'static str]),
    Switch,
    /// A time in milliseconds, or with a unit; 0 for none.
    Milliseconds,
    Number,
    Zone,
    DateStyle,
    /// Name of UTF-8 with any punctuation: drivers send it as `'utf-8'`.
    Encoding,
    /// Any text.
    Any,
}

/// A setting that is known.
struct Known {
    name: &'static str,
    default: &'static str,
    rule: Rule,
    /// True if clients get its value at the login and when it changes.
    is_reported: bool,
}

const fn known(name: &'static str, default: &'static str, rule: Rule) -> Known {
    Known { name, default, rule, is_reported: false }
}

const fn reported(name: &'static str, default: &'static str, rule: Rule) -> Known {
    Known { name, default, rule, is_reported: true }
}

const TIME_ZONE: &str = "TimeZone";
pub(crate) const STATEMENT_TIMEOUT: &str = "statement_timeout";
pub(crate) const IDLE_TRANSACTION_TIMEOUT: &str = "idle_in_transaction_session_timeout";
/// Treatment of rows of `INSERT` and `COPY` that do not fit.
const BAD_ROWS: &str = "tidemill.bad_rows";
/// True if a `COPY` outside of a transaction is stored as a whole or not at all.
const COPY_ATOMIC: &str = "tidemill.copy_atomic";
/// Level of transactions that do not name one, and of the present transaction.
pub(crate) const DEFAULT_ISOLATION: &str = "default_transaction_isolation";
pub(crate) const ISOLATION: &str = "transaction_isolation";
const ISOLATION_LEVELS: &[&str] = &["read committed", "read uncommitted", "repeatable read"];

/// All known settings, by name.
const KNOWN: [Known; 40] = [
    reported("application_name", "", Rule::Any),
    known("bytea_output", "hex", Rule::OneOf(&["hex"])),
    reported("client_encoding", "UTF8", Rule::Encoding),
    known("client_min_messages", "notice", Rule::Any),
    reported("DateStyle", "ISO, MDY", Rule::DateStyle),
    known("default_transaction_deferrable", "off", Rule::Switch),
    known(DEFAULT_ISOLATION, "read committed", Rule::Choice(ISOLATION_LEVELS)),
    reported("default_transaction_read_only", "off", Rule::Switch),
    known("extra_float_digits", "1", Rule::Number),
    known("geqo", "on", Rule::Switch),
    known(IDLE_TRANSACTION_TIMEOUT, "0", Rule::Milliseconds),
    known("idle_session_timeout", "0", Rule::OneOf(&["0"])),
    reported("in_hot_standby", "off", Rule::Constant),
    reported("integer_datetimes", "on", Rule::Constant),
    reported("IntervalStyle", "postgres", Rule::OneOf(&["postgres"])),
    reported("is_superuser", "off", Rule::Constant),
    known("jit", "off", Rule::Switch),
    known("lc_messages", "C", Rule::Any),
    known("lc_monetary", "C", Rule::Any),
    known("lock_timeout", "0", Rule::Milliseconds),
    known("max_identifier_length", "63", Rule::Constant),
    known("max_index_keys", "32", Rule::Constant),
    known("max_parallel_workers_per_gather", "0", Rule::Number),
    known("row_security", "on", Rule::Switch),
    reported("scram_iterations", "15000", Rule::Constant),
    reported("search_path", "events, docs, system", Rule::Any),
    reported("server_encoding", "UTF8", Rule::Constant),
    reported("server_version", SERVER_VERSION, Rule::Constant),
    known("server_version_num", "150000", Rule::Constant),
    reported("session_authorization", "", Rule::Constant),
    reported("standard_conforming_strings", "on", Rule::OneOf(&["on", "true", "1"])),
    known(STATEMENT_TIMEOUT, "0", Rule::Milliseconds),
    known("synchronize_seqscans", "on", Rule::Switch),
    known("synchronous_commit", "on", Rule::Any),
    known(BAD_ROWS, "refuse", Rule::Choice(&["refuse", "keep"])),
    known(COPY_ATOMIC, "on", Rule::Switch),
    reported(TIME_ZONE, "UTC", Rule::Zone),
    known(ISOLATION, "read committed", Rule::Choice(ISOLATION_LEVELS)),
    known("transaction_read_only", "off", Rule::Switch),
    known("xmloption", "content", Rule::Any),
];

/// Maximum bytes of a value, and of settings without a rule that are kept.
const VALUE_BYTES_MAX: usize = 4_096;
const UNKNOWN_MAX: usize = 64;

/// Values of a session.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Values that are not the default, by name; those that are not known as well.
    values: BTreeMap<String, String>,
    /// Values after the login, to which `RESET` returns.
    initial: BTreeMap<String, String>,
    zone: TimeZone,
}

impl Settings {
    /// Creates the settings of a session of the user.
    pub fn new(user: &str, is_administrator: bool) -> Self {
        let own =
            [("session_authorization", user), ("is_superuser", if is_administrator { "on" } else { "off" })];
        let values: BTreeMap<String, String> =
            own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { initial: values.clone(), values, zone: TimeZone::UTC }
    }

    /// Makes the present values those to which `RESET` returns.
    pub fn finish_login(&mut self) {
        self.initial = self.values.clone();
    }

    /// Returns the zone of instants as text.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns a time that a setting has; `None` for 0.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        let millis = milliseconds(self.values.get(name)?).ok()?;
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Returns the level of the present transaction, or of the next one.
    pub fn isolation(&self) -> Isolation {
        let name = self.get(ISOLATION).ok();
        name.and_then(|name| Isolation::of_name(&name)).unwrap_or(Isolation::ReadCommitted)
    }

    /// Returns the treatment of rows that do not fit.
    pub fn bad_rows(&self) -> BadRows {
        match self.values.get(BAD_ROWS).map(String::as_str) {
            Some("keep") => BadRows::Keep,
            _ => BadRows::Refuse,
        }
    }

    /// Returns whether a `COPY` outside of a transaction is stored as a whole or not at all.
    pub fn copies_atomically(&self) -> bool {
        self.values.get(COPY_ATOMIC).is_none_or(|value| value == "on")
    }

    /// Returns the present value of a setting.
    ///
    /// Errors: it is not known.
    pub fn get(&self, name: &str) -> Result<String> {
        let known = find(name);
        let name = known.map_or(name, |known| known.name);
        match (self.values.get(name), known) {
            (Some(value), _) => Ok(value.clone()),
            // outside of a transaction, that of the next one
            (None, Some(known)) if known.name == ISOLATION => self.get(DEFAULT_ISOLATION),
            (None, Some(known)) => Ok(known.default.to_owned()),
            (None, None) => Err(unknown(name)),
        }
    }

    /// Returns all known settings with their values.
    pub fn all(&self) -> Vec<(String, String)> {
        let known = KNOWN.iter().map(|known| {
            let value = self.values.get(known.name).map_or(known.default, String::as_str);
            (known.name.to_owned(), value.to_owned())
        });
        let others = self.values.iter().filter(|(name, _)| find(name).is_none());
        known.chain(others.map(|(name, value)| (name.clone(), value.clone()))).collect()
    }

    /// Returns all known settings with their values and defaults, as statements ask for them.
    pub fn of_session(&self) -> Vec<SessionSetting> {
        let settings = self.all().into_iter().map(|(name, value)| {
            let default = find(&name).map(|known| known.default.to_owned());
            SessionSetting { name, value, default }
        });
        settings.collect()
    }

    /// Returns the values that clients get.
    pub fn reported(&self) -> Vec<(&'static str, String)> {
        let values = KNOWN.iter().filter(|known| known.is_reported).map(|known| {
            (known.name, self.values.get(known.name).map_or(known.default, String::as_str).to_owned())
        });
        values.collect()
    }

    /// Sets a value. Returns a notice for a name that is not known.
    ///
    /// Errors: a value that is not one of the setting's, and a setting that clients cannot change.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<PgError>> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(PgError::new(
                code::INVALID_VALUE,
                format!("the value of {name} has {} bytes: the limit is {VALUE_BYTES_MAX}", value.len()),
            ));
        }
        let Some(known) = find(name) else { return self.set_unknown(name, value) };
        let invalid = |expected: &str| {
            PgError::new(
                code::INVALID_VALUE,
                format!("invalid value for parameter \"{}\": \"{value}\": expected {expected}", known.name),
            )
        };
        let shown = match known.rule {
            Rule::Constant => {
                return Err(PgError::new("55P02", format!("parameter \"{}\" cannot be changed", known.name)));
            }
            Rule::OneOf(values) => {
                let value = value.trim().to_lowercase();
                let one = values.iter().find(|one| one.to_lowercase() == value);
                (*one.and(values.first()).ok_or_else(|| invalid(values[0]))?).to_owned()
            }
            Rule::Choice(values) => {
                let value = value.trim().to_lowercase();
                if values == ISOLATION_LEVELS && value == "serializable" {
                    return Err(serializable());
                }
                let one = values.iter().find(|one| **one == value);
                (*one.ok_or_else(|| invalid(&values.join(" or ")))?).to_owned()
            }
            Rule::Switch => match value.to_lowercase().as_str() {
                "on" | "true" | "yes" | "1" => "on".to_owned(),
                "off" | "false" | "no" | "0" => "off".to_owned(),
                _ => return Err(invalid("on or off")),
            },
            Rule::Milliseconds => {
                let millis = milliseconds(value)
                    .map_err(|()| invalid("milliseconds, or a time such as '5s' or '2min'"))?;
                shown_time(millis)
            }
            Rule::Number => match value.trim().parse::<i64>() {
                Ok(number) => number.to_string(),
                Err(_) => return Err(invalid("a whole number")),
            },
            Rule::Zone => {
                let (zone, shown) = zone(value).ok_or_else(|| {
                    invalid("a name such as Europe/Berlin, UTC, or hours such as +2 east of Greenwich")
                })?;
                self.zone = zone;
                shown
            }
            Rule::DateStyle => {
                date_style(value).ok_or_else(|| invalid("ISO, with or without MDY, DMY or YMD"))?
            }
            Rule::Encoding => {
                let name =
                    value.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
                match ["utf8", "unicode"].contains(&name.as_str()) {
                    true => "UTF8".to_owned(),
                    false => return Err(invalid("UTF8")),
                }
            }
            Rule::Any => value.to_owned(),
        };
        self.values.insert(known.name.to_owned(), shown);
        Ok(None)
    }

    fn set_unknown(&mut self, name: &str, value: &str) -> Result<Option<PgError>> {
        let count = self.values.keys().filter(|name| find(name).is_none()).count();
        if count >= UNKNOWN_MAX && !self.values.contains_key(name) {
            return Err(PgError::new(
                code::CONFIGURED_LIMIT,
                format!("more than {UNKNOWN_MAX} settings that are not known: RESET ALL removes them"),
            ));
        }
        self.values.insert(name.to_lowercase(), value.to_owned());
        let notice = PgError::warning(format!("parameter \"{name}\" is not known here: it has no effect"));
        Ok(Some(notice).filter(|_| !name.contains('.')))
    }

    /// Returns a setting to its value after the login.
    ///
    /// Errors: it is not known.
    pub fn reset(&mut self, name: &str) -> Result<()> {
        let name = match find(name) {
            Some(Known { rule: Rule::Constant, name, .. }) => {
                return Err(PgError::new("55P02", format!("parameter \"{name}\" cannot be changed")));
            }
            Some(known) => known.name.to_owned(),
            None if self.values.contains_key(&name.to_lowercase()) => name.to_lowercase(),
            None => return Err(unknown(name)),
        };
        match self.initial.get(&name) {
            Some(value) => self.values.insert(name, value.clone()),
            None => self.values.remove(&name),
        };
        self.find_zone();
        Ok(())
    }

    /// Returns all settings to their values after the login.
    pub fn reset_all(&mut self) {
        self.values = self.initial.clone();
        self.find_zone();
    }

    fn find_zone(&mut self) {
        // the value was checked when it was set
        let found = self.values.get(TIME_ZONE).and_then(|name| zone(name));
        self.zone = found.map_or(TimeZone::UTC, |(zone, _)| zone);
    }
}

fn find(name: &str) -> Option<&'static Known> {
    let name = match name.to_ascii_lowercase().as_str() {
        "time zone" => "timezone".to_owned(),
        "names" => "client_encoding".to_owned(),
        "schema" => "search_path".to_owned(),
        other => other.to_owned(),
    };
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(&name))
}

fn unknown(name: &str) -> PgError {
    PgError::new(code::NO_SETTING, format!("unrecognized configuration parameter \"{name}\""))
        .with_hint("SHOW ALL lists those that are known.")
}

fn milliseconds(text: &str) -> Result<u64, ()> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(()),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // as large as PostgreSQL's
    millis.filter(|millis| *millis <= u64::from(i32::MAX.unsigned_abs())).ok_or(())
}

/// Returns a time in the largest unit that it is a whole number of.
fn shown_time(millis: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(factor, _)| millis > 0 && millis.is_multiple_of(*factor));
    unit.map_or_else(|| "0".to_owned(), |(factor, unit)| format!("{}{unit}", millis / factor))
}

/// Returns the zone of a name or of hours, and how it is shown. In names such as `UTC+2`, POSIX counts hours west of Greenwich.
fn zone(text: &str) -> Option<(TimeZone, String)> {
    let text = text.trim();
    if ["utc", "gmt", "z", "zulu", "default", "local"].contains(&text.to_lowercase().as_str()) {
        return Some((TimeZone::UTC, "UTC".to_owned()));
    }
    if let Some((sign, minutes)) = offset(text) {
        let offset = Offset::from_seconds(sign * minutes * 60).ok()?;
        let (mark, posix) = if sign < 0 { ('-', '+') } else { ('+', '-') };
        let (hours, minutes) = (minutes / 60, minutes % 60);
        let rest = if minutes == 0 { String::new() } else { format!(":{minutes:02}") };
        return Some((offset.to_time_zone(), format!("<{mark}{hours:02}{rest}>{posix}{hours:02}{rest}")));
    }
    // the shown form of hours, as it is set again
    if let Some((inner, _)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        return zone(inner);
    }
    let zone = TimeZone::get(text).ok()?;
    let name = zone.iana_name()?.to_owned();
    Some((zone, name))
}

/// Returns the sign and the minutes of `+2`, `-03:30` or `5.5`.
fn offset(text: &str) -> Option<(i32, i32)> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let minutes = match rest.split_once(':') {
        Some((hours, minutes)) => {
            let minutes: u16 = minutes.parse().ok().filter(|minutes| *minutes < 60)?;
            hours.parse::<u16>().ok().filter(|hours| *hours < 24)? * 60 + minutes
        }
        None => {
            let hours: f64 = rest.parse().ok().filter(|hours| (0.0..24.0).contains(hours))?;
            // less than a day
            (hours * 60.0).round() as u16
        }
    };
    Some((sign, i32::from(minutes)))
}

/// Returns how a style is shown; `None` unless it is ISO. Orders of day and month only matter for what other styles read.
fn date_style(text: &str) -> Option<String> {
    let mut order = "MDY";
    for word in text.split(',').map(|word| word.trim().to_uppercase()) {
        match word.as_str() {
            "ISO" => {}
            "MDY" | "US" | "NONEURO" | "NONEUROPEAN" => order = "MDY",
            "DMY" | "EURO" | "EUROPEAN" => order = "DMY",
            "YMD" => order = "YMD",
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(name: &str, value: &str) -> Result<String> {
        let mut settings = Settings::new("ana", false);
        settings.set(name, value)?;
        settings.get(name)
    }

    #[test]
    fn values_are_checked_and_shown_as_postgresql_shows_them() {
        for (name, value, shown) in [
            ("statement_timeout", "5000", "5s"),
            ("STATEMENT_TIMEOUT", "1500ms", "1500ms"),
            ("statement_timeout", "2min", "2min"),
            ("timezone", "Europe/Berlin", "Europe/Berlin"),
            ("TIME ZONE", "utc", "UTC"),
            ("TimeZone", "-3.5", "<-03:30>+03:30"),
            ("TimeZone", "<-03:30>+03:30", "<-03:30>+03:30"),
            ("datestyle", "iso, dmy", "ISO, DMY"),
            ("client_encoding", "'utf-8'", "UTF8"),
            ("client_encoding", "UNICODE", "UTF8"),
            ("default_transaction_isolation", "READ UNCOMMITTED", "read uncommitted"),
            ("default_transaction_isolation", "Repeatable Read", "repeatable read"),
            ("my.own", "x", "x"),
            ("tidemill.bad_rows", "KEEP", "keep"),
            ("tidemill.copy_atomic", "0", "off"),
        ] {
            assert_eq!(after(name, value).unwrap(), shown, "{name} = {value}");
        }
        for (name, value) in [
            ("statement_timeout", "soon"),
            ("statement_timeout", "99999999999"),
            ("timezone", "Mars/Olympus"),
            ("timezone", "+25"),
            ("datestyle", "German"),
            ("client_encoding", "LATIN1"),
            ("default_transaction_isolation", "serializable"),
            ("IntervalStyle", "iso_8601"),
            ("server_version", "16"),
            ("tidemill.bad_rows", "drop"),
        ] {
            assert!(after(name, value).is_err(), "{name} = {value}");
        }
    }

    #[test]
    fn reset_returns_to_the_values_after_the_login() {
        let mut settings = Settings::new("ana", true);
        settings.set("timezone", "+2").unwrap();
        settings.finish_login();
        settings.set("timezone", "Asia/Tokyo").unwrap();
        assert!(settings.set("nonsense", "1").unwrap().is_some(), "a notice");
        settings.reset("timezone").unwrap();
        assert_eq!(settings.get("timezone").unwrap(), "<+02>-02");
        assert_eq!(settings.zone().to_offset(jiff::Timestamp::UNIX_EPOCH).seconds(), 7_200);
        settings.reset_all();
        assert_eq!(settings.get("nonsense").unwrap_err().code, code::NO_SETTING);
        assert_eq!(settings.get("session_authorization").unwrap(), "ana");
    }

    #[test]
    fn known_settings_are_in_order() {
        assert!(KNOWN.is_sorted_by_key(|known| known.name.to_lowercase()));
    }
}
