//! `format('%s of %I', a, b)`: texts put together by a pattern.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::pg_catalog::quoting::quoted;

/// Name of the function.
pub(super) const FORMAT: &str = "format";

/// Returns the function. It has the marks `%s`, `%I`, `%L`, `%%`, and those with a position such as `%2$s`.
pub(super) fn format() -> ScalarUDF {
    Format { signature: Signature::user_defined(Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Format {
    signature: Signature,
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &str {
        FORMAT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.is_empty() {
            true => plan_err!("there is no function format of no arguments: expected format('%s', value)"),
            // every value is written as a text
            false => Ok(vec![DataType::Utf8; given.len()]),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = args.args.iter().map(|arg| Ok(cast(&arg.to_array(args.number_rows)?, &DataType::Utf8)?));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        let texts: Vec<&StringArray> = arrays.iter().map(|array| array.as_string::<i32>()).collect();
        let Some((patterns, values)) = texts.split_first() else {
            return exec_err!("format takes a pattern");
        };
        let rows = (0..args.number_rows).map(|row| match patterns.is_null(row) {
            true => Ok(None),
            false => {
                let values: Vec<Option<&str>> =
                    values.iter().map(|of| of.is_valid(row).then(|| of.value(row))).collect();
                formatted(patterns.value(row), &values).map(Some)
            }
        });
        Ok(ColumnarValue::Array(Arc::new(rows.collect::<Result<StringArray>>()?)))
    }
}

fn formatted(pattern: &str, values: &[Option<&str>]) -> Result<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if !digits.is_empty() {
            if chars.next() != Some('$') {
                return exec_err!(
                    "widths in format are not supported: write %s, %I, %L, or a position such as %1$s"
                );
            }
            next = digits.parse::<usize>().unwrap_or(0).wrapping_sub(1);
        }
        let mark = chars.next();
        if mark == Some('%') {
            out.push('%');
            continue;
        }
        let Some(value) = values.get(next) else { return exec_err!("too few arguments for format()") };
        next += 1;
        match (mark, value) {
            (Some('s'), value) => out.push_str(value.unwrap_or_default()),
            (Some('I'), Some(value)) => out.push_str(&quoted(value)),
            (Some('I'), None) => return exec_err!("null values cannot be formatted as an SQL identifier"),
            (Some('L'), Some(value)) => out.push_str(&format!("'{}'", value.replace('\'', "''"))),
            (Some('L'), None) => out.push_str("NULL"),
            (other, _) => {
                let mark = other.map_or_else(String::new, String::from);
                return exec_err!("unrecognized format() type specifier \"{mark}\": write %s, %I or %L");
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::formatted;

    #[test]
    fn marks_are_replaced() {
        let values = [Some("a"), Some("B c"), None];
        for (pattern, text) in [
            ("%s.%I", Some("a.\"B c\"")),
            ("%2$I-%1$L-%3$L %%", Some("\"B c\"-'a'-NULL %")),
            ("%3$s", Some("")),
            ("%3$I", None),
            ("%s%s%s%s", None),
            ("%5d", None),
            ("%", None),
            ("%0$s", None),
        ] {
            assert_eq!(formatted(pattern, &values).ok().as_deref(), text, "{pattern}");
        }
    }
}
