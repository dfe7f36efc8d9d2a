//! `date_trunc('month', time)` in microseconds.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::functions::datetime::date_trunc as inner;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_types::Error;

use super::calendar::{DAY, MonthTime, start_of};
use super::{is_text, is_utc, micros};
use crate::error::to_datafusion;

pub(super) fn date_trunc() -> Arc<ScalarUDF> {
    Arc::new(DateTrunc::new().into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    signature: Signature,
    aliases: Vec<String>,
}

impl DateTrunc {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: vec!["datetrunc".to_owned()],
        }
    }
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        "date_trunc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [_, time] => Ok(time.clone()),
            _ => plan_err!("expected date_trunc('hour', time)"),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        match args {
            [unit, time] if is_text(unit) => {
                let time = match time {
                    DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => time.clone(),
                    DataType::Date32 | DataType::Date64 | DataType::Null => micros(&None),
                    ty if is_text(ty) => micros(&None),
                    _ => return plan_err!("expected date_trunc('hour', time)"),
                };
                Ok(vec![DataType::Utf8, time])
            }
            _ => plan_err!("expected date_trunc('hour', time): the unit comes first"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let unit = match args.args.as_slice() {
            [ColumnarValue::Scalar(ScalarValue::Utf8(Some(unit))), time] => match time.data_type() {
                DataType::Timestamp(TimeUnit::Microsecond, zone) if is_utc(&zone) => TruncateUnit::of(unit)?,
                _ => return inner().invoke_with_args(args),
            },
            _ => return inner().invoke_with_args(args),
        };
        match &args.args[1] {
            ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(time, zone)) => {
                let start = time.map(|time| unit.start(time)).transpose()?;
                Ok(ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(start, zone.clone())))
            }
            time => {
                let times = time.to_array(args.number_rows)?;
                let times = times.as_primitive::<TimestampMicrosecondType>();
                let starts = times.iter().map(|time| time.map(|time| unit.start(time)).transpose());
                let starts = starts.collect::<Result<TimestampMicrosecondArray>>()?;
                let starts = starts.with_timezone_opt(times.timezone());
                Ok(ColumnarValue::Array(Arc::new(starts) as ArrayRef))
            }
        }
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        inner().output_ordering(input)
    }

    fn documentation(&self) -> Option<&Documentation> {
        static DOCUMENTATION: LazyLock<Option<Documentation>> =
            LazyLock::new(|| inner().inner().documentation().cloned());
        DOCUMENTATION.as_ref()
    }
}

#[derive(Debug, Clone, Copy)]
enum TruncateUnit {
    Micros(i64),
    Week,
    Months(i64),
}

impl TruncateUnit {
    fn of(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" => Self::Micros(1),
            "millisecond" | "milliseconds" => Self::Micros(1_000),
            "second" | "seconds" => Self::Micros(1_000_000),
            "minute" | "minutes" => Self::Micros(60_000_000),
            "hour" | "hours" => Self::Micros(3_600_000_000),
            "day" | "days" => Self::Micros(DAY),
            "week" | "weeks" => Self::Week,
            "month" | "months" => Self::Months(1),
            "quarter" | "quarters" => Self::Months(3),
            "year" | "years" => Self::Months(12),
            "decade" | "decades" => Self::Months(120),
            _ => {
                return Err(to_datafusion(Error::invalid(format!(
                    "`date_trunc`: '{name}' is no unit: write 'microsecond', 'millisecond', 'second', 'minute', 'hour', \
                     'day', 'week', 'month', 'quarter', 'year' or 'decade'"
                ))));
            }
        })
    }

    fn start(self, time: i64) -> Result<i64> {
        let start = match self {
            Self::Micros(length) => time.checked_sub(time.rem_euclid(length)),
            Self::Week => {
                // 1970-01-05 was a Monday
                time.checked_sub((time.rem_euclid(7 * DAY) - 4 * DAY).rem_euclid(7 * DAY))
            }
            Self::Months(months) => start_of(MonthTime::of(time).month.div_euclid(months) * months),
        };
        start.ok_or_else(|| to_datafusion(Error::invalid("`date_trunc`: a time is out of range")))
    }
}
