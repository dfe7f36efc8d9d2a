//! `to_timestamp(text, format)` and `to_date(text, format)`, with the patterns of PostgreSQL; a format with `%` is one of
//! strftime.
//!
//! Times have microseconds, so that the years 1 to 9999 can be read.

mod template;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use tidemill_types::{Error, budget};

use crate::error::to_datafusion;
use crate::times::CivilTime;
use template::InputFormat;

const DAY: i64 = 86_400_000_000;

/// Registers the functions in place of DataFusion's.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for (kind, name) in [(Kind::Time, "to_timestamp"), (Kind::Date, "to_date")] {
        let inner = state.udf(name)?;
        state.register_udf(Arc::new(FromChar::new(kind, inner).into()))?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Time,
    Date,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FromChar {
    kind: Kind,
    /// DataFusion's function, for one argument.
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl FromChar {
    fn new(kind: Kind, inner: Arc<ScalarUDF>) -> Self {
        Self { kind, inner, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn usage(&self) -> &'static str {
        match self.kind {
            Kind::Time => {
                "to_timestamp(text, 'YYYY-MM-DD HH24:MI:SS') or to_timestamp(text, '%Y-%m-%d %H:%M:%S')"
            }
            Kind::Date => "to_date(text, 'YYYY-MM-DD') or to_date(text, '%Y-%m-%d')",
        }
    }

    fn result_type(&self) -> DataType {
        match self.kind {
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Date => DataType::Date32,
        }
    }

    /// Reads texts; `formats` are those of each row.
    fn read<'f>(
        &self,
        texts: &ArrayRef,
        formats: impl Fn(usize) -> Result<Vec<&'f str>>,
    ) -> Result<ArrayRef> {
        let texts = texts.as_string::<i32>();
        let mut parsed: Vec<(&'f str, Format)> = vec![];
        let mut times: Vec<Option<i64>> = Vec::with_capacity(texts.len());
        for row in 0..texts.len() {
            budget::step().map_err(|stop| to_datafusion(stop.into()))?;
            let formats = formats(row)?;
            if texts.is_null(row) || formats.is_empty() {
                times.push(None);
                continue;
            }
            times.push(Some(self.read_one(texts.value(row), &formats, &mut parsed)?));
        }
        Ok(match self.kind {
            Kind::Time => Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
            Kind::Date => {
                // days of the years 1 to 9999 are small
                let days = times.into_iter().map(|time| time.map(|t| t.div_euclid(DAY) as i32));
                Arc::new(days.collect::<Date32Array>())
            }
        })
    }

    /// Reads a text by the first of the formats that fits.
    fn read_one<'f>(
        &self,
        text: &str,
        formats: &[&'f str],
        parsed: &mut Vec<(&'f str, Format)>,
    ) -> Result<i64> {
        let refused = |why: String, format: &str| {
            let name = self.name();
            to_datafusion(Error::invalid(format!("`{name}`, format '{format}', text '{text}': {why}")))
        };
        let mut first = None;
        for format in formats {
            let known = parsed.iter().position(|(known, _)| known == format);
            let index = match known {
                Some(index) => index,
                None => {
                    let template = Format::parse(format).map_err(|why| refused(why, format))?;
                    parsed.push((format, template));
                    parsed.len() - 1
                }
            };
            match parsed[index].1.read(text) {
                Ok(time) => return Ok(time),
                Err(why) => first = first.or_else(|| Some(refused(why, format))),
            }
        }
        Err(first.unwrap_or_else(|| refused("there is no format".to_owned(), "")))
    }
}

/// A format that is parsed.
enum Format {
    Patterns(InputFormat),
    /// One of strftime.
    Strftime(String),
}

impl Format {
    fn parse(format: &str) -> Result<Self, String> {
        match format.contains('%') {
            true => Ok(Self::Strftime(format.to_owned())),
            false => InputFormat::parse(format).map(Self::Patterns),
        }
    }

    /// Reads a time, in microseconds since 1970.
    fn read(&self, text: &str) -> Result<i64, String> {
        let format = match self {
            Self::Patterns(template) => return template.read(text),
            Self::Strftime(format) => format,
        };
        // a time with a zone, a time in UTC, or a date
        let micros = DateTime::parse_from_str(text, format)
            .map(|time| time.timestamp_micros())
            .or_else(|_| {
                NaiveDateTime::parse_from_str(text, format).map(|time| time.and_utc().timestamp_micros())
            })
            .or_else(|_| {
                NaiveDate::parse_from_str(text, format)
                    .map(|day| day.and_time(NaiveTime::MIN).and_utc().timestamp_micros())
            })
            .map_err(|e| e.to_string())?;
        let year = CivilTime::of(micros).year;
        match (1..=9999).contains(&year) {
            true => Ok(micros),
            false => Err(format!("the year is {year}, expected 1 to 9999")),
        }
    }
}

impl ScalarUDFImpl for FromChar {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Time => "to_timestamp",
            Kind::Date => "to_date",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [_] => self.inner.return_type(args),
            _ => Ok(self.result_type()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [_] => self.inner.return_field_from_args(args),
            _ => Ok(Arc::new(arrow::datatypes::Field::new(self.name(), self.result_type(), true))),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |ty: &DataType| {
            matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
        };
        match args {
            [one] => Ok(vec![one.clone()]),
            [_, ..] if args.iter().all(is_text) => Ok(vec![DataType::Utf8; args.len()]),
            _ => plan_err!("expected {}", self.usage()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, formats @ ..] = args.args.as_slice() else {
            return plan_err!("expected {}", self.usage());
        };
        if formats.is_empty() {
            return self.inner.invoke_with_args(args);
        }
        let constants: Option<Vec<Option<&str>>> = formats
            .iter()
            .map(|format| match format {
                ColumnarValue::Scalar(format) => format.try_as_str(),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        if let Some(constants) = constants {
            let constants: Vec<&str> = constants.into_iter().flatten().collect();
            let is_scalar = matches!(texts, ColumnarValue::Scalar(_));
            let values = texts.to_array(if is_scalar { 1 } else { args.number_rows })?;
            let read = self.read(&values, |_| Ok(constants.clone()))?;
            return Ok(match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&read, 0)?),
                false => ColumnarValue::Array(read),
            });
        }
        let formats: Vec<ArrayRef> =
            formats.iter().map(|format| format.to_array(args.number_rows)).collect::<Result<_>>()?;
        let of_row = |row: usize| {
            let given = formats.iter().map(|formats| formats.as_string::<i32>());
            let given: Vec<&str> =
                given.filter(|formats| formats.is_valid(row)).map(|formats| formats.value(row)).collect();
            Ok(given)
        };
        let texts = texts.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(self.read(&texts, of_row)?))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
