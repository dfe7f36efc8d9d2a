//! `date_bin(interval, time [, origin])`, also called `time_bucket`, in microseconds.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::functions::datetime::date_bin as inner;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_types::Error;

use super::calendar::{DAY, MonthTime};
use super::{is_text, micros};
use crate::error::to_datafusion;

const USAGE: &str = "time_bucket(interval, time [, origin]), for example time_bucket('5 minutes', _time)";

/// Returns `date_bin` under all of its names.
pub(crate) fn date_bin() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(DateBin::new().into()));
    FUNCTION.clone()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin {
    signature: Signature,
    aliases: Vec<String>,
}

impl DateBin {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: vec!["time_bucket".to_owned()],
        }
    }
}

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &str {
        "date_bin"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [_, time, ..] => Ok(time.clone()),
            _ => plan_err!("expected {USAGE}"),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        let [interval, time, origin @ ..] = args else { return plan_err!("expected {USAGE}") };
        if !(matches!(interval, DataType::Interval(_) | DataType::Null) || is_text(interval)) {
            return plan_err!("expected {USAGE}: the interval comes first");
        }
        let time = match time {
            DataType::Timestamp(_, zone) => micros(zone),
            DataType::Date32 | DataType::Date64 | DataType::Null => micros(&None),
            DataType::Time32(_) | DataType::Time64(_) => time.clone(),
            ty if is_text(ty) => micros(&None),
            _ => return plan_err!("expected {USAGE}"),
        };
        if origin.len() > 1 {
            return plan_err!("expected {USAGE}");
        }
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        Ok([interval, time.clone()].into_iter().chain(origin.iter().map(|_| time.clone())).collect())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [interval, time, origin @ ..] = args.args.as_slice() else {
            return internal_err!("`date_bin` has two or three arguments");
        };
        let DataType::Timestamp(_, zone) = time.data_type() else { return inner().invoke_with_args(args) };
        let interval = match interval {
            ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(interval)) => *interval,
            _ => return refuse("the interval must be a constant, for example '5 minutes'"),
        };
        let origin = match origin {
            [] => Some(0),
            [ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(origin, _)), ..] => *origin,
            _ => return refuse("the origin must be a constant, for example timestamp '2000-01-03'"),
        };
        let bins = interval.zip(origin).map(|(interval, origin)| Bins::new(interval, origin)).transpose()?;
        let start = |time: i64| match &bins {
            Some(bins) => bins.start(time).map(Some),
            None => Ok(None),
        };
        match time {
            ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(time, _)) => {
                let start = time.map(start).transpose()?.flatten();
                Ok(ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(start, zone)))
            }
            ColumnarValue::Array(times) => {
                let times = times.as_primitive::<TimestampMicrosecondType>();
                let starts = times.iter().map(|time| Ok(time.map(start).transpose()?.flatten()));
                let starts = starts.collect::<Result<TimestampMicrosecondArray>>()?;
                Ok(ColumnarValue::Array(Arc::new(starts.with_timezone_opt(zone)) as ArrayRef))
            }
            ColumnarValue::Scalar(_) => internal_err!("`date_bin` has a time"),
        }
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        inner().output_ordering(input)
    }

    fn documentation(&self) -> Option<&Documentation> {
        DOCUMENTATION.as_ref()
    }
}

static DOCUMENTATION: LazyLock<Option<Documentation>> =
    LazyLock::new(|| inner().inner().documentation().cloned());

fn refuse<T>(why: &str) -> Result<T> {
    Err(to_datafusion(Error::invalid(format!("`time_bucket`: {why}"))))
}

/// Intervals of equal length, aligned to the origin.
#[derive(Debug, Clone, Copy)]
enum Bins {
    Fixed { nanos: i128, origin: i64 },
    Months { months: i64, origin: i64 },
}

impl Bins {
    fn new(interval: IntervalMonthDayNano, origin: i64) -> Result<Self> {
        let nanos = i128::from(interval.days) * i128::from(DAY) * 1_000 + i128::from(interval.nanoseconds);
        match (interval.months, nanos) {
            (0, nanos) if nanos > 0 => Ok(Self::Fixed { nanos, origin }),
            (months, 0) if months > 0 => Ok(Self::Months { months: months.into(), origin }),
            (months, _) if months > 0 => refuse(
                "an interval of months cannot have days or shorter parts as well: write, for example, '1 month'",
            ),
            _ => refuse("the interval must be longer than zero: write, for example, '1 hour'"),
        }
    }

    /// Returns the start of the interval that contains `time`.
    fn start(self, time: i64) -> Result<i64> {
        let start = match self {
            Self::Fixed { nanos, origin } => {
                let since = (i128::from(time) - i128::from(origin)) * 1_000;
                let start = i128::from(origin) * 1_000 + since.div_euclid(nanos) * nanos;
                i64::try_from(start.div_euclid(1_000)).ok()
            }
            Self::Months { months, origin } => {
                let (origin, time_month) = (MonthTime::of(origin), MonthTime::of(time).month);
                let bin = (time_month - origin.month).div_euclid(months);
                let at = |bin: i64| MonthTime { month: origin.month + bin * months, ..origin }.micros();
                // an origin in the middle of a month
                at(bin).and_then(|start| if start > time { at(bin - 1) } else { Some(start) })
            }
        };
        match start {
            Some(start) => Ok(start),
            None => refuse("the interval is too long for a time: choose a shorter one"),
        }
    }
}
