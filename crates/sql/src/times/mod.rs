//! Times in microseconds, from the year 1 to 9999.
//!
//! Events and documents have times in microseconds. DataFusion's texts, dates, `now()`, `date_bin` and `date_trunc` are of
//! nanoseconds, which reach from 1677 to 2262 only: comparing the year 9999 with one of them would be an error. Therefore
//! everything is brought to microseconds before DataFusion coerces types.

mod bin;
mod calendar;
mod coerce;
mod series;
mod trunc;

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::logical_expr::ScalarUDF;

pub(crate) use bin::date_bin;
pub(crate) use calendar::{CivilTime, micros_of};
pub(crate) use coerce::{MicrosecondTimes, of_text};
pub(crate) use series::TimeSeries;

/// Returns `date_trunc` of microseconds.
pub(crate) fn date_trunc() -> Arc<ScalarUDF> {
    trunc::date_trunc()
}

/// Returns the type of times of `zone` in microseconds.
fn micros(zone: &Option<Arc<str>>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
}

/// Returns whether times of `zone` are written in UTC.
fn is_utc(zone: &Option<Arc<str>>) -> bool {
    zone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "+00:00" | "Z"))
}

fn is_text(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
