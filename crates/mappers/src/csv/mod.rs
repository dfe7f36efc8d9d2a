//! Rows of values with a delimiter between them, such as `WSO2,55.6,100`.

mod rows;
mod sink;
mod source;

use tidemill_connect::{OptionError, OptionSpec, Options};

pub(crate) use self::sink::CsvSinkType;
pub(crate) use self::source::CsvSourceType;

const DELIMITER: OptionSpec =
    OptionSpec::text("delimiter", "Text between two values; `\\t` stands for a tab.").default(",");

/// Returns the text between values.
///
/// Errors: it is empty, or has a quote or the end of a line.
fn delimiter(options: &Options) -> Result<String, OptionError> {
    let text = options.text("delimiter").replace("\\t", "\t");
    match text.is_empty() || text.contains(['"', '\n', '\r']) {
        true => {
            let error = OptionError::option("delimiter", "expected a text without quotes and ends of lines");
            Err(error.of_mapper().expected(["','", "';'", "'\\t'"]))
        }
        false => Ok(text),
    }
}
