//! `to_char(time, format)` and `to_char(number, format)`, with the patterns of PostgreSQL; a format of a time with `%` is
//! one of strftime, which DataFusion's own function writes.

mod number;
mod time;

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::functions::datetime::{to_char as inner, to_local_time};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_types::Error;

use crate::error::to_datafusion;

pub(super) use time::{DAYS, MONTHS, PATTERNS, ROMAN};

const USAGE: &str =
    "to_char(time, 'YYYY-MM-DD HH24:MI'), to_char(time, '%Y-%m-%d %H:%M') or to_char(number, '999.99')";

/// Returns the function.
pub(super) fn to_char() -> Arc<ScalarUDF> {
    Arc::new(ToChar::new().into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
    aliases: Vec<String>,
}

impl ToChar {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: vec!["date_format".to_owned()],
        }
    }
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        let [value, format] = args else { return plan_err!("expected {USAGE}") };
        let is_text =
            matches!(format, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null);
        let value = match value {
            DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_) => value.clone(),
            DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
            ty if ty.is_numeric() => ty.clone(),
            _ => return plan_err!("expected {USAGE}"),
        };
        match is_text {
            true => Ok(vec![value, DataType::Utf8]),
            false => plan_err!("expected {USAGE}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [_, ColumnarValue::Scalar(ScalarValue::Utf8(None))] => {
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(None)))
            }
            [value, ColumnarValue::Scalar(ScalarValue::Utf8(Some(format)))] => {
                let (ty, format) = (value.data_type(), format.clone());
                if !ty.is_numeric() && (format.contains('%') || matches!(ty, DataType::Duration(_))) {
                    return inner().invoke_with_args(args);
                }
                let scalar = matches!(value, ColumnarValue::Scalar(_));
                let rows = if scalar { 1 } else { args.number_rows };
                let values = value.to_array(rows)?;
                let texts = formatted(&values, &format, &args)?;
                match scalar {
                    true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
                    false => Ok(ColumnarValue::Array(texts)),
                }
            }
            [value, formats] => {
                // another format for each row
                let (values, formats) =
                    (value.to_array(args.number_rows)?, formats.to_array(args.number_rows)?);
                let formats = formats.as_string::<i32>();
                let mut texts: Vec<Option<String>> = Vec::with_capacity(args.number_rows);
                for row in 0..args.number_rows {
                    let format = formats.is_valid(row).then(|| formats.value(row).to_owned());
                    let one = ScalarFunctionArgs {
                        args: vec![
                            ColumnarValue::Scalar(ScalarValue::try_from_array(&values, row)?),
                            ColumnarValue::Scalar(ScalarValue::Utf8(format)),
                        ],
                        number_rows: 1,
                        ..args.clone()
                    };
                    texts.push(match self.invoke_with_args(one)? {
                        ColumnarValue::Scalar(text) => text.try_as_str().flatten().map(str::to_owned),
                        ColumnarValue::Array(text) => {
                            ScalarValue::try_from_array(&text, 0)?.try_as_str().flatten().map(str::to_owned)
                        }
                    });
                }
                Ok(ColumnarValue::Array(Arc::new(StringArray::from(texts)) as ArrayRef))
            }
            _ => exec_err!("expected {USAGE}"),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        static DOCUMENTATION: LazyLock<Option<Documentation>> =
            LazyLock::new(|| inner().inner().documentation().cloned());
        DOCUMENTATION.as_ref()
    }
}

/// Writes values with one format.
fn formatted(values: &ArrayRef, format: &str, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let refused = |why: String| to_datafusion(Error::invalid(format!("`to_char`, format '{format}': {why}")));
    if values.data_type().is_numeric() {
        let template = number::NumberFormat::parse(format).map_err(refused)?;
        let texts = cast(values, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>().iter().map(|text| text.map(|text| template.write(text)));
        return Ok(Arc::new(texts.collect::<StringArray>()));
    }
    let (values, utc) = match values.data_type() {
        DataType::Timestamp(_, Some(zone)) if !matches!(zone.as_ref(), "UTC" | "+00:00" | "Z") => {
            let local = ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(values.clone())],
                number_rows: values.len(),
                return_field: Arc::new(arrow::datatypes::Field::new(
                    "",
                    without_zone(values.data_type()),
                    true,
                )),
                ..args.clone()
            };
            (to_local_time().invoke_with_args(local)?.to_array(values.len())?, false)
        }
        _ => (values.clone(), true),
    };
    let template = time::TimeFormat::parse(format, utc).map_err(refused)?;
    let micros: ArrayRef = match values.data_type() {
        DataType::Time32(_) | DataType::Time64(_) => {
            let times = cast(&values, &DataType::Time64(TimeUnit::Microsecond))?;
            cast(&times, &DataType::Int64)?
        }
        DataType::Timestamp(_, zone) => {
            let times = cast(&values, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            Arc::new(times.as_primitive::<TimestampMicrosecondType>().reinterpret_cast::<Int64Type>())
        }
        _ => {
            let times = cast(&values, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            Arc::new(times.as_primitive::<TimestampMicrosecondType>().reinterpret_cast::<Int64Type>())
        }
    };
    let texts = micros.as_primitive::<Int64Type>().iter().map(|time| time.map(|time| template.write(time)));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

fn without_zone(ty: &DataType) -> DataType {
    match ty {
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, None),
        ty => ty.clone(),
    }
}
