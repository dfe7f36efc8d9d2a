//! `time:` functions, with the formats and time zones of Java.

pub(crate) mod time;
pub(crate) mod time_format;
pub(crate) mod time_parse;
pub(crate) mod time_week;
pub(crate) mod time_zone;
