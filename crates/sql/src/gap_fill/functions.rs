//! The functions that mark what is to be filled. Planning replaces them; none is ever evaluated.

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Marking function of gap filling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub(super) enum Mark {
    /// `time_bucket_gapfill(interval, time [, start [, finish]])`
    TimeBucket,
    /// `date_bin_gapfill(interval, time [, origin])`
    DateBin,
    /// `locf(aggregate)`
    Locf,
    /// `interpolate(aggregate)`
    Interpolate,
}

impl Mark {
    const ALL: [Self; 4] = [Self::TimeBucket, Self::DateBin, Self::Locf, Self::Interpolate];

    pub fn name(self) -> &'static str {
        match self {
            Self::TimeBucket => "time_bucket_gapfill",
            Self::DateBin => "date_bin_gapfill",
            Self::Locf => "locf",
            Self::Interpolate => "interpolate",
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::TimeBucket => "time_bucket_gapfill(interval, time [, start [, finish]])",
            Self::DateBin => "date_bin_gapfill(interval, time [, origin])",
            Self::Locf => "locf(aggregate)",
            Self::Interpolate => "interpolate(aggregate of numbers)",
        }
    }

    pub fn is_bucket(self) -> bool {
        matches!(self, Self::TimeBucket | Self::DateBin)
    }

    /// Returns the mark and the arguments if the expression is a call of a marking function.
    pub fn of(expr: &Expr) -> Option<(Self, &[Expr])> {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
        Some((func.inner().downcast_ref::<MarkerFunction>()?.mark, args))
    }

    /// Returns the advice for a call at a place where it has no meaning.
    pub fn misplaced(self) -> String {
        let name = self.name();
        match self {
            Self::TimeBucket | Self::DateBin => format!(
                "`{name}` is an expression of GROUP BY, by itself: for example SELECT {name}('1 hour', _time) AS bucket, \
                 count(*) … GROUP BY bucket"
            ),
            Self::Locf | Self::Interpolate => format!(
                "`{name}` fills the gaps of an aggregate: write it in the SELECT list of a query that is grouped by \
                 time_bucket_gapfill or date_bin_gapfill, for example {name}(avg(x))"
            ),
        }
    }
}

/// Returns all marking functions.
pub(crate) fn marker_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    Mark::ALL.into_iter().map(|mark| Arc::new(MarkerFunction::new(mark).into()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MarkerFunction {
    mark: Mark,
    signature: Signature,
}

impl MarkerFunction {
    fn new(mark: Mark) -> Self {
        Self { mark, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for MarkerFunction {
    fn name(&self) -> &str {
        self.mark.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match (self.mark, args) {
            (Mark::TimeBucket | Mark::DateBin, [_, time, ..]) => Ok(time.clone()),
            (Mark::Locf, [value]) => Ok(value.clone()),
            (Mark::Interpolate, [_]) => Ok(DataType::Float64),
            _ => plan_err!("expected {}", self.mark.usage()),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = match (self.mark, args) {
            (Mark::TimeBucket, [interval, time, bounds @ ..]) if bounds.len() <= 2 => {
                times(interval, time, bounds)
            }
            (Mark::DateBin, [interval, time, origin @ ..]) if origin.len() <= 1 => {
                times(interval, time, origin)
            }
            (Mark::Locf, [value]) => Some(vec![value.clone()]),
            (Mark::Interpolate, [value]) if value.is_numeric() || value.is_null() => {
                Some(vec![DataType::Float64])
            }
            _ => None,
        };
        match coerced {
            Some(types) => Ok(types),
            None => {
                let given: Vec<String> = args.iter().map(ToString::to_string).collect();
                plan_err!("expected {}, not {}({})", self.mark.usage(), self.mark.name(), given.join(", "))
            }
        }
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{}", self.mark.misplaced())
    }
}

/// Returns the types of an interval, a time, and other times as `date_bin` takes them.
fn times(interval: &DataType, time: &DataType, others: &[DataType]) -> Option<Vec<DataType>> {
    let interval = match interval {
        DataType::Interval(_)
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Null => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => return None,
    };
    let time = match time {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => return None,
    };
    let is_time = |ty: &DataType| {
        matches!(ty, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Utf8)
            || matches!(ty, DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
    };
    if !others.iter().all(is_time) {
        return None;
    }
    Some([interval, time.clone()].into_iter().chain(others.iter().map(|_| time.clone())).collect())
}
