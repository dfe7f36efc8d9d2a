//! Pairs of keys and values, such as `symbol:'WSO2',price:55.6`.

mod pairs;
mod sink;
mod source;

use tidemill_connect::{OptionError, OptionSpec, Options};

use self::pairs::PairText;
pub(crate) use self::sink::KeyValueSinkType;
pub(crate) use self::source::KeyValueSourceType;

const DELIMITER: OptionSpec = OptionSpec::text("delimiter", "Text between two pairs.").default(",");

const SEPARATOR: OptionSpec =
    OptionSpec::text("key.value.separator", "Text between a key and its value.").default(":");

/// A pair of a message of this format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Key, without quotes.
    pub key: String,
    /// Value, without quotes.
    pub value: String,
    /// True if the value was in quotes.
    pub quoted: bool,
}

/// Parses a message that the mapper `keyvalue` has made with its default options.
///
/// Errors: what was expected and where; a key that occurs twice.
pub fn parse_pairs(text: &str) -> Result<Vec<Pair>, String> {
    let layout = Layout { delimiter: ",".to_owned(), separator: ":".to_owned() };
    let pairs = pairs::parse(text, &layout)?;
    Ok(pairs.into_iter().map(|(key, PairText { text, quoted })| Pair { key, value: text, quoted }).collect())
}

/// Text between pairs, and between keys and values.
struct Layout {
    delimiter: String,
    separator: String,
}

impl Layout {
    /// Errors: an empty text, or one with quotes or escapes.
    fn new(options: &Options) -> Result<Self, OptionError> {
        let text = |name: &str| {
            let text = options.text(name).replace("\\n", "\n").replace("\\t", "\t");
            match text.is_empty() || text.contains(['\'', '"', '\\']) {
                true => Err(OptionError::option(name, "expected a text without quotes and `\\`").of_mapper()),
                false => Ok(text),
            }
        };
        let layout = Self { delimiter: text("delimiter")?, separator: text("key.value.separator")? };
        match layout.delimiter == layout.separator {
            true => {
                let message = "the texts between pairs and between keys and values are the same";
                Err(OptionError::option("delimiter", message).of_mapper())
            }
            false => Ok(layout),
        }
    }
}
